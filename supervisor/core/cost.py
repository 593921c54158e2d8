"""What model calls cost (pure), where the user has configured prices."""

from collections.abc import Mapping

from fanjoin.ipc.messages import JsonObject, Usage
from fanjoin.ipc.settings import Price
from fanjoin.supervisor.core.model import Work

_PER = 1_000_000
_DIGITS = 9


def cost_of(usage: Usage, price: Price) -> float:
    """Return the cost of token counts in the currency of the price, which is for a million tokens."""
    fresh = usage.input_tokens - usage.cached_tokens
    cached = price.input if price.cached is None else price.cached
    return (fresh * price.input + usage.cached_tokens * cached + usage.output_tokens * price.output) / _PER


def costs(work: Work, prices: Mapping[str, Price]) -> JsonObject:
    """Return ``cost`` and ``cost_total`` (with everything below) of work; None where a model has no price."""
    return {"cost": _rounded(_own(work, prices)), "cost_total": _rounded(_total(work, prices))}


def _own(work: Work, prices: Mapping[str, Price]) -> float | None:
    price = prices.get(work.endpoint.model)
    if price is None:
        return None if work.usage != Usage() else 0.0
    return cost_of(work.usage, price)


def _total(work: Work, prices: Mapping[str, Price]) -> float | None:
    parts = [_own(work, prices), *(_total(child, prices) for child in work.children)]
    known = [part for part in parts if part is not None]
    return sum(known) if len(known) == len(parts) else None


def _rounded(cost: float | None) -> float | None:
    return None if cost is None else round(cost, _DIGITS)
