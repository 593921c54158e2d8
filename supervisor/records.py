"""What the core asks the store to write. Each record is one row, or one change of a row.

The core orders (intent, act, fact) and the store writes the records of one ``Persist`` in one transaction, in order.
Times are Unix seconds; JSON columns hold text.
"""

from msgspec import Struct

from fanjoin.ipc.messages import JsonObject, ToolTrace, Usage


class SessionCreated(Struct, frozen=True, kw_only=True):
    """A new session; ``request_id`` makes its creation idempotent, ``fields_digest`` tells changed fields."""

    session_id: str
    principal_id: str
    request_id: str
    source: str
    title: str
    cwd: str
    settings_json: str
    at: float
    fields_digest: str = ""


class AdmissionQueued(Struct, frozen=True, kw_only=True):
    """A submission as admitted; the store gives it the next sequence number.

    ``keyed``: it was to run with a key. The key itself is kept nowhere, so that another owner has to have one.
    """

    admission_id: str
    request_id: str
    principal_id: str
    session_id: str
    payload_json: str
    payload_digest: str
    at: float
    keyed: bool = False


class AdmissionStarted(Struct, frozen=True, kw_only=True):
    """The turn is about to run."""

    admission_id: str
    at: float


class AdmissionEnded(Struct, frozen=True, kw_only=True):
    """The turn's end; the row is ``terminal`` from here on and never changes again."""

    admission_id: str
    outcome: JsonObject
    at: float


class MessagesAdded(Struct, frozen=True, kw_only=True):
    """New entries of a session's conversation, in the form of the chat-completions API."""

    session_id: str
    admission_id: str
    messages: list[JsonObject]
    at: float


class DelegateAccepted(Struct, frozen=True, kw_only=True):
    """A delegate that exists from now on and will have exactly one receipt."""

    receipt_id: str
    delegation_id: str
    admission_id: str
    session_id: str
    parent_id: str
    task_index: int
    depth: int
    goal: str
    task_json: str
    model: str
    transcript_path: str
    at: float


class AttemptIntended(Struct, frozen=True, kw_only=True):
    """A process is about to be started for a delegate or, with ``receipt_id`` empty, for a turn's root."""

    attempt_id: str
    admission_id: str
    receipt_id: str
    number: int
    tag: str
    at: float


class AttemptStarted(Struct, frozen=True, kw_only=True):
    """The process exists. ``process_start`` is the system's own start mark of it, to tell it from a reused pid."""

    attempt_id: str
    pid: int
    process_start: str
    at: float


class AttemptEnded(Struct, frozen=True, kw_only=True):
    """The process is gone, with everything below it. ``cause`` explains its death, empty for a clean exit."""

    attempt_id: str
    exit_code: int | None
    exit_signal: str | None
    cause: str
    stderr_tail: str
    at: float


class ReceiptWritten(Struct, frozen=True, kw_only=True):
    """How a delegate ended: immutable, one per delegate. ``entry`` is its entry in the joined result."""

    receipt_id: str
    delegation_id: str
    session_id: str
    admission_id: str
    status: str
    reason: str
    message: str
    summary: str | None
    partial_text: str
    usage: Usage
    usage_total: Usage
    steps: int
    attempts: int
    trace: list[ToolTrace]
    entry: JsonObject
    at: float


class CallDispatched(Struct, frozen=True, kw_only=True):
    """A call whose delegates run on after the turn that made it: its result is told later, once."""

    delegation_id: str
    session_id: str
    admission_id: str
    tool_call_id: str
    at: float


class CallCompleted(Struct, frozen=True, kw_only=True):
    """Every delegate of a dispatched call has its receipt. ``result`` is the joined result, a JSON object."""

    delegation_id: str
    result: str
    at: float


class CallClaimed(Struct, frozen=True, kw_only=True):
    """A turn will tell the result of a dispatched call; no other may. The claim's token is that turn's name."""

    delegation_id: str
    admission_id: str
    at: float


class CallReleased(Struct, frozen=True, kw_only=True):
    """The turn that had claimed the result ended before it began: another one has to tell it."""

    delegation_id: str
    admission_id: str
    at: float


class CallDelivered(Struct, frozen=True, kw_only=True):
    """The result stands in the conversation, by the turn that had claimed it."""

    delegation_id: str
    admission_id: str
    at: float


class SessionDeleted(Struct, frozen=True, kw_only=True):
    """The session's conversation goes, and it is listed no more."""

    session_id: str
    at: float


Record = (
    SessionCreated
    | AdmissionQueued
    | AdmissionStarted
    | AdmissionEnded
    | MessagesAdded
    | DelegateAccepted
    | AttemptIntended
    | AttemptStarted
    | AttemptEnded
    | ReceiptWritten
    | CallDispatched
    | CallCompleted
    | CallClaimed
    | CallReleased
    | CallDelivered
    | SessionDeleted
)
