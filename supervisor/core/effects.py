"""What the core wants done. The driver carries these out in order and decides nothing."""

from msgspec import Struct

from fanjoin.ipc.messages import ToAgent, ToViewer
from fanjoin.ipc.settings import Endpoint
from fanjoin.supervisor.questions import Question
from fanjoin.supervisor.records import Record


class Persist(Struct, frozen=True, kw_only=True):
    """Write records in one transaction and answer with ``Recorded``."""

    ticket: int
    records: list[Record]


class Ask(Struct, frozen=True, kw_only=True):
    """Ask the store, which has written everything handed to it before, and answer with ``Answered``."""

    ticket: int
    question: Question


class Snapshot(Struct, frozen=True, kw_only=True):
    """Tell a viewer what a session holds; ``sequence`` is the number of its last event just now."""

    viewer: str
    request_id: str
    session_id: str
    sequence: int
    created: bool = False


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


Effect = Persist | Ask | Snapshot | Launch | Send | Stop | Tell
