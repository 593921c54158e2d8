"""What happens in a world: a tree of delegations with the fate of each process, limits, and what users do meanwhile."""

from msgspec import Struct

from fanjoin.ipc.settings import DelegationLimits

FATES = (
    "completes",
    "fails",
    "dies_after_result",
    "dies_before_hello",
    "dies_at_work",
    "dies_in_join",
    "hangs",
    "hangs_before_hello",
    "ignores_cancel",
    "ignores_signals",
    "is_not_launched",
    "is_not_launched_once",
    "breaks_protocol",
    "does_not_exit",
)
STUBBORN = frozenset({"ignores_cancel", "ignores_signals"})


class Node(Struct, frozen=True):
    """What one delegate (or a root) will do: delegate in rounds, each with calls, each with tasks; then its fate."""

    fate: str = "completes"
    rounds: tuple[tuple[tuple["Node", ...], ...], ...] = ()


class TurnPlan(Struct, frozen=True, kw_only=True):
    """One submission. Turns with the same session number run one after the other; one with ``tasks`` has no root."""

    root: Node = Node()
    tasks: tuple[Node, ...] = ()
    task_timeout: float = 0.0
    max_failures: int = 0
    session: int = 0
    limits: DelegationLimits = DelegationLimits(stall_seconds=20, max_spawn_depth=2)
    deadline: float = 0.0


class Disturbance(Struct, frozen=True, kw_only=True):
    """Something that a user does after so many events."""

    after: int
    kind: str
    target: int = 0


class Plan(Struct, frozen=True, kw_only=True):
    """All that is not a choice of order."""

    turns: tuple[TurnPlan, ...]
    max_processes: int = 64
    failing_tickets: frozenset[int] = frozenset()
    disturbances: tuple[Disturbance, ...] = ()
