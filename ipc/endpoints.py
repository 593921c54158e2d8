"""Where the processes of one run meet: sockets in a private folder, or loopback TCP with CURVE.

``ipc://`` is used where ZeroMQ has it (POSIX): the folder's mode 0700 is the guard, and nothing is encrypted.
``tcp://`` binds 127.0.0.1 on a port that the system gives and authenticates each client's key by ZAP; an
unauthenticated CURVE server would let in anyone who knows its public key.
"""

import sys
from pathlib import Path

from msgspec import Struct


class Endpoints(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a client needs to reach a supervisor. Keys are Z85 text and empty with ``ipc://``."""

    back: str = ""
    front: str = ""
    spool: str = ""
    server_key: str = ""
    client_public: str = ""
    client_secret: str = ""


def transport_for(choice: str) -> str:
    """Return ``ipc`` or ``tcp`` for the configured choice (``auto``, ``ipc`` or ``tcp``)."""
    if choice != "auto":
        return choice
    return "tcp" if sys.platform == "win32" else "ipc"


def ipc_endpoints(folder: Path) -> Endpoints:
    """Return the endpoints below a private folder, whose path must leave room for a socket name (107 bytes in all)."""
    return Endpoints(back=f"ipc://{folder / 'b'}", front=f"ipc://{folder / 'f'}", spool=str(folder / "spool"))
