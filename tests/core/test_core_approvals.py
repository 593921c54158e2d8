"""What a root asks its user: answered once, by the viewer that brought the turn, or by its leaving."""

from pathlib import Path
from typing import Any

from core_journal import Journal

from fanjoin.ipc.approval_messages import ApprovalAsked, ApprovalDecided, AskApproval, DecideApproval
from fanjoin.ipc.messages import Hello, Submit
from fanjoin.ipc.settings import DelegationLimits, Endpoint, TurnSettings
from fanjoin.supervisor.core.effects import Ask, Launch, Persist, Send, Tell
from fanjoin.supervisor.core.events import AgentSaid, CoreEvent, Launched, SessionAsked, Submitted, Tick, ViewerLeft
from fanjoin.supervisor.core.machine import Core

STALL = 20.0


class Run:
    """A turn whose root has said hello, and what it and its viewer are told."""

    def __init__(self) -> None:
        self.told: list[Any] = []
        self.now = 1.0
        self._journal = Journal(frozenset())
        self._core = Core(home=Path("/home"), max_processes=2)
        endpoint = Endpoint(base_url="http://a", model="m")
        limits = DelegationLimits(stall_seconds=STALL)
        settings = TurnSettings(endpoint=endpoint, delegate_endpoint=endpoint, limits=limits, cwd="/w")
        submit = Submit(
            request_id="r", session_id="", text="x", finite=False, payload_json="{}", settings=settings, asks=True
        )
        self.attempt_id = ""
        self.feed(Submitted(viewer="v", submit=submit))
        self._say(Hello, nonce="", pid=7)
        self.told.clear()

    def feed(self, event: CoreEvent) -> None:
        """Hand in an event, and have done what comes of it."""
        effects = self._core.handle(event, self.now, self.now)
        for effect in effects:
            match effect:
                case Persist() | Ask():
                    self._journal.queue.append(effect)
                    self.feed(self._journal.answer())
                case Launch(attempt_id=attempt_id):
                    self.attempt_id = attempt_id
                    self.feed(Launched(attempt_id=attempt_id, pid=7, process_start="1"))
                case Send(message=message) | Tell(message=message):
                    self.told.append(message)

    def _say(self, kind: Any, **fields: Any) -> None:
        self.feed(AgentSaid(message=kind(run_id="i", attempt_id=self.attempt_id, **fields)))

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        for _ in range(int(seconds)):
            self.now += 1
            self.feed(Tick())

    def ask(self, approval_id: str) -> None:
        """Let the root ask."""
        self._say(AskApproval, approval_id=approval_id, what="ls x", patterns=["ls *"])

    def decide(self, approval_id: str, *, allowed: bool) -> None:
        """Let the viewer answer."""
        admission_id = self.attempt_id.partition(".")[0]
        decision = DecideApproval(admission_id=admission_id, approval_id=approval_id, allowed=allowed)
        self.feed(SessionAsked(viewer="v", request=decision))

    def decided(self) -> list[tuple[str, bool]]:
        """Return what the root was told."""
        return [(one.approval_id, one.allowed) for one in self.told if isinstance(one, ApprovalDecided)]


def test_a_question_is_answered_once() -> None:
    """It reaches the viewer as it is; answers to another one, or a second answer, change nothing."""
    run = Run()
    run.ask("a_1")
    (asked,) = run.told
    assert isinstance(asked, ApprovalAsked)
    assert (asked.approval_id, asked.what, asked.patterns) == ("a_1", "ls x", ["ls *"])
    run.decide("a_0", allowed=True)
    assert run.decided() == []
    run.decide("a_1", allowed=True)
    run.decide("a_1", allowed=False)
    assert run.decided() == [("a_1", True)]


def test_a_viewer_that_leaves_has_said_no() -> None:
    """The root goes on without it; whatever it asks then is answered no, too, for nobody is there."""
    run = Run()
    run.ask("a_1")
    run.feed(ViewerLeft(viewer="somebody else"))
    assert run.decided() == []
    run.feed(ViewerLeft(viewer="v"))
    run.ask("a_2")
    assert run.decided() == [("a_1", False), ("a_2", False)]


def test_a_person_may_think_as_long_as_it_takes() -> None:
    """A root that waits for an answer does not count as stalled; after the answer it does again."""
    run = Run()
    run.ask("a_1")
    run.wait(3 * STALL)
    run.decide("a_1", allowed=False)
    assert [type(one) for one in run.told] == [ApprovalAsked, ApprovalDecided]
    run.wait(STALL + 1)
    assert [type(one).__name__ for one in run.told[2:]] == ["Cancel"]
