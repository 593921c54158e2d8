"""How calls fail in each wire format and below it: one reason, the status, the server's words, worth a retry or not."""

import re
import socket
import threading
import zlib
from collections.abc import Callable

import chat_forms
import messages_forms
import pytest
import responses_forms
from agent_support import KEY, Answer, Handler, ModelServer, event, hangs, refuses, says, serving, streams, task
from error_forms import ERRORS, STREAMED
from wire_support import HELLO, Form, ask, client_of

from fanjoin.agent_proc.provider.failure import ProviderError
from fanjoin.agent_proc.provider.modes import open_client
from fanjoin.ipc.settings import Endpoint, ModelLimits

SHORT = ModelLimits(connect=1, first_byte=0.2, between_bytes=0.2, whole_call=0.6)
ANTHROPIC, RESPONSES = "anthropic_messages", "responses"


def sent(body: bytes) -> Answer:
    """Answer with a body as it stands."""
    return Form(body=body).answer


def _failed(error: bytes) -> bytes:
    return (
        b'event: response.failed\ndata: {"type":"response.failed","response":{"status":"failed","error":%b}}\n\n'
        % error
    )


def _anthropic(kind: str, message: str = "m") -> object:
    return {"type": kind, "message": message}


FAILURES: dict[str, tuple[str, Answer, str, int, bool]] = {
    "invalid request": (ANTHROPIC, refuses(400, _anthropic("invalid_request_error")), "bad_request", 400, False),
    "no credit": (
        *(ANTHROPIC, refuses(400, _anthropic("invalid_request_error", "Your credit balance is too low to go on."))),
        *("billing", 400, False),
    ),
    "prompt too long": (
        *(ANTHROPIC, refuses(400, _anthropic("invalid_request_error", "prompt is too long: 9 tokens > 8 maximum"))),
        *("context_overflow", 400, False),
    ),
    "authentication": (ANTHROPIC, refuses(401, _anthropic("authentication_error")), "auth", 401, False),
    "not found": (ANTHROPIC, refuses(404, _anthropic("not_found_error")), "model_not_found", 404, False),
    "too large": (ANTHROPIC, refuses(413, _anthropic("request_too_large")), "context_overflow", 413, False),
    "rate limit": (ANTHROPIC, refuses(429, _anthropic("rate_limit_error")), "rate_limit", 429, True),
    "overloaded": (ANTHROPIC, refuses(529, _anthropic("overloaded_error")), "server_error", 529, True),
    "overloaded in the stream": (
        ANTHROPIC,
        sent(
            messages_forms.HELLO
            + b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"busy"}}\n\n'
        ),
        *("server_error", 0, True),
    ),
    "rate limit in the stream": (
        ANTHROPIC,
        sent(b'event: error\ndata: {"type":"error","error":{"type":"rate_limit_error","message":"slow"}}\n\n'),
        *("rate_limit", 0, True),
    ),
    "refusal": (
        ANTHROPIC,
        sent(messages_forms.HELLO + messages_forms.STOP.replace(b"end_turn", b"refusal")),
        *("content_filter", 200, False),
    ),
    "cut": (ANTHROPIC, sent(messages_forms.HELLO), "network", 200, True),
    "another API": (ANTHROPIC, sent(b'{"choices":[]}'), "invalid_response", 200, True),
    "failed": (RESPONSES, sent(_failed(b'{"code":"server_error","message":"oh"}')), "server_error", 0, True),
    "failed, rate": (RESPONSES, sent(_failed(b'{"code":"rate_limit_exceeded","message":"x"}')), "rate_limit", 0, True),
    "failed, window": (
        RESPONSES,
        sent(_failed(b'{"code":"context_length_exceeded","message":"x"}')),
        *("context_overflow", 0, False),
    ),
    "failed without a word": (RESPONSES, sent(_failed(b"null")), "server_error", 0, True),
    "error event": (
        RESPONSES,
        sent(responses_forms.HELLO + b'data: {"type":"error","code":"server_error","message":"oh","param":null}\n\n'),
        *("server_error", 0, True),
    ),
    "filtered": (
        RESPONSES,
        sent(
            b'{"status":"incomplete","incomplete_details":{"reason":"content_filter"},"output":[]}',
        ),
        *("content_filter", 200, False),
    ),
    "model's refusal": (
        RESPONSES,
        sent(
            responses_forms.CREATED
            + b'data: {"type":"response.refusal.delta","output_index":0,"delta":"I will not."}\n\n'
            + responses_forms._completed()
        ),
        *("content_filter", 200, False),
    ),
    "model's refusal, plain": (
        RESPONSES,
        sent(b'{"status":"completed","output":[{"type":"message","content":[{"type":"refusal","refusal":"no"}]}]}'),
        *("content_filter", 200, False),
    ),
    "no end": (RESPONSES, sent(responses_forms.HELLO), "network", 200, True),
    "refusal in chat": (
        "chat_completions",
        streams(event({"refusal": "I will "}), event({"refusal": "not."}, "stop")),
        *("content_filter", 200, False),
    ),
    "error as an object": (
        "chat_completions",
        sent(b'{"object":"error","message":"oh","code":503}'),
        "server_error",
        503,
        True,
    ),
    "error in a list": (
        "chat_completions",
        lambda handler: handler.reply(400, b'[{"error":{"code":400,"message":"bad field"}}]'),
        *("bad_request", 400, False),
    ),
    "head and no body": ("chat_completions", lambda handler: handler.reply(200, b""), "invalid_response", 200, True),
    "stream without a byte": ("chat_completions", streams(), "invalid_response", 200, True),
    "comments alone": ("chat_completions", streams(b": ping\n\n"), "invalid_response", 200, True),
    "page with status 502": (
        "chat_completions",
        lambda handler: handler.reply(502, b"<html>bad gateway", content_type="text/html"),
        *("server_error", 502, True),
    ),
}


@pytest.mark.parametrize("case", FAILURES)
def test_every_failure_has_its_reason(case: str) -> None:
    """Reason, status and whether to try again are those of the table, and there is a message."""
    mode, answer, reason, status, retryable = FAILURES[case]
    with serving(answer) as server, pytest.raises(ProviderError) as caught:
        ask(server, mode, model_limits=SHORT)
    error = caught.value
    assert (error.reason, error.status, error.retryable) == (reason, status, retryable)
    assert len(str(error)) > 10
    assert KEY not in str(error)


@pytest.mark.parametrize("mode", ["chat_completions", ANTHROPIC, RESPONSES])
def test_the_servers_own_words_are_told(mode: str) -> None:
    """In each format the message is the server's, clipped, with the key masked."""
    words = {"message": f"bad {KEY} " + "x" * 5000}
    with (
        serving(refuses(400, words)) as server,
        pytest.raises(ProviderError, match="HTTP 400: bad …cdef xxx") as caught,
    ):
        ask(server, mode)
    assert len(str(caught.value)) < 700


@pytest.mark.parametrize("case", ERRORS)
def test_errors_of_known_servers_are_understood(case: str) -> None:
    """Whatever status and words a server has for it: one reason, and its own words, those behind a router included."""
    form = ERRORS[case]
    refusal: Answer = lambda handler: handler.reply(form.status, form.body)  # noqa: E731
    with serving(refusal) as server, pytest.raises(ProviderError, match=re.escape(form.told)) as caught:
        ask(server)
    assert caught.value.reason == form.reason


@pytest.mark.parametrize("begun", [b"", chat_forms.HEL])
@pytest.mark.parametrize("case", STREAMED)
def test_errors_in_a_stream_are_understood(case: str, begun: bytes) -> None:
    """Also in the middle of an answer, and also without the frame of an event, an error is told as one."""
    form = STREAMED[case]
    with serving(sent(begun + form.body)) as server, pytest.raises(ProviderError, match=form.told) as caught:
        ask(server)
    assert caught.value.reason == form.reason


def test_a_wait_that_stands_in_the_body_is_honoured() -> None:
    """Google says in the error alone how long to wait."""
    body = b'[{"error":{"code":429,"message":"m","details":[{"@type":"RetryInfo","retryDelay": "34.5s"}]}}]'
    refusal: Answer = lambda handler: handler.reply(429, body)  # noqa: E731
    with serving(refusal) as server, pytest.raises(ProviderError) as caught:
        ask(server)
    assert caught.value.retry_after == "34.5"


def test_what_the_model_refused_is_told() -> None:
    """A refusal is no answer, and its words are in the message."""
    refusal = streams(event({"refusal": "I will "}), event({"refusal": "not."}, "stop"))
    with serving(refusal) as server, pytest.raises(ProviderError, match=r"refused to answer: I will not\."):
        ask(server)


# --- redirects ---


@pytest.mark.parametrize("status", [307, 308])
def test_a_redirect_within_a_server_is_followed(status: int) -> None:
    """The same request, key included, goes to the place that the server itself names."""
    with serving(refuses(status, location="/v2/chat/completions"), says("ok")) as server:
        assert ask(server).text == "ok"
    assert server.paths == ["/v1/chat/completions", "/v2/chat/completions"]
    assert server.bodies[0] == server.bodies[1]
    assert server.headers[1]["authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize("status", [301, 302, 303, 307])
def test_a_redirect_elsewhere_is_told(status: int) -> None:
    """A key never follows to another server, and a POST never becomes a GET; the message names the place."""
    with (
        serving(says("stolen")) as other,
        serving(refuses(status, location=f"{other.url}/x")) as server,
        pytest.raises(ProviderError, match=f"redirects to {other.url}/x") as caught,
    ):
        ask(server)
    assert (caught.value.reason, caught.value.retryable, other.bodies) == ("bad_request", False, [])


def test_redirects_without_end() -> None:
    """A server that redirects for ever is left after three requests."""
    with serving(refuses(307, location="/again")) as server, pytest.raises(ProviderError, match="again and again"):
        ask(server)
    assert len(server.bodies) == 3


# --- sockets ---


def _raw(answer: Callable[[socket.socket], None]) -> tuple[Endpoint, socket.socket]:
    """Serve one connection by hand."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            head = b""
            while b"\r\n\r\n" not in head:
                head += connection.recv(65_536)
            answer(connection)

    threading.Thread(target=serve, daemon=True).start()
    return Endpoint(base_url=f"http://127.0.0.1:{listener.getsockname()[1]}/v1", model="m"), listener


HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
GOOD = event({"content": "hello"}) + event({}, "stop")


def _half_closed_after(data: bytes) -> Callable[[socket.socket], None]:
    def answer(connection: socket.socket) -> None:
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(65_536):  # it still listens, until the client leaves
            pass

    return answer


def _deaf(connection: socket.socket) -> None:
    connection.shutdown(socket.SHUT_RD)
    connection.sendall(HEAD + GOOD)


SOCKETS: dict[str, tuple[Callable[[socket.socket], None], str]] = {
    "half-closed after the answer": (_half_closed_after(HEAD + GOOD), "hello"),
    "does not read any more": (_deaf, "hello"),
    "half-closed in the middle": (_half_closed_after(HEAD + event({"content": "hel"})), "network"),
    "half-closed after the head": (_half_closed_after(HEAD), "invalid_response"),
    "half-closed in the head": (_half_closed_after(HEAD[:30]), "network"),
    "half-closed at once": (_half_closed_after(b""), "network"),
    "no HTTP at all": (_half_closed_after(b"SSH-2.0-OpenSSH_9.2\r\n"), "network"),
}


@pytest.mark.parametrize("case", SOCKETS)
def test_sockets_that_are_half_closed(case: str) -> None:
    """An answer that is whole counts, however its socket ends; anything less is a failure of the network."""
    answer, expected = SOCKETS[case]
    endpoint, listener = _raw(answer)
    with listener:
        client = open_client(endpoint, task(model_limits=SHORT))
        if expected == "hello":
            assert client.complete(HELLO, [], lambda _: None).text == "hello"
        else:
            with pytest.raises(ProviderError) as caught:
                client.complete(HELLO, [], lambda _: None)
            assert caught.value.reason == expected
        client.close()


def test_a_compressed_stream_is_read_as_it_arrives() -> None:
    """Each event of a gzip stream is heard when the server has flushed it, not at the end."""
    heard = threading.Event()

    def answer(handler: Handler) -> None:
        packer = zlib.compressobj(wbits=31)
        handler.close_connection = True
        handler.send_response(200)
        handler.send_header("content-type", "text/event-stream")
        handler.send_header("content-encoding", "gzip")
        handler.end_headers()
        handler.wfile.write(packer.compress(event({"content": "first"})) + packer.flush(zlib.Z_SYNC_FLUSH))
        handler.wfile.flush()
        handler.server.released.set() if heard.wait(5) else None
        handler.wfile.write(packer.compress(event({"content": " last"}, "stop")) + packer.flush())

    with serving(answer) as server:
        client = client_of(server)
        reply = client.complete(HELLO, [], lambda text: heard.set() if text == "first" else None)
        client.close()
        assert server.released.is_set(), "the first event was heard before the second was sent"
    assert reply.text == "first last"


# --- time ---


def test_each_wait_has_its_own_limit() -> None:
    """Silence before the first byte, silence between two, and a call that drips: each is cut by its own limit."""

    def drips(handler: Handler) -> None:
        handler.stream()
        while not handler.server.released.wait(0.05):
            handler.wfile.write(b": still here\n\n")
            handler.wfile.flush()

    patient = {"connect": 5.0, "first_byte": 5.0, "between_bytes": 5.0, "whole_call": 5.0}
    cases = {
        "first_byte": _never_answers,
        "between_bytes": hangs(event({"content": "h"})),
        "whole_call": drips,
    }
    for limit, answer in cases.items():
        with serving(answer) as server, pytest.raises(ProviderError) as caught:
            ask(server, model_limits=ModelLimits(**{**patient, limit: 0.2}))
        assert (caught.value.reason, caught.value.retryable) == ("network", True), limit


def _never_answers(handler: Handler) -> None:
    handler.server.released.wait(5)
    handler.close_connection = True


def test_a_server_that_takes_no_connection() -> None:
    """A full backlog is cut by the limit for connecting."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        address = listener.getsockname()
        waiting = [socket.socket() for _ in range(4)]
        for one in waiting:
            one.setblocking(False)
            one.connect_ex(address)
        endpoint = Endpoint(base_url=f"http://127.0.0.1:{address[1]}/v1", model="m")
        client = open_client(endpoint, task(model_limits=ModelLimits(connect=0.3, first_byte=0.3)))
        with pytest.raises(ProviderError) as caught:
            client.complete(HELLO, [], lambda _: None)
        client.close()
        for one in waiting:
            one.close()
    assert (caught.value.reason, caught.value.retryable) == ("network", True)


def test_an_unknown_format_is_named() -> None:
    """An api_mode that nobody knows fails at once with the ones that are known."""
    with ModelServer(says("never")) as server, pytest.raises(ProviderError, match="anthropic_messages or responses"):
        client_of(server, "smoke")
