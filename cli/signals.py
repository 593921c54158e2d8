"""Ctrl-C and its kin: noted when they arrive, acted upon by whoever waits. The third one ends the process at once."""

import os
import signal
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from fanjoin.ipc.errors import RunError

_NAMES = ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK")
_PATIENCE = 3
"""So many signals mean that the caller will wait no longer; the lifelines do the rest."""


class InterruptedRunError(RunError):
    """A signal arrived before there was a turn that could be cancelled."""

    reason = "cancelled"


class Interrupts:
    """The signals that ask this process to end."""

    def __init__(self) -> None:
        self.first: int | None = None
        self._count = 0
        self._raising = False
        self._unread: deque[bool] = deque()

    def listen(self) -> None:
        """Take the signals over. One that was inherited as ignored stays ignored (nohup relies on it)."""
        for name in _NAMES:
            number = getattr(signal, name, None)
            if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._note)

    def _note(self, number: int, _: FrameType | None) -> None:
        self._count += 1
        if self.first is None:
            self.first = number
        if self._count >= _PATIENCE:
            os._exit(self.exit_code())
        self._unread.append(self._count > 1)
        self._raise_if_wanted()

    @contextmanager
    def raising(self) -> Iterator[None]:
        """Let a signal end what is being waited for, such as the end of standard input.

        Raises:
            InterruptedRunError: one arrived, or had arrived before.
        """
        self._raising = True
        try:
            if self.first is not None:
                self._raise_if_wanted()
            yield
        finally:
            self._raising = False

    def _raise_if_wanted(self) -> None:
        if self._raising:
            raise InterruptedRunError("Interrupted before the turn began. None of it runs.")

    def take(self) -> bool | None:
        """Return the next interrupt that nobody acted upon: False for the first one, True (now!) for another."""
        return self._unread.popleft() if self._unread else None

    def exit_code(self) -> int:
        """Return the exit code that shells give a process which such a signal ended."""
        if self.first is None or sys.platform == "win32":
            return 128 + signal.SIGINT
        return 128 + self.first
