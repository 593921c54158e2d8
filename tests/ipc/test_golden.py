"""The bytes of protocol version 1. A change here breaks running processes: it needs a new version number."""

from pathlib import Path
from typing import get_args

import msgspec
import pytest
from golden_samples import FRAMES, MESSAGES
from msgspec import Struct

from fanjoin.ipc.bootstrap import pack_frame
from fanjoin.ipc.codec import Spooled, agent_side, back_side, front_side, viewer_side
from fanjoin.ipc.errors import BadFrameError
from fanjoin.ipc.messages import PROTOCOL_VERSION, FromAgent, FromViewer, ToAgent, ToViewer

GOLDEN = Path(__file__).with_name(f"golden_{PROTOCOL_VERSION}.txt")
DIRECTIONS = {FromAgent: back_side(), ToAgent: agent_side(), FromViewer: front_side(), ToViewer: viewer_side()}


def golden() -> dict[str, str]:
    """Return the pinned bytes by the name of their struct, in hexadecimal."""
    lines = GOLDEN.read_text(encoding="utf-8").splitlines()
    return dict(line.split(" ") for line in lines)


def name_of(message: Struct) -> str:
    """Return the name of a sample's struct."""
    return type(message).__name__


def test_every_message_of_every_direction_is_pinned() -> None:
    """No message was added without its bytes."""
    messages = {kind for union in DIRECTIONS for kind in get_args(union)} | {Spooled}
    assert {type(sample) for sample in MESSAGES} == messages
    assert set(golden()) == {name_of(sample) for sample in (*MESSAGES, *FRAMES)}


@pytest.mark.parametrize("sample", MESSAGES, ids=name_of)
def test_a_message_has_the_pinned_bytes(sample: Struct) -> None:
    """Encoded, each sample is what version 1 says."""
    assert agent_side().encode(sample).hex() == golden()[name_of(sample)]


@pytest.mark.parametrize("sample", FRAMES, ids=name_of)
def test_a_first_frame_has_the_pinned_bytes(sample: Struct) -> None:
    """A bootstrap is its length in four bytes and its map."""
    assert pack_frame(sample).hex() == golden()[name_of(sample)]


@pytest.mark.parametrize("sample", [one for one in MESSAGES if not isinstance(one, Spooled)], ids=name_of)
def test_pinned_bytes_are_read_in_one_direction_only(sample: Struct) -> None:
    """The receiver of a message reads it back unchanged; to every other role it is no message."""
    frame = bytes.fromhex(golden()[name_of(sample)])
    for union, codec in DIRECTIONS.items():
        if isinstance(sample, get_args(union)):
            assert codec.decode(frame) == sample
        else:
            with pytest.raises(BadFrameError):
                codec.decode(frame)


@pytest.mark.parametrize("sample", MESSAGES, ids=name_of)
def test_an_unknown_field_is_ignored(sample: Struct) -> None:
    """A newer peer of the same version may say more: what is not known is skipped."""
    fields = msgspec.msgpack.decode(agent_side().encode(sample))
    frame = msgspec.msgpack.encode(fields | {"field_of_tomorrow": [1, {"a": None}]})
    assert msgspec.msgpack.decode(frame, type=type(sample)) == sample
