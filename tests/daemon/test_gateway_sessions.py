"""Sessions and turns over the WebSocket: identities, events, viewers that read slowly, many at once."""

import base64
import hashlib
import json
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from daemon_support import DaemonHome, RefusedError, descriptors
from run_support import delegate_plan, wait_until

TWENTY_MB = 20 << 20


def test_one_identity_at_twenty_connections_runs_once(daemon: DaemonHome) -> None:
    """Twenty submit the same at once, half of them changed: one turn, ten times its name, ten conflicts or replays."""
    with daemon.client() as first:
        session_id = first.session()
    barrier = threading.Barrier(20)

    def submit(number: int) -> str:
        with daemon.client() as client:
            client.call("ping")
            barrier.wait()
            text = "[[sleep 0.3]] one" if number % 2 else "[[sleep 0.3]] another"
            try:
                told = client.call("prompt.submit", session_id=session_id, input_id="same", text=text, finite=True)
            except RefusedError as refused:
                return refused.reason
            return str(told["admission_id"])

    with ThreadPoolExecutor(20) as pool:
        told = list(pool.map(submit, range(20)))
    [(admission_id,)] = daemon.rows("SELECT admission_id FROM session_admissions")
    assert sorted(told) == sorted([admission_id] * 10 + ["admission_conflict"] * 10)
    wait_until(lambda: daemon.rows("SELECT status FROM session_admissions") == [("terminal",)], "end of the turn")
    assert len(daemon.provider.requests()) == 1


def test_sessions_are_made_once_and_turns_run_in_their_order(daemon: DaemonHome) -> None:
    """The same request names the same session, changed fields do not; turns of a session run one after the other."""
    with daemon.client() as client, daemon.client() as other:
        session_id = client.session(request_id="mine", title="A title")
        assert other.session(request_id="mine", title="A title") == session_id
        with pytest.raises(RefusedError, match="invalid_params"):
            other.call("session.create", request_id="mine", title="Another")
        names = [
            client.call("prompt.submit", session_id=session_id, text=f"turn {number}", finite=True)["admission_id"]
            for number in range(5)
        ]
        ends = [client.event("message.complete")["admission_id"] for _ in names]
        assert ends == names
        info = client.call("session.info", session_id=session_id)
        assert info["stored_session_id"] == session_id
        assert [one["content"] for one in info["messages"] if one["role"] == "user"] == [f"turn {n}" for n in range(5)]
        assert [one["session_id"] for one in client.call("session.list")["sessions"]] == [session_id]
    starts = [row[0] for row in daemon.rows("SELECT started_at FROM session_admissions ORDER BY seq")]
    ends = daemon.rows("SELECT ended_at FROM session_admissions ORDER BY seq")
    assert all(start >= end[0] for start, end in zip(starts[1:], ends, strict=False))


def test_settings_of_a_session_rule_its_turns(daemon: DaemonHome) -> None:
    """What ``session.create`` froze counts until a turn says otherwise; a key of it is in no file."""
    with daemon.client() as client:
        session_id = client.session(
            model="small", base_url=daemon.provider.url, api_key="rpc-key-77f1", max_turns=5, toolsets=[]
        )
        client.turn(session_id, "hello")
        client.turn(session_id, "hello", model="large")
    assert [one["model"] for one in daemon.provider.requests()] == ["small", "large"]
    assert all(one["key_sha256"] for one in daemon.provider.requests())
    for path in daemon.path.rglob("*"):
        assert not path.is_file() or b"rpc-key-77f1" not in path.read_bytes(), path


def test_events_are_numbered_and_sent_again(daemon: DaemonHome) -> None:
    """A second viewer asks for what came after N: exactly that, numbered without holes, then live events."""
    with daemon.client() as client, daemon.client() as other:
        session_id = client.session()
        end = client.turn(session_id, delegate_plan("count a"))
        assert (end["status"], [one["status"] for one in end["results"]]) == ("completed", ["completed"])
        snapshot = other.call("session.resume", session_id=session_id, since=2)
        replayed = [other.event(kind) for kind in ("delegation.accepted", "message.complete")]
        assert [replayed[0]["sequence"], replayed[1]["sequence"]] == [3, snapshot["sequence"]]
        client.call("prompt.submit", session_id=session_id, text="again", finite=True)
        assert other.event("turn.started")["sequence"] == snapshot["sequence"] + 1
        foreign = other.call("session.resume", session_id=session_id, since=1, instance_id="i_before")
        assert other.event("gap")["payload"] == {"first": 0, "last": foreign["sequence"]}


def test_a_viewer_that_stops_reading_slows_nobody_and_learns_of_the_gap(daemon: DaemonHome) -> None:
    """Turns run at their pace, memory stays bounded; when it reads again it gets a gap, and can ask for the rest."""
    process = daemon.process()
    with daemon.client() as client, daemon.client(max_queue=1) as lazy:
        session_id = client.session()
        lazy.call("session.resume", session_id=session_id)
        before = process.memory_info().rss
        for _ in range(6):
            assert client.turn(session_id, "[[size 2000000]] much")["status"] == "completed"
        assert process.memory_info().rss - before < 160 << 20
        last = client.call("session.info", session_id=session_id)
        gap = lazy.event("gap", session_id=session_id)
        assert gap["payload"]["first"] <= gap["payload"]["last"]
        assert lazy.call("session.info", session_id=session_id)["message_count"] == last["message_count"] == 12


def test_twenty_megabytes_in_and_out(daemon: DaemonHome) -> None:
    """A prompt of 20 MB runs; its history comes in pages, each answer far below what clients give up at but for it."""
    with daemon.client() as client:
        assert client.turn(client.session(), "w " * (TWENTY_MB // 2))["status"] == "completed"
        session_id = client.session()
        for number in range(6):
            client.turn(session_id, f"[[size 400000]] {number}")
        info = client.call("session.resume", session_id=session_id)
        assert info["message_count"] == 12
        pages = [info]
        while pages[-1]["first"] > 0:
            assert len(json.dumps(pages[-1])) < 1 << 20
            pages.append(client.call("session.messages", session_id=session_id, before=pages[-1]["first"]))
        assert sum(len(page["messages"]) for page in pages) == 12
        assert len(pages) > 2


def test_methods_refuse_with_the_words_of_the_protocol(daemon: DaemonHome) -> None:
    """Unknown keys, wrong types, unknown names: the reason, and the key where there is one."""
    with daemon.client() as client:
        session_id = client.session()
        cases: list[tuple[str, dict[str, Any], str, str | None]] = [
            ("ping", {"x": 1}, "invalid_params", "x"),
            ("session.create", {"max_turns": "5"}, "invalid_params", "max_turns"),
            ("session.create", {"colour": "red"}, "invalid_params", "colour"),
            ("session.create", {"cwd": "/no/such/folder"}, "invalid_params", None),
            ("session.resume", {}, "invalid_params", "session_id"),
            ("session.resume", {"session_id": "s_none"}, "not_found", None),
            ("session.info", {"session_id": 5}, "invalid_params", "session_id"),
            ("session.list", {"limit": 0}, "invalid_params", "limit"),
            ("prompt.submit", {"session_id": session_id}, "invalid_params", "text"),
            ("prompt.submit", {"session_id": session_id, "text": " "}, "invalid_params", "text"),
            ("prompt.submit", {"session_id": session_id, "text": "x", "finite": 1}, "invalid_params", "finite"),
            ("prompt.submit", {"session_id": session_id, "text": "x", "max_turns": 10**30}, "invalid_params", None),
            ("prompt.submit", {"session_id": "s_none", "text": "x"}, "not_found", None),
            ("prompt.submit", {"session_id": session_id, "text": "x", "images": [{}]}, "invalid_params", "images"),
            ("prompt.receipt", {"session_id": session_id, "input_id": "no"}, "not_found", None),
            ("prompt.cancel", {}, "invalid_params", "admission_id"),
            ("prompt.resolve_unknown", {"session_id": session_id, "action": "retry"}, "not_found", None),
            ("prompt.resolve_unknown", {"session_id": session_id, "action": "x"}, "invalid_params", "action"),
            ("delegation.cancel", {"receipt_id": "d_none"}, "not_found", None),
            ("delegation.cancel", {}, "invalid_params", "receipt_id"),
        ]
        for method, params, reason, key in cases:
            with pytest.raises(RefusedError) as refused:
                client.call(method, **params)
            assert (refused.value.code, refused.value.reason) == (4001, reason), (method, params)
            assert key is None or refused.value.data["key"] == key, (method, params)
        with pytest.raises(RefusedError) as refused:
            client.call("no.such")
        assert refused.value.code == -32601
    assert daemon.provider.requests() == []


def test_turns_and_delegates_are_cancelled_over_the_socket(daemon: DaemonHome) -> None:
    """A delegate by its receipt, the running turn by its session, a queued one by its name."""
    with daemon.client() as client:
        session_id = client.session()
        query = delegate_plan("[[hang]] a", "[[hang]] b")
        first = client.call("prompt.submit", session_id=session_id, text=query, finite=True)
        second = client.call("prompt.submit", session_id=session_id, text="never", finite=True)
        wait_until(lambda: len(daemon.provider.requests()) == 3, "requests of the delegates")
        delegates = client.call("delegation.list", session_id=session_id)["delegates"]
        assert [one["status"] for one in delegates] == ["running"] * 2
        client.call("delegation.cancel", receipt_id=delegates[0]["receipt_id"])
        assert client.event("delegation.completed")["payload"]["entry"]["status"] == "cancelled"
        assert client.call("prompt.cancel", admission_id=second["admission_id"])["status"] == "queued"
        assert client.event("message.complete")["admission_id"] == second["admission_id"]
        assert client.call("session.interrupt", session_id=session_id)["admission_id"] == first["admission_id"]
        assert client.event("message.complete")["payload"]["status"] == "cancelled"
        assert client.call("session.interrupt", session_id=session_id)["admission_id"] is None
    assert len(daemon.provider.requests()) == 3


def test_many_sessions_leave_nothing_in_the_daemon(daemon: DaemonHome) -> None:
    """After a warm-up, sessions with a turn each change neither its descriptors nor its threads nor its memory."""
    many_sessions(daemon, 8)
    process = daemon.process()
    before = settled(process)
    memory = process.memory_info().rss
    many_sessions(daemon, 24)
    after = wait_until(lambda: (now := settled(process)) <= before and now, "return to the same numbers")
    assert after <= before
    assert process.memory_info().rss - memory < 24 << 20


def settled(process: Any) -> tuple[int, int]:
    """Return how many descriptors and threads the daemon has."""
    return descriptors(process), process.num_threads()


def many_sessions(daemon: DaemonHome, count: int) -> None:
    """Run a turn in each of so many sessions, all at once over one connection each."""

    def one(number: int) -> str:
        with daemon.client() as client:
            return str(client.turn(client.session(), f"hello {number}")["status"])

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(one, range(count))) == ["completed"] * count


def test_a_viewer_that_dies_without_a_word_is_forgotten(daemon: DaemonHome) -> None:
    """A connection that is cut leaves neither a descriptor nor a follower."""
    process = daemon.process()
    with daemon.client() as client:
        before = descriptors(process)
        for _ in range(20):
            with daemon.client() as lost:
                lost.call("session.resume", session_id=client.session())
                lost.wire.socket.shutdown(socket.SHUT_RDWR)
        wait_until(lambda: descriptors(process) <= before, "end of the lost connections")


def test_images_are_sent_once_and_named_afterwards(daemon: DaemonHome) -> None:
    """The payload stores the digest; a replay may send it alone; bytes that are not what they say are refused."""
    data = b"\x89PNG\r\n\x1a\n" + bytes(64)
    image = {"media_type": "image/png", "sha256": hashlib.sha256(data).hexdigest()}
    whole = image | {"data": base64.b64encode(data).decode()}
    with daemon.client() as client:
        said = {"session_id": client.session(), "input_id": "seen", "text": "look", "finite": True}
        with pytest.raises(RefusedError, match="invalid_params"):
            client.call("prompt.submit", **said, images=[image])
        with pytest.raises(RefusedError, match="invalid_params"):
            client.call("prompt.submit", **said, images=[whole | {"sha256": "0" * 64}])
        client.call("prompt.submit", **said, images=[whole])
        client.event("message.complete")
        assert client.call("prompt.submit", **said, images=[image])["status"] == "terminal"
        with pytest.raises(RefusedError, match="admission_conflict"):
            client.call("prompt.submit", **said)
    [(stored,)] = daemon.rows("SELECT payload_json FROM session_admissions")
    assert json.loads(stored)["images"] == [image]
