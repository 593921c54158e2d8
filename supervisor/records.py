"""What the core asks the store to write. Each record is one row, or one change of a row.

The core orders (intent, act, fact) and the store writes the records of one ``Persist`` in one transaction, in order.
Times are Unix seconds; JSON columns hold text.
"""

from msgspec import Struct

from fanjoin.ipc.messages import JsonObject, ToolTrace, Usage


class SessionCreated(Struct, frozen=True, kw_only=True):
    """A new session; ``request_id`` makes its creation idempotent."""

    session_id: str
    principal_id: str
    request_id: str
    source: str
    title: str
    cwd: str
    settings_json: str
    at: float


class AdmissionQueued(Struct, frozen=True, kw_only=True):
    """A submission as admitted. The store gives it the next sequence number."""

    admission_id: str
    request_id: str
    principal_id: str
    session_id: str
    payload_json: str
    payload_digest: str
    at: float


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
)
