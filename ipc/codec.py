"""Frames: one struct each way, with the size limit that keeps a peer from filling our memory.

A message over ``INLINE_LIMIT`` travels as a file in the run's private spool folder; the frame then names the file,
its size and its SHA-256, and the receiver removes it after reading.
"""

import contextlib
import functools
import os
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec

from fanjoin.ipc.errors import BadFrameError
from fanjoin.ipc.ids import new_secret
from fanjoin.ipc.messages import FromAgent, FromViewer, ToAgent, ToViewer

INLINE_LIMIT = 1 << 20
"""Bytes of one frame; larger messages go through the spool."""
SPOOL_LIMIT = 256 << 20
"""Bytes of one spooled message; larger ones are refused."""

_BAD = (msgspec.ValidationError, msgspec.DecodeError, RecursionError, UnicodeDecodeError)
_ENCODER = msgspec.msgpack.Encoder()

Message = TypeVar("Message")


def _digest(frame: bytes) -> str:
    import hashlib  # late: it loads OpenSSL, and few messages are large

    return hashlib.sha256(frame).hexdigest()


class Spooled(msgspec.Struct, frozen=True, kw_only=True, tag="spooled"):
    """Stands for a message whose bytes lie in the spool folder under ``name``."""

    name: str
    size: int
    sha256: str


@functools.cache
def _decoder(incoming: Any) -> msgspec.msgpack.Decoder[Any]:
    """Return the decoder of a direction, made once: it inspects every message type, and forked agents share it."""
    return msgspec.msgpack.Decoder(incoming | Spooled)


class Codec(Generic[Message]):
    """Encodes any message and decodes those of one direction.

    Args:
        incoming: the union of messages that may arrive here.
        spool: the folder for large messages; empty or None where none are expected.
    """

    def __init__(self, incoming: object, spool: Path | str | None = None) -> None:
        self._decoder: msgspec.msgpack.Decoder[Message | Spooled] = _decoder(incoming)
        self._spool = spool

    def encode(self, message: msgspec.Struct) -> bytes:
        """Return the frame of a message; a large one is written to the spool first.

        Raises:
            BadFrameError: the message is larger than the spool allows, or there is no spool.
        """
        # Encoder.encode() of msgspec 0.23 crashes where it finds no memory; into a buffer it raises MemoryError.
        buffer = bytearray()
        _ENCODER.encode_into(message, buffer)
        frame = bytes(buffer)
        return frame if len(frame) <= INLINE_LIMIT else self._to_spool(frame)

    def decode(self, frame: bytes | memoryview) -> Message:
        """Return the message of a frame.

        Raises:
            BadFrameError: not a message of this direction, too large, or its spool file is not what it says.
        """
        if len(frame) > INLINE_LIMIT:
            raise BadFrameError(f"a frame of {len(frame)} bytes is over the limit of {INLINE_LIMIT}")
        message = self._decode(frame)
        if isinstance(message, Spooled):
            message = self._decode(self._from_spool(message))
        if isinstance(message, Spooled):
            raise BadFrameError("a spooled message names another spooled message")
        return message

    def _decode(self, frame: bytes | memoryview) -> Message | Spooled:
        try:
            return self._decoder.decode(frame)
        except _BAD as error:
            raise BadFrameError(f"not a message: {error}") from error

    def _to_spool(self, frame: bytes) -> bytes:
        if not self._spool or len(frame) > SPOOL_LIMIT:
            raise BadFrameError(f"a message of {len(frame)} bytes is too large to send")
        name = new_secret()
        path = Path(self._spool, name)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(frame)
        return _ENCODER.encode(Spooled(name=name, size=len(frame), sha256=_digest(frame)))

    def _from_spool(self, spooled: Spooled) -> bytes:
        if not self._spool or not spooled.name.isalnum() or not 0 <= spooled.size <= SPOOL_LIMIT:
            raise BadFrameError("a spooled message with a bad name or size")
        path = Path(self._spool, spooled.name)
        try:
            with path.open("rb") as file:
                frame = file.read(spooled.size + 1)
            with contextlib.suppress(PermissionError):  # a virus scanner has it open; it goes with the run's folder
                path.unlink()
        except OSError as error:
            raise BadFrameError(f"a spooled message cannot be read: {error}") from error
        if len(frame) != spooled.size or _digest(frame) != spooled.sha256:
            raise BadFrameError("a spooled message is not what its frame says")
        return frame


def agent_side(spool: Path | str | None = None) -> Codec[ToAgent]:
    """Return the codec of an agent process."""
    return Codec(ToAgent, spool)


def back_side(spool: Path | None = None) -> Codec[FromAgent]:
    """Return the supervisor's codec towards agents."""
    return Codec(FromAgent, spool)


def viewer_side(spool: Path | None = None) -> Codec[ToViewer]:
    """Return the codec of a viewer."""
    return Codec(ToViewer, spool)


def front_side(spool: Path | None = None) -> Codec[FromViewer]:
    """Return the supervisor's codec towards viewers."""
    return Codec(FromViewer, spool)
