"""The core under random plans and random orders of events; the rules themselves stand in ``core_simulator``."""

from core_plan import FATES, Disturbance, Node, Plan, TurnPlan
from core_simulator import World
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fanjoin.ipc.settings import DelegationLimits

fates = st.one_of(st.just("completes"), st.sampled_from(FATES))


def rounds(children: st.SearchStrategy[Node]) -> st.SearchStrategy[tuple[tuple[tuple[Node, ...], ...], ...]]:
    """Draw up to two rounds of one or two calls with up to three tasks."""
    call = st.lists(children, min_size=1, max_size=3).map(tuple)
    message = st.lists(call, min_size=1, max_size=2).map(tuple)
    return st.lists(message, max_size=2).map(tuple)


leaves = st.builds(Node, fates)
orchestrators = st.builds(Node, fates, rounds(leaves))
roots = st.builds(Node, fates, rounds(st.one_of(leaves, leaves, orchestrators)))

limits = st.builds(
    DelegationLimits,
    max_concurrent_children=st.integers(1, 3),
    max_total_children=st.sampled_from([4, 200]),
    max_spawn_depth=st.sampled_from([2, 2, 1]),
    child_timeout_seconds=st.sampled_from([0.0, 0.0, 7.0]),
    stall_seconds=st.just(20.0),
    max_attempts=st.integers(1, 2),
)
turns = st.builds(
    TurnPlan,
    root=roots,
    session=st.integers(0, 1),
    limits=limits,
    deadline=st.sampled_from([0.0, 0.0, 9.0]),
    background=st.sampled_from([False, False, True]),
)
given_tasks = st.builds(
    TurnPlan,
    tasks=st.lists(leaves, min_size=1, max_size=5).map(tuple),
    task_timeout=st.sampled_from([0.0, 5.0]),
    max_failures=st.sampled_from([0, 0, 1, 2]),
    session=st.integers(0, 1),
    limits=limits,
    deadline=st.sampled_from([0.0, 0.0, 9.0]),
)
submissions = st.lists(st.one_of(turns, turns, given_tasks), min_size=1, max_size=3).map(tuple)
disturbances = st.builds(
    Disturbance,
    after=st.integers(0, 80),
    kind=st.sampled_from(["cancel", "cancel_now", "cancel_turn", "cancel_delegate", "viewers_lost", "end"]),
    target=st.integers(0, 9),
)
calm = st.builds(Plan, turns=submissions, max_processes=st.sampled_from([1, 2, 3, 64]))
rough = st.builds(
    Plan,
    turns=submissions,
    max_processes=st.sampled_from([1, 2, 3, 64]),
    failing_tickets=st.frozensets(st.integers(1, 40), max_size=3),
    disturbances=st.lists(disturbances, max_size=3).map(tuple),
)
quick = settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))


@quick
@given(calm, st.binary(max_size=300))
def test_every_order_of_events_ends_with_every_receipt_and_every_answer(plan: Plan, choices: bytes) -> None:
    """Whatever children do and whichever event comes first: caps hold, joins are whole, nothing waits for ever."""
    World(plan, choices).run()


@quick
@given(rough, st.binary(max_size=300))
def test_cancels_lost_viewers_and_a_failing_store_change_no_rule(plan: Plan, choices: bytes) -> None:
    """Whoever gives up at whatever moment, and whatever the database refuses: the same rules hold."""
    World(plan, choices).run()
