"""What a call returns (pure): texts fitted to the parent's budget, and what they cost."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fanjoin.ipc.messages import Outcome, TaskSpec, Usage
from fanjoin.ipc.settings import Endpoint, Price
from fanjoin.supervisor.core.budget import TRACE_ENTRIES, fitted, share
from fanjoin.supervisor.core.cost import cost_of, costs
from fanjoin.supervisor.core.model import Call, Delegate

NOTE_CHARACTERS = 60
"""The line that says what was left out in the middle."""
sizes = st.lists(st.integers(0, 3000), min_size=1, max_size=40)


def delegate(entry: dict[str, Any] | None = None, model: str = "m", **fields: Any) -> Delegate:
    """Return a delegate that has ended."""
    told = {"summary": None, "tool_trace": [], **(entry or {})}
    outcome = Outcome(status="completed", text=told["summary"], summary_path="/h/d.summary.txt")
    call = Call(delegation_id="c", tool_call_id="t", started_at=0.0)
    return Delegate(
        work_id="d",
        turn=None,  # type: ignore[arg-type]  # no rule here looks at it
        parent=None,  # type: ignore[arg-type]  # nor at this
        depth=1,
        endpoint=Endpoint(base_url="http://h/v1", model=model),
        queued_at=0.0,
        call=call,
        index=0,
        spec=TaskSpec(goal="g"),
        outcome=outcome,
        entry=told,
        **fields,
    )


@given(sizes, st.integers(100, 20_000))
def test_texts_fit_and_nobody_gets_less_than_a_share(lengths: list[int], budget: int) -> None:
    """All of them within the budget; what is within its equal share is whole, and all are whole when all fit."""
    children = [delegate({"summary": "x" * length}) for length in lengths]
    entries = fitted(children, budget)
    told = [len(entry["summary"]) for entry in entries]
    assert sum(told) <= budget + NOTE_CHARACTERS * len(told)
    for length, entry in zip(lengths, entries, strict=True):
        cut = entry.get("summary_truncated", False)
        assert cut == (entry["summary"] != "x" * length)
        assert not cut or (length > share(budget, len(lengths)) and entry["summary_path"])
    assert sum(lengths) > budget or entries == [child.entry for child in children]
    assert [child.entry["summary"] for child in children] == ["x" * length for length in lengths]


@given(sizes, st.integers(100, 20_000))
def test_only_the_longest_are_cut(lengths: list[int], budget: int) -> None:
    """No text is cut while a longer one is whole, and those that are cut are equally long."""
    entries = fitted([delegate({"summary": "x" * length}) for length in lengths], budget)
    cut = [length for length, entry in zip(lengths, entries, strict=True) if entry.get("summary_truncated")]
    whole = [length for length, entry in zip(lengths, entries, strict=True) if not entry.get("summary_truncated")]
    assert not cut or not whole or min(cut) >= max(whole)


def test_partial_texts_and_outputs_count_too() -> None:
    """A failed child's text is cut as well; an output that does not fit beside its text is left out and said so."""
    big = delegate({"summary": '{"a": 1}', "output": {"a": "x" * 5000}})
    failed = delegate({"partial_text": "y" * 5000})
    small = delegate({"summary": '{"a": 1}', "output": {"a": 1}})
    first, second, third = fitted([big, failed, small], 1000)
    assert (first["output"], first["output_omitted"], first["summary"]) == (None, True, '{"a": 1}')
    assert len(second["partial_text"]) < 600
    assert third == small.entry


def test_traces_are_shown_up_to_a_number() -> None:
    """The last tool calls of each, and how many are missing."""
    entries = fitted([delegate({"summary": "s", "tool_trace": [{"tool": str(n)} for n in range(300)]})] * 4, 1000)
    for entry in entries:
        assert len(entry["tool_trace"]) == TRACE_ENTRIES // 4
        assert entry["tool_trace"][-1] == {"tool": "299"}
        assert entry["tool_trace_omitted"] == 300 - TRACE_ENTRIES // 4


@pytest.mark.parametrize(
    ("price", "cost"),
    [
        (Price(input=1, output=0), 10.0),
        (Price(input=0, output=2), 8.0),
        (Price(input=1, output=2, cached=0.5), 6 + 2 + 8.0),
        (Price(), 0.0),
    ],
)
def test_a_cost_is_of_a_million_tokens(price: Price, cost: float) -> None:
    """Cached tokens are a part of the input and cost as such, unless they have a price of their own."""
    million = 1_000_000
    usage = Usage(input_tokens=10 * million, output_tokens=4 * million, cached_tokens=4 * million)
    assert cost_of(usage, price) == pytest.approx(cost)


def test_a_total_is_known_only_when_every_part_is() -> None:
    """What is below counts; a model without a price makes the total unknown, one that was never asked does not."""
    used = Usage(input_tokens=1_000_000)
    priced, other = delegate(usage=used), delegate(model="other", usage=used)
    parent = delegate(usage=used, children={"a": priced})
    prices = {"m": Price(input=3)}
    assert costs(parent, prices) == {"cost": 3.0, "cost_total": 6.0}
    parent.children["b"] = other
    assert costs(parent, prices) == {"cost": 3.0, "cost_total": None}
    other.usage = Usage()
    assert costs(parent, prices) == {"cost": 3.0, "cost_total": 6.0}
