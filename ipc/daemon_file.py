"""The ready descriptor of a daemon: who reads it finds the process, the gateway and the private socket."""

from pathlib import Path

import msgspec
from msgspec import Struct

from fanjoin.ipc.paths import daemon_file


class DaemonDescriptor(Struct, frozen=True, kw_only=True):
    """A daemon that was ready when this was written; ``started_at`` is Unix seconds.

    ``token`` opens the gateway at ``url``. The folder of ``instance_id`` below ``run/`` holds the lock that says
    whether the daemon lives, and the endpoints of its private socket.
    """

    pid: int
    url: str
    token: str
    instance_id: str
    started_at: float
    version: str


def read_descriptor(home: Path) -> DaemonDescriptor | None:
    """Return the descriptor under a home; None when there is none that can be read."""
    try:
        return msgspec.json.decode(daemon_file(home).read_bytes(), type=DaemonDescriptor)
    except (OSError, msgspec.MsgspecError):
        return None
