"""The parts that sessions are made of: histories, events, payloads, images, settings that are kept."""

import base64
import json
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zmq
from hypothesis import given
from hypothesis import strategies as st
from test_sessions_command import PNG

from fanjoin.ipc import images
from fanjoin.ipc.codec import front_side, viewer_side
from fanjoin.ipc.config import Flags, load_config, resolve
from fanjoin.ipc.config_session import environment_for, frozen, taken_up
from fanjoin.ipc.errors import UserError
from fanjoin.ipc.messages import Attach, Done, Event, Refused
from fanjoin.ipc.payload import TurnFlags, payload_json, read_payload
from fanjoin.ipc.session_messages import Gap, MessagePage
from fanjoin.supervisor.core.event_log import KEPT_BYTES, KEPT_EVENTS, KEPT_SESSIONS, EventLog
from fanjoin.supervisor.core.history import repaired
from fanjoin.supervisor.front import MAX_WAITING, FrontDoor

calls = st.lists(st.sampled_from("abc"), max_size=3, unique=True)
entries = st.one_of(
    st.just({"role": "user", "content": "x"}),
    calls.map(lambda ids: {"role": "assistant", "content": "", "tool_calls": [{"id": one} for one in ids]}),
    st.sampled_from("abc").map(lambda one: {"role": "tool", "tool_call_id": one, "content": "{}"}),
)


@given(st.lists(entries, max_size=12))
def test_every_call_of_a_history_has_one_answer(messages: list[dict[str, Any]]) -> None:
    """Whatever was stored before an owner died: each call is answered once, right behind its message; no more."""
    result = repaired(messages)
    expected: list[str] = []
    for message in result:
        if message["role"] == "tool":
            assert message["tool_call_id"] in expected
            expected.remove(message["tool_call_id"])
        else:
            assert not expected
            expected = [call["id"] for call in message.get("tool_calls", [])]
    assert not expected
    assert [one for one in result if one["role"] != "tool"] == [one for one in messages if one["role"] != "tool"]
    assert repaired(result) == result


def test_an_interrupted_call_is_answered_as_such() -> None:
    """The model is told that nobody knows whether the call took effect."""
    (_, answer) = repaired([{"role": "assistant", "tool_calls": [{"id": "call_1"}]}])
    assert json.loads(answer["content"])["error"]["reason"] == "interrupted"


@given(st.integers(0, 1200), st.integers(0, 1200))
def test_events_come_back_in_order_or_as_one_gap(count: int, since: int) -> None:
    """The events after a number, without a hole: what is missing is named, and no number comes twice."""
    log = EventLog()
    for number in range(count):
        log.add("s", "t", "message.delta", {"text": str(number)})
    told = log.since("s", since)
    covered: list[int] = []
    for one in told:
        covered += range(one.first, one.last + 1) if isinstance(one, Gap) else [one.sequence]
    assert covered == list(range(since + 1, count + 1))
    assert sum(isinstance(one, Event) for one in told) <= KEPT_EVENTS
    assert not any(isinstance(one, Gap) for one in told[1:])


def test_kept_events_are_bounded() -> None:
    """By their bytes, and by the number of sessions; a number is never given twice."""
    log = EventLog()
    for _ in range(10):
        log.add("s", "t", "message.delta", {"text": "x" * (KEPT_BYTES // 4)})
    assert len([one for one in log.since("s", 0) if isinstance(one, Event)]) == 3
    for number in range(KEPT_SESSIONS):
        log.add(f"s{number}", "t", "turn.started", {})
    assert log.since("s", 8) == [Gap(session_id="s", first=9, last=10)]
    assert log.add("s", "t", "turn.started", {}).sequence == 11


flags = st.builds(
    TurnFlags,
    model=st.none() | st.text(),
    toolsets=st.none() | st.lists(st.text(), max_size=3),
    max_turns=st.none() | st.integers(1, 99),
    ignore_rules=st.none() | st.booleans(),
    deadline=st.none() | st.floats(0, 1e6),
)


@given(st.text(alphabet=st.characters(codec=None)), flags, st.booleans())
def test_a_payload_is_read_back_and_made_again(text: str, given: TurnFlags, finite: bool) -> None:
    """Flattened it is what can be submitted; made again from what it says, it has the same bytes."""
    stored = payload_json(text, given, finite=finite)
    payload = read_payload(stored)
    assert payload_json(payload.text, payload.cli_turn_v1, finite=payload.finite) == stored
    whole = json.loads(stored)
    block = whole.pop("cli_turn_v1")
    assert set(whole) == {"text", "finite"}
    assert not set(whole) & set(block)
    assert None not in block.values()


def test_a_fan_out_is_not_run_again_as_a_turn() -> None:
    """Its tasks are not kept: whoever wants to run it again is told how, whatever flags it had."""
    stored = json.dumps({"text": "", "finite": True, "tasks": {"count": 2}, "cli_turn_v1": {"worker": "sort"}})
    with pytest.raises(UserError, match="--resume"):
        read_payload(stored)


@pytest.mark.parametrize(
    ("data", "media_type"),
    [
        (PNG, "image/png"),
        (b"\xff\xd8\xff\xe0rest", "image/jpeg"),
        (b"GIF89a...", "image/gif"),
        (b"RIFF\x00\x00\x00\x00WEBPVP8 ", "image/webp"),
        (b"RIFF\x00\x00\x00\x00WAVE", None),
        (b"<svg/>", None),
    ],
)
def test_images_are_told_apart_by_their_content(data: bytes, media_type: str | None) -> None:
    """Whatever their file is called."""
    assert images.media_type_of(data) == media_type


def test_an_image_is_kept_once_and_named_afterwards(tmp_path: Path) -> None:
    """With its data it is written; by its digest alone it is found again, and put into messages and tasks."""
    folder = tmp_path / "images"
    sent = images.as_submitted(PNG)
    name = images.keep(folder, sent)
    assert name == {"media_type": "image/png", "sha256": sent["sha256"]}
    assert images.keep(folder, name) == name
    message = {"role": "user", "content": [{"type": "text", "text": "x"}, images.image_part(name)]}
    filled = images.filled_in(folder, message)["content"][1]["image_url"]["url"]
    assert filled == f"data:image/png;base64,{base64.b64encode(PNG).decode()}"
    (folder / name["sha256"]).unlink()
    assert images.filled_in(folder, message)["content"][1]["type"] == "text"


@pytest.mark.parametrize(
    "change",
    [
        {"sha256": "0" * 64},
        {"sha256": "../" * 21 + "x"},
        {"media_type": "image/gif"},
        {"data": "no base64!"},
        {"data": base64.b64encode(b"no image").decode()},
        {"data": None},
    ],
)
def test_an_image_that_is_not_what_it_says_is_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    """A wrong digest, kind or data, or bytes that nobody has: an error, and no file."""
    with pytest.raises(ValueError, match=r"\w"):
        images.keep(tmp_path / "images", images.as_submitted(PNG) | change)
    assert not (tmp_path / "images").exists()


def configured(home: Path, text: str) -> None:
    """Write a configuration."""
    (home / "config.yaml").write_text(text, encoding="utf-8")


def test_a_session_keeps_its_settings_and_no_key(tmp_path: Path) -> None:
    """What ruled its first turn rules the next ones after the configuration changed; a flag comes first."""
    configured(tmp_path, "model: {base_url: 'http://a/v1', model: one, api_key: file-key}\ntoolsets: [files]\n")
    kept = frozen(resolve(load_config(tmp_path), {}, Flags(reasoning="low")))
    assert "file-key" not in msgspec.json.encode(kept).decode()
    configured(tmp_path, "model: {base_url: 'http://b/v1', model: two, api_key: other-key}\n")
    config = load_config(tmp_path)
    turn = resolve(config, {}, Flags(), taken_up(kept, config, {})).turn
    assert (turn.endpoint.base_url, turn.endpoint.model, turn.endpoint.api_key) == ("http://a/v1", "one", "")
    assert (turn.endpoint.reasoning_effort, turn.toolsets) == ("low", ("files",))
    assert resolve(config, {}, Flags(model="three"), taken_up(kept, config, {})).turn.endpoint.model == "three"


def test_a_resumed_session_sends_no_key_that_its_first_turn_did_not(tmp_path: Path) -> None:
    """The URL came from the file: the environment's key was not for it, and is not now; the file's own key is."""
    environ = {"OPENAI_API_KEY": "environments"}
    configured(tmp_path, "model: {base_url: 'http://a/v1', model: one}\n")
    config = load_config(tmp_path)
    first = resolve(config, environ, Flags())
    again = resolve(config, environ, Flags(), taken_up(frozen(first), config, environ))
    assert (first.turn.endpoint.api_key, again.turn.endpoint.api_key) == ("", "")
    configured(tmp_path, "model: {base_url: 'http://a/v1', model: one, api_key: files}\n")
    config = load_config(tmp_path)
    assert resolve(config, environ, Flags(), taken_up(frozen(first), config, environ)).turn.endpoint.api_key == "files"


def test_another_process_gets_the_variables_that_settings_come_from(tmp_path: Path) -> None:
    """Those that the configuration knows or names, and no other."""
    configured(
        tmp_path,
        "model: {api_key_env: MY_KEY}\ndelegation: {routes: {fast: {base_url: 'http://a', api_key_env: FAST}}}\n",
    )
    environ = {"OPENAI_BASE_URL": "u", "MY_KEY": "k", "FAST": "f", "SECRET": "s", "PATH": os.environ["PATH"]}
    wanted = {name: environ[name] for name in ("OPENAI_BASE_URL", "MY_KEY", "FAST")}
    assert environment_for(load_config(tmp_path), environ) == wanted


def test_a_viewer_that_reads_too_slowly_is_told_what_it_missed() -> None:
    """Beyond the bound events are dropped, answers never; once it reads again it gets one gap, then what comes."""
    with zmq.Context() as context, context.socket(zmq.ROUTER) as router, context.socket(zmq.DEALER) as dealer:
        router.setsockopt(zmq.ROUTER_MANDATORY, 1)
        router.bind("inproc://front")
        door = FrontDoor(router, front_side(), lambda _viewer, _message: None)
        for number in range(1, MAX_WAITING + 6):
            door.tell("v", Event(session_id="s", admission_id="t", sequence=number, name="message.delta", data={}))
        door.tell("v", Done(request_id="r"))
        dealer.connect("inproc://front")
        codec = viewer_side()
        dealer.send(codec.encode(Attach(viewer="v")))
        told: list[Any] = []
        while not told or not isinstance(told[-1], Gap):
            door.drain()
            door.flush()
            while dealer.poll(0):
                told.append(codec.decode(dealer.recv()))
        assert [one.sequence for one in told[:-2]] == list(range(1, MAX_WAITING + 1))
        assert told[-2:] == [Done(request_id="r"), Gap(session_id="s", first=MAX_WAITING + 1, last=MAX_WAITING + 5)]
        dealer.close(linger=0)
        router.close(linger=0)


def test_an_answer_that_finds_no_room_is_refused() -> None:
    """A large one needs a file; where none can be written its viewer is told so, and the supervisor lives on."""
    with zmq.Context() as context, context.socket(zmq.ROUTER) as router, context.socket(zmq.DEALER) as dealer:
        router.setsockopt(zmq.ROUTER_MANDATORY, 1)
        router.bind("inproc://front")
        door = FrontDoor(router, front_side(Path("/no/such/spool")), lambda _viewer, _message: None)
        door.tell(
            "v",
            MessagePage(request_id="r", session_id="s", messages=[{"text": "x" * (1 << 21)}], first=0, message_count=1),
        )
        dealer.connect("inproc://front")
        codec = viewer_side()
        dealer.send(codec.encode(Attach(viewer="v")))
        while not dealer.poll(0):
            door.drain()
        told = codec.decode(dealer.recv())
        assert isinstance(told, Refused)
        assert (told.request_id, told.reason) == ("r", "storage_unavailable")
        dealer.close(linger=0)
        router.close(linger=0)
