"""Protocol version 1: every message that travels between the processes of a run.

One frame holds one msgspec struct, encoded as a MessagePack map whose ``type`` names the struct. There is one union
per direction, so that a sender cannot even express another role's message. ``docs/protocol.md`` is the text that
goes with it and ``tests/ipc/test_golden.py`` pins the bytes.

Texts are UTF-8, times are seconds, token counts are integers. ``run_id`` names the supervisor's instance and
``attempt_id`` one process; a message that carries another run or a closed attempt is dropped.
"""

from typing import Any

from msgspec import Struct, field

from fanjoin.ipc.approval_messages import ApprovalAsked, ApprovalDecided, AskApproval, DecideApproval
from fanjoin.ipc.session_messages import CreateSession, FromSessionViewer, ToSessionViewer
from fanjoin.ipc.settings import ApprovalSettings, DelegationLimits, ModelLimits, TerminalSettings, TurnSettings, Worker

PROTOCOL_VERSION = 1

JsonObject = dict[str, Any]


class Usage(Struct, frozen=True, kw_only=True):
    """Token counts of model calls; ``cached_tokens`` is a part of ``input_tokens``."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
        )


class ToolTrace(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One tool call that an agent ran: its name, a clipped preview of its arguments, how it ended, how long it took."""

    tool: str
    preview: str = ""
    ok: bool = True
    duration_seconds: float = 0.0


class TaskSpec(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One task of a ``delegate_task`` call, as the model gave it and the agent checked it."""

    goal: str
    context: str = ""
    role: str = "leaf"
    output_schema: JsonObject | None = None
    route: str = ""


class DirectTask(TaskSpec, frozen=True, kw_only=True, omit_defaults=True):
    """A task that comes from its user and not from a model, with what only a user may set.

    ``task_id`` is unique within its turn and ``digest`` tells the same task again in a later run. ``cwd`` is an
    absolute path, empty for the turn's own; ``timeout_seconds`` 0 means the configured one; ``env`` is never written.
    """

    task_id: str
    digest: str = ""
    cwd: str = ""
    timeout_seconds: float = 0.0
    env: dict[str, str] = field(default_factory=dict)


class CallRequest(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One ``delegate_task`` call of an assistant message; ``tool_call_id`` is the model's own."""

    tool_call_id: str
    tasks: list[TaskSpec]
    shared_context: str = ""


class CallAnswer(Struct, frozen=True, kw_only=True):
    """What goes back to the model for one call: the text of its tool message, always a JSON object."""

    tool_call_id: str
    content: str


class Outcome(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How an agent's work ended, by its own account.

    ``status`` and ``reason`` are words of the contract (section 4); ``reason`` is empty when completed. ``text`` is
    the final answer, ``partial_text`` what there was of it when the agent did not complete. ``exit_code`` and
    ``exit_signal`` tell how the program ended that did the work, where that decided the status.
    """

    status: str
    reason: str = ""
    message: str = ""
    text: str | None = None
    partial_text: str = ""
    steps: int = 0
    usage: Usage = Usage()
    trace: list[ToolTrace] = field(default_factory=list)
    output: JsonObject | None = None
    summary_truncated: bool = False
    summary_path: str = ""
    exit_code: int | None = None
    exit_signal: str | None = None


class AgentTask(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The work of one agent process. ``owner_id`` is the turn's or the delegate's identifier.

    ``text`` is the user's message (a delegate's goal), without which and without ``images`` the agent goes on with the
    ``history``: the earlier messages of the session in the form of the chat-completions API. ``joins_detached``: before
    its last step it joins what earlier turns dispatched, by a ``delegate`` message without calls; each answer is the
    text of a user message. ``max_steps`` bounds the model calls. Paths are absolute. ``summary_path`` is where the
    whole of an answer goes that is longer than ``share_chars``, its share of what its parent can take. ``refused``
    names the parts of requests that the endpoint is known to refuse. ``rules`` are the project's; the agent reads them.
    ``task_id``, ``env`` and ``worker`` are those of a ``DirectTask``. ``asks``: there is somebody to ask for approvals.
    """

    owner_id: str
    session_id: str
    text: str
    depth: int = 0
    finite: bool = True
    role: str = "leaf"
    shared_context: str = ""
    context: str = ""
    history: list[JsonObject] = field(default_factory=list)
    images: list[JsonObject] = field(default_factory=list)
    output_schema: JsonObject | None = None
    toolsets: tuple[str, ...] = ()
    route_notes: dict[str, str] = field(default_factory=dict)
    max_steps: int = 50
    max_tokens_total: int = 0
    cwd: str = ""
    ignore_rules: bool = False
    transcript_path: str = ""
    summary_path: str = ""
    share_chars: int = 0
    approvals: ApprovalSettings = ApprovalSettings()
    terminal: TerminalSettings = TerminalSettings()
    limits: DelegationLimits = field(default_factory=DelegationLimits)
    model_limits: ModelLimits = field(default_factory=ModelLimits)
    refused: tuple[str, ...] = ()
    rules: str = ""
    task_id: str = ""
    env: dict[str, str] = field(default_factory=dict)
    worker: Worker | None = None
    joins_detached: bool = False
    asks: bool = False


# --- agent -> supervisor -------------------------------------------------------------------------------------------


class AgentMessage(Struct, frozen=True, kw_only=True):
    """What every message of an agent carries."""

    run_id: str
    attempt_id: str


class Hello(AgentMessage, frozen=True, kw_only=True, tag="hello"):
    """First message of a process. The nonce came through its bootstrap pipe and proves who it is."""

    nonce: str
    pid: int
    protocol: int = PROTOCOL_VERSION


class Started(AgentMessage, frozen=True, kw_only=True, tag="started"):
    """The first model call is about to be sent: from here on a re-run would repeat side effects."""


class Progress(AgentMessage, frozen=True, kw_only=True, tag="progress", omit_defaults=True):
    """Something moved: text of the model, a tool that began or ended, tokens used so far (running totals).

    ``messages`` are new entries of the conversation, in the API's form, to be kept with the session (root only).
    ``refused`` are parts of requests that the endpoint was found to refuse.
    ``notice`` is something that the user has to know.
    """

    step: int
    delta: str = ""
    tool_started: str = ""
    trace: list[ToolTrace] = field(default_factory=list)
    usage: Usage | None = None
    messages: list[JsonObject] = field(default_factory=list)
    refused: tuple[str, ...] = ()
    notice: str = ""


class Delegate(AgentMessage, frozen=True, kw_only=True, tag="delegate"):
    """All ``delegate_task`` calls of one assistant message; the agent does nothing else until they are answered."""

    join_id: str
    calls: list[CallRequest]


class Result(AgentMessage, frozen=True, kw_only=True, tag="result"):
    """The agent's end. It is sent again until it is acknowledged."""

    outcome: Outcome


class Bye(AgentMessage, frozen=True, kw_only=True, tag="bye"):
    """The process is about to exit; ``childless``: the kernel knows of no child of it, adopted ones included."""

    childless: bool


# --- supervisor -> agent -------------------------------------------------------------------------------------------


class Welcome(Struct, frozen=True, kw_only=True, tag="welcome"):
    """The process is who it says it is, and this is its work."""

    task: AgentTask


class Reject(Struct, frozen=True, kw_only=True, tag="reject"):
    """The process is not known here and has to end."""

    reason: str


class Joined(Struct, frozen=True, kw_only=True, tag="joined", omit_defaults=True):
    """Every call of the join has ended, and each receipt of it is committed.

    ``budget`` says which budget of the run is used up: the agent keeps the answers and ends.
    """

    join_id: str
    answers: list[CallAnswer]
    budget: str = ""


class Cancel(Struct, frozen=True, kw_only=True, tag="cancel"):
    """Stop now and send what there is; after ``grace_seconds`` the process tree is ended."""

    reason: str
    grace_seconds: float


class ResultAck(Struct, frozen=True, kw_only=True, tag="result_ack"):
    """The result is committed; the process may exit."""


# --- viewer -> supervisor ------------------------------------------------------------------------------------------


class Attach(Struct, frozen=True, kw_only=True, tag="attach"):
    """First message of a viewer: who it is. What was told to it before it came is sent then."""

    viewer: str


class Submit(Struct, frozen=True, kw_only=True, tag="submit"):
    """One turn; answered by ``Accepted`` once it is committed, and in the end by ``TurnDone``.

    ``request_id`` is the submission's identity within its principal and session: the same one with the same payload
    is a replay, answered with the stored row (and, when that is ``terminal``, its ``TurnDone``); with another payload
    it is refused as ``admission_conflict``. ``payload_json`` is the submission as it will be stored (``ipc.payload``
    makes it): no key of any provider is in it.

    ``session_id`` empty means the session that ``create`` makes or names, without ``create`` a new one. ``images`` are
    objects with ``media_type``, ``sha256`` and ``data`` (base64), which may be missing when the image is known.
    ``wait_if_held``: wait in the queue also behind a turn whose owner died; else that is refused as ``session_busy``.
    A turn with ``tasks`` has no root agent: they are its delegates, and it is over when all of them are.
    ``asks``: its viewer answers ``ApprovalAsked``.
    """

    request_id: str
    session_id: str
    text: str
    finite: bool
    payload_json: str
    settings: TurnSettings
    principal_id: str = "owner"
    source: str = "cli"
    title: str = ""
    images: list[JsonObject] = field(default_factory=list)
    tasks: list[DirectTask] = field(default_factory=list)
    create: CreateSession | None = None
    wait_if_held: bool = False
    asks: bool = False


class CancelTurn(Struct, frozen=True, kw_only=True, tag="cancel_turn"):
    """End a turn (empty: every turn of this viewer). ``now`` skips every grace."""

    admission_id: str = ""
    reason: str = "cancelled"
    now: bool = False


class CancelDelegate(Struct, frozen=True, kw_only=True, tag="cancel_delegate"):
    """End one delegate, or every delegate of one call."""

    request_id: str
    target_id: str


class Ping(Struct, frozen=True, kw_only=True, tag="ping"):
    """Ask for a sign of life."""

    request_id: str


class Drain(Struct, frozen=True, kw_only=True, tag="drain", omit_defaults=True):
    """End a daemon: begin no turn any more, give those that run their grace, then cancel; ``now`` skips the grace.

    Answered by ``Done``, and in the end by the end of the process.
    """

    request_id: str
    now: bool = False


# --- supervisor -> viewer ------------------------------------------------------------------------------------------


class Accepted(Struct, frozen=True, kw_only=True, tag="accepted"):
    """The turn is committed, or was before.

    ``status`` is ``queued``, ``started``, ``unknown`` or ``terminal`` (then with its ``outcome``).
    """

    request_id: str
    session_id: str
    admission_id: str
    sequence: int
    status: str
    outcome: JsonObject | None = None


class Event(Struct, frozen=True, kw_only=True, tag="event"):
    """Something that happened in a session, numbered per session."""

    session_id: str
    admission_id: str
    sequence: int
    name: str
    data: JsonObject


class TurnDone(Struct, frozen=True, kw_only=True, tag="turn_done", omit_defaults=True):
    """The turn's end. ``recorded`` is false when the database refused it: the answer is true, but not kept.

    ``status`` is ``completed``, ``failed``, ``crashed``, ``timeout``, ``cancelled`` or ``lost``; ``results`` are the
    entries of every call of the turn (contract section 4); ``cost`` is there when prices are configured. Those of a
    turn without a root agent are not repeated here: each was told once, in its ``delegation.completed``, and lies in
    ``receipts``.
    """

    session_id: str
    admission_id: str
    status: str
    reason: str = ""
    message: str = ""
    answer: str = ""
    retryable: bool = False
    usage: Usage = Usage()
    usage_total: Usage = Usage()
    results: list[JsonObject] = field(default_factory=list)
    cost: JsonObject | None = None
    recorded: bool = True
    storage_error: str = ""


class Pong(Struct, frozen=True, kw_only=True, tag="pong"):
    """A sign of life."""

    request_id: str


class Refused(Struct, frozen=True, kw_only=True, tag="refused"):
    """A request that was not carried out; ``reason`` is a word of the contract (section 6)."""

    request_id: str
    reason: str
    message: str


class Done(Struct, frozen=True, kw_only=True, tag="done"):
    """A request that was carried out and has nothing more to say."""

    request_id: str


FromAgent = Hello | Started | Progress | Delegate | AskApproval | Result | Bye
ToAgent = Welcome | Reject | Joined | ApprovalDecided | Cancel | ResultAck
FromViewer = Attach | Submit | DecideApproval | CancelTurn | CancelDelegate | Ping | Drain | FromSessionViewer
ToViewer = Accepted | Event | ApprovalAsked | TurnDone | Pong | Refused | Done | ToSessionViewer
