"""What the core knows of: turns, their delegates, the processes of both, and who waits for whom."""

from collections import deque
from typing import Literal

from msgspec import Struct, field

from fanjoin.ipc.messages import JsonObject, Outcome, Submit, TaskSpec, ToolTrace, Usage
from fanjoin.ipc.settings import Endpoint, TurnSettings
from fanjoin.supervisor.exit_cause import Exit
from fanjoin.supervisor.questions import EarlierReceipt, StoredTurn

Phase = Literal["intended", "spawning", "running", "saved", "dead", "closed"]
"""``intended``: to be recorded; ``spawning``: launched, no hello yet; ``saved``: its result is here, it may still be
exiting; ``dead``: its process ended, something below it may live; ``closed``: nothing of it is left."""

PARTIAL_CHARS = 24_000
"""How much of an unfinished answer is kept in memory for the receipt."""
TRACE_ENTRIES = 1_000
"""How many tool calls of an unfinished delegate are kept in memory for the receipt, the last ones."""


class Intent(Struct, frozen=True, kw_only=True):
    """Why we are ending a process. It decides the outcome when no result comes first."""

    status: str
    reason: str
    message: str


class Attempt(Struct, kw_only=True, eq=False):
    """One process of a turn's root or of a delegate."""

    attempt_id: str
    work: "Work"
    number: int
    phase: Phase = "intended"
    pid: int = 0
    started: bool = False
    childless: bool = False
    intent: Intent | None = None
    end: Exit | None = None
    log_tail: str = ""

    @property
    def alive(self) -> bool:
        """Say whether a process may exist."""
        return self.phase in {"spawning", "running", "saved"}


class Work(Struct, kw_only=True, eq=False):
    """What a turn and a delegate have in common: something that processes are started for until it ended.

    ``outcome`` is set once. ``durable`` says that it is committed, ``unrecorded`` why the store refused it for good.
    ``children`` are those of its delegates that count separately yet; ``below`` is what all others used, by model.
    """

    work_id: str
    depth: int
    endpoint: Endpoint
    queued_at: float
    attempt: Attempt | None = None
    attempts: int = 0
    running_since: float | None = None
    ended_at: float | None = None
    outcome: Outcome | None = None
    end: Exit | None = None
    durable: bool = False
    unrecorded: str = ""
    partial: str = ""
    steps: int = 0
    usage: Usage = Usage()
    trace: list[ToolTrace] = field(default_factory=list)
    join: "Join | None" = None
    children: dict[str, "Delegate"] = field(default_factory=dict)
    below: dict[str, Usage] = field(default_factory=dict)

    @property
    def turn(self) -> "Turn":
        """Return the turn that this is a part of."""
        raise NotImplementedError

    @property
    def over(self) -> bool:
        """Say whether nobody has to wait for this any more."""
        return self.durable or bool(self.unrecorded)

    def use(self, usage: Usage) -> None:
        """Note what this has used by now, in all, and count it for the turn."""
        self.turn.tokens += usage.input_tokens + usage.output_tokens
        self.turn.tokens -= self.usage.input_tokens + self.usage.output_tokens
        self.usage = usage

    def usage_total(self) -> Usage:
        """Return the usage of this and of everything below it."""
        return sum(self.usage_by_model().values(), Usage())

    def usage_by_model(self) -> dict[str, Usage]:
        """Return the usage of this and of everything below it, by the name of the model."""
        parts = [(self.endpoint.model, self.usage), *self.below.items()]
        for child in self.children.values():
            parts += child.usage_by_model().items()
        used: dict[str, Usage] = {}
        for model, usage in parts:
            used[model] = used.get(model, Usage()) + usage
        return used


class Delegate(Work, kw_only=True, eq=False):
    """One child of a call; ``work_id`` is its receipt_id."""

    turn: "Turn"
    parent: Work
    call: "Call"
    index: int
    spec: TaskSpec
    transcript: str = ""
    entry: JsonObject = field(default_factory=dict)


class Call(Struct, kw_only=True, eq=False):
    """One ``delegate_task`` call. ``refusal`` is its answer when it was refused whole.

    ``open`` counts those of its delegates that are not over. A ``detached`` one is answered once it is ``dispatched``
    (committed); its delegates outlive the turn, and when all have ended its ``result`` is told to the session.
    ``settled``: that result is committed, or refused for good.
    """

    delegation_id: str
    tool_call_id: str
    started_at: float
    shared_context: str = ""
    result_chars: int = 200_000
    delegates: list[Delegate] = field(default_factory=list)
    open: int = 0
    refusal: str = ""
    join: "Join | None" = None
    detached: bool = False
    dispatched: bool = False
    settled: bool = False
    result: str = ""

    @property
    def over(self) -> bool:
        """Say whether each of its delegates is recorded."""
        return not self.open


class Join(Struct, kw_only=True, eq=False):
    """The calls of one assistant message; its parent waits until nothing that it waits for is ``open``.

    That is each delegate of theirs until it is recorded, and each detached call until it is dispatched. A ``late`` one
    waits for calls that earlier turns of the session dispatched, before the last step of a finite turn.
    """

    join_id: str
    parent: Work
    calls: list[Call]
    open: int = 0
    late: bool = False
    told: bool = False

    @property
    def complete(self) -> bool:
        """Say whether nothing is left to wait for."""
        if self.late:
            return all(call.settled for call in self.calls)
        return not self.open


class Turn(Work, kw_only=True, eq=False):
    """One submission and everything below it; the process of the turn itself is its root agent, if it has one.

    ``work_id`` is its admission_id. ``delegates`` are those that are not over, of the ``accepted`` ones; ``failures``
    counts those that did not complete, ``tokens`` what all agents used. ``waiting`` are delegates without a process,
    ``resuming`` those whose join is complete and that need a slot to go on, ``holders`` the attempts that hold one.
    ``budget`` says which budget is used up, once one is. ``watchers`` are viewers besides the one that brought it;
    ``sequence`` is 0 until it is committed. ``deliveries`` are the dispatched calls whose results it has claimed to
    tell. ``again``: an earlier owner had begun it, so that its message stands in the history already, and ``earlier``
    delegates of that try are not run again. ``approval_id`` is what its user is being asked, while that is so.
    """

    session_id: str
    viewer: str
    submit: Submit
    approval_id: str = ""
    history: list[JsonObject] = field(default_factory=list)
    watchers: set[str] = field(default_factory=set)
    sequence: int = 0
    deliveries: list[Call] = field(default_factory=list)
    again: bool = False
    earlier: list[EarlierReceipt] = field(default_factory=list)
    waiting: deque[Delegate] = field(default_factory=deque)
    resuming: deque[Work] = field(default_factory=deque)
    holders: set[str] = field(default_factory=set)
    calls: list[Call] = field(default_factory=list)
    delegates: dict[str, Delegate] = field(default_factory=dict)
    accepted: int = 0
    failures: int = 0
    grace: float = 4.0
    begun: bool = False
    tokens: int = 0
    budget: str = ""
    closing: bool = False
    done: bool = False

    @property
    def turn(self) -> "Turn":
        """Return the turn itself."""
        return self

    @property
    def rootless(self) -> bool:
        """Say whether the turn has no agent of its own, only the tasks that it was given."""
        return bool(self.submit.tasks)

    @property
    def admission_id(self) -> str:
        """Return the name of the turn's row."""
        return self.work_id

    @property
    def viewers(self) -> set[str]:
        """Return who is told of it; nobody, when the session began it by itself."""
        return {self.viewer, *self.watchers}

    @property
    def detaches(self) -> bool:
        """Say whether the root's calls run in the background."""
        return not self.submit.finite and not self.rootless


class Asker(Struct, frozen=True):
    """Who wants something, and under which name the answer goes back."""

    viewer: str
    request_id: str


class Session(Struct, kw_only=True, eq=False):
    """A session that this supervisor owns, as long as something of it is open or followed.

    ``history`` is its conversation so far. ``running`` are dispatched calls of earlier turns, ``ready`` those whose
    result waits to be told. ``unknown`` turns (their owner died) hold its queue. ``settings`` are those of turns that
    it begins by itself. ``lookups`` counts submissions that are about to be admitted.
    """

    session_id: str
    history: list[JsonObject] = field(default_factory=list)
    running: dict[str, Call] = field(default_factory=dict)
    ready: deque[Call] = field(default_factory=deque)
    unknown: list[StoredTurn] = field(default_factory=list)
    settings: TurnSettings | None = None
    lookups: int = 0
    followers: set[str] = field(default_factory=set)
