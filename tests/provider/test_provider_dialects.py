"""The synthetic provider in each of its APIs, asked by our own client: the same work, whatever the form."""

import contextlib
import http.client
import json
from typing import Any

import pytest
from conftest import Connect, Start
from provider_support import Client

from fanjoin.agent_proc.provider.failure import ProviderError
from fanjoin.agent_proc.provider.modes import open_client
from fanjoin.agent_proc.provider.reply import Reply
from fanjoin.cli.provider.plan import with_plan
from fanjoin.client.local_model import EmbeddedProvider
from fanjoin.ipc.messages import AgentTask
from fanjoin.ipc.settings import Endpoint, ModelLimits

PATHS = {
    "chat_completions": "/v1/chat/completions",
    "anthropic_messages": "/v1/messages",
    "responses": "/v1/responses",
}
MODES = tuple(PATHS)
TOOL = {"type": "function", "function": {"name": "look", "description": "", "parameters": {"type": "object"}}}
CALLED = [
    {"name": "look", "arguments": {"at": "ü" * 200}},
    {"name": "find", "arguments": {}},
]
every_mode = pytest.mark.parametrize("mode", MODES)
streamed_and_not = pytest.mark.parametrize("refused", [(), ("stream",)], ids=["streamed", "plain"])


def ask(url: str, mode: str, messages: list[dict[str, Any]] | str, refused: tuple[str, ...] = (), **more: Any) -> Reply:
    """Make one model call."""
    listed = [{"role": "user", "content": messages}] if isinstance(messages, str) else messages
    endpoint = Endpoint(base_url=url, model="m", api_key=more.pop("key", ""), api_mode=mode)
    limits = ModelLimits(first_byte=10, between_bytes=10)
    client = open_client(
        endpoint, AgentTask(owner_id="d", session_id="s", text="", refused=refused, model_limits=limits, **more)
    )
    with contextlib.closing(client):
        return client.complete(listed, [TOOL], lambda _: None)


@pytest.fixture(scope="module")
def url(plain_provider: EmbeddedProvider) -> str:
    """Return where a provider without flags is."""
    return plain_provider.url


@pytest.fixture
def failing(url: str) -> Any:
    """Give a function that returns the failure of a call."""

    def failure(mode: str, text: str, refused: tuple[str, ...] = ()) -> ProviderError:
        with pytest.raises(ProviderError) as caught:
            ask(url, mode, text, refused)
        return caught.value

    return failure


@streamed_and_not
def test_the_same_answer_in_every_form(url: str, refused: tuple[str, ...]) -> None:
    """Text, end and token counts are the same, the system prompt counted and the earlier turns as well."""
    story = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "two"},
        {"role": "user", "content": "[[answer three  four\nfive]] six"},
    ]
    replies = [ask(url, mode, story, refused) for mode in MODES]
    assert {(reply.text, reply.finish_reason) for reply in replies} == {("three  four\nfive", "stop")}
    assert len({(reply.usage.input_tokens, reply.usage.output_tokens) for reply in replies}) == 1
    assert replies[0].usage.input_tokens > 5


@streamed_and_not
@every_mode
def test_calls_and_their_answers_go_there_and_back(url: str, mode: str, refused: tuple[str, ...]) -> None:
    """A planned reply with two calls, and the next one once both have their answers."""
    story: list[dict[str, Any]] = [{"role": "user", "content": with_plan("go", [{"calls": CALLED}, {"text": "done"}])}]
    reply = ask(url, mode, story, refused)
    calls = [(call.name, json.loads(call.arguments or "{}")) for call in reply.tool_calls]
    assert calls == [(call["name"], call["arguments"]) for call in CALLED]
    assert reply.finish_reason == "tool_calls"
    entries = [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments or "{}"}}
        for call in reply.tool_calls
    ]
    answers = [{"role": "tool", "tool_call_id": call.id, "content": "x"} for call in reply.tool_calls]
    story += [{"role": "assistant", "content": None, "tool_calls": entries}, *answers]
    assert ask(url, mode, story, refused).text == "done"


@every_mode
def test_faults_on_demand(failing: Any, mode: str) -> None:
    """A status with its wait, an overflow, a filter, a cut stream, garbage: each is understood as what it is."""
    limited = failing(mode, "[[status 429 retry_after=7]] a")
    assert (limited.reason, limited.retry_after, limited.status) == ("rate_limit", "7", 429)
    assert failing(mode, "[[status 529]] a").reason == "server_error"
    assert failing(mode, "[[status 400 code=context_length_exceeded]] a").reason == "context_overflow"
    assert failing(mode, "[[finish content_filter]] a").reason == "content_filter"
    assert failing(mode, "[[cut after=1]] a b c").reason == "network"
    assert failing(mode, "[[cut after=1]] a b c", ("stream",)).reason == "network"
    assert failing(mode, "[[drop]] a").reason == "network"
    assert failing(mode, "[[garbage]] a").reason == "invalid_response"


@streamed_and_not
@every_mode
def test_a_cut_answer_says_so(url: str, mode: str, refused: tuple[str, ...]) -> None:
    """The limit of output has its word in each form."""
    assert ask(url, mode, "[[answer a]] [[finish length]]", refused).finish_reason == "length"


@every_mode
@pytest.mark.parametrize("body", [b"{", b"[]", b"{}", b'{"messages":5,"input":5}', b'{"messages":[5],"input":[5]}'])
def test_a_body_that_is_no_request(client: Client, mode: str, body: bytes) -> None:
    """It is refused with status 400 and a message."""
    reply = client.post(body, PATHS[mode])
    assert reply.status == http.client.BAD_REQUEST
    assert "is not a" in json.loads(reply.read())["error"]["message"]


def test_the_key_is_asked_for_in_every_form(start: Start, connect: Connect) -> None:
    """As each form carries it; without it the error is that of the form."""
    provider = start("--require-key-env", "THE_KEY", variables={"THE_KEY": "sesame-0123456789"})
    for mode in MODES:
        assert ask(provider.url, mode, "[[answer in]]", key="sesame-0123456789").text == "in"
        with pytest.raises(ProviderError) as caught:
            ask(provider.url, mode, "[[answer in]]", key="wrong")
        assert caught.value.reason == "auth"
    body = {"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": "x"}]}
    refused = json.loads(connect(provider.url).post(json.dumps(body).encode(), "/v1/messages").read())
    assert (refused["type"], refused["error"]["type"]) == ("error", "authentication_error")
