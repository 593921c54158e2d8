"""Server-sent events, read as the bytes arrive (WHATWG HTML, section 9.2.6).

Only what the model APIs use: the data of each event. ``event``, ``id`` and ``retry`` fields and comments are skipped.
An error that a server writes into a stream without the frame of an event is taken for one: nothing else would tell it.
"""

from collections.abc import Iterator

_BOM = b"\xef\xbb\xbf"


class EventReader:
    """Splits a byte stream into the data of its events, whatever the boundaries of the reads.

    Lines end in LF, CRLF or CR. Bytes are decoded by the caller, one event at a time, so that a character that is
    split between two reads needs no care here.
    """

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._data: list[bytes] = []
        self._at_start = True
        self._after_cr = False

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Yield the data of each event that ends within this chunk."""
        if self._after_cr and chunk:
            chunk = chunk.removeprefix(b"\n")
            self._after_cr = False
        if b"\n" not in chunk and b"\r" not in chunk:
            if chunk:
                self._pieces.append(chunk)
            return
        # A long line arrives in many pieces: joining them only when it ends keeps the cost linear.
        whole = b"".join((*self._pieces, chunk))
        self._after_cr = whole.endswith(b"\r")
        *lines, rest = whole.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        self._pieces = [rest] if rest else []
        for line in lines:
            yield from self._line(line)

    def close(self) -> Iterator[bytes]:
        """Yield what the end of the stream completes: servers forget the last empty line."""
        last, self._pieces = b"".join(self._pieces), []
        if last:
            yield from self._line(last)
        yield from self._dispatch()

    def _line(self, line: bytes) -> Iterator[bytes]:
        if self._at_start:
            self._at_start = False
            line = line.removeprefix(_BOM)
        if not line:
            yield from self._dispatch()
        elif line.startswith(b"data:"):
            value = line[5:]
            self._data.append(value[1:] if value.startswith(b" ") else value)
        elif line == b"data":
            self._data.append(b"")
        elif line.startswith((b"error: {", b"error:{")):  # llama.cpp before its autumn of 2025
            self._data.append(b'{"error":' + line[6:] + b"}")
        elif line.startswith((b'{"error"', b'{ "error"')):  # gateways that pass on a body of another status
            self._data.append(line)

    def _dispatch(self) -> Iterator[bytes]:
        data, self._data = self._data, []
        if data:
            yield data[0] if len(data) == 1 else b"\n".join(data)
