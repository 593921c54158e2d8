"""Turns of given tasks, without a root: their rules with exact times, and that they cost the same however many."""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from core_plan import Disturbance, Node, Plan, TurnPlan
from core_simulator import ENDPOINT, World

from fanjoin.ipc.messages import DirectTask, Event, Refused, Submit
from fanjoin.ipc.settings import DelegationLimits, Route, TurnSettings
from fanjoin.supervisor.core.effects import Launch, Persist, Stop, Tell
from fanjoin.supervisor.core.events import Submitted
from fanjoin.supervisor.core.machine import Core
from fanjoin.supervisor.core.model import Attempt, Delegate
from fanjoin.supervisor.records import DelegateAccepted

LEAF = Node()
HANGS = Node("ignores_cancel")


def ran(*tasks: Node, disturbances: tuple[Disturbance, ...] = (), **plan: Any) -> World:
    """Run one turn of these tasks to its end."""
    limits = DelegationLimits(**{"stall_seconds": 0, **plan.pop("limits", {})})
    turn = TurnPlan(tasks=tasks, limits=limits, **plan)
    world = World(Plan(turns=(turn,), disturbances=disturbances))
    world.run()
    return world


def entries(world: World) -> list[dict[str, Any]]:
    """Return the entries that were told, in the order of the tasks."""
    told = [one.data["entry"] for one in world.told if isinstance(one, Event) and one.name == "delegation.completed"]
    return sorted(told, key=lambda entry: entry["task_index"])


def fates(world: World) -> list[tuple[str, str]]:
    """Return (status, reason) of each task."""
    return [(one["status"], one.get("error", {}).get("reason", "")) for one in entries(world)]


def test_tasks_run_without_a_root_under_the_cap() -> None:
    """Only delegates are launched; the turn is completed when all are over, and repeats no entry."""
    world = ran(
        LEAF, Node("fails"), LEAF, limits={"max_concurrent_children": 2, "max_tasks": 1, "max_total_children": 1}
    )
    assert all(effect.depth == 1 for _, effect in world.effects if isinstance(effect, Launch))
    (end,) = world.done.values()
    assert (end.status, end.results, end.answer) == ("completed", [], "")
    assert fates(world) == [("completed", ""), ("failed", "server_error"), ("completed", "")]
    assert [one["id"] for one in entries(world)] == ["0:0", "0:1", "0:2"]


def test_tasks_are_accepted_in_the_transaction_that_admits_their_turn() -> None:
    """One commit holds the session, the turn and every task; no value of a variable is in it."""
    world = ran(LEAF, LEAF)
    first = next(effect for _, effect in world.effects if isinstance(effect, Persist))
    kinds = [type(record).__name__ for record in first.records]
    assert kinds[:2] == ["AdmissionQueued", "AdmissionStarted"]
    assert kinds.count("DelegateAccepted") == 2
    assert all('"KEY":""' in one.task_json for one in first.records if isinstance(one, DelegateAccepted))


@pytest.mark.parametrize(("own", "seconds"), [(3.0, 3.0), (0.0, 8.0)])
def test_the_timeout_of_a_task_goes_before_the_configured_one(own: float, seconds: float) -> None:
    """Zero means the configured one; the message says which it was."""
    world = ran(Node("hangs"), task_timeout=own, limits={"child_timeout_seconds": 8.0})
    (one,) = entries(world)
    assert one["error"]["reason"] == "child_timeout"
    assert f"({seconds:g})" in one["error"]["message"]
    assert ("the timeout of its task" in one["error"]["message"]) == bool(own)


def test_too_many_failures_end_the_rest() -> None:
    """The second failure: nothing more is started, what waits is cancelled (budget), the turn says it, too."""
    world = ran(Node("fails"), LEAF, Node("fails"), LEAF, LEAF, max_failures=2, limits={"max_concurrent_children": 1})
    assert [reason for _, reason in fates(world)] == ["server_error", "", "server_error", "budget", "budget"]
    (end,) = world.done.values()
    assert (end.status, end.reason) == ("cancelled", "budget")
    assert sum(isinstance(effect, Launch) for _, effect in world.effects) == 3


def test_a_second_cancel_forces_what_lingers() -> None:
    """``now`` ends every process of the turn, also of a task whose result is kept already."""
    cancel = Disturbance(after=15, kind="cancel_now")
    world = ran(HANGS, Node("does_not_exit"), limits={"stall_seconds": 20}, disturbances=(cancel,))
    assert fates(world) == [("cancelled", "cancelled"), ("completed", "")]
    forced = [(when, effect.attempt_id) for when, effect in world.effects if isinstance(effect, Stop) and effect.hard]
    assert len(forced) == 2
    assert forced[0][0] == forced[1][0], "at one moment, not after five seconds"


def test_a_route_that_is_not_configured_is_refused_whole() -> None:
    """Nothing is recorded, nothing starts."""
    core = Core(home=Path("home"), max_processes=4)
    routes = {"known": Route(endpoint=ENDPOINT)}
    settings = TurnSettings(endpoint=ENDPOINT, delegate_endpoint=ENDPOINT, routes=routes)
    tasks = [DirectTask(goal="a", task_id="a", route="known"), DirectTask(goal="b", task_id="b", route="other")]
    submit = Submit(
        request_id="r", session_id="", text="", finite=True, payload_json="{}", settings=settings, tasks=tasks
    )
    (effect,) = core.handle(Submitted(viewer="v", submit=submit), 0.0, 0.0)
    assert isinstance(effect, Tell)
    assert isinstance(effect.message, Refused)
    assert (effect.message.reason, "other" in effect.message.message) == ("invalid_params", True)
    assert core.idle


class Watched(World):
    """A world that counts, in its first and its last part, what the core does and keeps."""

    def __init__(self, plan: Plan, part: int) -> None:
        super().__init__(plan)
        self._part = part
        self.calls: list[int] = []
        self.kept: list[int] = []
        self._count = 0

    def feed(self, event: Any) -> None:
        """Count the calls that the core makes over an event."""
        handle = self.core.handle

        def counted(*arguments: Any) -> Any:
            with counting(self):
                return handle(*arguments)

        self.core.handle = counted  # type: ignore[method-assign]
        super().feed(event)
        self.core.handle = handle  # type: ignore[method-assign]
        self.effects.clear()
        if len(self.recorded) >= (len(self.calls) + 1) * self._part:
            self.calls.append(self._count)
            self._count = 0
            objects = gc.get_objects()
            self.kept.append(sum(isinstance(one, Delegate | Attempt) for one in objects))

    def count(self, _: Any, kind: str, __: Any) -> None:
        """Count one call of a function, of Python or of C."""
        self._count += kind in {"call", "c_call"}


@contextmanager
def counting(world: Watched) -> Iterator[None]:
    """Let a world see every call in the block."""
    sys.setprofile(world.count)
    try:
        yield
    finally:
        sys.setprofile(None)


def test_a_task_costs_the_same_however_many_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 600 tasks the last hundred take no more calls than the second; what is over is not kept in memory."""
    monkeypatch.setattr("core_simulator.MAX_STEPS", 100_000)
    gc.collect()
    before = sum(isinstance(one, Delegate | Attempt) for one in gc.get_objects())
    gc.disable()
    try:
        limits = DelegationLimits(stall_seconds=0, max_concurrent_children=8)
        world = Watched(Plan(turns=(TurnPlan(tasks=(LEAF,) * 600, limits=limits),)), 100)
        world.run()
    finally:
        gc.enable()
    assert len(world.calls) == 6
    assert world.calls[5] <= world.calls[1] * 1.1
    open_at = [600 - 100 * part for part in range(1, 7)]
    assert all(kept - before <= number + 40 for kept, number in zip(world.kept, open_at, strict=True))
    assert world.kept[5] - before < 60


def test_what_a_join_costs_does_not_grow_with_its_width(monkeypatch: pytest.MonkeyPatch) -> None:
    """A root that waits for 400 delegates: the third hundred takes no more calls than the second.

    The fourth is not compared: the joined result is made in it, once.
    """
    monkeypatch.setattr("core_simulator.MAX_STEPS", 100_000)
    limits = DelegationLimits(stall_seconds=0, max_tasks=400, max_total_children=400)
    root = Node(rounds=(((LEAF,) * 400,),))
    world = Watched(Plan(turns=(TurnPlan(root=root, limits=limits),)), 100)
    world.run()
    assert world.calls[2] <= world.calls[1] * 1.1
