"""Clocks: what is measured with the one that only grows, and what a step of the other one must not touch."""

from pathlib import Path

import msgspec
import pytest

from fanjoin.ipc.messages import CallRequest, Delegate, FromAgent, Hello, Submit, TaskSpec
from fanjoin.ipc.settings import DelegationLimits, Endpoint, TurnSettings
from fanjoin.supervisor.core.attempts import HELLO_SECONDS
from fanjoin.supervisor.core.effects import Effect, Launch, Persist, Send, Stop
from fanjoin.supervisor.core.events import AgentSaid, CoreEvent, Died, Gone, Launched, Recorded, Submitted, Tick
from fanjoin.supervisor.core.machine import Core
from fanjoin.supervisor.exit_cause import Exit
from fanjoin.supervisor.records import ReceiptWritten

ENDPOINT = Endpoint(base_url="http://127.0.0.1:1/v1", model="m")
HOUR = 3600.0


class Table:
    """A core whose records are committed at once, with both clocks in the test's hand."""

    def __init__(self, limits: DelegationLimits) -> None:
        self.core = Core(home=Path("home"), max_processes=8)
        self.now, self.wall = 100.0, 1e9
        self.effects: list[Effect] = []
        settings = TurnSettings(endpoint=ENDPOINT, delegate_endpoint=ENDPOINT, limits=limits)
        submit = Submit(request_id="r_1", session_id="", text="t", finite=True, payload_json="{}", settings=settings)
        self.feed(Submitted(viewer="owner", submit=submit))
        self.root = self.launched()[0]
        self.greet(self.root)
        call = CallRequest(tool_call_id="call_1", tasks=[TaskSpec(goal="g")])
        self.say(self.root, Delegate, join_id="j_1", calls=[call])
        self.delegate = self.launched()[1]

    def feed(self, event: CoreEvent) -> None:
        """Hand in an event, and the commits that it leads to."""
        for effect in self.core.handle(event, self.now, self.wall):
            self.effects.append(effect)
            if isinstance(effect, Persist):
                self.feed(Recorded(ticket=effect.ticket))

    def say(self, attempt_id: str, kind: type[FromAgent], **fields: object) -> None:
        """Let an agent speak."""
        who = {"type": kind.__struct_config__.tag, "run_id": "i_1", "attempt_id": attempt_id}
        self.feed(AgentSaid(message=msgspec.convert({**who, **msgspec.to_builtins(fields)}, kind)))

    def greet(self, attempt_id: str) -> None:
        """Let a launched process come to life."""
        self.feed(Launched(attempt_id=attempt_id, pid=1, process_start="1"))
        self.say(attempt_id, Hello, nonce="n", pid=1)

    def pass_time(self, seconds: float, wall_step: float = 0.0) -> None:
        """Let time pass beat by beat; the wall clock steps once in addition."""
        self.wall += wall_step
        for _ in range(int(seconds * 2)):
            self.now += 0.5
            self.wall += 0.5
            self.feed(Tick())

    def launched(self) -> list[str]:
        """Return the attempts that were launched."""
        return [effect.attempt_id for effect in self.effects if isinstance(effect, Launch)]

    def stopped(self) -> list[str]:
        """Return the attempts that were ended by force."""
        return [effect.attempt_id for effect in self.effects if isinstance(effect, Stop) and effect.hard]

    def receipts(self) -> list[ReceiptWritten]:
        """Return the receipts so far."""
        records = [record for effect in self.effects if isinstance(effect, Persist) for record in effect.records]
        return [record for record in records if isinstance(record, ReceiptWritten)]


def test_a_process_that_says_no_hello_is_ended_and_not_started_again() -> None:
    """At the end of its time it is killed; the receipt names the reason; no second process, though more may be."""
    table = Table(DelegationLimits(max_attempts=3))
    table.feed(Launched(attempt_id=table.delegate, pid=2, process_start="1"))
    table.pass_time(HELLO_SECONDS - 0.5)
    assert table.stopped() == []
    table.pass_time(1)
    assert table.stopped() == [table.delegate]
    table.feed(Died(attempt_id=table.delegate, end=Exit(signal="SIGKILL"), log_tail=""))
    table.feed(Gone(attempt_id=table.delegate))
    (receipt,) = table.receipts()
    assert (receipt.status, receipt.reason) == ("failed", "spawn_failed")
    assert "hello" in receipt.message
    assert len(table.launched()) == 2


@pytest.mark.parametrize("step", [HOUR, -HOUR])
def test_a_step_of_the_wall_clock_ends_nobody_and_frees_nobody(step: float) -> None:
    """An hour forward or back during a join: nothing happens; the timeout comes when its own seconds are over."""
    table = Table(DelegationLimits(child_timeout_seconds=60, stall_seconds=0))
    table.greet(table.delegate)
    before = len(table.effects)
    table.pass_time(50, step)
    assert table.effects[before:] == []
    table.pass_time(11)
    sent = [effect for effect in table.effects[before:] if isinstance(effect, Send)]
    assert [effect.attempt_id for effect in sent] == [table.delegate]
