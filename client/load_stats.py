"""The statistics of a load test (pure): from what was seen of each request and delegate to figures and verdicts."""

from collections import Counter
from collections.abc import Iterable, Sequence
from http import HTTPStatus

from msgspec import Struct, field

from fanjoin.client.load_scenario import Goal

PARTS = ("queued", "launch", "ttft", "between", "receipt", "joining", "join")
"""The latencies, each with p50, p90, p99 and max; docs/loadtest.md says what each one is."""
QUANTILES = ("p50", "p90", "p99", "max")
FIGURES = tuple(f"{part}_{quantile}" for part in PARTS for quantile in QUANTILES)
BUSY = 0.8
"""A process of ours that used more than this share of one core was a limit itself: it has one thread that works."""


class Call(Struct, kw_only=True):
    """One request of a delegate as the relay saw it. Times are Unix seconds, 0.0 = never."""

    mark: str
    arrived: float
    sent: float = 0.0
    first: float = 0.0
    ended: float = 0.0
    gaps: list[float] = field(default_factory=list)
    status: int = 0
    error: str = ""


class Delegation(Struct, kw_only=True):
    """One delegate as it is on record. Times are Unix seconds, 0.0 = not on record."""

    mark: str
    join: int
    due: float
    launched: float = 0.0
    result: float = 0.0
    committed: float = 0.0
    status: str = ""
    reason: str = ""
    steps: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0


class FanOut(Struct, kw_only=True):
    """One fan-out: when it was due, when it was joined (0.0 = never), how many delegates it has."""

    number: int
    due: float
    size: int
    joined: float = 0.0
    error: str = ""


class Resources(Struct, kw_only=True):
    """What processes used. CPU in seconds, memory in bytes; None is what could not be seen here."""

    cpu_agents: float | None = None
    child_memory: int | None = None
    peak_memory: int | None = None
    memory_kind: str = ""
    own_cores: float = 0.0
    provider_cores: float | None = None


class Seen(Struct, kw_only=True):
    """All that was seen at one level of concurrency. ``wrong`` is what the check of the end found."""

    concurrency: int
    began: float
    ended: float
    fan_outs: list[FanOut]
    delegations: list[Delegation]
    calls: list[Call]
    resources: Resources
    wrong: list[str] = field(default_factory=list)


class Level(Struct, kw_only=True):
    """The figures of one level. Latencies in seconds."""

    concurrency: int
    seconds: float
    delegations: int
    delegations_per_second: float
    steps_per_second: float
    output_tokens_per_second: float
    input_tokens: int
    output_tokens: int
    cached_tokens: int
    failed: float
    statuses: dict[str, int]
    failures: dict[str, int]
    requests: int
    request_errors: dict[str, int]
    latency: dict[str, dict[str, float]]
    resources: Resources
    cpu_per_delegation: float | None
    generator_limit: str
    wrong: list[str]


def quantile(ordered: Sequence[float], share: float) -> float:
    """Return the smallest value that at least ``share`` of all do not exceed; of values in order, not empty."""
    return ordered[max(0, -(-int(share * 1000) * len(ordered) // 1000) - 1)]


def summary(values: Iterable[float]) -> dict[str, float]:
    """Return p50, p90, p99 and max in seconds, and the count; nothing but the count where there is no value."""
    ordered = sorted(values)
    if not ordered:
        return {"count": 0}
    shares = zip(QUANTILES, (0.5, 0.9, 0.99, 1.0), strict=True)
    return {"count": len(ordered), **{name: round(quantile(ordered, share), 6) for name, share in shares}}


def latencies(seen: Seen) -> dict[str, list[float]]:
    """Return every measured latency, by part. What was never seen is left out, not counted as zero."""
    asked: dict[str, float] = {}
    for call in seen.calls:
        asked[call.mark] = min(call.arrived, asked.get(call.mark, call.arrived))
    last: dict[int, float] = {}
    for one in seen.delegations:
        last[one.join] = max(one.committed, last.get(one.join, 0.0))
    known = [one for one in seen.delegations if one.launched]
    joined = [fan_out for fan_out in seen.fan_outs if fan_out.joined]
    found = {
        "queued": [one.launched - one.due for one in known],
        "launch": [asked[one.mark] - one.launched for one in known if one.mark in asked],
        "ttft": [call.first - call.sent for call in seen.calls if call.first],
        "between": [gap for call in seen.calls for gap in call.gaps],
        "receipt": [one.committed - one.result for one in seen.delegations if one.result and one.committed],
        "joining": [one.joined - last[one.number] for one in joined if last.get(one.number)],
        "join": [one.joined - one.due for one in joined],
    }
    # Clocks of several processes, one of them written in milliseconds: a hair below zero is zero.
    return {part: [max(0.0, value) for value in values] for part, values in found.items()}


def figures(seen: Seen) -> Level:
    """Return the figures of one level."""
    took = max(seen.ended - seen.began, 1e-9)
    total = len(seen.delegations)
    statuses = Counter(one.status or "without receipt" for one in seen.delegations)
    cpu = seen.resources.cpu_agents
    output = sum(one.output_tokens for one in seen.delegations)
    return Level(
        concurrency=seen.concurrency,
        seconds=round(took, 3),
        delegations=total,
        delegations_per_second=round(total / took, 3),
        steps_per_second=round(sum(one.steps for one in seen.delegations) / took, 3),
        output_tokens_per_second=round(output / took, 3),
        input_tokens=sum(one.input_tokens for one in seen.delegations),
        output_tokens=output,
        cached_tokens=sum(one.cached_tokens for one in seen.delegations),
        failed=1 - statuses["completed"] / total if total else 0.0,
        statuses=dict(statuses),
        failures=dict(Counter(f"{one.status}: {one.reason}" for one in seen.delegations if one.reason)),
        requests=len(seen.calls),
        request_errors=dict(Counter(filter(None, map(_error, seen.calls)))),
        latency={part: summary(values) for part, values in latencies(seen).items()},
        resources=seen.resources,
        cpu_per_delegation=None if cpu is None or not total else round(cpu / total, 4),
        generator_limit=generator_limit(seen.resources),
        wrong=seen.wrong,
    )


def _error(call: Call) -> str:
    return call.error or (f"http {call.status}" if call.status not in {0, HTTPStatus.OK} else "")


def generator_limit(resources: Resources) -> str:
    """Say which process of the load test was itself the limit, empty when none was."""
    named = (("the load test itself", resources.own_cores), ("the synthetic provider", resources.provider_cores))
    busy = [f"{name} used {cores:.0%} of its one core" for name, cores in named if cores is not None and cores > BUSY]
    return " and ".join(busy)


def missed(level: Level, goals: Sequence[Goal]) -> list[str]:
    """Return a sentence for each goal that a level missed. A figure without a value cannot meet its goal."""
    return [text for goal in goals if (text := _miss(level, goal))]


def _miss(level: Level, goal: Goal) -> str:
    if goal.name == "failed":
        return f"failed is {level.failed:.2%}, at most {goal.limit:.2%}" if level.failed > goal.limit else ""
    part, _, name = goal.name.rpartition("_")
    value = level.latency[part].get(name)
    if value is None:
        return f"{goal.name} has no value: nothing of it was measured"
    return f"{goal.name} is {value:.3f} s, at most {goal.limit:g} s" if value > goal.limit else ""
