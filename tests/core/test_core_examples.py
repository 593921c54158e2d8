"""What the core does in the cases that a person would ask about, with exact times on the test's own clock."""

from typing import Any

import pytest
from core_plan import Disturbance, Node, Plan, TurnPlan
from core_simulator import World

from fanjoin.ipc.messages import Cancel, Joined, TurnDone
from fanjoin.ipc.settings import DelegationLimits
from fanjoin.supervisor.core.effects import Launch, Send, Stop
from fanjoin.supervisor.core.events import DelegateCancelled, TurnCancelled, ViewersLost

LEAF = Node()


def fan(*nodes: Node) -> Node:
    """Return work that delegates to these in one call and then completes."""
    return Node(rounds=((nodes,),))


def turn(root: Node, *, session: int = 0, deadline: float = 0.0, **limits: Any) -> TurnPlan:
    """Return a turn with these limits."""
    known = {"stall_seconds": 20, "max_spawn_depth": 2}
    return TurnPlan(root=root, session=session, deadline=deadline, limits=DelegationLimits(**known | limits))


def ran(*turns: TurnPlan, **plan: Any) -> World:
    """Run turns to their end, each event as soon as it can come."""
    world = World(Plan(turns=turns, **plan))
    world.run()
    return world


def launches(world: World) -> list[str]:
    """Return the attempts in the order of their launch."""
    return [effect.attempt_id for _, effect in world.effects if isinstance(effect, Launch)]


def done(world: World) -> TurnDone:
    """Return the end of the world's one turn."""
    (end,) = world.done.values()
    return end


def results(world: World) -> list[tuple[str, str, int]]:
    """Return status, reason and number of attempts of every delegate of the one turn."""
    return [(one["status"], one.get("error", {}).get("reason", ""), one["attempts"]) for one in done(world).results]


def _is_cancel(effect: Send) -> bool:
    return isinstance(effect.message, Cancel)


def ending(world: World, attempt_id: str) -> list[tuple[float, str]]:
    """Return how a process was ended: what was done, and how many seconds after the first of it."""
    told: list[tuple[float, str]] = []
    for when, effect in world.effects:
        if isinstance(effect, Send) and _is_cancel(effect) and effect.attempt_id == attempt_id:
            told.append((when, "message"))
        if isinstance(effect, Stop) and effect.attempt_id == attempt_id:
            told.append((when, "force" if effect.hard else "signal"))
    return [(round(when - told[0][0], 3), what) for when, what in told]


def test_who_resumes_goes_before_new_work() -> None:
    """Of two orchestrators under a cap of one, the first whose delegate ends goes on before the other's begins."""
    world = ran(turn(fan(fan(LEAF), fan(LEAF)), max_concurrent_children=1))
    first, second, _, last = launches(world)[1:]
    order = [
        effect.attempt_id if isinstance(effect, Launch) else f"{effect.attempt_id} resumes"
        for _, effect in world.effects
        if isinstance(effect, Launch) or (isinstance(effect, Send) and isinstance(effect.message, Joined))
    ]
    assert order.index(f"{first} resumes") < order.index(last) < order.index(f"{second} resumes")


def test_nested_delegation_under_one_slot_and_one_process_ends() -> None:
    """Two levels, a cap of one and room for one process: everybody gets an answer."""
    world = ran(turn(fan(fan(LEAF, LEAF), fan(LEAF)), max_concurrent_children=1), max_processes=1)
    assert results(world) == [("completed", "", 1)] * 5


@pytest.mark.parametrize(
    ("fate", "expected"),
    [
        ("dies_before_hello", ("crashed", "exit_code", 2)),
        ("is_not_launched_once", ("completed", "", 2)),
        ("is_not_launched", ("failed", "spawn_failed", 2)),
        ("dies_at_work", ("crashed", "signal", 1)),
        ("fails", ("failed", "server_error", 1)),
        ("breaks_protocol", ("crashed", "protocol_violation", 1)),
        ("hangs_before_hello", ("failed", "spawn_failed", 1)),
    ],
)
def test_only_what_the_machine_failed_before_the_first_step_is_tried_again(
    fate: str, expected: tuple[str, str, int]
) -> None:
    """With two attempts allowed, a delegate that had begun, or that we ended, is not run again."""
    assert results(ran(turn(fan(Node(fate)), max_attempts=2))) == [expected]


def test_nothing_is_tried_again_unless_it_is_allowed() -> None:
    """One attempt is the default."""
    assert results(ran(turn(fan(Node("dies_before_hello"))))) == [("crashed", "exit_code", 1)]


def test_three_failed_launches_within_a_minute_fail_the_queue() -> None:
    """The rest of ten delegates is not tried, and each says why."""
    world = ran(turn(fan(*[Node("is_not_launched")] * 10), max_concurrent_children=1))
    assert len(launches(world)) == 1 + 3
    assert [one[:2] for one in results(world)] == [("failed", "spawn_failed")] * 10
    assert "3 launches failed within 60 s" in done(world).results[9]["error"]["message"]
    assert done(world).results[9]["attempts"] == 0


@pytest.mark.parametrize(("kind", "grace"), [("cancel", 4.0), ("viewers_lost", 1.0), ("end", 1.0)])
def test_a_cancel_goes_from_a_message_to_a_signal_to_force(kind: str, grace: float) -> None:
    """Message, the grace, SIGTERM, one second, SIGKILL; the grace is one second when no viewer is left."""
    world = ran(turn(Node("ignores_signals")), disturbances=(Disturbance(after=6, kind=kind),))
    assert ending(world, launches(world)[0]) == [(0.0, "message"), (grace, "signal"), (grace + 1, "force")]
    assert done(world).status == "cancelled"
    assert done(world).reason == ("viewer_lost" if kind == "viewers_lost" else "cancelled")
    assert done(world).answer == "so far"


def test_a_lost_viewer_shortens_a_grace_that_has_begun() -> None:
    """Half a second into a cancel of four, the viewer dies: one more second is left."""
    world = World(Plan(turns=(turn(Node("ignores_signals")),), disturbances=(Disturbance(after=6, kind="cancel"),)))
    while not ending(world, "t_1.1"):
        world.step()
    world.tick(0.5)
    world.feed(ViewersLost())
    world.run()
    assert ending(world, "t_1.1") == [(0.0, "message"), (1.5, "signal"), (2.5, "force")]


def test_cancel_now_skips_every_grace() -> None:
    """The user's second Ctrl-C ends the processes at once, and receipts are written all the same."""
    world = World(Plan(turns=(turn(fan(Node("hangs"))),)))
    while not any(child.task and child.depth for child in world.children.values()):
        world.step()
    world._disturb(Disturbance(after=0, kind="cancel_now"))
    world.run()
    assert ending(world, launches(world)[1])[:2] == [(0.0, "message"), (0.0, "force")]
    assert results(world) == [("cancelled", "cancelled", 1)]


def test_delegates_of_a_dead_parent_are_ended() -> None:
    """A root that dies while it waits takes its delegates with it, with a receipt each."""
    world = ran(turn(Node("dies_in_join", ((((Node("hangs"), LEAF, LEAF)),),)), max_concurrent_children=1))
    assert done(world).reason == "killed"
    assert {one[:2] for one in results(world)} == {("cancelled", "cancelled")}


def test_a_result_counts_although_its_process_was_to_be_ended() -> None:
    """What came before the cancel reached the process is kept: completed is completed."""
    world = World(Plan(turns=(turn(LEAF),)))
    while not any(child.result for child in world.children.values()):
        world.step()
    world._disturb(Disturbance(after=0, kind="cancel"))
    world.run()
    assert done(world).status == "completed"


def test_a_call_that_comes_after_the_cancel_starts_nothing() -> None:
    """The stop of a turn in the moment of its call is not lost: no delegate is accepted any more."""
    world = World(Plan(turns=(turn(fan(LEAF, LEAF)),)))
    while not any(child.waiting for child in world.children.values()):
        world.step()
    world._disturb(Disturbance(after=0, kind="cancel"))
    world.run()
    assert not world.accepted
    assert done(world).status == "cancelled"


def test_a_turn_that_is_cancelled_while_it_waits_never_begins() -> None:
    """Of two turns of a session, cancelled together, the second starts no process."""
    turns = (turn(Node("hangs")), turn(LEAF))
    world = ran(*turns, disturbances=(Disturbance(after=8, kind="cancel"),))
    assert len(launches(world)) == 1
    assert [one.status for one in world.done.values()] == ["cancelled", "cancelled"]


def test_a_turn_that_is_cancelled_before_it_began_does_not_take_a_free_process() -> None:
    """Room for one process: it gets free while the end of the cancelled turn is still to be recorded."""
    world = World(Plan(turns=(turn(LEAF), turn(LEAF, session=1)), max_processes=1))
    while not any(child.happened and child.death_seen for child in world.children.values()):
        world.step()
    world.feed(TurnCancelled(viewer="w", admission_id=world.admissions[1]))
    (first,) = world.children.values()
    world._happens(first)
    world.run()
    assert len(launches(world)) == 1


def test_a_process_that_asks_again_and_does_not_exit_is_ended() -> None:
    """Five seconds after the first acknowledgement, however often its result comes again."""
    world = World(Plan(turns=(turn(Node("does_not_exit")),)))
    while not world.done:
        world.step()
    began = world.now
    while not world.core.idle:
        world.tick(0.5)
        while any(child.said or child.happened for child in world.children.values()):
            world.step()
    assert world.now - began == 5


def test_a_cancelled_turn_does_not_let_another_overtake() -> None:
    """Of three turns of a session the third is cancelled while the first runs: the second still waits for the first."""
    world = World(Plan(turns=(turn(Node("hangs")), turn(LEAF), turn(LEAF))))
    while not any(child.task for child in world.children.values()):
        world.step()
    first, second, third = world.admissions
    world.feed(TurnCancelled(viewer="w", admission_id=third))
    world.run()
    assert list(world.done) == [third, first, second]
    assert [one.status for one in world.done.values()] == ["cancelled", "timeout", "completed"]


def test_a_turn_that_was_refused_is_told_once() -> None:
    """Cancelled before it is known that its admission cannot be recorded: refused, and no second end."""
    plan = Plan(turns=(turn(LEAF), turn(LEAF, session=1)), max_processes=1, failing_tickets=frozenset({2}))
    world = World(plan)
    world._submit()
    world._submit()
    world.answer_questions()
    world.feed(TurnCancelled(viewer="w", admission_id=world.admissions[1]))
    world.run()
    assert len(world.refused) == len(world.done) == 1


def test_a_cancel_before_the_intent_is_recorded_launches_nothing() -> None:
    """The process was only meant to be: it is not started any more."""
    world = World(Plan(turns=(turn(LEAF),)))
    world._submit()
    world.answer_questions()
    world.feed(TurnCancelled(viewer="w", admission_id=world.admissions[0]))
    world.run()
    assert launches(world) == []
    assert done(world).status == "cancelled"


def test_a_delegate_that_was_cancelled_in_the_queue_does_not_fail_with_it() -> None:
    """Its receipt is written, and the failing launcher does not write another."""
    world = World(Plan(turns=(turn(fan(*[Node("is_not_launched")] * 6), max_concurrent_children=1),)))
    while not world.accepted:
        world.step()
    last = list(world.accepted)[-1]
    world.feed(DelegateCancelled(viewer="v", request_id="r", target_id=last))
    world.run()
    assert [one[0] for one in results(world)] == ["failed"] * 5 + ["cancelled"]


def test_a_pause_of_everything_is_no_stall() -> None:
    """After an hour in which nothing ran, a delegate has the time left that it had before."""
    world = World(Plan(turns=(turn(Node("hangs")),)))
    while not any(child.task and not child.said for child in world.children.values()):
        world.step()
    for pause in (4.0, 4.0, 3600.0):
        world.tick(pause)
    before = world.now
    world.run()
    (cancelled,) = [when for when, effect in world.effects if isinstance(effect, Send) and _is_cancel(effect)]
    assert done(world).reason == "stalled"
    assert cancelled - before == 20 - 4 - 4


def test_a_delegate_runs_no_longer_than_its_timeout() -> None:
    """Seven seconds after its hello it is cancelled, and keeps what it had said."""
    world = ran(turn(fan(Node("ignores_signals")), child_timeout_seconds=7))
    assert results(world) == [("timeout", "child_timeout", 1)]
    assert done(world).results[0]["partial_text"] == "so far"
    assert done(world).results[0]["exit"] == {"code": None, "signal": "SIGKILL"}
    assert done(world).results[0]["duration_seconds"] == 7 + 4 + 1


def test_time_in_the_queue_is_not_time_at_work() -> None:
    """Under a cap of one, the second delegate's timeout begins with its own process."""
    hanging = Node("hangs")
    world = ran(turn(fan(hanging, hanging), max_concurrent_children=1, child_timeout_seconds=7))
    assert results(world) == [("timeout", "child_timeout", 1)] * 2
    assert [one["queued_seconds"] for one in done(world).results] == [0, 7]


def test_a_turn_ends_at_its_deadline() -> None:
    """Nine seconds after it began, whatever it is doing."""
    world = ran(turn(fan(Node("hangs")), deadline=9))
    assert (done(world).status, done(world).reason) == ("cancelled", "budget")
    assert world.now - 1000 == 9


def test_a_root_that_waits_gets_what_is_done_before_it_ends() -> None:
    """At the deadline delegates are cancelled, their entries are joined, and the root is told why it ends."""
    world = ran(turn(fan(LEAF, Node("hangs")), deadline=9))
    assert results(world) == [("completed", "", 1), ("cancelled", "budget", 1)]
    [joined] = [one.message for _, one in world.effects if isinstance(one, Send) and isinstance(one.message, Joined)]
    assert "deadline of 9 s (--deadline)" in joined.budget
    assert done(world).message == joined.budget


def test_a_root_that_does_not_end_by_itself_is_ended() -> None:
    """Delegates get their grace, the root a few seconds to join; then it is cancelled like anything else."""
    world = ran(turn(Node("ignores_signals", rounds=(((Node("hangs"),),),)), deadline=9))
    assert (done(world).status, done(world).reason) == ("cancelled", "budget")
    assert world.now - 1000 < 9 + 4 + 5 + 4 + 1 + 6


def test_turns_of_one_session_run_one_after_the_other() -> None:
    """First in, first out: the second begins when the first has ended."""
    world = ran(turn(fan(LEAF)), turn(fan(LEAF)), turn(LEAF))
    assert list(world.done) == world.admissions
    roots = [one for one in launches(world) if one.startswith("t_")]
    assert roots == [f"{admission}.1" for admission in world.admissions]


def test_no_turn_starves_another() -> None:
    """A turn with many delegates leaves the next free process to a turn that has none."""
    many, few = turn(fan(*[LEAF] * 12)), turn(fan(LEAF, LEAF), session=1)
    world = ran(many, few, max_processes=4)
    whose = ["".join(world.accepted[one[:-2]].admission_id) for one in launches(world) if one.startswith("d_")]
    last_of_few = len(whose) - whose[::-1].index(world.admissions[1])
    assert last_of_few <= 8, "both of the second turn ran while the first had more to do"


def test_roots_wait_for_a_process_too() -> None:
    """Five sessions and room for two processes: the caps hold for the turns' own processes as well."""
    world = ran(*[turn(LEAF, session=number) for number in range(5)], max_processes=2)
    assert [one.status for one in world.done.values()] == ["completed"] * 5


def test_a_result_that_cannot_be_recorded_is_told_and_not_acknowledged() -> None:
    """With a full disk the answer comes, marked as not recorded, and nothing waits for an acknowledgement."""
    world = ran(turn(LEAF), failing_tickets=frozenset(range(2, 40)))
    assert done(world).status == "completed"
    assert not done(world).recorded
    assert done(world).storage_error == "disk full"
    assert ending(world, launches(world)[0]) == [(0.0, "force")]


@pytest.mark.parametrize("target", [1, 2])
def test_a_cancelled_turn_that_would_have_told_a_result_gives_it_back(target: int) -> None:
    """At whatever moment the session's own turn is cancelled: the result is told by it or by the next one, once."""
    plan = TurnPlan(root=fan(LEAF, LEAF), limits=DelegationLimits(stall_seconds=20), background=True)
    for after in range(20, 90):
        cancelled = Disturbance(after=after, kind="cancel_turn", target=target)
        ran(plan, TurnPlan(session=1), max_processes=1, disturbances=(cancelled,))


def test_results_of_several_calls_are_told_one_by_one() -> None:
    """Each dispatched call becomes a turn of its own."""
    world = ran(TurnPlan(root=Node(rounds=(((LEAF,), (LEAF,)),)), background=True))
    told = [record for key, record in world.journal.committed.items() if key[0] == "CallDelivered"]
    assert len({record.admission_id for record in told}) == len(told) == 2
    assert {receipt.status for receipt in world.receipts.values()} == {"completed"}


def test_a_finite_turn_waits_for_what_was_dispatched_before() -> None:
    """It begins while the delegates of the turn before it run, and ends after their result was told to it."""
    world = ran(TurnPlan(root=fan(LEAF, fan(LEAF)), background=True), TurnPlan())
    (told,) = [record for key, record in world.journal.committed.items() if key[0] == "CallDelivered"]
    assert told.admission_id == world.admissions[1]
    assert len(world.admissions) == 2
