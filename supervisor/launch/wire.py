"""What supervisor and zygote say to each other: one datagram, one struct; a fork request carries two descriptors."""

import msgspec
from msgspec import Struct

MAX_DATAGRAM = 4096


class Fork(Struct, frozen=True, tag="fork"):
    """Fork an agent. With it come the read end of its lifeline and the file that gets its output.

    ``tls``: its model is behind https, so agents are to share one set of parsed certificates (50 ms, 20 MiB).
    """

    attempt_id: str
    tls: bool = False


class Reap(Struct, frozen=True, tag="reap"):
    """The supervisor holds what it needs of this process; its entry in the process table may go."""

    pid: int


class Quit(Struct, frozen=True, tag="quit"):
    """No agent is left; end."""


class Ready(Struct, frozen=True, tag="ready"):
    """Everything that agents need is imported; ``threads`` must be 1, or a fork would not be safe."""

    threads: int


class Forked(Struct, frozen=True, tag="forked"):
    """The agent exists."""

    attempt_id: str
    pid: int


class ForkFailed(Struct, frozen=True, tag="fork_failed"):
    """There is no agent."""

    attempt_id: str
    message: str


class Exited(Struct, frozen=True, tag="exited"):
    """The agent ended; its entry in the process table stays until ``Reap``."""

    attempt_id: str
    pid: int
    code: int | None
    signal: int | None


ToZygote = Fork | Reap | Quit
FromZygote = Ready | Forked | ForkFailed | Exited

to_zygote: msgspec.msgpack.Decoder[ToZygote] = msgspec.msgpack.Decoder(ToZygote)
from_zygote: msgspec.msgpack.Decoder[FromZygote] = msgspec.msgpack.Decoder(FromZygote)
encode = msgspec.msgpack.encode
