"""What the core wants done. The driver carries these out in order and decides nothing."""

from msgspec import Struct

from fanjoin.ipc.messages import ToAgent, ToViewer
from fanjoin.ipc.settings import Endpoint
from fanjoin.supervisor.records import Record


class Persist(Struct, frozen=True, kw_only=True):
    """Write records in one transaction and answer with ``Recorded``."""

    ticket: int
    records: list[Record]


class Launch(Struct, frozen=True, kw_only=True):
    """Start a process for an attempt; its intent is committed. ``worker``: a program does its work."""

    attempt_id: str
    depth: int
    endpoint: Endpoint
    memory_limit_mb: int
    worker: bool = False


class Send(Struct, frozen=True, kw_only=True):
    """Send a message to an agent."""

    attempt_id: str
    message: ToAgent


class Stop(Struct, frozen=True, kw_only=True):
    """End a process: politely by signal, or (``hard``) at once with everything below it."""

    attempt_id: str
    hard: bool


class Tell(Struct, frozen=True, kw_only=True):
    """Send a message to one viewer."""

    viewer: str
    message: ToViewer


Effect = Persist | Launch | Send | Stop | Tell
