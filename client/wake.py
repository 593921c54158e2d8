"""A socket that wakes a poll: from another thread, or from a signal that arrived."""

import contextlib
import signal
import socket
from types import TracebackType
from typing import Self


class Wake:
    """Readable after ``set()`` was called or a signal was delivered. Used by one thread at a time."""

    def __init__(self) -> None:
        self._receive, self._send = socket.socketpair()
        self._receive.setblocking(False)
        self._send.setblocking(False)
        self._previous = -1

    def __enter__(self) -> Self:
        """Let signals wake it too, when this is the main thread."""
        try:
            self._previous = signal.set_wakeup_fd(self._send.fileno(), warn_on_full_buffer=False)
        except ValueError:
            self._previous = -1
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(ValueError):
            signal.set_wakeup_fd(self._previous)
        self._receive.close()
        self._send.close()

    def fileno(self) -> int:
        """Return the descriptor to poll."""
        return self._receive.fileno()

    def set(self) -> None:
        """Make it readable."""
        try:
            self._send.send(b"\0")
        except OSError:
            return  # full, so it is readable; or closed, so nobody waits

    def clear(self) -> None:
        """Read what made it readable."""
        try:
            self._receive.recv(4096)
        except BlockingIOError:
            return
