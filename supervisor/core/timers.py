"""Deadlines by name, on a monotonic clock that may jump when the machine or the process was stopped."""

MAX_BEAT = 5.0
"""Seconds. The driver asks every second; a longer silence means that nothing ran, not that a child stalled."""


class Timers:
    """A set of named deadlines; setting a name again moves it."""

    def __init__(self) -> None:
        self._deadlines: dict[tuple[str, str], float] = {}
        self._seen: float | None = None

    def set(self, owner: str, kind: str, when: float) -> None:
        """Arm a deadline."""
        self._deadlines[owner, kind] = when

    def clear(self, owner: str, *kinds: str) -> None:
        """Disarm deadlines; those that are not armed are fine."""
        for kind in kinds:
            self._deadlines.pop((owner, kind), None)

    def has(self, owner: str, kind: str) -> bool:
        """Say whether a deadline is armed."""
        return (owner, kind) in self._deadlines

    def hasten(self, owner: str, kind: str, when: float) -> None:
        """Arm a deadline, or move an armed one forward, never back."""
        self._deadlines[owner, kind] = min(when, self._deadlines.get((owner, kind), when))

    def next(self) -> float | None:
        """Return the earliest deadline."""
        return min(self._deadlines.values(), default=None)

    def observe(self, now: float) -> None:
        """Note the time; after a gap in which nothing ran, move every deadline by that gap."""
        gap = 0.0 if self._seen is None else now - self._seen
        if gap > MAX_BEAT:
            for key in self._deadlines:
                self._deadlines[key] += gap
        self._seen = now

    def due(self, now: float) -> list[tuple[str, str]]:
        """Remove and return the deadlines that have passed, earliest first."""
        passed = sorted((when, key) for key, when in self._deadlines.items() if when <= now)
        for _, key in passed:
            del self._deadlines[key]
        return [key for _, key in passed]
