"""What is asked of the store, and what it answers. A question sees everything that was written before it."""

from msgspec import Struct, field

from fanjoin.ipc.messages import JsonObject, Submit
from fanjoin.ipc.payload import read_payload
from fanjoin.ipc.session_messages import CreateSession
from fanjoin.ipc.settings import TurnSettings


class OpenSession(Struct, frozen=True, kw_only=True):
    """Make this supervisor the owner of a session and return what it holds.

    ``session_id`` may be ``latest``. With ``create`` the session of that request is meant, made under ``session_id``
    when there is none; ``compare``: then its fields have to be the same.
    """

    session_id: str = ""
    at: float = 0.0
    create: CreateSession | None = None
    compare: bool = False


class FindTurn(Struct, frozen=True, kw_only=True):
    """Look up a submission by its name, or by its identity within a session; answered by ``StoredTurn`` or None."""

    principal_id: str = ""
    session_id: str = ""
    request_id: str = ""
    admission_id: str = ""


class FindReceipts(Struct, frozen=True, kw_only=True):
    """Look up the delegates of a turn that completed; answered by a list of ``EarlierReceipt``."""

    admission_id: str


class StoredCall(Struct, frozen=True, kw_only=True):
    """A dispatched call that ended and was not told yet; ``result`` is its joined result, a JSON object.

    ``keyed``: the turn that made it ran with a key.
    """

    delegation_id: str
    result: str
    keyed: bool


class StoredTurn(Struct, frozen=True, kw_only=True):
    """A turn's row. ``results`` are the entries of its receipts, once it has ended.

    ``attempts`` counts its root's processes so far, ``deliveries`` are the dispatched calls whose results it tells.
    ``answer`` is what its root had said to the end, if the owner died after that. ``submit`` is the submission with
    settings of this owner, or None with the reason in ``problem``.
    """

    admission_id: str
    session_id: str
    request_id: str
    principal_id: str
    sequence: int
    status: str
    payload_json: str
    payload_digest: str
    keyed: bool
    outcome: JsonObject | None = None
    results: list[JsonObject] = field(default_factory=list)
    attempts: int = 0
    deliveries: list[StoredCall] = field(default_factory=list)
    answer: str | None = None
    submit: Submit | None = None
    problem: str = ""


class EarlierReceipt(Struct, frozen=True, kw_only=True):
    """A delegate that completed in an earlier try of its turn."""

    receipt_id: str
    task_json: str
    depth: int
    entry: JsonObject


class SessionOpened(Struct, frozen=True, kw_only=True):
    """What an owner needs to know of a session.

    ``settings`` (of its creation) hold no key; ``turn_settings`` are those of turns that the session begins by itself,
    where this owner has some.
    """

    session_id: str
    settings: JsonObject
    created: bool
    history: list[JsonObject]
    queued: list[StoredTurn]
    unknown: list[StoredTurn]
    ready: list[StoredCall]
    turn_settings: TurnSettings | None = None


class SessionRefused(Struct, frozen=True, kw_only=True):
    """The session cannot be owned; ``reason`` is a word of the protocol."""

    reason: str
    message: str


Question = OpenSession | FindTurn | FindReceipts
Answer = SessionOpened | SessionRefused | StoredTurn | list[EarlierReceipt] | None


def submission_of(turn: StoredTurn, settings: TurnSettings) -> Submit:
    """Return a stored turn as it was submitted, to be run with these settings."""
    payload = read_payload(turn.payload_json)
    return Submit(
        request_id=turn.request_id,
        session_id=turn.session_id,
        text=payload.text,
        finite=payload.finite,
        payload_json=turn.payload_json,
        settings=settings,
        principal_id=turn.principal_id,
        images=[{"media_type": image.media_type, "sha256": image.sha256} for image in payload.images],
    )
