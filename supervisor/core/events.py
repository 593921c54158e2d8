"""What can happen to the core. The driver makes these from messages, process exits, commits and the clock."""

from msgspec import Struct, field

from fanjoin.ipc.messages import FromAgent, Submit
from fanjoin.ipc.session_messages import CreateSession, DeleteSession, ResolveUnknown, Subscribe, Unsubscribe
from fanjoin.supervisor.exit_cause import Exit
from fanjoin.supervisor.questions import Answer


class Submitted(Struct, frozen=True, kw_only=True):
    """A viewer handed in a turn."""

    viewer: str
    submit: Submit


class SessionAsked(Struct, frozen=True, kw_only=True):
    """A viewer wants something of a session that its owner has to do."""

    viewer: str
    request: CreateSession | Subscribe | Unsubscribe | ResolveUnknown | DeleteSession


class SessionsLeft(Struct, frozen=True, kw_only=True):
    """Dead daemons left these sessions with something to do."""

    session_ids: list[str]


class Answered(Struct, frozen=True, kw_only=True):
    """The store answered a question, or could not: then ``error`` says why."""

    ticket: int
    answer: Answer
    error: str | None = None


class Recorded(Struct, frozen=True, kw_only=True):
    """The store committed a ticket, or could not: then ``error`` says why. ``sequences`` numbers new admissions."""

    ticket: int
    error: str | None = None
    sequences: dict[str, int] = field(default_factory=dict)


class Launched(Struct, frozen=True, kw_only=True):
    """A process exists."""

    attempt_id: str
    pid: int
    process_start: str


class LaunchFailed(Struct, frozen=True, kw_only=True):
    """No process could be started for an attempt."""

    attempt_id: str
    message: str


class AgentSaid(Struct, frozen=True, kw_only=True):
    """A message of an agent whose identity the driver has checked."""

    message: FromAgent


class Misbehaved(Struct, frozen=True, kw_only=True):
    """An agent broke the protocol more often than is forgiven."""

    attempt_id: str
    what: str


class Died(Struct, frozen=True, kw_only=True):
    """A process ended; every message that it had sent was handed over before."""

    attempt_id: str
    end: Exit
    log_tail: str = ""


class Gone(Struct, frozen=True, kw_only=True):
    """Nothing of a dead process's tree is left."""

    attempt_id: str


class TurnCancelled(Struct, frozen=True, kw_only=True):
    """A viewer ended a turn, or every turn of it when ``admission_id`` is empty."""

    viewer: str
    admission_id: str = ""
    reason: str = "cancelled"
    now: bool = False


class DelegateCancelled(Struct, frozen=True, kw_only=True):
    """A viewer ended one delegate, or every delegate of one call."""

    viewer: str
    request_id: str
    target_id: str


class ViewersLost(Struct, frozen=True, kw_only=True):
    """Nobody is left who would read an answer."""


class EndAsked(Struct, frozen=True, kw_only=True):
    """Somebody told the supervisor to end now: what runs is cancelled, and viewers are still told."""


class ViewerLeft(Struct, frozen=True, kw_only=True):
    """A viewer is gone: it follows nothing any more. Its turns go on."""

    viewer: str


class Draining(Struct, frozen=True, kw_only=True):
    """The supervisor is about to end: no turn begins any more; what is queued stays so for the next owner."""


class Tick(Struct, frozen=True, kw_only=True):
    """Time passed."""


CoreEvent = (
    Submitted
    | SessionAsked
    | SessionsLeft
    | Answered
    | Recorded
    | Launched
    | LaunchFailed
    | AgentSaid
    | Misbehaved
    | Died
    | Gone
    | TurnCancelled
    | DelegateCancelled
    | ViewersLost
    | EndAsked
    | ViewerLeft
    | Draining
    | Tick
)
