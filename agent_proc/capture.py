"""What a program prints, read as it comes and kept within bounds: the beginning and the end of it."""

import os
import threading
import time
from collections import deque
from typing import IO

from fanjoin.ipc.text import clean

_BLOCK = 1 << 16
_STILL_SECONDS = 0.2
_PATIENCE_SECONDS = 2.0


class Capture:
    """Reads a pipe to its end in a thread of its own.

    Args:
        stream: the readable end.
        limit: how many bytes are kept; of a longer output half from the beginning and half from the end.
    """

    def __init__(self, stream: IO[bytes], limit: int) -> None:
        self.size = 0
        self._stream = stream
        self._half = limit // 2
        self._head = bytearray()
        self._tail: deque[bytes] = deque()
        self._tail_size = 0
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    @property
    def left_out(self) -> int:
        """Return how many bytes in the middle were not kept."""
        return self.size - len(self._head) - self._tail_size

    def settle(self) -> None:
        """Wait for the end, or until nothing comes any more: something that outlives the program may hold the pipe."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        seen = -1
        while self._thread.is_alive() and seen != self.size and time.monotonic() < deadline:
            seen = self.size
            self._thread.join(_STILL_SECONDS)

    def text(self) -> str:
        """Return what was kept, with a line where something is missing; what is not UTF-8 is replaced."""
        missing = f"\n[... {self.left_out} bytes left out ...]\n".encode() if self.left_out else b""
        return clean((bytes(self._head) + missing + b"".join(list(self._tail))).decode("utf-8", "replace"))

    def _read(self) -> None:
        while data := os.read(self._stream.fileno(), _BLOCK):
            self._keep(data)
        self._stream.close()

    def _keep(self, data: bytes) -> None:
        self.size += len(data)
        room = self._half - len(self._head)
        self._head += data[:room]
        if rest := data[room:]:
            self._tail.append(rest)
            self._tail_size += len(rest)
            while self._tail_size - len(self._tail[0]) >= self._half:
                self._tail_size -= len(self._tail.popleft())
