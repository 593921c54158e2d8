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
    own = {work.endpoint.model: work.usage}
    return {"cost": _rounded(_sum(own, prices)), "cost_total": _rounded(_sum(work.usage_by_model(), prices))}


def _sum(used: Mapping[str, Usage], prices: Mapping[str, Price]) -> float | None:
    """Return the cost of what models used; None where one that was asked has no price."""
    asked = {model: usage for model, usage in used.items() if usage != Usage()}
    if not all(model in prices for model in asked):
        return None
    return sum(cost_of(usage, prices[model]) for model, usage in asked.items())


def _rounded(cost: float | None) -> float | None:
    return None if cost is None else round(cost, _DIGITS)
