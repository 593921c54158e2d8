import json

from hypothesis import given
from hypothesis import strategies as st
from provider_support import answered, called, request, user

from fanjoin.cli.provider import wire
from fanjoin.cli.provider.figures import describe, document_in, figures_of, quoted
from fanjoin.cli.provider.joined import SHOWN_CHARACTERS, answers_in, headline, tell
from fanjoin.cli.provider.memory import Memory, Recent
from fanjoin.cli.provider.plan import Reply, decide
from fanjoin.cli.provider.synthetic import NOTE, pieces, reply_text

PAGE = "# One\n\nSome text with a [link](https://example.invalid).\n\n```sh\n# no heading\n```\n\n## Two ##\nthe end"


def test_figures_are_true() -> None:
    """Words, lines, headings, code blocks, links and the longest line are what a person would count."""
    found = figures_of(PAGE)
    assert (found.words, found.lines, found.characters) == (17, 10, len(PAGE))
    assert found.headings == ("One", "Two")
    assert (found.code_blocks, found.links) == (1, 1)
    assert (found.longest_line, found.longest_line_number) == (49, 3)


@given(st.text())
def test_any_text_can_be_described(text: str) -> None:
    """A description names the number of words of every text, the empty one included."""
    words = len(document_in(text).split())
    assert f"{words:,} word" in describe(text) if words else describe(text) == "An empty text."


@given(st.from_regex(r"[\w. -]+", fullmatch=True), st.text())
def test_only_the_document_is_counted(name: str, text: str) -> None:
    """Where a goal quotes a document, the figures are the document's own, whatever stands in it and around it."""
    page = f"{text}\n--- end of it all ---"
    assert document_in(f"Sum up {name}.\n\n{quoted(name, page)}\n\nWhat is it?") == f"{page}\n"


def entry(index: int, status: str = "completed", **members: object) -> dict[str, object]:
    """Return one entry of a joined result."""
    return {"task_index": index, "status": status, "ok": status == "completed", **members}


def test_the_synthesis_tells_every_fate_in_task_order() -> None:
    """The final text counts what completed, names what did not and why, and holds each summary under its goal."""
    results = [
        entry(0, summary="first summary"),
        entry(
            1,
            "crashed",
            error={"reason": "killed", "message": "It was killed."},
            exit={"code": None, "signal": "SIGKILL"},
        ),
        entry(2, "crashed", error={"reason": "exit_code", "message": "It exited."}, exit={"code": 3, "signal": None}),
        entry(3, "timeout", error={"reason": "stalled", "message": "Silent."}, partial_text="half a", exit=None),
    ]
    goals = {
        "tasks": [{"goal": "[[sleep 1]] Read A\nmore"}, {"goal": "Read B"}, {"goal": "Read C"}, {"goal": "Read D"}]
    }
    asked = [*user("go"), called("c1", goals), answered("c1", {"results": results})]
    text = reply_text(request(asked), Reply())
    assert text.startswith(
        "1 of 4 delegates completed. Not completed: Read B: crashed (killed: SIGKILL); "
        "Read C: crashed (exit_code: exit code 3); Read D: timeout (stalled).\n"
    )
    assert "1. Read A: completed\n   first summary\n" in text
    assert "It had said so far: half a" in text
    assert text.endswith(NOTE)
    places = [text.index(f"{number}. Read {name}") for number, name in enumerate("ABCD", 1)]
    assert places == sorted(places)


def test_refusals_and_other_tools_are_told_too() -> None:
    """A call that was refused, one that was only dispatched and an ordinary tool's answer each get a line."""
    asked = [
        *user("go"),
        called("c1", {}),
        answered("c1", {"error": {"reason": "too_many_tasks", "message": "The limit is 64."}}),
        answered("c2", {"status": "dispatched", "count": 2}),
        answered("c3", "plain"),
        answered("c4", {"content": "x"}),
        {"role": "tool", "tool_call_id": "c5", "content": "not JSON"},
    ]
    text = reply_text(request(asked), Reply())
    assert "refused (too_many_tasks): The limit is 64." in text
    assert "Delegates dispatched: 2" in text
    assert text.count("A tool answered") == 3


def test_results_that_come_as_a_user_message_are_joined() -> None:
    """Results that are delivered later, inside a user message, are told like those of a tool message."""
    text = f"Delegation c_1 ended: {{not this}} {json.dumps({'results': [entry(0, summary='late')]})} That is all."
    assert "late" in reply_text(request(text), Reply())


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)
    )
)
def test_no_tool_message_breaks_the_synthesis(value: object) -> None:
    """Whatever JSON a tool answers with, under the known names or not, a text comes out."""
    for content in (
        value,
        {"results": [value]},
        {"results": value},
        {"error": value},
        {"status": "dispatched", "count": value},
        {"results": [{"error": value, "exit": value, "task_index": value, "summary": value}]},
    ):
        asked = [*user("go"), called("c1", value), answered("c1", content)]
        assert isinstance(reply_text(request(asked), decide(request(asked))), str)


def test_a_long_summary_is_shown_in_part() -> None:
    """A summary that is too long to repeat is cut, and the text says how much is missing."""
    asked = [*user("go"), called("c", {"goal": "x"}), answered("c", {"results": [entry(0, summary="a" * 5000)]})]
    joined = answers_in(request(asked)).joined
    assert f"[{5000 - SHOWN_CHARACTERS:,} more characters]" in tell(joined)
    assert headline(joined) == "1 of 1 delegate completed."


@given(st.text())
def test_pieces_make_the_text(text: str) -> None:
    """The words that a text is sent in are the text again."""
    assert "".join(pieces(text)) == text


def test_a_huge_text_goes_in_few_pieces() -> None:
    """Twenty million characters are not sent word by word."""
    cut = pieces("word " * 4_000_000)
    assert len(cut) < 2000
    assert sum(map(len, cut)) == 20_000_000


@given(st.lists(st.builds(wire.ToolCall, st.text(), st.text())), st.lists(st.text()))
def test_deltas_put_together_are_the_message(calls: list[wire.ToolCall], words: list[str]) -> None:
    """A client that does not stream gets what one that streams puts together."""
    assembly = wire.Assembly()
    for word in words:
        assembly.add({"content": word})
    for delta in wire.call_deltas(calls, "call"):
        assembly.add(json.loads(wire.to_bytes(delta)))
    message = assembly.message()
    assert (message["content"] or "") == "".join(words)
    said = [(call["function"]["name"], call["function"]["arguments"]) for call in message.get("tool_calls", [])]
    assert said == [(call.name, call.arguments) for call in calls]


def test_known_prefixes_are_counted_as_cached() -> None:
    """A request that begins as an earlier one did is said to be cached up to there; a changed beginning is not."""
    memory = Memory()
    system = {"role": "system", "content": "one two three"}
    first = memory.note(request([system, *user("four five six")]))
    second = memory.note(request([system, *user("seven")]))
    other = memory.note(request([{"role": "system", "content": "changed"}, *user("four five six")]))
    assert (first.prompt_tokens, first.cached_tokens) == (8, 0)
    assert (second.prompt_tokens, second.cached_tokens) == (6, 4)
    assert other.cached_tokens == 0
    assert memory.note(request([system, *user("seven")])).arrival == 2


def test_what_is_oldest_is_forgotten() -> None:
    """The memory of a provider that runs for long is bounded."""
    recent = Recent(size=2)
    assert [recent.add(key) for key in (b"a", b"b", b"a", b"c")] == [1, 1, 2, 1]
    assert b"b" not in recent
    assert b"a" in recent
