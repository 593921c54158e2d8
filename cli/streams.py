"""Standard streams as they really are: closed, broken, in any encoding. Nothing here raises for what a caller did."""

import contextlib
import errno
import io
import os
import sys
from collections.abc import Callable
from typing import TextIO

from fanjoin.ipc.text import harmless

BLOCKED_SECONDS = 0.5
"""How long a reader may read nothing until we ask whether to wait any longer."""
_PIECE = 4096
"""Bytes that a pipe takes without blocking, once it takes any."""


def repair() -> None:
    """Open the null device on standard descriptors that are closed: a pipe of ours must not take their numbers."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            null = os.open(os.devnull, os.O_RDWR)
            if null != descriptor:
                os.dup2(null, descriptor)
                os.close(null)


def write_line(text: str, given_up: Callable[[], bool] = lambda: False) -> bool:
    """Write a text and one newline to standard output, as ``write_text`` does."""
    return write_text(text + "\n", given_up)


def write_text(text: str, given_up: Callable[[], bool] = lambda: False) -> bool:
    """Write a text to standard output; what its encoding cannot hold, or a terminal would obey, is replaced.

    Args:
        text: what to write.
        given_up: asked while a reader does not read: whether to wait for it no longer.

    Returns:
        False when nobody reads it any more. One that was closed from the start is nobody's concern.

    Raises:
        RunError: it cannot be written, for another reason than a reader that left.
    """
    stream = sys.stdout
    if stream is None:
        return True
    encoding = stream.encoding or "utf-8"
    try:
        data = (harmless(text) if stream.isatty() else text).encode(encoding, "replace")
        stream.flush()
        _write(stream, data, given_up)
    except OSError as error:
        silence(stream)
        _require_a_reader_that_left(error)
        return False
    return True


def _write(stream: TextIO, data: bytes, given_up: Callable[[], bool]) -> None:
    """Write everything. A signal must not wait for a reader that is stuck, and a caller may have set O_NONBLOCK."""
    from fanjoin.ipc.platform import can_write

    try:
        descriptor = stream.fileno()
    except io.UnsupportedOperation:  # a program put an object of its own in the stream's place
        stream.buffer.write(data)
        return
    rest = memoryview(data)
    while rest:
        if can_write(descriptor, BLOCKED_SECONDS):
            with contextlib.suppress(BlockingIOError):
                rest = rest[os.write(descriptor, rest[:_PIECE]) :]
        elif given_up():
            raise BrokenPipeError(errno.EPIPE, "nobody reads it")


def _require_a_reader_that_left(error: OSError) -> None:
    # Windows says EINVAL where others say EPIPE.
    if error.errno in (errno.EPIPE, errno.EINVAL):
        return
    from fanjoin.ipc.errors import RunError

    raise RunError(f"Standard output cannot be written: {error.strerror}. What came of a run is recorded.") from error


def complain(text: str, end: str = "\n") -> None:
    """Write a line to standard error, if there is one; models and tools may have had a word in it."""
    stream = sys.stderr
    if stream is None:
        return
    encoding = stream.encoding or "utf-8"
    try:
        stream.write(harmless(text).encode(encoding, "replace").decode(encoding, "replace") + end)
        stream.flush()
    except OSError:
        silence(stream)


def flush() -> None:
    """Write out what is buffered, as far as it can be."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):  # broken, closed, or not there at all
            stream.flush()


def is_terminal(descriptor: int) -> bool:
    """Say whether a descriptor is a terminal."""
    try:
        return os.isatty(descriptor)
    except OSError:
        return False


def silence(stream: TextIO) -> None:
    """Let what the interpreter still flushes at its exit go nowhere: its failure would change the exit code."""
    with contextlib.suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)
