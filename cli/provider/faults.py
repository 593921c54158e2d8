"""Faults at random, as an operator asks for them: ``http429=0.1`` means one request in ten, more or less."""

import random
from collections.abc import Iterable

from fanjoin.cli.provider.directives import Directive

KINDS: dict[str, Directive] = {
    "http429": Directive("status", "429", (("retry_after", "1"),)),
    "http500": Directive("status", "500"),
    "http503": Directive("status", "503"),
    "cut": Directive("cut"),
    "silence": Directive("silence"),
    "garbage": Directive("garbage"),
    "drop": Directive("drop"),
}


def parse_fault(written: str) -> tuple[str, float]:
    """Read ``KIND=RATE``.

    Raises:
        ValueError: the kind is unknown or the rate is not from 0 to 1; the message says which.
    """
    kind, _, rate = written.partition("=")
    if kind not in KINDS:
        raise ValueError(f"{kind!r} is no fault; there are {', '.join(KINDS)}")
    try:
        value = float(rate)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise ValueError(f"{written!r} needs a rate from 0 to 1, as in {kind}=0.1")
    return kind, value


class Dice:
    """Draws at most one fault for each request. The same seed and order of requests draw the same faults."""

    def __init__(self, rates: Iterable[tuple[str, float]] = (), seed: int | None = None) -> None:
        self._rates = tuple(rates)
        self._random = random.Random(seed)  # noqa: S311 - faults are no secret

    def draw(self) -> tuple[Directive, ...]:
        """Return the fault of the next request, if it has one."""
        for kind, rate in self._rates:
            if self._random.random() < rate:
                return (KINDS[kind],)
        return ()
