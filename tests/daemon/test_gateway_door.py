"""The WebSocket's door: who gets in, and that no frame harms anybody."""

import json
import os
import socket
from contextlib import ExitStack
from typing import Any

import pytest
from daemon_support import MAX_FRAME, DaemonHome, RefusedError
from run_support import wait_until
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect
from websockets.typing import Subprotocol

GARBAGE = 1_500


def status_of(url: str, **options: Any) -> int:
    """Return the HTTP status that an attempt to connect gets; 101 when it gets in."""
    try:
        with connect(url, proxy=None, **options):
            return 101
    except InvalidStatus as refused:
        return int(refused.response.status_code)


def bearer(token: str) -> dict[str, str]:
    """Return the header that carries a token."""
    return {"Authorization": f"Bearer {token}"}


def test_only_the_token_opens_it(daemon: DaemonHome) -> None:
    """Without a token, with a wrong one, or one that is longer or shorter: 401; in the URL it does not count."""
    told = daemon.descriptor()
    url, token = told["url"], told["token"]
    assert status_of(url) == 401
    for wrong in ("", "x", token[:-1], token + "0", token[::-1], "ü"):
        assert status_of(url, subprotocols=[Subprotocol(f"fanjoin.token.{wrong}")] if wrong.isascii() else None) == 401
        assert not wrong.isascii() or status_of(url, additional_headers=bearer(wrong)) == 401
    assert status_of(f"{url}/?token={token}") == 401
    assert status_of(url, additional_headers={"Authorization": f"Basic {token}"}) == 401
    assert status_of(url, additional_headers=bearer(token)) == 101


def test_a_browser_brings_the_token_as_a_subprotocol(daemon: DaemonHome) -> None:
    """``fanjoin.v1`` is chosen, and the token is not repeated in the answer."""
    told = daemon.descriptor()
    offered = [Subprotocol("fanjoin.v1"), Subprotocol(f"fanjoin.token.{told['token']}")]
    with connect(told["url"], subprotocols=offered, origin="http://localhost:5173", proxy=None) as wire:  # type: ignore[arg-type]
        assert wire.subprotocol == "fanjoin.v1"
        assert wire.response is not None
        assert told["token"] not in str(wire.response.headers)


def test_foreign_pages_and_names_are_refused(daemon: DaemonHome) -> None:
    """A foreign Origin, ``null`` and a rebound Host get 403, also with the right token."""
    told = daemon.descriptor()
    headers = bearer(told["token"])
    for origin in ("https://example.com", "null", "http://127.0.0.1.example.com", "file://", "http://[::1"):
        assert status_of(told["url"], additional_headers=headers, origin=origin) == 403
    port = told["url"].rpartition(":")[2]
    for host in ("example.com", f"example.com:{port}", "127.0.0.1:1", "localhost", f"127.0.0.1.example.com:{port}"):
        assert raw_status(port, headers, [host]) == 403
    assert raw_status(port, headers, [f"localhost:{port}"]) == 101


def test_two_hosts_and_plain_requests(daemon: DaemonHome) -> None:
    """Two Host headers are 400; a plain GET gives nothing away, whatever path it asks for."""
    told = daemon.descriptor()
    port = told["url"].rpartition(":")[2]
    assert raw_status(port, bearer(told["token"]), [f"127.0.0.1:{port}", "example.com"]) == 400
    assert raw_status(port, bearer(told["token"]), []) == 400
    for path in ("/", "/ticket", "/token", "/daemon.json"):
        answer = raw(port, f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 401 ")
        assert told["token"].encode() not in answer


def raw_status(port: str, headers: dict[str, str], hosts: list[str]) -> int:
    """Ask for an upgrade with these Host headers and return the status."""
    lines = ["GET / HTTP/1.1", *(f"Host: {host}" for host in hosts), *(f"{n}: {v}" for n, v in headers.items())]
    lines += ["Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13"]
    lines += ["Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="]
    return int(raw(port, "\r\n".join([*lines, "", ""])).split(b" ", 2)[1])


def raw(port: str, request: str) -> bytes:
    """Send a request and return the first part of the answer."""
    with socket.create_connection(("127.0.0.1", int(port)), 10) as wire:
        wire.sendall(request.encode())
        return wire.recv(65536)


def test_garbage_is_answered_and_harms_nobody(daemon: DaemonHome) -> None:
    """Many frames that are no requests: each gets an error, the daemon's memory and another viewer do not notice."""
    kinds: list[str | bytes] = [
        "",
        "{",
        "null",
        "[]",
        "[1,2]",
        '"x"',
        "1e999",
        "{}",
        '{"id":1}',
        '{"id":1,"method":5}',
        '{"id":{},"method":"ping"}',
        '{"jsonrpc":"1.0","id":1,"method":"ping"}',
        '{"id":1,"method":"ping","params":[1]}',
        '{"id":1,"method":"nope"}',
        "[" * 5000,
        '{"a":' * 5000,
        b"\x00\xff binary",
        os.urandom(64).hex(),
    ]
    process = daemon.process()
    with daemon.client() as other, daemon.client() as client:
        other.call("ping")
        before = process.memory_info().rss
        for number in range(GARBAGE):
            client.wire.send(kinds[number % len(kinds)])
        for _ in range(GARBAGE):
            told = json.loads(client.wire.recv(timeout=30))
            assert told["error"]["code"] in {-32700, -32600, -32601, 4001}
        assert client.call("ping") == other.call("ping")
        assert process.memory_info().rss - before < 32 << 20


def test_a_lone_surrogate_is_no_error(daemon: DaemonHome) -> None:
    """It becomes the replacement character where it enters."""
    with daemon.client() as client:
        session_id = client.session()
        text = json.dumps(
            {"id": 9, "method": "prompt.submit", "params": {"session_id": session_id, "text": "a\ud800b"}}
        )
        client.wire.send(text)
        client.answer(9)
        client.event("message.complete")
    assert daemon.rows("SELECT json_extract(payload_json, '$.text') FROM session_admissions") == [("a\ufffdb",)]


def test_too_large_frames_are_refused_under_their_id(daemon: DaemonHome) -> None:
    """Past 32 MiB: a structured error and the connection goes on; far past it, the connection ends, nothing else."""
    with daemon.client() as client:
        session_id = client.session()
        with pytest.raises(RefusedError, match="too_large") as refused:
            client.call("prompt.submit", session_id=session_id, text="x" * MAX_FRAME, finite=True)
        assert refused.value.data["limit"] == MAX_FRAME
        client.call("ping")
        with pytest.raises(ConnectionClosed) as closed:
            client.call("prompt.submit", session_id=session_id, text="x" * (3 * MAX_FRAME), finite=True)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1009
    with daemon.client() as client:
        client.call("ping")
    assert daemon.rows("SELECT 1 FROM session_admissions") == []


def test_too_many_connections_are_dropped(daemon: DaemonHome) -> None:
    """A crowd that only connects takes no more descriptors than planned for; afterwards everybody is served again."""
    port = int(daemon.descriptor()["url"].rpartition(":")[2])
    with ExitStack() as crowd:
        for _ in range(700):
            crowd.enter_context(socket.create_connection(("127.0.0.1", port), 10))
        # A listener takes what has queued up at once, and drops it a moment later.
        wait_until(lambda: len(daemon.process().net_connections("inet")) <= 520, "end of what is too many")
    with daemon.client() as client:
        client.call("ping")
