"""A process of the core's tests: what it says, how it ends, and what it does with what it is told."""

from collections import deque

from core_plan import STUBBORN, Node
from msgspec import Struct, field

from fanjoin.ipc.messages import (
    AgentTask,
    Bye,
    CallRequest,
    Cancel,
    Delegate,
    Hello,
    Joined,
    Outcome,
    Progress,
    Result,
    ResultAck,
    Started,
    TaskSpec,
    Welcome,
)
from fanjoin.supervisor.core.events import AgentSaid, CoreEvent, Died, Launched, LaunchFailed, Misbehaved
from fanjoin.supervisor.exit_cause import Exit

RUN = "i_run"
KILLED, TERMINATED = Exit(signal="SIGKILL"), Exit(signal="SIGTERM")


class Child(Struct, eq=False):
    """One process of the world, from its launch until nothing of it is left."""

    attempt_id: str
    depth: int
    node: Node
    number: int
    nodes: dict[str, Node]
    said: deque[CoreEvent] = field(default_factory=deque)
    happened: deque[CoreEvent] = field(default_factory=deque)
    task: AgentTask | None = None
    round: int = 0
    waiting: str = ""
    late: bool = False
    result: Result | None = None
    dead: bool = False
    death_seen: bool = False

    @property
    def _who(self) -> dict[str, str]:
        return {"run_id": RUN, "attempt_id": self.attempt_id}

    def start(self) -> None:
        """Begin to live, or not."""
        if self.node.fate == "is_not_launched" or (self.node.fate == "is_not_launched_once" and self.number == 1):
            self.dead = True
            self.happened.append(LaunchFailed(attempt_id=self.attempt_id, message="no more processes"))
            return
        self.happened.append(Launched(attempt_id=self.attempt_id, pid=1, process_start="1"))
        if self.node.fate == "dies_before_hello":
            self.die(Exit(code=3))
        elif self.node.fate != "hangs_before_hello":
            self.say(Hello(**self._who, nonce="", pid=1))

    def say(self, *messages: object) -> None:
        """Send messages."""
        self.said.extend(AgentSaid(message=message) for message in messages)

    def die(self, end: Exit) -> None:
        """End, once."""
        if not self.dead:
            self.dead = True
            self.happened.append(Died(attempt_id=self.attempt_id, end=end, log_tail="it said this"))

    def signal(self, *, hard: bool) -> None:
        """Take a signal."""
        if hard:
            self.die(KILLED)
        elif self.node.fate != "ignores_signals":
            self.die(TERMINATED)

    def receive(self, message: object) -> None:
        """Take a message of the supervisor."""
        match message:
            case Welcome(task=task):
                assert self.task is None, "a process is welcomed once"
                self.task = task
                self.say(Started(**self._who), Progress(**self._who, step=1, delta="so far"))
                self._work()
            case Joined(join_id=join_id, budget=budget):
                assert self.waiting == join_id, "a process gets the join that it waits for"
                self.waiting = ""
                if budget and self.node.fate not in STUBBORN:
                    self._finish(Outcome(status="cancelled", reason="budget", message=budget))
                else:
                    self._work()
            case Cancel():
                if self.node.fate not in STUBBORN and self.result is None:
                    self._finish(Outcome(status="cancelled", reason="cancelled", partial_text="so far"))
            case ResultAck() if self.node.fate != "does_not_exit":
                self.say(Bye(**self._who, childless=False))
                self.die(Exit(code=0))

    def _work(self) -> None:
        """Do the next round, or what the plan has for the end."""
        if self.node.fate == "dies_at_work":
            self.die(Exit(signal="SIGSEGV"))
        elif self.node.fate == "breaks_protocol":
            self.said.append(Misbehaved(attempt_id=self.attempt_id, what="3 bad frames"))
        elif self.round < len(self.node.rounds):
            self._delegate()
            if self.node.fate == "dies_in_join":
                self.die(KILLED)
        elif self.task is not None and self.task.joins_detached and not self.late:
            self.late = True
            self.waiting = f"j_{self.attempt_id}_late"
            self.say(Delegate(**self._who, join_id=self.waiting, calls=[]))
        elif self.node.fate in {"completes", "does_not_exit", "dies_after_result", "is_not_launched_once"}:
            self._finish(Outcome(status="completed", text=f"done {self.attempt_id}"))
            if self.node.fate == "dies_after_result":
                self.die(KILLED)
        elif self.node.fate in {"fails", "dies_in_join"}:
            self._finish(Outcome(status="failed", reason="server_error", message="no"))

    def _delegate(self) -> None:
        assert self.task is not None
        calls = []
        for call_number, nodes in enumerate(self.node.rounds[self.round]):
            tasks = []
            for index, node in enumerate(nodes):
                goal = f"{self.task.text}.{self.round}-{call_number}-{index}"
                self.nodes[goal] = node
                tasks.append(TaskSpec(goal=goal, role="orchestrator" if node.rounds and self.depth == 0 else "leaf"))
            calls.append(CallRequest(tool_call_id=f"call_{call_number}", tasks=tasks))
        self.waiting = f"j_{self.attempt_id}_{self.round}"
        self.round += 1
        self.say(Delegate(**self._who, join_id=self.waiting, calls=calls))

    def _finish(self, outcome: Outcome) -> None:
        self.result = Result(**self._who, outcome=outcome)
        self.say(self.result)
