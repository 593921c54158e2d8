"""What a command printed, in bounded memory: its beginning and its end."""

import threading

HEAD_BYTES = 12_000
TAIL_BYTES = 12_000


class Output:
    """Takes bytes from one thread and shows them to another."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._head = bytearray()
        self._tail = bytearray()
        self._size = 0

    def add(self, data: bytes) -> None:
        """Take what was printed."""
        with self._lock:
            self._size += len(data)
            room = HEAD_BYTES - len(self._head)
            if room > 0:
                self._head += data[:room]
                data = data[room:]
            self._tail += data
            if len(self._tail) > 2 * TAIL_BYTES:
                del self._tail[:-TAIL_BYTES]

    def text(self) -> str:
        """Return the beginning and the end, with a line that says how much is missing between them."""
        with self._lock:
            head, tail, size = bytes(self._head), bytes(self._tail[-TAIL_BYTES:]), self._size
        missing = size - len(head) - len(tail)
        if not missing:
            return (head + tail).decode("utf-8", "replace")
        parts = (head.decode("utf-8", "replace"), tail.decode("utf-8", "replace"))
        return f"\n[... {missing} bytes left out ...]\n".join(parts)
