import http.client
import json
import threading
import time
from pathlib import Path

import pytest
from provider_support import SECONDS, Client, Connect, Start, raw, records, user

from fanjoin.client.local_model import EmbeddedProvider


def test_a_status_has_its_reason_and_its_header(client: Client) -> None:
    """An asked-for status comes as the API's error object, with Retry-After and code where they are given."""
    reply = client.ask("[[status 429 retry_after=2 code=slow_down]]")
    error = json.loads(reply.read())["error"]
    assert (reply.status, reply.headers["Retry-After"]) == (429, "2")
    assert (error["type"], error["code"]) == ("rate_limit_error", "slow_down")


def test_times_ends_a_fault(client: Client) -> None:
    """A fault with a number of times is over when the identical request comes again."""
    assert [client.ask("[[status 503 times=2]] only here").read()[:9] for _ in range(3)][:2] == [b'{"error":'] * 2
    assert client.ask("[[status 503 times=2]] only here").status == 200


def test_a_cut_stream_has_no_end(client: Client) -> None:
    """A stream that is cut holds its first words, then the connection closes without an end of the body."""
    with pytest.raises(http.client.IncompleteRead) as error:
        client.ask("[[cut after=3]] [[answer a b c d e]]", stream=True).read()
    said = error.value.partial
    assert said.count(b"content") == 4
    assert b"[DONE]" not in said


def test_a_cut_body_is_shorter_than_promised(client: Client) -> None:
    """A reply that is not streamed breaks off in the middle of its JSON."""
    reply = client.ask("[[cut]]")
    with pytest.raises(http.client.IncompleteRead) as error:
        reply.read()
    assert 0 < len(error.value.partial) < int(reply.headers["Content-Length"])


def test_a_reply_that_is_shorter_than_its_break_breaks_at_its_end(client: Client) -> None:
    """A cut that lies behind the last word still takes away the end of the reply."""
    with pytest.raises(http.client.IncompleteRead):
        client.ask("[[cut after=99]] [[answer a b]]", stream=True).read()


def test_a_dropped_connection_says_nothing(client: Client) -> None:
    """A drop closes the connection before a single byte."""
    with pytest.raises(http.client.RemoteDisconnected):
        client.ask("[[drop]]")


@pytest.mark.parametrize("stream", [True, False])
def test_garbage_is_no_json(client: Client, *, stream: bool) -> None:
    """Garbage comes with status 200 and is neither JSON nor a stream with an end."""
    reply = client.ask("[[garbage]]", stream=stream)
    body = reply.read()
    assert reply.status == 200
    assert b"[DONE]" not in body
    with pytest.raises(ValueError, match=r"\S"):
        json.loads(body)


@pytest.mark.parametrize(("directive", "words"), [("[[silence]]", 1), ("[[hang after=3]]", 3)])
def test_a_silent_stream_stays_open(plain_provider: EmbeddedProvider, directive: str, words: int) -> None:
    """A stream that falls silent has sent its first words and neither goes on nor closes."""
    body = json.dumps({"messages": user(f"{directive} [[answer a b c d]]"), "stream": True}).encode()
    with raw(plain_provider.url) as connection:
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
        connection.sendall(head.encode() + body)
        said = b""
        while said.count(b'"content"') < words + 1:
            said += connection.recv(65_536)
        connection.settimeout(0.2)
        with pytest.raises(TimeoutError):
            connection.recv(1)
    assert said.count(b'"content"') == words + 1


def test_a_hanging_reply_ends_with_its_client(connect: Connect, start: Start, tmp_path: Path) -> None:
    """A request that is never answered is in flight as long as its client is there, and no longer."""
    log = tmp_path / "requests.jsonl"
    provider = start("--log", str(log))
    with raw(provider.url) as connection:
        body = json.dumps({"messages": user("[[hang]]")}).encode()
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
        connection.sendall(head.encode() + body)
        client = connect(provider.url)
        deadline = time.monotonic() + SECONDS
        while not log.read_text(encoding="utf-8") and time.monotonic() < deadline:
            client.get("/health")
        client.text("[[answer while it hangs]]")
    while records(log)[-1]["in_flight"] > 1 and time.monotonic() < deadline:
        client.text("[[answer after it]]")
    assert [line["in_flight"] for line in records(log)][:2] == [1, 2]
    assert records(log)[-1]["in_flight"] == 1


def test_a_barrier_opens_only_when_all_are_there(connect: Connect, plain_provider: EmbeddedProvider) -> None:
    """Requests that hold for one another are answered together, and one whose client left does not count."""
    name = "[[hold 3 name=trio]]"
    answers: list[float] = []

    def ask() -> None:
        connect(plain_provider.url).text(f"{name} [[answer together]]")
        answers.append(time.monotonic())

    with raw(plain_provider.url) as gone:
        body = json.dumps({"messages": user(name)}).encode()
        gone.sendall(f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode())
        gone.sendall(body)
    for _ in range(3):  # each is answered after the server's loop has seen the end of the one that left
        connect(plain_provider.url).text("[[answer here]]")
    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads[:2]:
        thread.start()
    threads[0].join(0.3)
    assert not answers
    third = time.monotonic()
    threads[2].start()
    for thread in threads:
        thread.join(SECONDS)
    assert len(answers) == 3
    assert min(answers) >= third


def test_faults_at_random_come_at_their_rate_and_again(connect: Connect, start: Start) -> None:
    """A provider with a rate and a seed fails the same requests in every run; a directive in the text comes first."""
    flags = ("--fault", "http500=0.3", "--fault", "http429=0.2", "--seed", "5")
    clients = [connect(start(*flags).url) for _ in range(2)]
    runs = [[_status(client, number) for number in range(40)] for client in clients]
    assert runs[0] == runs[1]
    assert set(runs[0]) == {200, 429, 500}
    assert connect(start("--fault", "drop=1").url).text("[[answer safe]]") == "safe"


def _status(client: Client, number: int) -> int:
    reply = client.ask(f"request {number}")
    reply.read()
    return reply.status
