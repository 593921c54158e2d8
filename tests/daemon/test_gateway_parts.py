"""The pure parts of the gateway: who is let in, what is left out, how much goes into one answer, what a frame is."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fanjoin.supervisor.gateway import rpc
from fanjoin.supervisor.gateway.guard import Knock, refusal
from fanjoin.supervisor.gateway.outbox import Outbox
from fanjoin.supervisor.gateway.pages import newest_page

TOKEN = "a1" * 32
HOST = "127.0.0.1:4711"


def status(**knock: list[str]) -> int:
    """Return the status that a knock gets; 101 when it gets in."""
    said = {"hosts": [HOST], "origins": [], "authorizations": [f"Bearer {TOKEN}"], "subprotocols": []}
    refused = refusal(Knock(**{**said, **knock}), 4711, TOKEN)
    return 101 if refused is None else refused.status


@pytest.mark.parametrize(
    ("knock", "expected"),
    [
        ({}, 101),
        ({"hosts": ["LOCALHOST:4711"]}, 101),
        ({"hosts": []}, 400),
        ({"hosts": [HOST, HOST]}, 400),
        ({"hosts": ["127.0.0.1:4712"]}, 403),
        ({"hosts": ["evil.example:4711"], "authorizations": []}, 403),
        ({"origins": ["http://localhost:3000"]}, 101),
        ({"origins": ["https://127.0.0.1"]}, 101),
        ({"origins": ["null"]}, 403),
        ({"origins": ["http://localhost.evil.example"]}, 403),
        ({"origins": ["http://localhost:1", "http://localhost:2"]}, 400),
        ({"authorizations": []}, 401),
        ({"authorizations": ["Bearer x"]}, 401),
        ({"authorizations": ["Bearer ü"]}, 401),
        ({"authorizations": [f"bearer {TOKEN}"]}, 101),
        ({"authorizations": [], "subprotocols": [f"fanjoin.v1, fanjoin.token.{TOKEN}"]}, 101),
        ({"authorizations": [], "subprotocols": ["fanjoin.v1", "fanjoin.token."]}, 401),
    ],
)
def test_who_is_let_in(knock: dict[str, list[str]], expected: int) -> None:
    """The name and the page are judged before the token."""
    assert status(**knock) == expected


steps = st.lists(
    st.one_of(
        st.tuples(st.just("event"), st.sampled_from(["s_one", "s_two"]), st.integers(1, 50)),
        st.tuples(st.just("answer"), st.just(""), st.just(1)),
        st.tuples(st.just("take"), st.just(""), st.integers(1, 4)),
    ),
    max_size=60,
)


@given(steps)
def test_every_event_is_sent_or_in_a_gap_in_order(steps: list[tuple[str, str, int]]) -> None:
    """Whoever reads how slowly: per session the numbers go on without a hole, answers are never left out."""
    outbox = Outbox(most_events=3, most_bytes=100)
    numbers = {"s_one": 0, "s_two": 0}
    answers = 0
    sent: list[bytes] = []
    for what, session_id, size in steps:
        if what == "event":
            numbers[session_id] += 1
            frame = json.dumps({"s": session_id, "n": numbers[session_id], "x": "x" * size}).encode()
            outbox.put_event(session_id, numbers[session_id], frame)
        elif what == "answer":
            outbox.put_answer(b"{}")
            answers += 1
        else:
            sent += [frame for _ in range(size) if (frame := outbox.take()) is not None]
    while (frame := outbox.take()) is not None:
        sent.append(frame)
    assert not outbox
    assert sent.count(b"{}") == answers
    for session_id, last in numbers.items():
        assert seen(sent, session_id) == list(range(1, last + 1))


def seen(sent: list[bytes], session_id: str) -> list[int]:
    """Return the numbers of a session that were sent, or told to be missing, in order."""
    found: list[int] = []
    for message in map(json.loads, sent):
        if message.get("s") == session_id:
            found.append(message["n"])
        elif message.get("params", {}).get("session_id") == session_id:
            gap = message["params"]["payload"]
            found += range(gap["first"], gap["last"] + 1)
    return found


@given(st.lists(st.integers(0, 40), max_size=20), st.integers(0, 100))
def test_a_page_is_the_newest_that_fits(sizes: list[int], first: int) -> None:
    """It ends with the last message, is as long as the limit allows, and never empty when there is something."""
    messages = [{"role": "user", "content": "x" * size} for size in sizes]
    page, start = newest_page(messages, first, most=120)
    assert page == messages[start - first :]
    assert bool(page) == bool(messages)
    size = sum(len(json.dumps(one, separators=(",", ":"))) for one in page)
    assert size <= 120 or len(page) == 1


@given(st.text() | st.binary())
def test_any_frame_is_a_request_or_an_error(frame: str | bytes) -> None:
    """Nothing else is raised, and the id of any frame can be asked for."""
    rpc.id_of(frame)
    assert outcome(frame) in {0, rpc.PARSE_ERROR, rpc.INVALID_REQUEST}


def outcome(frame: str | bytes) -> int:
    """Return the error code of a frame, 0 for a request."""
    try:
        rpc.read_request(frame)
    except rpc.RpcError as error:
        return error.code
    return 0


def test_frames_without_a_version_and_without_an_id() -> None:
    """Both are accepted; a number that is none is not JSON."""
    assert rpc.read_request('{"method":"ping","id":"a"}').id == "a"
    assert rpc.read_request('{"jsonrpc":"2.0","method":"ping"}').method == "ping"
    for bad in ('{"method":"ping","id":NaN,"x":"\\ud800"}', '{"method":"ping"', "[]"):
        with pytest.raises(rpc.RpcError):
            rpc.read_request(bad)


def test_an_answer_that_is_too_large_is_an_error_of_the_same_id() -> None:
    """A client waits for its id, and must not be sent what it cannot take."""
    told = json.loads(rpc.answer(7, "x" * rpc.MAX_FRAME))
    assert (told["id"], told["error"]["message"]) == (7, "too_large")
