"""An agent whose answer has to be an object: what the server is asked for, and the one correction."""

import json
from typing import Any

import pytest
from agent_support import Handler, Supervisor, asks, refuses, says, serving, task

from fanjoin.agent_proc.provider.modes import open_client
from fanjoin.ipc.settings import Endpoint

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
FORM: dict[str, Any] = {"type": "json_schema", "json_schema": {"name": "result", "schema": SCHEMA}}


def respond(handler: Handler) -> None:
    """Answer as the Responses API does."""
    content = [{"type": "output_text", "text": '{"n": 1}'}]
    handler.reply(
        200, json.dumps({"status": "completed", "output": [{"type": "message", "content": content}]}).encode()
    )


def test_a_server_is_asked_to_keep_to_the_schema(supervisor: Supervisor) -> None:
    """An agent without tools sends the schema with its request, and has it in its system prompt, too."""
    with serving(says('{"n":', " 1}")) as server:
        outcome = supervisor.run(server.endpoint, task(depth=1, output_schema=SCHEMA))
    assert (outcome.status, outcome.output, outcome.text) == ("completed", {"n": 1}, '{"n": 1}')
    (body,) = server.bodies
    assert body["response_format"] == FORM
    assert json.dumps(SCHEMA, separators=(",", ":")) in body["messages"][0]["content"]


def test_a_refusal_of_the_form_is_learned(supervisor: Supervisor) -> None:
    """A server without structured output: asked once, never again; the answer is validated here all the same."""
    refusal = refuses(400, {"message": "response_format of type json_schema is not supported"})
    with serving(refusal, says("1"), says('{"n": 1}')) as server:
        outcome = supervisor.run(server.endpoint, task(depth=1, output_schema=SCHEMA))
    assert (outcome.output, outcome.steps) == ({"n": 1}, 2)
    assert ["response_format" in body for body in server.bodies] == [True, False, False]


def test_another_refusal_is_not_taken_for_that(supervisor: Supervisor) -> None:
    """A bad request for another reason is told as it is, without a second request."""
    with serving(refuses(400, {"message": "no such thing"})) as server:
        outcome = supervisor.run(server.endpoint, task(depth=1, output_schema=SCHEMA))
    assert (outcome.status, outcome.reason) == ("failed", "bad_request")
    assert len(server.bodies) == 1


@pytest.mark.parametrize("uses_tools", [False, True])
def test_beside_tools_the_form_waits_for_the_correction(supervisor: Supervisor, *, uses_tools: bool) -> None:
    """Some servers would never call a tool with it. A correction needs no tools, unless some were called before."""
    work = [asks(("a", "list_files", {}))] if uses_tools else []
    with serving(*work, says("it is 1"), says('{"n": 1}')) as server:
        given = task(depth=1, output_schema=SCHEMA, toolsets=("files",), cwd=str(supervisor.folder))
        outcome = supervisor.run(server.endpoint, given)
    assert outcome.output == {"n": 1}
    *before, last = [("response_format" in body, "tools" in body) for body in server.bodies]
    assert set(before) == {(False, True)}
    assert last == ((False, True) if uses_tools else (True, False))
    assert "The answer is not JSON" in server.bodies[-1]["messages"][-1]["content"]


def test_the_text_of_a_wrong_answer_is_kept(supervisor: Supervisor) -> None:
    """After the one correction it is a failure with the last text, and no third request is made."""
    with serving(says("first"), says("second"), says('{"n": 1}')) as server:
        outcome = supervisor.run(server.endpoint, task(depth=1, output_schema=SCHEMA))
    assert (outcome.status, outcome.reason) == ("failed", "schema_invalid")
    assert (outcome.text, outcome.partial_text, outcome.output) == (None, "second", None)
    assert len(server.bodies) == 2


def write(handler: Handler) -> None:
    """Answer as the Messages API does."""
    content = [{"type": "text", "text": '{"n": 1}'}]
    handler.reply(200, json.dumps({"content": content, "stop_reason": "end_turn"}).encode())


MODES = {
    "chat_completions": ("response_format", says('{"n": 1}')),
    "anthropic_messages": ("output_config", write),
    "responses": ("text", respond),
}
REFUSALS = [
    "response_format of type json_schema is not supported",
    "This response_format type is unavailable now",
    "Unknown parameter: 'text.format'.",
    "m does not support structured output",
    "Invalid schema for response_format 'result': 'additionalProperties' is required to be false",
    "Failed to initialize samplers: failed to parse grammar",
    "output_config: Extra inputs are not permitted",
    "output_config.format.schema: For 'object' type, 'additionalProperties' must be explicitly set to false",
    """Unknown name "$schema" at 'generation_config.response_schema': Cannot find field.""",
]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("words", REFUSALS)
def test_each_format_says_it_in_its_own_way(mode: str, words: str) -> None:
    """Where the API can keep an answer to a schema it is asked to, until the server refuses that."""
    part, answer = MODES[mode]
    with serving(answer, refuses(400, {"message": words}), answer) as server:
        endpoint = Endpoint(base_url=server.url, model="m", api_mode=mode)
        client = open_client(endpoint, task(output_schema=SCHEMA))
        for _ in range(3):
            assert client.complete([{"role": "user", "content": "hi"}], [], lambda _: None).text == '{"n": 1}'
        client.close()
    form = {
        "chat_completions": FORM,
        "anthropic_messages": {"format": {"type": "json_schema", "schema": SCHEMA}},
        "responses": {"format": {"type": "json_schema", **FORM["json_schema"]}},
    }[mode]
    assert [body.get(part) for body in server.bodies] == [form, form, None, None]


@pytest.mark.parametrize("mode", MODES)
def test_a_server_that_refuses_tools_is_asked_for_the_form(mode: str) -> None:
    """The form waits for tools only where there are any."""
    part, answer = MODES[mode]
    tool = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
    with serving(answer) as server:
        endpoint = Endpoint(base_url=server.url, model="m", api_mode=mode)
        client = open_client(endpoint, task(output_schema=SCHEMA, refused=("tools",)))
        client.complete([{"role": "user", "content": "hi"}], [tool], lambda _: None)
        client.close()
    assert part in server.bodies[0]
    assert not {"tools", "parallel_tool_calls"} & server.bodies[0].keys()
