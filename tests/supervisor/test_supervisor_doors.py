"""Both doors over both transports: who gets in, what a frame is worth, and what is sent back."""

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq
from supervisor_house import ONE, Client, House
from supervisor_support import RUN, until

from fanjoin.ipc.codec import agent_side, viewer_side
from fanjoin.ipc.endpoints import Endpoints
from fanjoin.ipc.errors import UserError
from fanjoin.ipc.messages import (
    Attach,
    Bye,
    Event,
    Hello,
    Joined,
    Outcome,
    Ping,
    Pong,
    Progress,
    Reject,
    Result,
    ResultAck,
    Started,
    ToViewer,
    TurnDone,
)
from fanjoin.supervisor import front as front_module
from fanjoin.supervisor.loop import Loop
from fanjoin.supervisor.sockets import Sockets

WHO = {"run_id": RUN, "attempt_id": ONE}
HELLO = Hello(**WHO, nonce="right", pid=1)
TRANSPORTS = ["tcp"] if sys.platform == "win32" else ["ipc", "tcp"]


@pytest.fixture(params=TRANSPORTS)
def house(request: pytest.FixtureRequest, tmp_path: Path, loop: Loop) -> Iterator[House]:
    """Give both doors over a transport."""
    house = House(tmp_path / "i_run", request.param, loop)
    yield house
    house.close()


@pytest.fixture
def agent(house: House) -> Client:
    """Give an agent that is expected and has said hello."""
    house.back.expect(ONE, "right")
    client = house.agent()
    client.say(HELLO)
    until(house.loop, lambda: house.heard)
    return client


# --- the agents' door ---


def test_an_expected_process_with_its_nonce_is_heard_and_answered(house: House, agent: Client) -> None:
    """Its messages arrive in order, and ours reach it."""
    agent.say(Started(**WHO), Progress(**WHO, step=1), Bye(**WHO, childless=True))
    until(house.loop, lambda: len(house.heard) == 4)
    assert [type(one) for one in house.heard] == [Hello, Started, Progress, Bye]
    assert house.back.peers[ONE].childless
    house.back.send(ONE, ResultAck())
    assert agent.receive(agent_side()) == ResultAck()


def test_large_messages_go_through_the_spool_both_ways(house: House, agent: Client) -> None:
    """A result and a joined answer of two megabytes each arrive whole, and no file stays."""
    text = "x" * (2 << 20)
    agent.say(Result(**WHO, outcome=Outcome(status="completed", text=text)))
    until(house.loop, lambda: len(house.heard) == 2)
    result = house.heard[1]
    assert isinstance(result, Result)
    assert result.outcome.text == text
    house.back.send(ONE, Joined(join_id=text, answers=[]))
    assert agent.receive(agent_side(house.spool)) == Joined(join_id=text, answers=[])
    assert not list(house.spool.iterdir())


def test_what_cannot_be_sent_ends_its_receiver_only(house: House, agent: Client) -> None:
    """Without room for a large message its process cannot go on; the supervisor can."""
    house.spool.rmdir()
    house.back.send(ONE, Joined(join_id="x" * (2 << 20), answers=[]))
    ((attempt_id, what),) = house.offenders
    assert attempt_id == ONE
    assert "could not be sent" in what
    house.back.send(ONE, ResultAck())
    assert agent.receive(agent_side()) == ResultAck()


def test_an_unknown_process_is_told_to_end(house: House) -> None:
    """Nothing of it is heard; it gets a reject."""
    stranger = house.agent("guessed")
    stranger.say(Hello(run_id=RUN, attempt_id="d_nobody.1", nonce="right", pid=1))
    assert isinstance(stranger.receive(agent_side()), Reject)
    assert house.heard == []


def test_a_forgotten_process_is_heard_no_more(house: House, agent: Client) -> None:
    """After its end its name is worth nothing."""
    house.back.forget(ONE)
    agent.say(Started(**WHO))
    assert isinstance(agent.receive(agent_side()), Reject)
    assert len(house.heard) == 1


def test_a_name_without_its_nonce_is_not_heard(house: House) -> None:
    """Whoever knows a process's name, but not its nonce, is not heard, harms nobody and takes nobody's place."""
    house.back.expect(ONE, "right")
    wrong = Hello(**WHO, nonce="wrong", pid=1)
    said = (wrong, wrong, wrong, HELLO, Result(**WHO, outcome=Outcome(status="completed", text="mine")))
    for identity in (ONE, "wrong"):
        thief = house.agent(identity)
        thief.say(*said)
        assert isinstance(thief.receive(agent_side()), Reject)
    house.agent().say(HELLO)
    until(house.loop, lambda: house.heard)
    assert house.heard == [HELLO]
    assert house.offenders == []


def test_who_speaks_before_its_hello_is_not_heard(house: House) -> None:
    """The hello comes first: it says which version of the protocol the process speaks."""
    house.back.expect(ONE, "right")
    early = house.agent()
    early.say(Started(**WHO), HELLO)
    until(house.loop, lambda: house.heard)
    assert house.heard == [HELLO]


@pytest.mark.parametrize(
    "bad",
    [
        b"\xc1garbage",
        b"",
        Started(run_id="i_other", attempt_id=ONE),
        Started(run_id=RUN, attempt_id="d_sibling.1"),
        Joined(join_id="j", answers=[]),
        Hello(**WHO, nonce="wrong", pid=1),
        Hello(**WHO, nonce="right", pid=1, protocol=2),
    ],
    ids=["garbage", "empty", "other run", "other attempt", "other direction", "wrong nonce", "other version"],
)
def test_three_bad_frames_end_a_process_once(house: House, agent: Client, bad: object) -> None:
    """Two are forgiven; at the third the offender is named, once, with what was wrong; none of them is heard."""
    agent.say(bad, bad, Started(**WHO))
    until(house.loop, lambda: len(house.heard) == 2)
    assert house.offenders == []
    agent.say(bad, bad, Bye(**WHO, childless=False))
    until(house.loop, lambda: len(house.heard) == 3)
    assert [attempt_id for attempt_id, _ in house.offenders] == [ONE]
    assert "3 frames broke the protocol" in house.offenders[0][1]


def test_a_message_of_several_frames_is_a_bad_one(house: House, agent: Client) -> None:
    """One frame holds one message."""
    agent.socket.send_multipart([b"", agent.codec.encode(Started(**WHO))])
    until(house.loop, lambda: house.back.peers[ONE].bad_frames)
    assert len(house.heard) == 1


def test_sending_to_nobody_and_to_one_who_does_not_read_waits_for_nobody(house: House, agent: Client) -> None:
    """A full or missing peer costs no time; the others are served."""
    house.back.send("d_nobody.1", ResultAck())
    for _ in range(5000):
        house.back.send(ONE, Reject(reason="x" * 1000))
    house.back.expect("d_two.1", "two")
    second = house.agent("two")
    second.say(Hello(run_id=RUN, attempt_id="d_two.1", nonce="two", pid=2))
    until(house.loop, lambda: len(house.heard) == 2)
    house.back.send("d_two.1", ResultAck())
    assert second.receive(agent_side()) == ResultAck()
    assert isinstance(agent.receive(agent_side()), Reject)


# --- the viewers' door ---


def test_what_was_told_before_a_viewer_came_waits_for_it(house: House) -> None:
    """In order, and before anything else."""
    for number in range(3):
        house.front.tell("owner", Pong(request_id=str(number)))
    viewer = house.viewer()
    viewer.say(Attach(viewer="owner"))
    assert [viewer.receive(viewer_side()) for _ in range(3)] == [Pong(request_id=str(n)) for n in range(3)]


def test_a_viewer_is_heard_under_its_name_and_only_after_it_gave_one(house: House) -> None:
    """What comes before the name, and garbage, is dropped."""
    viewer = house.viewer()
    viewer.say(Ping(request_id="early"), b"garbage", b"", Attach(viewer="owner"), Ping(request_id="late"))
    until(house.loop, lambda: house.viewers)
    assert house.viewers == [("owner", Ping(request_id="late"))]


def test_a_viewer_that_comes_again_gets_what_it_missed(house: House) -> None:
    """Its old connection is gone; what was told meanwhile waits for the new one."""
    first = house.viewer("viewer-1")
    first.say(Attach(viewer="owner"))
    house.front.tell("owner", Pong(request_id="1"))
    assert first.receive(viewer_side()) == Pong(request_id="1")
    first.socket.close()

    def unreachable() -> bool:
        house.front.tell("owner", Pong(request_id="2"))
        return house.front._viewers["owner"].routing_id is None

    until(house.loop, unreachable)
    second = house.viewer("viewer-2")
    second.say(Attach(viewer="owner"))
    assert second.receive(viewer_side()) == Pong(request_id="2")


def test_a_viewer_that_does_not_come_costs_a_bounded_number_of_events(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Events beyond the bound are dropped, answers never."""
    monkeypatch.setattr(front_module, "MAX_WAITING", 5)
    for number in range(20):
        house.front.tell(
            "owner", Event(session_id="s", admission_id="t", sequence=number, name="message.delta", data={})
        )
    house.front.tell("owner", TurnDone(session_id="s", admission_id="t", status="completed"))
    viewer = house.viewer()
    viewer.say(Attach(viewer="owner"))
    told = [viewer.receive(viewer_side()) for _ in range(6)]
    assert [one.sequence for one in told if isinstance(one, Event)] == list(range(5))
    assert isinstance(told[5], TurnDone)


def test_an_answer_without_room_for_it_is_told_in_short(house: House) -> None:
    """A turn's end that cannot be spooled still ends the viewer's wait, with what fits and with the reason."""
    house.spool.rmdir()
    answer = "head " + "x" * (3 << 20) + " tail"
    viewer = house.viewer()
    viewer.say(Attach(viewer="owner"))
    house.front.tell("owner", TurnDone(session_id="s", admission_id="t", status="completed", answer=answer))
    told = viewer.receive(viewer_side())
    assert isinstance(told, TurnDone)
    assert told.answer.startswith("head")
    assert told.answer.endswith("tail")
    assert not told.recorded
    assert told.storage_error


# --- who gets in at all ---


def _says_garbage(address: str) -> None:
    import socket

    host, port = address.removeprefix("tcp://").split(":")
    with socket.create_connection((host, int(port)), timeout=5) as raw, contextlib.suppress(OSError):
        raw.sendall(b"GET / HTTP/1.1\r\n\r\n" + b"\xff" * 1000)
        raw.settimeout(0.2)
        while raw.recv(1000):
            pass


@pytest.mark.parametrize("stranger", ["no key", "another key", "null mechanism with the server's key", "garbage"])
def test_over_tcp_a_stranger_gets_nothing_in(tmp_path: Path, loop: Loop, stranger: str) -> None:
    """Without the run's own key, with another, or with no protocol at all: no frame of his reaches a door."""
    house = House(tmp_path / "i_run", "tcp", loop)
    house.back.expect(ONE, "right")
    own = house.sockets.endpoints
    public, secret = (key.decode() for key in zmq.curve_keypair())
    other = Endpoints(server_key=own.server_key, client_public=public, client_secret=secret)
    for address, message in ((own.back, HELLO), (own.front, Attach(viewer="owner"))):
        match stranger:
            case "no key":
                house.client(address, keys=Endpoints()).say(message)
            case "another key":
                house.client(address, keys=other).say(message)
            case "null mechanism with the server's key":
                client = house.client(address, "plain", keys=Endpoints())
                client.socket.send_multipart([own.server_key.encode(), b""])
                client.say(message)
            case _:
                _says_garbage(address)
    friend = house.agent()
    friend.say(HELLO)
    viewer = house.viewer()
    viewer.say(Attach(viewer="friend"), Ping(request_id="r"))
    until(loop, lambda: house.heard and house.viewers)
    for _ in range(20):
        loop.run_once(0.005)
    assert house.heard == [HELLO]
    assert house.viewers == [("friend", Ping(request_id="r"))]
    assert list(house.front._viewers) == ["friend"]
    house.close()


def test_over_tcp_only_loopback_is_bound_and_each_run_has_its_own_keys(tmp_path: Path, loop: Loop) -> None:
    """Two supervisors at once: four ports that the system chose, two key pairs."""
    houses = [House(tmp_path / name, "tcp", loop) for name in "ab"]
    endpoints = [house.sockets.endpoints for house in houses]
    addresses = {address for one in endpoints for address in (one.back, one.front)}
    assert len(addresses) == 4
    assert all(address.startswith("tcp://127.0.0.1:") for address in addresses)
    assert len({one.client_secret for one in endpoints} | {one.server_key for one in endpoints}) == 4
    for house in houses:
        house.close()


@pytest.mark.skipif(sys.platform == "win32", reason="there is no ipc transport")
def test_over_ipc_the_folder_is_the_guard(tmp_path: Path, loop: Loop) -> None:
    """A folder of sockets that others may enter is refused, and nothing is bound in it."""
    folder = tmp_path / "i_run"
    folder.mkdir()
    folder.chmod(0o755)
    with pytest.raises(UserError, match="open to others"):
        Sockets(folder, "ipc", loop)
    assert not list(folder.iterdir())


@pytest.mark.skipif(sys.platform == "win32", reason="there is no ipc transport")
def test_a_long_path_gets_short_sockets_that_go_with_the_run(tmp_path: Path, loop: Loop) -> None:
    """107 bytes are all that a socket's path may have; the folder elsewhere is private and removed at the end."""
    folder = tmp_path / ("größe " * 20)
    house = House(folder, "ipc", loop)
    sockets = Path(house.sockets.endpoints.back.removeprefix("ipc://")).parent
    assert sockets != folder
    assert sockets.stat().st_mode & 0o777 == 0o700
    house.back.expect(ONE, "right")
    house.agent().say(HELLO)
    until(loop, lambda: house.heard)
    house.close()
    assert not sockets.exists()


def test_a_viewer_that_is_gone_shows_when_it_is_spoken_to(house: House) -> None:
    """Probing names those whose connection has ended, and only those; forgotten, they take no memory."""
    stays, leaves = house.viewer("one"), house.viewer("two")
    stays.say(Attach(viewer="v_stays"), Ping(request_id="1"))
    leaves.say(Attach(viewer="v_leaves"), Ping(request_id="2"))
    until(house.loop, lambda: len(house.viewers) == 2)
    leaves.socket.close()
    until(house.loop, lambda: house.front.probe() == ["v_leaves"])
    house.front.forget("v_leaves")
    assert house.front.probe() == []
    assert isinstance(stays.receive(viewer_side(house.spool)), Pong)


def test_a_viewer_inside_is_told_without_a_socket(house: House) -> None:
    """It hears at once, until it is forgotten."""
    heard: list[ToViewer] = []
    house.front.join("ws", heard.append)
    house.front.tell("ws", Pong(request_id="1"))
    assert heard == [Pong(request_id="1")]
    house.front.forget("ws")
    house.front.tell("ws", Pong(request_id="2"))
    assert len(heard) == 1
