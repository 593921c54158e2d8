"""A world for the core: a store, a launcher and children that follow a plan, and a clock that only the test moves.

Whatever may happen next is a pending event; a stream of choices says which one does. After each event the rules that
hold at any time are checked from what the world saw, never from what the core believes.
"""

import json
from collections import deque
from collections.abc import Iterator
from pathlib import Path

from core_child import Child
from core_journal import Journal
from core_plan import Disturbance, Node, Plan, TurnPlan

from fanjoin.ipc.messages import (
    Accepted,
    DirectTask,
    Event,
    Joined,
    Refused,
    ResultAck,
    Submit,
    TurnDone,
)
from fanjoin.ipc.settings import Endpoint, TurnSettings
from fanjoin.supervisor.core.effects import Ask, Effect, Launch, Persist, Send, Stop, Tell
from fanjoin.supervisor.core.events import (
    AgentSaid,
    Answered,
    CoreEvent,
    DelegateCancelled,
    Died,
    EndAsked,
    Gone,
    LaunchFailed,
    Submitted,
    Tick,
    TurnCancelled,
    ViewersLost,
)
from fanjoin.supervisor.core.machine import Core
from fanjoin.supervisor.records import (
    AdmissionQueued,
    AttemptEnded,
    AttemptIntended,
    DelegateAccepted,
    ReceiptWritten,
    Record,
)

VIEWER = "v"
ENDPOINT = Endpoint(base_url="http://127.0.0.1:1/v1", model="m")
MAX_STEPS = 3_000

_A_MOMENT_PASSES, _TIME_PASSES = 6, 7


class World:
    """Runs a core against a plan until nothing can happen any more."""

    def __init__(self, plan: Plan, choices: bytes = b"") -> None:
        self.plan = plan
        self.now = 1000.0
        self._choices = iter(choices)
        self._ids = 0
        self.core = Core(home=Path("home"), max_processes=plan.max_processes, make_id=self._new_id)
        self.journal = Journal(plan.failing_tickets)
        self.nodes: dict[str, Node] = {}
        self.children: dict[str, Child] = {}
        self.open: set[str] = set()
        self.accepted: dict[str, DelegateAccepted] = {}
        self.turn_of: dict[str, int] = {}
        self.receipts: dict[str, ReceiptWritten] = {}
        self.recorded: set[str] = set()
        self.admissions: list[str] = []
        self.done: dict[str, TurnDone] = {}
        self.refused: list[Refused] = []
        self.told: list[object] = []
        self.effects: list[tuple[float, Effect]] = []
        self._to_submit = deque(enumerate(plan.turns))
        self._disturbances = deque(sorted(plan.disturbances, key=lambda one: one.after))
        self._tickets: dict[int, list[Record]] = {}
        self.steps = 0

    def _new_id(self, prefix: str) -> str:
        self._ids += 1
        return f"{prefix}{self._ids}"

    # --- what may happen ---

    def run(self) -> None:
        """Let things happen until nothing is left to happen."""
        while self.step():
            self.steps += 1
            assert self.steps < MAX_STEPS, "it never ends"
        self._check_end()

    def step(self) -> bool:
        """Let one thing happen; False when there is none."""
        if self._disturbances and self._disturbances[0].after <= self.steps:
            self._disturb(self._disturbances.popleft())
            return True
        sources = list(self._sources())
        deadline = self.core.next_deadline()
        if not sources and deadline is None:
            return False
        which, what = divmod(next(self._choices, 0), 8)
        if not sources or what == _TIME_PASSES:
            self.tick(4.0 if deadline is None else min(4.0, max(0.0, deadline - self.now)))
        elif what == _A_MOMENT_PASSES:
            self.tick(0.4)
        else:
            sources[which % len(sources)]()
        return True

    def _sources(self) -> Iterator[object]:
        if self._to_submit:
            yield self._submit
        if self.journal.queue:
            yield self._commit
        for child in list(self.children.values()):
            if child.said:
                yield lambda child=child: self.feed(child.said.popleft())
            if child.happened and not (isinstance(child.happened[0], Died) and child.said):
                yield lambda child=child: self._happens(child)

    def _happens(self, child: Child) -> None:
        event = child.happened.popleft()
        if isinstance(event, Died):
            child.death_seen = True
            child.happened.append(Gone(attempt_id=child.attempt_id))
        if isinstance(event, Gone | LaunchFailed):
            self.open.discard(child.attempt_id)
            del self.children[child.attempt_id]
        self.feed(event)

    def tick(self, seconds: float) -> None:
        """Let time pass: who waits for an acknowledgement sends again."""
        self.now += seconds
        for child in self.children.values():
            if child.result and not child.dead and not child.said:
                child.said.append(AgentSaid(message=child.result))
        self.feed(Tick())

    def _submit(self) -> None:
        number, plan = self._to_submit.popleft()
        goal = f"{number}"
        self.nodes[goal] = plan.root
        settings = TurnSettings(
            endpoint=ENDPOINT,
            delegate_endpoint=ENDPOINT,
            limits=plan.limits,
            deadline_seconds=plan.deadline,
            max_failures=plan.max_failures,
        )
        submit = Submit(
            request_id=f"r_{number}",
            session_id=f"s_{plan.session}",
            text=goal,
            finite=not plan.background,
            payload_json="{}",
            settings=settings,
            tasks=[self._task(f"{goal}:{index}", plan) for index in range(len(plan.tasks))],
        )
        self.nodes |= {f"{goal}:{index}": node for index, node in enumerate(plan.tasks)}
        self.feed(Submitted(viewer=VIEWER, submit=submit))

    def _task(self, goal: str, plan: TurnPlan) -> DirectTask:
        return DirectTask(goal=goal, task_id=goal, timeout_seconds=plan.task_timeout, env={"KEY": "secret"})

    def _commit(self) -> None:
        recorded = self.journal.answer()
        if isinstance(recorded, Answered):
            self.feed(recorded)
            return
        for record in self._tickets.pop(recorded.ticket):
            if isinstance(record, ReceiptWritten):
                self.recorded.add(record.receipt_id)
            if isinstance(record, AttemptIntended) and recorded.error is not None:
                self.open.discard(record.attempt_id)
        self.feed(recorded)

    def answer_questions(self) -> None:
        """Answer what the store is asked before it has to write anything."""
        while isinstance(self.journal.queue[0], Ask):
            self._commit()

    def _disturb(self, one: Disturbance) -> None:
        match one.kind:
            case "cancel" | "cancel_now":
                self.feed(TurnCancelled(viewer=VIEWER, now=one.kind == "cancel_now"))
            case "cancel_turn" if self.admissions:
                self.feed(TurnCancelled(viewer="w", admission_id=self.admissions[one.target % len(self.admissions)]))
            case "cancel_delegate" if self.accepted:
                target = list(self.accepted)[one.target % len(self.accepted)]
                self.feed(DelegateCancelled(viewer=VIEWER, request_id="r", target_id=target))
            case "viewers_lost":
                self.feed(ViewersLost())
            case "end":
                self.feed(EndAsked())

    # --- what the core decides ---

    def feed(self, event: CoreEvent) -> None:
        """Hand an event to the core, carry out what it decides, and check what must hold at any time."""
        for effect in self.core.handle(event, self.now, self.now):
            self.effects.append((self.now, effect))
            self._carry_out(effect)
        self._check_slots()
        if self.core.idle:
            assert self.core.next_deadline() is None, "a timer of nothing is left"

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case Ask():
                self.journal.queue.append(effect)
            case Persist():
                self.journal.queue.append(effect)
                self._tickets[effect.ticket] = effect.records
                for record in effect.records:
                    self._note(record)
            case Launch():
                self._launch(effect)
            case Send(attempt_id=attempt_id, message=message):
                child = self._target(attempt_id, effect)
                self._check_send(child, message)
                if not child.dead:
                    child.receive(message)
            case Stop(attempt_id=attempt_id, hard=hard):
                self._target(attempt_id, effect).signal(hard=hard)
            case Tell(message=message):
                self._told(message)

    def _target(self, attempt_id: str, effect: Effect) -> Child:
        assert attempt_id in self.children, f"{effect} for a process that is not there"
        assert not self.children[attempt_id].death_seen, f"{effect} for a process that died"
        return self.children[attempt_id]

    def _note(self, record: Record) -> None:
        match record:
            case AdmissionQueued():
                self.admissions.append(record.admission_id)
                self.turn_of[record.admission_id] = self._turn_number(record)
            case DelegateAccepted():
                assert record.receipt_id not in self.accepted, "a delegate is accepted once"
                self.accepted[record.receipt_id] = record
                self.turn_of[record.receipt_id] = self.turn_of[record.admission_id]
            case ReceiptWritten():
                assert record.receipt_id not in self.receipts, "a delegate has one receipt"
                self.receipts[record.receipt_id] = record
            case AttemptIntended():
                self._check_processes(record)
                self.open.add(record.attempt_id)
            case AttemptEnded():
                assert record.attempt_id not in self.children, "the end of a process is known before it is recorded"
                self.open.discard(record.attempt_id)

    def _turn_number(self, record: AdmissionQueued) -> int:
        """Return the number of a planned turn, or a new one for a turn that the session began by itself."""
        if record.request_id.startswith("r_"):
            return int(record.request_id.removeprefix("r_"))
        number = len(self.plan.turns) + len(self.admissions)
        self.nodes[str(number)] = Node()
        return number

    def background(self, admission_id: str) -> bool:
        """Say whether the delegates of a turn outlive it."""
        number = self.turn_of[admission_id]
        return number >= len(self.plan.turns) or self.plan.turns[number].background

    def _check_processes(self, record: AttemptIntended) -> None:
        """Never more processes than allowed; one more only when all that exist wait for others."""
        stuck = record.receipt_id and all(one in self.children and self.children[one].waiting for one in self.open)
        assert len(self.open) < self.plan.max_processes or stuck, f"{record.attempt_id} is one process too many"

    def _told(self, message: object) -> None:
        self.told.append(message)
        match message:
            case TurnDone():
                assert message.admission_id not in self.done, "a turn ends once"
                mine = {key for key, one in self.accepted.items() if one.admission_id == message.admission_id}
                if self.background(message.admission_id):
                    assert not message.results
                else:
                    assert mine <= self.recorded, "a turn ends after every receipt of it"
                    told = message.results or self._entries_told(message.admission_id)
                    assert sorted(entry["receipt_id"] for entry in told) == sorted(mine), "a turn tells every result"
                self.done[message.admission_id] = message
            case Refused(reason="storage_unavailable"):
                self.refused.append(message)

    def _entries_told(self, admission_id: str) -> list[dict[str, str]]:
        events = [one for one in self.told if isinstance(one, Event) and one.name == "delegation.completed"]
        return [one.data["entry"] for one in events if one.admission_id == admission_id]

    # --- processes ---

    def _launch(self, effect: Launch) -> None:
        attempt_id = effect.attempt_id
        assert ("AttemptIntended", attempt_id) in self.journal.committed, "a process starts after its intent is kept"
        assert attempt_id not in self.children, "an attempt is one process"
        owner, _, number = attempt_id.rpartition(".")
        child = Child(attempt_id, effect.depth, self._node_of(owner), int(number), self.nodes)
        self.children[attempt_id] = child
        child.start()

    def _node_of(self, owner: str) -> Node:
        goal = self.accepted[owner].goal if owner in self.accepted else str(self.turn_of[owner])
        return self.nodes[goal]

    # --- what must hold ---

    def _check_send(self, child: Child, message: object) -> None:
        owner = child.attempt_id.rpartition(".")[0]
        if isinstance(message, ResultAck):
            kind = "AdmissionEnded" if child.depth == 0 else "ReceiptWritten"
            assert (kind, owner) in self.journal.committed, "a result is acknowledged after its commit"
        if isinstance(message, Joined):
            self._check_joined(child, owner, message)

    def _check_joined(self, child: Child, owner: str, message: Joined) -> None:
        """Every delegate of the join is recorded, and told in the order of calls and tasks."""
        if child.late:
            told = {("CallDelivered", answer.tool_call_id) for answer in message.answers}
            assert told <= set(self.journal.committed) or self.journal.refused, "a result is told when it is kept"
            return
        asked = child.node.rounds[child.round - 1]
        assert [answer.tool_call_id for answer in message.answers] == [f"call_{n}" for n in range(len(asked))]
        for number, (nodes, answer) in enumerate(zip(asked, message.answers, strict=True)):
            content = json.loads(answer.content)
            if "error" in content:
                continue
            if content.get("status") == "dispatched":
                assert ("CallDispatched", content["delegation_id"]) in self.journal.committed
                assert content["count"] == len(nodes)
                continue
            assert [entry["task_index"] for entry in content["results"]] == list(range(len(nodes)))
            for index, entry in enumerate(content["results"]):
                accepted = self.accepted[entry["receipt_id"]]
                assert child.task is not None
                assert accepted.goal == f"{child.task.text}.{child.round - 1}-{number}-{index}"
                assert accepted.parent_id == owner
                assert entry["receipt_id"] in self.recorded, "a join is told when its receipts are written"
                assert entry["status"] == self.receipts[entry["receipt_id"]].status

    def executing(self, turn: int) -> list[str]:
        """Return the delegates of a turn that have a process which does not wait for others."""
        return [
            one.attempt_id
            for one in self.children.values()
            if one.depth and not one.waiting and self.turn_of[one.attempt_id.rpartition(".")[0]] == turn
        ]

    def _check_slots(self) -> None:
        for number, plan in enumerate(self.plan.turns):
            executing = self.executing(number)
            assert len(executing) <= plan.limits.max_concurrent_children, f"too many at once: {executing}"

    def _check_end(self) -> None:
        """Nothing waits any more, and everything has ended well."""
        assert self.core.idle, "nothing happens, and it is not done"
        assert self.core.next_deadline() is None, "a timer is left"
        assert not self.children
        assert not self.open
        refused = {f"{one.request_id}" for one in self.refused}
        owed = {key for key in self.accepted if f"r_{self.turn_of[key]}" not in refused}
        assert owed <= set(self.receipts) <= set(self.accepted), "every accepted delegate has a receipt"
        for admission_id in self.admissions:
            if self.turn_of[admission_id] >= len(self.plan.turns):
                continue  # nobody is told of it
            was_refused = f"r_{self.turn_of[admission_id]}" in refused
            assert (admission_id in self.done) != was_refused, "a turn ends, or was refused"
        if not self.journal.refused:
            assert {key for key in self.journal.committed if key[0] == "AdmissionEnded"} == {
                ("AdmissionEnded", admission_id) for admission_id in self.admissions
            }
            assert self.ended_attempts() == {key[1] for key in self.journal.committed if key[0] == "AttemptIntended"}
        accepted = [one for one in self.told if isinstance(one, Accepted)]
        planned = [one for one in self.admissions if self.turn_of[one] < len(self.plan.turns)]
        assert len(accepted) == len(planned) - len(refused)
        self._check_deliveries()

    def _check_deliveries(self) -> None:
        """Every dispatched call was told, once, unless nobody was left to be told or the store refused something."""
        kept = self.journal.committed
        dispatched = {key[1] for key in kept if key[0] == "CallDispatched"}
        lost = any(one.kind in ("viewers_lost", "end") for one in self.plan.disturbances)
        if not self.journal.refused:
            assert dispatched == {key[1] for key in kept if key[0] == "CallCompleted"}
            if not lost:
                assert dispatched == {key[1] for key in kept if key[0] == "CallDelivered"}
            assert {key[1] for key in kept if key[0] == "CallClaimed"} == {
                key[1] for key in kept if key[0] == "CallDelivered"
            } or lost

    def ended_attempts(self) -> set[str]:
        """Return the attempts whose end is recorded."""
        return {key[1] for key in self.journal.committed if key[0] == "AttemptEnded"}
