"""How the pieces of a streamed reply find together."""

import itertools
import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from fanjoin.agent_proc.provider.chat_completions import read_usage
from fanjoin.agent_proc.provider.reply import ReplyBuilder
from fanjoin.agent_proc.provider.thinking import ThinkingFilter


def built(*pieces: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Return the calls that pieces make: id, name, arguments."""
    builder = ReplyBuilder()
    for piece in pieces:
        builder.add_call(piece)
    return [(call.id, call.name, call.arguments) for call in builder.build().tool_calls]


def piece(arguments: object = None, name: str | None = None, **fields: Any) -> dict[str, Any]:
    """Return one piece of a call."""
    return {**fields, "function": {"name": name, "arguments": arguments}}


def test_all_indexes_zero() -> None:
    """Two ids under index 0 are two calls, also when their pieces alternate."""
    pieces = [piece("1", "x", index=0, id="a"), piece("2", "y", index=0, id="b"), piece("3", index=0, id="a")]
    assert built(*pieces) == [("a", "x", "13"), ("b", "y", "2")]


def test_one_id_twice() -> None:
    """One id under two indexes is two calls."""
    pieces = [piece("1", "x", index=0, id="a"), piece("2", "y", index=1, id="a")]
    assert built(*pieces) == [("a", "x", "1"), ("a", "y", "2")]


def test_a_fragment_under_a_strange_index() -> None:
    """A fragment with a new index and neither id nor name belongs to the open call."""
    assert built(piece("1", "x", index=0, id="a"), piece("2", index=1)) == [("a", "x", "12")]


def test_no_index_at_all() -> None:
    """Without indexes, ids tell calls apart, and what has none continues the last one."""
    pieces = [piece("1", "x", id="a"), piece("2"), piece("3", "y", id="b"), piece("4")]
    assert built(*pieces) == [("a", "x", "12"), ("b", "y", "34")]


def test_neither_index_nor_id() -> None:
    """Whole calls without any mark are told apart by their names."""
    assert built(piece("{}", "x"), piece("{}", "x")) == [("", "x", "{}"), ("", "x", "{}")]


def test_an_id_that_comes_late() -> None:
    """A call whose first piece has no id takes the one of a later piece."""
    assert built(piece("1", "x", index=0), piece("2", index=0, id="a")) == [("a", "x", "12")]


def test_a_name_in_pieces_and_a_name_twice() -> None:
    """A name may come in pieces, and may be repeated whole."""
    in_pieces = [piece(None, "dele", index=0, id="a"), piece("{}", "gate", index=0)]
    assert built(*in_pieces) == [("a", "delegate", "{}")]
    assert built(piece("1", "x", index=0, id="a"), piece("2", "x", index=0)) == [("a", "x", "12")]


def test_odd_pieces_are_no_crash() -> None:
    """Fields of a wrong type count as absent; an object as arguments means its JSON."""
    assert built({"function": 5}) == [("", "", "")]
    assert built(piece({"a": [1]}, "x", id=7)) == [("", "x", '{"a":[1]}')]


@given(st.lists(st.sampled_from("ab"), max_size=30))
def test_pieces_of_two_calls_in_any_order(order: list[str]) -> None:
    """Whatever the interleaving, each call gets its own pieces in their order."""
    pieces = [piece(str(number), who, index="ab".index(who), id=who) for number, who in enumerate(order)]
    expected = {who: "".join(str(number) for number, by in enumerate(order) if by == who) for who in order}
    assert {name: arguments for _, name, arguments in built(*pieces)} == expected


@given(st.dictionaries(st.sampled_from(["prompt_tokens", "completion_tokens"]), st.none() | st.floats() | st.text()))
def test_odd_counts_are_no_crash(value: dict[str, Any]) -> None:
    """Token counts are never negative, whatever a server sends."""
    spent = read_usage(json.loads(json.dumps(value)))
    assert spent is not None
    assert spent.input_tokens >= 0
    assert spent.output_tokens >= 0


@given(text=st.text(st.sampled_from("</tab \n")), cuts=st.lists(st.integers(0, 60)), block=st.booleans())
def test_thinking_is_kept_apart_at_any_split(text: str, cuts: list[int], block: bool) -> None:
    """A block at the beginning never reaches the answer, whatever the split; without one every character does."""
    whole = f" <think>{text}</think>\n\nanswer" if block else f"an{text}"
    edges = [0, *sorted(min(cut, len(whole)) for cut in cuts), len(whole)]
    thinking = ThinkingFilter()
    heard = "".join(thinking.feed(whole[start:end]) for start, end in itertools.pairwise(edges))
    assert heard + thinking.close() == ("answer" if block else whole)


def test_a_block_that_never_ends_is_no_answer() -> None:
    """Text that is all thinking leaves nothing; what only looks like a tag is text."""
    thinking = ThinkingFilter()
    assert thinking.feed("<think>endless") + thinking.close() == ""
    text = ThinkingFilter()
    assert text.feed("<thi") + text.close() == "<thi"
