import contextlib
import hashlib
import json
import threading
import time
from pathlib import Path

import httpx
import pytest
from provider_support import DELEGATE, SECONDS, Client, Connect, Start, raw, records, user

from fanjoin.cli.provider.plan import with_plan
from fanjoin.cli.provider.server import MAX_BODY
from fanjoin.client.local_model import EmbeddedProvider


def test_a_plain_reply_has_figures_and_says_what_it_is(client: Client) -> None:
    """A reply counts the user's text, names the model that was asked for, and says that no model read it."""
    reply = client.whole("# Title\n\nthree more words", model="any")
    choice = reply["choices"][0]
    assert choice["finish_reason"] == "stop"
    assert "5 words in 3 lines" in choice["message"]["content"]
    assert "no language model" in choice["message"]["content"]
    assert reply["model"] == "any"
    assert reply["usage"]["prompt_tokens"] == 7


def test_a_stream_begins_and_ends_as_the_api_says(client: Client) -> None:
    """The role comes first with null content, then words, the finish_reason, the usage without a choice, the end."""
    chunks = client.chunks("[[answer one two]]", stream_options={"include_usage": True})
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks[:-1]]
    assert deltas == [{"role": "assistant", "content": None}, {"content": "one "}, {"content": "two"}, {}]
    assert chunks[-2]["choices"][0]["finish_reason"] == "stop"
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"]["completion_tokens"] == 3
    assert len({(chunk["id"], chunk["object"]) for chunk in chunks}) == 1
    assert "usage" not in client.chunks("[[answer one]]")[-1]


def test_tool_calls_are_streamed_in_pieces(client: Client) -> None:
    """Each call comes with its identifier and name first, then its arguments bit by bit, in order."""
    goals = [f"goal number {number}" for number in range(20)]
    calls = [{"name": "other", "arguments": "{}"}]
    asked = with_plan("Go.", [{"delegate": goals, "calls": calls, "text": "I delegate."}])
    chunks = client.chunks(asked, tools=[DELEGATE])
    parts = [part for chunk in chunks for part in chunk["choices"][0]["delta"].get("tool_calls", [])]
    assert chunks[1]["choices"][0]["delta"] == {"content": "I "}
    assert [(part["index"], part["function"]["name"]) for part in parts if "id" in part] == [
        (0, "delegate_task"),
        (1, "other"),
    ]
    written = [part["function"]["arguments"] for part in parts if part["index"] == 0]
    assert len(written) > 3
    assert json.loads("".join(written)) == {"tasks": [{"goal": goal} for goal in goals]}
    assert chunks[-1]["choices"][0]["finish_reason"] == "tool_calls"


def test_a_common_client_understands_it(plain_provider: EmbeddedProvider) -> None:
    """A full HTTP client reads streams, whole replies and lists over one connection that stays open."""
    with httpx.Client(base_url=plain_provider.url, timeout=SECONDS, trust_env=False) as client:
        body = {"messages": user("[[answer a]]"), "stream": True}
        with client.stream("POST", "/chat/completions", json=body) as reply:
            assert reply.headers["content-type"] == "text/event-stream"
            assert list(reply.iter_lines())[-2] == "data: [DONE]"
        assert client.get("/models").json()["data"][0]["id"] == "synthetic"
        assert client.post("/chat/completions", json=body | {"stream": False}).json()["object"] == "chat.completion"


def test_health_and_unknown_paths(client: Client) -> None:
    """A sign of life needs no model call, and a path that is not there says which one is."""
    assert client.get("/health") == {"status": "ok", "model": "synthetic"}
    assert "POST /v1/chat/completions" in client.get("/v1/completions")["error"]["message"]


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"messages": 3}', b'{"messages": [{"content": 1}]}', b"\xff"])
def test_a_body_that_is_no_request_is_refused(client: Client, body: bytes) -> None:
    """Broken JSON and wrong types are status 400 with a reason, and the connection goes on."""
    reply = client.post(body)
    assert reply.status == 400
    assert "not a chat-completions request" in json.loads(reply.read())["error"]["message"]
    assert client.text("[[answer still here]]") == "still here"


@pytest.mark.parametrize("sent", [b"\x00\x01\x02\r\n\r\n", b"GET /\r\nHost: x\r\n\r\n"])
def test_what_is_not_http_is_refused(plain_provider: EmbeddedProvider, client: Client, sent: bytes) -> None:
    """Bytes that are no request close their own connection and no other."""
    with raw(plain_provider.url) as connection:
        connection.sendall(sent)
        assert b" 400 " in connection.makefile("rb").read()
    assert client.text("[[answer fine]]") == "fine"


def test_http_1_0_and_100_continue(plain_provider: EmbeddedProvider) -> None:
    """An HTTP/1.0 client gets a reply that ends with its connection; one that waits for leave to send gets it."""
    body = json.dumps({"messages": user("[[answer old]]"), "stream": True}).encode()
    head = f"POST /v1/chat/completions HTTP/1.0\r\nContent-Length: {len(body)}\r\n\r\n"
    with raw(plain_provider.url) as connection:
        connection.sendall(head.encode() + body)
        assert connection.makefile("rb").read().endswith(b"data: [DONE]\n\n")
    with raw(plain_provider.url) as connection:
        head = head.replace("1.0\r\n", "1.1\r\nHost: x\r\nExpect: 100-continue\r\nConnection: close\r\n")
        connection.sendall(head.encode())
        assert connection.recv(1000).startswith(b"HTTP/1.1 100 ")
        connection.sendall(body)
        assert b"HTTP/1.1 200 " in connection.makefile("rb").read()


def test_surrogates_pass_through(client: Client) -> None:
    """Lone surrogates and NUL go out as escapes: what an agent makes of them is what is to be tested."""
    asked = with_plan("Go.", [{"text": "a\ud800b\x00c"}])
    assert client.text(asked) == "a\ud800b\x00c"


def test_twenty_million_characters_arrive_whole(client: Client) -> None:
    """A huge reply comes complete in either form."""
    assert len(client.text("[[size 20000000]]")) == 20_000_000
    parts = [chunk["choices"][0]["delta"].get("content") or "" for chunk in client.chunks("[[size 20000000]]")]
    assert sum(map(len, parts)) == 20_000_000


def test_a_huge_request_is_read(client: Client) -> None:
    """A request of a million words is counted to its last word."""
    assert "1,000,000 words" in client.text("word " * 1_000_000)


@pytest.mark.parametrize("framing", ["Content-Length: 99999999", "Transfer-Encoding: chunked"])
def test_a_request_past_the_limit_is_refused(plain_provider: EmbeddedProvider, framing: str) -> None:
    """A body over the limit is refused as soon as that shows: by its promised length, or while it comes."""
    said = b""
    with raw(plain_provider.url) as connection, contextlib.suppress(ConnectionError):  # it may close while we send
        connection.sendall(f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n{framing}\r\n\r\n".encode())
        if "chunked" in framing:
            connection.sendall(b"%x\r\n%s" % (MAX_BODY + 1, bytes(MAX_BODY + 1)))
        said = connection.recv(1000)
    assert said.startswith(b"HTTP/1.1 413 ") or (not said and "chunked" in framing)


def test_the_log_counts_and_never_holds_a_key(connect: Connect, start: Start, tmp_path: Path) -> None:
    """Each request is one line with the digest of its key, what it offers and how many were in flight."""
    log = tmp_path / "requests.jsonl"
    provider = start("--log", str(log))
    barrier = [threading.Thread(target=connect(provider.url).text, args=("[[hold 3]]",)) for _ in range(2)]
    for thread in barrier:
        thread.start()
    connect(provider.url, "sk-very-secret").text("[[hold 3]]", tools=[DELEGATE])
    for thread in barrier:
        thread.join(SECONDS)
    connect(provider.url).post(b"nonsense").read()
    *asked, last = records(log)
    assert sorted(line["in_flight"] for line in asked) == [1, 2, 3]
    assert [line["key_sha256"] for line in asked if line["tools"] == ["delegate_task"]] == [
        hashlib.sha256(b"sk-very-secret").hexdigest()
    ]
    assert "model" not in last
    assert last["in_flight"] == 1
    assert "very-secret" not in log.read_text(encoding="utf-8")


def test_only_the_required_key_is_accepted(connect: Connect, start: Start) -> None:
    """A provider that requires a key answers 401 to any other and to none."""
    provider = start("--require-key-env", "DEMO_KEY", variables={"DEMO_KEY": "right"})
    assert [connect(provider.url, key).ask("hi").status for key in ("", "wrong", "right")] == [401, 401, 200]


def test_latency_and_pace(connect: Connect, start: Start) -> None:
    """The first byte waits for the latency, and words come at the rate that was set."""
    provider = start("--latency", "0.2", "--token-rate", "50", "--model", "slow")
    client = connect(provider.url)
    began = time.monotonic()
    reply = client.ask("[[answer one two three four five six seven eight nine ten]]", stream=True)
    assert time.monotonic() - began >= 0.2
    reply.read()
    assert time.monotonic() - began >= 0.2 + 10 / 50
    assert client.get("/v1/models")["data"][0]["id"] == "slow"


def test_a_plan_file_rules_all_requests(connect: Connect, start: Start, tmp_path: Path) -> None:
    """A provider that was started with a plan file follows it."""
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps([{"when": {"user": "red"}, "replies": [{"text": "planned"}]}]), encoding="utf-8")
    client = connect(start("--plan", str(plan)).url)
    assert client.text("a red one") == "planned"
    assert client.text("a blue one") != "planned"


def test_cached_tokens_are_told(client: Client) -> None:
    """The second request with the same beginning is said to have read it from a cache."""
    system = [{"role": "system", "content": "a beginning that only this test has"}]
    client.whole([*system, *user("[[answer a]]")])
    usage = client.whole([*system, *user("[[answer b]]")])["usage"]
    assert usage["prompt_tokens_details"]["cached_tokens"] == 10
