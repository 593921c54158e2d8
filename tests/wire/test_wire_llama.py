"""A real llama.cpp server, where the extra ``local`` is installed: each wire format against software of others."""

from collections.abc import Iterator
from typing import Any

import pytest
from agent_support import task
from msgspec.structs import replace
from wire_support import TOOL, ask

from fanjoin.agent_proc.provider.failure import ProviderError
from fanjoin.agent_proc.provider.modes import open_client
from fanjoin.agent_proc.structured import judge
from fanjoin.cli.provider.local import find_weights, load_runtime
from fanjoin.ipc.settings import Endpoint, ModelLimits

PATIENT = ModelLimits(first_byte=60, between_bytes=60, whole_call=90, max_output_tokens=24)
MODES = ("chat_completions", "anthropic_messages", "responses")
SCHEMA = {
    "type": "object",
    "properties": {"word": {"type": "string", "maxLength": 8}, "kind": {"enum": ["greeting", "other"]}},
    "required": ["word", "kind"],
    "additionalProperties": False,
}
ASK: list[dict[str, Any]] = [{"role": "user", "content": "Say hello."}]


class Server:
    """What ``ask`` needs of a server."""

    def __init__(self, url: str) -> None:
        self.url = f"{url}/v1"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """Run llama.cpp's own server on a small model."""
    runtime = load_runtime()
    params = runtime.CommonParams()
    params.model.path = str(find_weights(None))
    params.n_ctx, params.n_parallel, params.verbosity = 512, 1, 0
    params.cpuparams.n_threads = 1
    params.port = 0
    running = runtime.Server(params)
    yield Server(running.listening_address)
    del running


@pytest.mark.parametrize("mode", MODES)
def test_each_format_that_the_server_has(server: Server, mode: str) -> None:
    """An answer with text, its end and token counts."""
    reply = ask(server, mode, ASK, model_limits=PATIENT)  # type: ignore[arg-type]
    assert reply.text.strip()
    assert reply.finish_reason in ("stop", "length")
    assert reply.usage.input_tokens > 0
    assert 0 < reply.usage.output_tokens <= 25


@pytest.mark.parametrize("mode", MODES)
def test_without_a_stream(server: Server, mode: str) -> None:
    """The same question as plain JSON."""
    reply = ask(server, mode, ASK, model_limits=PATIENT, refused=("stream",))  # type: ignore[arg-type]
    assert reply.text.strip()
    assert reply.usage.input_tokens > 0
    assert reply.usage.output_tokens > 0


@pytest.mark.parametrize("refused", [(), ("stream",)])
def test_an_answer_keeps_to_its_schema(server: Server, refused: tuple[str, ...]) -> None:
    """A model that knows nothing of a schema answers with an object of it: the server was asked to see to that."""
    limits = replace(PATIENT, max_output_tokens=80)
    reply = ask(server, "chat_completions", ASK, model_limits=limits, output_schema=SCHEMA, refused=refused)  # type: ignore[arg-type]
    judged = judge(reply.text, SCHEMA)
    assert judged.output is not None, judged.problem
    assert reply.refused == frozenset(refused)


@pytest.mark.parametrize("mode", ["anthropic_messages", "responses"])
def test_a_schema_that_the_server_passes_over(server: Server, mode: str) -> None:
    """Its other APIs take the wish for a schema and heed it not: the answer is one all the same."""
    reply = ask(server, mode, ASK, model_limits=PATIENT, output_schema=SCHEMA)  # type: ignore[arg-type]
    assert reply.text.strip()
    assert reply.refused == frozenset()


@pytest.mark.parametrize("mode", MODES)
def test_a_conversation_with_tools_is_taken(server: Server, mode: str) -> None:
    """Tools, a call of one and its answer are in a form that the server reads."""
    function = {"name": "look", "arguments": '{"at": 1}'}
    called = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "a", "type": "function", "function": function}],
    }
    story = [*ASK, called, {"role": "tool", "tool_call_id": "a", "content": "hello"}]
    reply = ask(server, mode, story, [TOOL], model_limits=PATIENT)  # type: ignore[arg-type]
    assert reply.text.strip() or reply.tool_calls
    assert reply.refused == frozenset()


@pytest.mark.parametrize("mode", MODES)
def test_a_prompt_that_is_too_long(server: Server, mode: str) -> None:
    """What does not fit into the server's context is told as that, in each format."""
    endpoint = Endpoint(base_url=server.url, model="m", api_mode=mode)
    client = open_client(endpoint, task(model_limits=PATIENT))
    with pytest.raises(ProviderError) as caught:
        client.complete([{"role": "user", "content": "one two three " * 500}], [], lambda _: None)
    client.close()
    assert caught.value.reason == "context_overflow"
