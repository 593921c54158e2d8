"""What dead agents left behind is ended before their slot is free."""

from collections.abc import Callable

from msgspec import Struct

from fanjoin.ipc import platform

RESCAN_SECONDS = 0.005
SLOW_RESCAN_SECONDS = 1.0
SLOW_AFTER = 200
"""Scans. What does not go within a second of SIGKILLs hangs in the kernel; look less often then, but keep looking."""


class _Dead(Struct):
    attempt_id: str
    pid: int


class Undertaker:
    """Scans for leftovers of dead agents and kills them, until there are none.

    Args:
        known: returns the processes that are none.
        gone: called with an attempt of whose tree nothing is left.
    """

    def __init__(self, known: Callable[[], set[int]], gone: Callable[[str], None]) -> None:
        self._known = known
        self._gone = gone
        self._dead: list[_Dead] = []
        self._scans = 0
        self._next = 0.0

    def add(self, attempt_id: str, pid: int, *, childless: bool, now: float) -> None:
        """Take over a dead agent. ``childless``: it had asked the kernel before it exited, and had no child."""
        if childless:
            self._gone(attempt_id)
            return
        self._dead.append(_Dead(attempt_id, pid))
        self._scans = 0
        self._next = now

    def due(self) -> float | None:
        """Return when the next scan is due, on the clock that ``step`` is given."""
        return self._next if self._dead else None

    def step(self, now: float) -> None:
        """Scan when it is time."""
        if not self._dead or now < self._next:
            return
        known = self._known()
        remaining = []
        for dead in self._dead:
            left = platform.leftovers(dead.pid, dead.attempt_id, known)
            for pid in left:
                platform.end_process(pid)
            if left:
                remaining.append(dead)
            else:
                self._gone(dead.attempt_id)
        self._dead = remaining
        self._scans += 1
        self._next = now + (RESCAN_SECONDS if self._scans < SLOW_AFTER else SLOW_RESCAN_SECONDS)
