"""The first thing a process of ours reads: one frame on its standard input, which then stays open as its lifeline.

The frame is a 4-byte big-endian length and a MessagePack map. Secrets come this way and no other: an argument list
and an environment can be read by others.
"""

import struct
from typing import BinaryIO, TypeVar

import msgspec
from msgspec import Struct

from fanjoin.ipc.endpoints import Endpoints
from fanjoin.ipc.errors import BadFrameError
from fanjoin.ipc.messages import Submit
from fanjoin.ipc.settings import Endpoint, SupervisorSettings

AGENT_LIMIT = 16 << 10
"""Bytes of an agent's bootstrap: a pipe holds 64 KiB, and the writer must never wait for a child."""
CORE_LIMIT = 256 << 20
"""Bytes of a supervisor's bootstrap, which carries the first submission."""

_LENGTH = struct.Struct(">I")

Frame = TypeVar("Frame", bound=Struct)


class AgentBootstrap(Struct, frozen=True, kw_only=True):
    """What an agent process needs before it can speak.

    ``nonce`` proves its identity in ``hello``; ``entry`` is the ``module:function`` that does the work; ``backstop`` is
    an inherited pipe whose last writer's end has to end this process too (-1: none).
    """

    run_id: str
    attempt_id: str
    nonce: str
    entry: str
    depth: int
    endpoints: Endpoints
    endpoint: Endpoint
    memory_limit_mb: int = 0
    backstop: int = -1


class CoreBootstrap(Struct, frozen=True, kw_only=True):
    """What a supervisor process needs; the pipe is its viewer's lifeline when ``owned``.

    ``agent_entry`` is the ``module:function`` that runs in each agent process, ``worker_entry`` the one for delegates
    whose work a program does. ``submit`` is a run's one turn.
    ``environ`` holds what the configuration may need of the caller's environment (URL, keys) for turns that no viewer
    brings settings for: those that a dead owner left in the queue, and results of background delegates. ``daemon``: it
    takes over what dead daemons left, too.
    """

    home: str
    instance_id: str
    owned: bool
    agent_entry: str
    settings: SupervisorSettings
    worker_entry: str = ""
    submit: Submit | None = None
    environ: dict[str, str] = {}
    daemon: bool = False


class CoreReady(Struct, frozen=True, kw_only=True):
    """What a supervisor says on its standard output, once: where it listens, or why it cannot run."""

    endpoints: Endpoints = Endpoints()
    error: str = ""
    reason: str = ""


def write_frame(stream: BinaryIO, message: Struct) -> None:
    """Write one frame and flush it."""
    stream.write(pack_frame(message))
    stream.flush()


def pack_frame(message: Struct, limit: int = CORE_LIMIT) -> bytes:
    """Return the bytes of one frame.

    Raises:
        BadFrameError: the message is larger than the limit.
    """
    body = msgspec.msgpack.encode(message)
    if len(body) > limit:
        raise BadFrameError(f"a bootstrap of {len(body)} bytes is over the limit of {limit}")
    return _LENGTH.pack(len(body)) + body


def read_frame(stream: BinaryIO, kind: type[Frame], limit: int = CORE_LIMIT) -> Frame | None:
    """Read one frame; None when the stream ends before it began.

    Raises:
        BadFrameError: the stream ended in the middle, or the frame is not of this kind or too large.
    """
    head = _read_exactly(stream, _LENGTH.size)
    if not head:
        return None
    length = _LENGTH.unpack(head)[0] if len(head) == _LENGTH.size else limit + 1
    if length > limit:
        raise BadFrameError("the first frame on standard input is cut or too large")
    body = _read_exactly(stream, length)
    if len(body) != length:
        raise BadFrameError("the first frame on standard input is cut")
    try:
        return msgspec.msgpack.decode(body, type=kind)
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        raise BadFrameError(f"the first frame on standard input is not a bootstrap: {error}") from error


def _read_exactly(stream: BinaryIO, size: int) -> bytes:
    """Return ``size`` bytes, fewer only at the end: one read of an unbuffered pipe gives what it holds just now."""
    parts: list[bytes] = []
    while size > 0 and (part := stream.read(size)):
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
