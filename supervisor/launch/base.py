"""The seam between the driver and whatever starts processes."""

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from fanjoin.ipc import platform
from fanjoin.supervisor.exit_cause import Exit

LOG_TAIL_BYTES = 4_000
LOG_LIMIT_BYTES = 16 << 20


class Order(Struct, frozen=True, kw_only=True):
    """One process to start: its bootstrap frame, whether its model is behind https, and the file for what it prints."""

    attempt_id: str
    bootstrap: bytes
    log: Path
    tls: bool = False


class Report(Protocol):
    """What a launcher tells the driver; each is called on the loop's thread."""

    def launched(self, attempt_id: str, pid: int) -> None:
        """Tell that the process exists."""

    def failed(self, attempt_id: str, message: str) -> None:
        """Tell that no process could be started."""

    def exited(self, attempt_id: str, end: Exit) -> None:
        """Tell that the process ended. It is reaped; what it left behind may live."""


class Launcher(Protocol):
    """Starts processes. The driver is its only caller."""

    backstop: int
    """A descriptor that each process inherits and arms against our death, or -1."""

    def launch(self, order: Order) -> None:
        """Start a process; the report says later how it went. Called when the intent is committed."""

    def release(self, attempt_id: str) -> None:
        """Close our end of a dead process's lifeline. Called once, after ``exited``."""

    def beat(self, now: float) -> None:
        """Do something about what has waited too long. Called about once a second, with monotonic seconds."""

    def pids(self) -> set[int]:
        """Return every process that is ours to know: agents, spares, helpers. All others below us are leftovers."""

    def close(self) -> None:
        """End the launcher itself. Called when no agent is left."""


class OomWatch:
    """Tells a SIGKILL of the kernel for memory from any other, by the count that the cgroup keeps."""

    def __init__(self, count: Callable[[], int | None] = platform.oom_kills) -> None:
        self._count = count
        self._seen = count()

    def moved(self) -> bool:
        """Say whether the count rose since this was last asked."""
        before, self._seen = self._seen, self._count()
        return before is not None and self._seen is not None and self._seen > before
