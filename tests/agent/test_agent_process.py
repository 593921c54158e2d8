"""One agent as a real process, between a supervisor's socket and a model server."""

import json
import socket
import time
from pathlib import Path

import psutil
import pytest
from agent_support import (
    DONE,
    KEY,
    ModelServer,
    Supervisor,
    asks,
    drops,
    event,
    hangs,
    plain,
    refuses,
    says,
    serving,
    streams,
    task,
)

from fanjoin.ipc.messages import CallAnswer, Cancel, Delegate, Hello, Joined, Progress, Reject, Result, Started, Welcome
from fanjoin.ipc.settings import DelegationLimits, Endpoint

CERTIFICATE = Path(__file__).parent / "loopback.pem"  # of a server on 127.0.0.1, with its key
ROOT = {"toolsets": ("delegation",)}


def joined(delegate: Delegate, *summaries: str) -> Joined:
    """Return the answers to the calls of a join."""
    answers = [
        CallAnswer(tool_call_id=call.tool_call_id, content=json.dumps({"results": [{"summary": summary}]}))
        for call, summary in zip(delegate.calls, summaries, strict=True)
    ]
    return Joined(join_id=delegate.join_id, answers=answers)


def test_one_answer(supervisor: Supervisor) -> None:
    """An agent says hello, asks the model once, and its answer and token counts arrive."""
    with serving(says("Hello", ", world")) as server:
        outcome = supervisor.run(server.endpoint, task("greet"))
    assert (outcome.status, outcome.text, outcome.steps) == ("completed", "Hello, world", 1)
    assert (outcome.usage.input_tokens, outcome.usage.output_tokens) == (10, 5)
    assert [type(message) for message in supervisor.seen][:2] == [Hello, Started]
    assert "".join(progress.delta for progress in supervisor.progress()) == "Hello, world"
    assert server.bodies[0]["messages"][1] == {"role": "user", "content": "greet"}
    assert "tools" not in server.bodies[0]
    assert server.headers[0]["authorization"] == f"Bearer {KEY}"
    assert supervisor.stderr() == ""


def test_two_calls_of_one_message_are_one_join(supervisor: Supervisor) -> None:
    """Two calls go out together, a malformed third is answered at once, and each id gets its own answer."""
    script = [
        asks(
            ("a", "delegate_task", {"tasks": [{"goal": "one"}, {"goal": "two"}], "shared_context": "both"}),
            ("b", "delegate_task", '{"goal": "three"'),
            ("c", "delegate_task", {"goal": "four"}),
        ),
        says("done"),
    ]
    with serving(*script) as server:
        supervisor.start(server.endpoint)
        supervisor.welcome(task("fan out", **ROOT))
        delegate = supervisor.receive(Delegate)
        assert [[spec.goal for spec in call.tasks] for call in delegate.calls] == [["one", "two"], ["four"]]
        assert delegate.calls[0].shared_context == "both"
        supervisor.send(joined(delegate, "first", "second"))
        outcome = supervisor.finish()
    assert outcome.text == "done"
    assert [(entry.tool, entry.ok) for entry in outcome.trace] == [("delegate_task", ok) for ok in (True, False, True)]
    *_, assistant, first, bad, second = server.bodies[1]["messages"]
    assert [call["id"] for call in assistant["tool_calls"]] == ["a", "b", "c"]
    assert [first["tool_call_id"], bad["tool_call_id"], second["tool_call_id"]] == ["a", "b", "c"]
    assert json.loads(first["content"])["results"][0]["summary"] == "first"
    assert json.loads(bad["content"])["error"]["reason"] == "invalid_arguments"
    assert json.loads(second["content"])["results"][0]["summary"] == "second"
    kept = [message for progress in supervisor.progress() for message in progress.messages]
    assert [message["role"] for message in kept] == ["assistant", "tool", "tool", "tool", "assistant"]


@pytest.mark.parametrize("parts", [(), (event({"content": "half"}),)], ids=["no head", "mid-stream"])
def test_cancel_while_the_model_is_silent(supervisor: Supervisor, parts: tuple[bytes, ...]) -> None:
    """An agent that hangs in a model call answers a cancel at once, with what was said so far."""
    with serving(hangs(*parts)) as server:
        supervisor.start(server.endpoint)
        supervisor.welcome(task())
        assert server.arrived.acquire(timeout=10)
        if parts:
            supervisor.receive(Progress)
        began = time.monotonic()
        supervisor.send(Cancel(reason="viewer_lost", grace_seconds=4))
        outcome = supervisor.finish(3)
        assert time.monotonic() - began < 3
    assert (outcome.status, outcome.reason) == ("cancelled", "viewer_lost")
    assert outcome.partial_text == ("half" if parts else "")
    assert outcome.text is None


def test_cancel_during_a_join_answers_every_open_call(supervisor: Supervisor) -> None:
    """A cancel in a join leaves a history in which each call has an answer that says it was interrupted."""
    with serving(asks(("a", "delegate_task", {"goal": "one"}))) as server:
        supervisor.start(server.endpoint)
        supervisor.welcome(task(**ROOT))
        supervisor.receive(Delegate)
        supervisor.send(Cancel(reason="cancelled", grace_seconds=4))
        assert supervisor.finish(3).status == "cancelled"
    assistant, answer = supervisor.progress()[-1].messages
    assert assistant["tool_calls"][0]["id"] == answer["tool_call_id"] == "a"
    assert json.loads(answer["content"])["error"]["reason"] == "interrupted"


def test_cancel_while_waiting_for_a_retry(supervisor: Supervisor) -> None:
    """A cancel does not wait for a Retry-After."""
    with serving(refuses(429, retry_after="30")) as server:
        supervisor.start(server.endpoint)
        supervisor.welcome(task())
        assert server.arrived.acquire(timeout=10)
        supervisor.send(Cancel(reason="cancelled", grace_seconds=4))
        assert supervisor.finish(3).status == "cancelled"


def test_cancel_before_any_work(supervisor: Supervisor) -> None:
    """A process that has no task yet can be cancelled, too."""
    supervisor.start(Endpoint(base_url="http://127.0.0.1:9/v1", model="m"))
    supervisor.receive(Hello)
    supervisor.send(Cancel(reason="cancelled", grace_seconds=4))
    assert supervisor.finish(3).status == "cancelled"


def test_a_cancel_after_the_result_changes_nothing(supervisor: Supervisor) -> None:
    """The first result of a process is its only one."""
    with serving(says("done")) as server:
        supervisor.start(server.endpoint)
        supervisor.welcome(task())
        supervisor.receive(Result)
        supervisor.send(Cancel(reason="cancelled", grace_seconds=4))
        assert supervisor.finish().status == "completed"


def test_a_result_is_repeated_until_it_is_acknowledged(supervisor: Supervisor) -> None:
    """The same result comes again and again, and the process stays until it is acknowledged."""
    with serving(says("done")) as server:
        supervisor.start(server.endpoint)
        supervisor.welcome(task())
        first = supervisor.receive(Result)
        assert supervisor.receive(Result) == first
        assert supervisor.finish() == first.outcome


def test_a_large_result_is_repeated_with_a_file_of_its_own(supervisor: Supervisor) -> None:
    """A repeated result that travels as a file can be read each time, and only one file lies there at a time."""
    with serving(says("x" * 2_000_000)) as server:
        supervisor.start(server.endpoint)
        supervisor.welcome(task())
        assert supervisor.router.poll(10_000)
        first = supervisor.receive(Result)
        assert supervisor.receive(Result) == first
        assert supervisor.finish() == first.outcome
    assert list(supervisor.spool.iterdir()) == []


def test_the_end_of_the_lifeline_ends_the_process(supervisor: Supervisor) -> None:
    """An agent that hangs in a model call is gone at once when its supervisor is."""
    with serving(hangs()) as server:
        supervisor.start(server.endpoint)
        supervisor.welcome(task())
        assert server.arrived.acquire(timeout=10)
        began = time.monotonic()
        supervisor.hang_up()
        supervisor.exit_code(3)
        assert time.monotonic() - began < 3


def test_a_rejected_process_says_why_and_ends(supervisor: Supervisor) -> None:
    """A process that the supervisor does not know leaves a line on its standard error."""
    supervisor.start(Endpoint(base_url="http://127.0.0.1:9/v1", model="m"))
    supervisor.receive(Hello)
    supervisor.send(Reject(reason="the attempt is closed"))
    assert supervisor.exit_code() == 1
    assert supervisor.stderr() == "The supervisor rejected this process: the attempt is closed\n"


def test_hello_proves_who_it_is(supervisor: Supervisor) -> None:
    """The first message holds the nonce of the bootstrap and the true pid."""
    supervisor.start(Endpoint(base_url="http://127.0.0.1:9/v1", model="m"))
    hello = supervisor.receive(Hello)
    assert supervisor.process
    assert (hello.nonce, hello.pid) == ("nonce", supervisor.process.pid)


def test_a_provider_that_fails_makes_the_agent_fail(supervisor: Supervisor) -> None:
    """The reason and the server's own words are told, with the key masked, and are never the answer."""
    with serving(refuses(401, {"message": f"bad key {KEY}"})) as server:
        outcome = supervisor.run(server.endpoint, task())
    assert (outcome.status, outcome.reason, outcome.text) == ("failed", "auth", None)
    assert "HTTP 401: bad key" in outcome.message
    assert KEY not in outcome.message


def test_a_provider_that_is_not_there(supervisor: Supervisor) -> None:
    """No server at the URL is a failure of the network, told in one clear message, after three tries."""
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    outcome = supervisor.run(Endpoint(base_url=f"http://127.0.0.1:{port}/v1", model="m"), task())
    assert (outcome.status, outcome.reason, outcome.steps) == ("failed", "network", 1)
    assert f"No connection to http://127.0.0.1:{port}/v1" in outcome.message


def test_an_unknown_wire_format(supervisor: Supervisor) -> None:
    """An api_mode that is not built fails with its name, before any request."""
    outcome = supervisor.run(Endpoint(base_url="http://127.0.0.1:9/v1", model="m", api_mode="smoke"), task())
    assert (outcome.status, outcome.reason, outcome.steps) == ("failed", "bad_request", 0)
    assert "'smoke'" in outcome.message
    assert not any(isinstance(message, Started) for message in supervisor.seen)


def test_loopback_is_never_reached_through_a_proxy(supervisor: Supervisor) -> None:
    """A proxy of the environment, here a dead one, is not used for loopback."""
    with socket.create_server(("127.0.0.1", 0)) as unused:
        dead = f"http://127.0.0.1:{unused.getsockname()[1]}"
    with serving(says("direct")) as server:
        outcome = supervisor.run(server.endpoint, task(), HTTP_PROXY=dead, http_proxy=dead, ALL_PROXY=dead)
    assert outcome.text == "direct"


def test_other_hosts_are_reached_through_the_proxy(supervisor: Supervisor) -> None:
    """A proxy of the environment gets the requests for hosts that are not loopback."""
    with serving(says("by proxy")) as proxy:
        address = proxy.url.removesuffix("/v1")
        endpoint = Endpoint(base_url="http://model.invalid/v1", model="m")
        assert supervisor.run(endpoint, task(), HTTP_PROXY=address).text == "by proxy"
    assert proxy.paths == ["http://model.invalid/v1/chat/completions"]


@pytest.mark.parametrize("trusted", [True, False])
def test_over_tls(supervisor: Supervisor, trusted: bool) -> None:
    """A server with a certificate that the environment trusts is spoken to; any other one is not."""
    with ModelServer(says("safe"), certificate=CERTIFICATE) as server:
        trust = {"SSL_CERT_FILE": str(CERTIFICATE)} if trusted else {}
        outcome = supervisor.run(server.endpoint, task(), **trust)
    assert outcome.text == ("safe" if trusted else None)
    assert outcome.reason == ("" if trusted else "network")
    assert ("certificate" in outcome.message) is not trusted


def test_the_key_is_nowhere_to_be_read(supervisor: Supervisor) -> None:
    """Neither arguments nor environment nor transcript hold the key, even when the model repeats it."""
    transcript = supervisor.folder / "t.jsonl"
    with serving(says("your key is ", KEY)) as server:
        supervisor.start(server.endpoint)
        supervisor.receive(Hello)
        assert supervisor.process
        process = psutil.Process(supervisor.process.pid)
        assert KEY not in json.dumps([process.cmdline(), process.environ()])
        supervisor.send(Welcome(task=task(transcript_path=str(transcript))))
        supervisor.finish()
    text = transcript.read_text(encoding="utf-8")
    assert "your key is" in text
    assert KEY not in text


def test_surrogates_and_nul_do_no_harm(supervisor: Supervisor) -> None:
    """A lone surrogate of the model becomes U+FFFD in answers and goals; NUL stays as it is."""
    raw = b'data: {"choices":[{"delta":{"content":"a\\ud800\\u0000b"},"finish_reason":"stop"}]}\n\n'
    script = [asks(("a", "delegate_task", '{"goal": "g\\ud800\\u0000"}')), streams(raw, DONE)]
    with serving(*script) as server:
        supervisor.start(server.endpoint)
        supervisor.welcome(task("\0?", **ROOT))
        delegate = supervisor.receive(Delegate)
        assert delegate.calls[0].tasks[0].goal == "g\ufffd\0"
        supervisor.send(joined(delegate, "x\0"))
        assert supervisor.finish().text == "a\ufffd\0b"
    assert server.bodies[0]["messages"][-1]["content"] == "\0?"


def test_an_answer_of_20_megabytes(supervisor: Supervisor) -> None:
    """A delegate hands on head and tail of a huge answer and keeps the whole in a file, in little time."""
    piece = "0123456789abcdef" * 64
    path = supervisor.folder / "whole.txt"
    with serving(says("BEGIN", *[piece] * 20_480, "END")) as server:
        supervisor.start(server.endpoint)
        supervisor.welcome(task(depth=1, summary_path=str(path), limits=DelegationLimits(max_summary_chars=1000)))
        outcome = supervisor.finish(20)
    assert outcome.text
    assert outcome.text.startswith("BEGIN0123")
    assert outcome.text.endswith("cdefEND")
    assert len(outcome.text) < 1100
    assert (outcome.summary_truncated, outcome.summary_path) == (True, str(path))
    assert path.read_text(encoding="utf-8") == "BEGIN" + piece * 20_480 + "END"


def test_the_roots_huge_answer_is_whole(supervisor: Supervisor) -> None:
    """The root's answer of 20 MB arrives as it is, through the spool, also from a plain JSON reply."""
    text = "0123456789abcdef" * 1_310_720
    with serving(plain({"content": text})) as server:
        outcome = supervisor.run(server.endpoint, task())
    assert outcome.text == text
    assert list(supervisor.spool.iterdir()) == []


def test_a_process_without_memory_says_so(supervisor: Supervisor) -> None:
    """An answer that does not fit into the memory limit ends the agent as out of memory, by its own account."""
    with serving(says(*["x" * 1_000_000] * 100)) as server:
        supervisor.start(server.endpoint, memory_limit_mb=40)
        supervisor.welcome(task())
        outcome = supervisor.finish()
    assert (outcome.status, outcome.reason) == ("crashed", "out_of_memory")


def test_a_dropped_connection_and_a_503_are_tried_again(supervisor: Supervisor) -> None:
    """Three identical requests are made, and the third one's answer counts."""
    transcript = supervisor.folder / "t.jsonl"
    with serving(drops, refuses(503), says("third")) as server:
        outcome = supervisor.run(server.endpoint, task(transcript_path=str(transcript)))
    assert (outcome.text, outcome.steps) == ("third", 1)
    assert server.bodies[0] == server.bodies[1] == server.bodies[2]
    kinds = [json.loads(line)["kind"] for line in transcript.read_text(encoding="utf-8").splitlines()]
    assert kinds == ["message", "message", "retry", "retry", "message", "end"]


def test_over_tcp_with_curve(tmp_path: Path) -> None:
    """The link also works over TCP, where each side proves its key."""
    supervisor = Supervisor(tmp_path, curve=True)
    try:
        with serving(says("secret")) as server:
            assert supervisor.run(server.endpoint, task()).text == "secret"
    finally:
        supervisor.close()


def test_garbage_from_the_supervisor_ends_the_process(supervisor: Supervisor) -> None:
    """An agent whose supervisor speaks another language exits 1 and leaves the cause on its standard error."""
    supervisor.start(Endpoint(base_url="http://127.0.0.1:9/v1", model="m"))
    supervisor.receive(Hello)
    supervisor.router.send_multipart([b"nonce", b"\xc1garbage"])
    assert supervisor.exit_code() == 1
    assert "BadFrameError" in supervisor.stderr()
