"""An agent whose answer has to be an object: what the server is asked for, and the one correction."""

import json

import pytest
from agent_support import Supervisor, asks, refuses, says, serving, task

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
FORM = {"type": "json_schema", "json_schema": {"name": "result", "schema": SCHEMA}}


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
