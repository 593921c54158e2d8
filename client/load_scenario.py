"""What a load test is told, read from its flags (pure): the traffic's shape, its faults, its arrivals, its goals."""

import random
import re
from collections.abc import Callable
from itertools import accumulate

from msgspec import Struct

from fanjoin.ipc.errors import UserError

_SECONDS = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m)?")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, None: 1.0}
FAULTS = ("crash", "hang", "http500", "drop")


class Delay(Struct, frozen=True):
    """How long a tool takes, in seconds: always ``median``, or lognormal around it with this ``sigma``."""

    median: float = 0.0
    sigma: float = 0.0

    def draw(self, source: random.Random) -> float:
        """Return one delay."""
        return self.median * source.lognormvariate(0.0, self.sigma) if self.sigma else self.median


class Scenario(Struct, frozen=True, kw_only=True):
    """The shape of the traffic.

    Delegates of one fan-out, model calls of one delegate, tokens (of four characters) that all prompts begin with,
    seconds between two calls of a delegate, words of a delegate's last reply.
    """

    fanout: int = 8
    steps: int = 3
    shared_prefix: int = 1000
    tool_delay: Delay = Delay()
    output: int = 100


class Plan(Struct, frozen=True, kw_only=True):
    """What to run. ``endpoint`` empty: the synthetic provider with this latency and rate; ``arrival`` 0: closed."""

    endpoint: str
    model: str
    api_key_env: str | None
    delegations: int
    levels: list[int]
    arrival: float
    scenario: Scenario
    latency: float
    token_rate: float
    faults: dict[str, float]
    timeout: float
    seed: int


class Goal(Struct, frozen=True, kw_only=True):
    """What one figure may be at most: seconds, or for ``failed`` a share of all."""

    name: str
    limit: float


def seconds(written: str) -> float:
    """Return a duration such as ``500ms``, ``2s``, ``1m`` or ``0.5`` in seconds.

    Raises:
        UserError: it is none.
    """
    found = _SECONDS.fullmatch(written.strip())
    if found is None:
        raise UserError(f"{written!r} is no duration. Write it as 500ms, 2s or 1m. Nothing was run.")
    return float(found[1]) * _UNITS[found[2]]


def parse_scenario(written: str) -> Scenario:
    """Read ``fanout=8,steps=5,shared_prefix=4000,tool_delay=lognormal:2s,0.5,output=200``, any part of it.

    Raises:
        UserError: a name is unknown or a value is wrong.
    """
    given = dict(_pairs(written, "--scenario", Scenario.__struct_fields__))
    delay = parse_delay(given.pop("tool_delay", "0"))
    counts = {name: _whole(name, value) for name, value in given.items()}
    return Scenario(tool_delay=delay, **counts)


def parse_delay(written: str) -> Delay:
    """Read a duration, or ``lognormal:MEDIAN,SIGMA``."""
    kind, mark, rest = written.partition(":")
    if not mark:
        return Delay(seconds(written))
    median, _, sigma = rest.partition(",")
    if kind != "lognormal" or not re.fullmatch(r"\d+(\.\d+)?", sigma.strip()):
        raise UserError(f"{written!r} is no delay. Write 2s or lognormal:2s,0.5 (median, sigma). Nothing was run.")
    return Delay(seconds(median), float(sigma))


def parse_faults(written: str) -> dict[str, float]:
    """Read ``crash=0.01,hang=0.005,http500=2%,drop=0.01``: shares of delegates (crash, hang) or of requests."""
    return {name: _share(name, value) for name, value in _pairs(written, "--fault", FAULTS)}


def parse_goals(written: str, names: tuple[str, ...]) -> list[Goal]:
    """Read ``ttft_p99=500ms,join_p99=10s,failed=1%``; ``names`` are the figures that there are.

    Raises:
        UserError: a figure is unknown or a limit is wrong.
    """
    pairs = _pairs(written, "--slo", (*names, "failed"))
    return [Goal(name=name, limit=_share(name, text) if name == "failed" else seconds(text)) for name, text in pairs]


def parse_levels(written: str) -> list[int]:
    """Read ``2,8,32``: how many delegates run at once, one level after another."""
    return [_whole("--concurrency", one) for one in written.split(",")]


def parse_arrival(written: str) -> float:
    """Return how many fan-outs arrive a second, 0 for ``closed``: the next one begins when one has ended."""
    if written == "closed":
        return 0.0
    kind, _, rate = written.partition(":")
    if kind != "poisson" or not re.fullmatch(r"\d+(\.\d+)?", rate) or not float(rate):
        raise UserError(f"--arrival {written}: write closed or poisson:RATE (fan-outs a second). Nothing was run.")
    return float(rate)


def poisson(rate: float, count: int, draw: Callable[[], float]) -> list[float]:
    """Return when each of ``count`` arrivals is due, in seconds from the beginning.

    Args:
        rate: arrivals a second.
        count: how many.
        draw: returns numbers of an exponential distribution with mean 1.
    """
    return list(accumulate(draw() / rate for _ in range(count)))


def _pairs(written: str, flag: str, known: tuple[str, ...]) -> list[tuple[str, str]]:
    """Split ``a=1,b=2``; a part without ``=`` belongs to the value before it."""
    pairs: list[tuple[str, str]] = []
    for part in filter(None, written.split(",")):
        name, mark, value = part.strip().partition("=")
        if mark:
            pairs.append((name, value))
        elif pairs:
            pairs[-1] = (pairs[-1][0], f"{pairs[-1][1]},{name}")
        else:
            raise UserError(f"{flag} {written}: {part!r} is not NAME=VALUE. Nothing was run.")
    for name, _ in pairs:
        if name not in known:
            raise UserError(f"{flag}: there is no {name!r}, only {', '.join(known)}. Nothing was run.")
    return pairs


def _whole(name: str, written: str) -> int:
    least = 0 if name == "shared_prefix" else 1
    if not re.fullmatch(r"\s*\d{1,7}\s*", written) or int(written) < least:
        raise UserError(f"{name}={written}: this must be a whole number, {least} or more. Nothing was run.")
    return int(written)


def _share(name: str, written: str) -> float:
    text = written.strip()
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(%?)", text)
    value = float(found[1]) / (100 if found[2] else 1) if found else -1.0
    if not 0 <= value <= 1:
        raise UserError(f"{name}={written}: this must be a share, such as 0.01 or 1%. Nothing was run.")
    return value
