"""What the chat-completions client asks, and how it reads what real servers send, over real HTTP."""

import gzip
import json
import socket
import threading
from typing import Any

import pytest
from agent_support import (
    DONE,
    KEY,
    Answer,
    Handler,
    ModelServer,
    drops,
    event,
    hangs,
    refuses,
    says,
    serving,
    streams,
)

from fanjoin.agent_proc.http import Http
from fanjoin.agent_proc.provider.chat_completions import ChatCompletions
from fanjoin.agent_proc.provider.failure import ProviderError
from fanjoin.agent_proc.provider.reply import Reply
from fanjoin.ipc.settings import Endpoint, ModelLimits

MESSAGES = [{"role": "user", "content": "hi"}]
QUICK = ModelLimits(connect=1, first_byte=0.2, between_bytes=0.2, whole_call=0.5)


def ask(server: ModelServer, limits: ModelLimits = QUICK, heard: list[str] | None = None, **changed: Any) -> Reply:
    """Make one call."""
    endpoint = Endpoint(**{"base_url": server.url, "model": "m", "api_key": KEY, **changed})
    client = ChatCompletions(endpoint, Http(endpoint.base_url, limits))
    try:
        return client.complete(MESSAGES, [], (heard if heard is not None else []).append)
    finally:
        client.close()


def failure(answer: Answer, limits: ModelLimits = QUICK) -> ProviderError:
    """Return how a call fails."""
    with serving(answer) as server, pytest.raises(ProviderError) as caught:
        ask(server, limits)
    return caught.value


def test_what_is_asked() -> None:
    """A request names the model, wants a stream with token counts, has a length and no tools key without tools."""
    with serving(says("ok")) as server:
        ask(server, reasoning_effort="low")
    body = server.bodies[0]
    assert body == {
        "model": "m",
        "messages": MESSAGES,
        "reasoning_effort": "low",
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    headers = {name.lower(): value for name, value in server.headers[0].items()}
    assert headers["content-type"] == "application/json"
    assert int(headers["content-length"]) == len(json.dumps(body, separators=(",", ":")))
    assert "transfer-encoding" not in headers


def test_no_key_sends_no_authorization() -> None:
    """A server without a key gets no authorization header."""
    with serving(says("ok")) as server:
        ask(server, api_key="")
    assert "authorization" not in {name.lower() for name in server.headers[0]}


def test_text_is_heard_as_it_comes() -> None:
    """Each piece of the answer is passed on by itself."""
    heard: list[str] = []
    with serving(says("a", "b", "c")) as server:
        assert ask(server, heard=heard).text == "abc"
    assert [piece for piece in heard if piece] == ["a", "b", "c"]


TEXT = event({"content": "hel"}) + event({"content": "lo"})
STOP = event({}, "stop")
READINGS: dict[str, Answer] = {
    "status 201": lambda handler: handler.reply(201, TEXT + STOP + DONE, content_type="text/event-stream"),
    "unclean end after the finish": lambda handler: _chunked(handler, TEXT + STOP, ends=False),
    "silence after the finish": hangs(TEXT, STOP),
    "gzip": lambda handler: handler.reply(
        200, gzip.compress(TEXT + STOP + DONE), content_encoding="gzip", content_type="text/event-stream"
    ),
    "HTTP/1.0": lambda handler: _old_http(handler, TEXT + STOP + DONE),
    "chunked": lambda handler: _chunked(handler, TEXT + STOP + DONE),
}


def _chunked(handler: Handler, body: bytes, *, ends: bool = True) -> None:
    handler.send_response(200)
    handler.send_header("transfer-encoding", "chunked")
    handler.end_headers()
    for at in range(0, len(body), 40):
        part = body[at : at + 40]
        handler.wfile.write(b"%x\r\n%b\r\n" % (len(part), part))
    if ends:
        handler.wfile.write(b"0\r\n\r\n")
    handler.close_connection = True


def _old_http(handler: Handler, body: bytes) -> None:
    handler.protocol_version = "HTTP/1.0"
    handler.stream(body)


@pytest.mark.parametrize("form", READINGS)
def test_every_way_reads_the_same(form: str) -> None:
    """However a good answer is brought, its text is read as it was meant."""
    with serving(READINGS[form]) as server:
        assert ask(server).text == "hello"


def test_several_calls_share_one_client() -> None:
    """A client can be used again after a server closed its connection."""
    with serving(says("one"), says("two")) as server:
        client = ChatCompletions(server.endpoint, Http(server.url, QUICK))
        assert [client.complete(MESSAGES, [], print).text for _ in range(2)] == ["one", "two"]
        client.close()


def test_token_counts() -> None:
    """Token counts are read from the last chunk that has some; cached ones are a part of the input."""
    counts = {"prompt_tokens": 30, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 20}}
    with serving(streams(event({"content": "x"}, "stop"), event(usage=counts), DONE)) as server:
        spent = ask(server).usage
    assert (spent.input_tokens, spent.output_tokens, spent.cached_tokens) == (30, 7, 20)


FAILURES: dict[str, tuple[Answer, str, bool]] = {
    "400": (refuses(400, {"message": "what?"}), "bad_request", False),
    "400 context": (refuses(400, {"code": "context_length_exceeded", "message": "m"}), "context_overflow", False),
    "400 llama.cpp context": (refuses(400, {"type": "exceed_context_size_error"}), "context_overflow", False),
    "400 model": (refuses(400, {"code": "model_not_found", "message": "m"}), "model_not_found", False),
    "400 filter": (refuses(400, {"code": "content_filter", "message": "m"}), "content_filter", False),
    "401": (refuses(401), "auth", False),
    "402": (refuses(402), "billing", False),
    "403": (refuses(403), "auth", False),
    "404": (refuses(404), "model_not_found", False),
    "307": (refuses(307, location="/elsewhere"), "bad_request", False),
    "408": (refuses(408), "server_error", True),
    "429": (refuses(429), "rate_limit", True),
    "429 quota": (refuses(429, {"code": "insufficient_quota", "message": "pay"}), "billing", False),
    "500": (refuses(500), "server_error", True),
    "503": (refuses(503), "server_error", True),
    "529": (refuses(529), "server_error", True),
    "cut stream": (streams(event({"content": "hal"})), "network", True),
    "cut chunked stream": (lambda handler: _chunked(handler, event({"content": "h"}), ends=False), "network", True),
    "dropped": (drops, "network", True),
    "silent from the start": (hangs(), "network", True),
    "silent in the middle": (hangs(event({"content": "h"})), "network", True),
    "empty body": (lambda handler: handler.reply(200, b""), "invalid_response", True),
    "HTML page": (lambda handler: handler.reply(200, b"<!doctype html>"), "invalid_response", False),
    "garbage": (lambda handler: handler.reply(200, b"garbage"), "invalid_response", True),
    "garbage in an event": (streams(b"data: {oops\n\n"), "invalid_response", True),
    "a list in an event": (streams(b"data: [1]\n\n"), "invalid_response", True),
    "cut JSON": (lambda handler: handler.reply(200, b'{"choices": ['), "invalid_response", True),
    "JSON without choices": (lambda handler: handler.reply(200, b'{"a": 1}'), "invalid_response", True),
    "bad gzip": (lambda handler: handler.reply(200, b"x" * 9, content_encoding="gzip"), "invalid_response", True),
    "filtered": (says("no", finish="content_filter"), "content_filter", False),
    "finish error": (says("no", finish="error"), "server_error", True),
    "error in the stream": (streams(event({"content": "h"}), event(error={"message": "oh"})), "server_error", True),
    "error code in the stream": (streams(event(error={"code": 429, "message": "slow"})), "rate_limit", True),
    "error text in plain JSON": (lambda handler: handler.reply(200, b'{"error": "broken"}'), "server_error", True),
    "error word in plain JSON": (
        lambda handler: handler.reply(200, b'{"error": {"type": "invalid_request_error"}}'),
        "bad_request",
        False,
    ),
}


@pytest.mark.parametrize("form", FAILURES)
def test_every_failure_has_its_reason(form: str) -> None:
    """Each way to fail has one reason word, a message, and a verdict on trying again."""
    answer, reason, retryable = FAILURES[form]
    error = failure(answer)
    assert (error.reason, error.retryable) == (reason, retryable)
    assert len(str(error)) > 10


def test_retry_after_is_passed_on() -> None:
    """The header reaches the retry policy as it came."""
    assert failure(refuses(429, retry_after="Wed, 21 Oct 2026 07:28:00 GMT")).retry_after is not None


def test_a_call_that_drips_for_ever_is_cut() -> None:
    """A stream that never pauses and never ends is cut by the limit of the whole call."""

    def drips(handler: Handler) -> None:
        handler.stream()
        while not handler.server.released.wait(0.05):
            handler.wfile.write(b": still here\n\n")
            handler.wfile.flush()

    assert "lasted longer" in str(failure(drips))


def test_a_server_that_only_accepts() -> None:
    """A server that accepts connections and never answers is cut by the limit for the first byte."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/v1"
        client = ChatCompletions(Endpoint(base_url=url, model="m"), Http(url, QUICK))
        with pytest.raises(ProviderError) as caught:
            client.complete(MESSAGES, [], print)
    assert (caught.value.reason, caught.value.retryable) == ("network", True)
    assert "silent" in str(caught.value)


@pytest.mark.parametrize("url", ["ftp://x/v1", "127.0.0.1:80/v1", "http://", "http://[::1"])
def test_a_url_that_is_none(url: str) -> None:
    """A base URL that cannot be used is a bad request, told with the URL, and not tried again."""
    with pytest.raises(ProviderError) as caught:
        ChatCompletions(Endpoint(base_url=url, model="m"), Http(url, QUICK)).complete(MESSAGES, [], print)
    assert (caught.value.reason, caught.value.retryable) == ("bad_request", False)
    assert url.rstrip("/") in str(caught.value)


def test_a_key_that_no_header_can_carry() -> None:
    """A key with a line break is a fault of the key, and its message does not show it."""
    with serving(says("never")) as server, pytest.raises(ProviderError) as caught:
        ask(server, api_key="abc\ndef-0123456789")
    assert caught.value.reason == "auth"
    assert "abc" not in str(caught.value)
    assert server.bodies == []


def test_a_long_answer_in_one_event_takes_little_time() -> None:
    """20 MB in a single event are read in linear time."""
    text = "0123456789" * 2_000_000
    with serving(streams(event({"content": text}), STOP, DONE)) as server:
        limits = ModelLimits(whole_call=10)
        assert ask(server, limits).text == text


def test_no_thread_is_left() -> None:
    """A call leaves no thread behind: agents are forked from the process that rehearses one."""
    with serving(says("ok")) as server:
        before = {thread for thread in threading.enumerate() if "process_request" not in thread.name}
        ask(server)
        after = {thread for thread in threading.enumerate() if "process_request" not in thread.name}
    assert after == before
