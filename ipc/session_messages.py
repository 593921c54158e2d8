"""Protocol version 1, the part about sessions that outlive a viewer: what viewers ask for, and what they are answered.

Events of a session are numbered from 1 by the supervisor that owns it. ``instance_id`` names that supervisor: after a
restart the numbers begin again, so a number is worth something only together with the instance that gave it.
Every request is answered under its ``request_id``: by the message named in its text, or by ``Refused``, whose reason
is ``invalid_params``, ``not_found``, ``session_busy``, ``admission_conflict``, ``draining`` or ``storage_unavailable``.
"""

from typing import Any

from msgspec import Struct, field

from fanjoin.ipc.settings import TurnSettings

LATEST = "latest"
"""Stands for the session that was used last."""

_Json = dict[str, Any]


# --- viewer -> supervisor ------------------------------------------------------------------------------------------


class CreateSession(Struct, frozen=True, kw_only=True, tag="create_session", omit_defaults=True):
    """Make a session; answered by ``SessionSnapshot``.

    The same ``request_id`` with the same ``fields`` names the same session again, with changed ones it is refused as
    ``invalid_params``.
    ``fields`` is what the caller asked for, as it is compared: no key is in it. ``settings`` is what came of it, under
    the names that ``ipc.config.resolve`` knows for a session: it rules later turns where no flag does.
    """

    request_id: str
    fields: _Json = field(default_factory=dict)
    settings: _Json = field(default_factory=dict)
    principal_id: str = "owner"
    source: str = "cli"
    title: str = ""


class Subscribe(Struct, frozen=True, kw_only=True, tag="subscribe", omit_defaults=True):
    """Follow a session; answered by ``SessionSnapshot``, then by its events as they come.

    With ``instance_id`` and ``since`` the events after that number are sent first; those that are not kept any more
    are told of by one ``Gap`` instead. ``settings`` is what turns that the session begins by itself run with (results
    of background delegates); without it the supervisor's own configuration counts.
    """

    request_id: str
    session_id: str
    since: int = 0
    instance_id: str = ""
    settings: TurnSettings | None = None


class Unsubscribe(Struct, frozen=True, kw_only=True, tag="unsubscribe"):
    """Follow a session no more; answered by ``Done``."""

    request_id: str
    session_id: str


class PromptReceipt(Struct, frozen=True, kw_only=True, tag="prompt_receipt", omit_defaults=True):
    """Ask what became of a submission; answered by ``TurnReceipt``.

    It is named by its ``admission_id``, or by its session and ``input_id`` (the ``request_id`` of its ``Submit``).
    """

    request_id: str
    session_id: str = ""
    input_id: str = ""
    admission_id: str = ""
    principal_id: str = "owner"


class ResolveUnknown(Struct, frozen=True, kw_only=True, tag="resolve_unknown", omit_defaults=True):
    """Decide about a turn whose owner died: run it again (``retry``) or give it up (``discard``).

    ``admission_id`` empty means the session's oldest unknown turn. A retry is answered like a submission, by
    ``Accepted`` and in the end ``TurnDone``; a discard by ``Done``. ``settings`` as in ``Subscribe``.
    """

    request_id: str
    session_id: str
    retry: bool
    admission_id: str = ""
    settings: TurnSettings | None = None


class ListSessions(Struct, frozen=True, kw_only=True, tag="list_sessions", omit_defaults=True):
    """Ask for the sessions, the one that was used last first; answered by ``SessionList``."""

    request_id: str
    limit: int = 100


class SessionInfo(Struct, frozen=True, kw_only=True, tag="session_info"):
    """Ask for one session (or ``latest``) without following or owning it; answered by ``SessionSnapshot``."""

    request_id: str
    session_id: str


class ReadMessages(Struct, frozen=True, kw_only=True, tag="read_messages"):
    """Ask for the part of a conversation that ends before message ``before``, counted from 0.

    Answered by ``MessagePage``.
    """

    request_id: str
    session_id: str
    before: int


class DeleteSession(Struct, frozen=True, kw_only=True, tag="delete_session"):
    """Remove a session's conversation and list it no more; its receipts stay. Answered by ``Done``."""

    request_id: str
    session_id: str


class DelegationList(Struct, frozen=True, kw_only=True, tag="delegation_list", omit_defaults=True):
    """Ask for the delegates that have no receipt yet, of one session or of all; answered by ``Delegations``."""

    request_id: str
    session_id: str = ""


FromSessionViewer = (
    CreateSession
    | Subscribe
    | Unsubscribe
    | PromptReceipt
    | ResolveUnknown
    | ListSessions
    | SessionInfo
    | ReadMessages
    | DeleteSession
    | DelegationList
)


# --- supervisor -> viewer ------------------------------------------------------------------------------------------


class TurnLine(Struct, frozen=True, kw_only=True):
    """A turn that has not ended: ``queued``, ``started`` or ``unknown``. ``sequence`` orders turns."""

    admission_id: str
    input_id: str
    sequence: int
    status: str
    text: str


class SessionLine(Struct, frozen=True, kw_only=True):
    """One line of a listing of sessions; times are Unix seconds.

    ``status`` is ``idle``, or that of its first open turn (``queued``, ``started``, ``unknown``).
    """

    session_id: str
    title: str
    source: str
    cwd: str
    status: str
    turns: int
    created_at: float
    used_at: float


class SessionSnapshot(Struct, frozen=True, kw_only=True, tag="session_snapshot"):
    """What a session holds.

    ``messages`` is the newest part of its conversation, from message ``first`` of ``message_count`` on; ``turns`` are
    those that have not ended; ``pending`` counts the calls of background delegates whose result was not told yet.
    ``sequence`` is the number of its last event, given by the supervisor ``instance_id``. ``created``: by this request.
    """

    request_id: str
    session_id: str
    title: str
    source: str
    settings: _Json
    created_at: float
    messages: list[_Json]
    first: int
    message_count: int
    turns: list[TurnLine]
    pending: int
    sequence: int
    instance_id: str
    created: bool = False


class SessionList(Struct, frozen=True, kw_only=True, tag="session_list"):
    """The sessions, the one that was used last first."""

    request_id: str
    sessions: list[SessionLine]


class MessagePage(Struct, frozen=True, kw_only=True, tag="message_page"):
    """Messages ``first`` and following of a conversation of ``message_count``."""

    request_id: str
    session_id: str
    messages: list[_Json]
    first: int
    message_count: int


class TurnReceipt(Struct, frozen=True, kw_only=True, tag="turn_receipt", omit_defaults=True):
    """The stored row of a submission; ``outcome`` and ``results`` once it is ``terminal``."""

    request_id: str
    session_id: str
    admission_id: str
    input_id: str
    sequence: int
    status: str
    outcome: _Json | None = None
    results: list[_Json] = field(default_factory=list)


class DelegateLine(Struct, frozen=True, kw_only=True):
    """A delegate without a receipt; ``started_at`` is None while it is queued."""

    receipt_id: str
    delegation_id: str
    session_id: str
    admission_id: str
    goal: str
    status: str
    pid: int | None = None
    started_at: float | None = None


class Delegations(Struct, frozen=True, kw_only=True, tag="delegations"):
    """The delegates that have no receipt yet, oldest first."""

    request_id: str
    delegates: list[DelegateLine]


class Gap(Struct, frozen=True, kw_only=True, tag="gap"):
    """The events ``first`` to ``last`` of a session will not be sent; ``SessionSnapshot`` holds what matters of them.

    They are not kept any more, or this viewer read too slowly. ``first`` is 0 when another supervisor numbered them.
    """

    session_id: str
    first: int
    last: int


ToSessionViewer = SessionSnapshot | SessionList | MessagePage | TurnReceipt | Delegations | Gap
