"""Frames: what is taken, what is refused, and what goes through the spool."""

import stat
import sys
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fanjoin.ipc import codec
from fanjoin.ipc.codec import INLINE_LIMIT, SPOOL_LIMIT, Spooled, agent_side, back_side, front_side
from fanjoin.ipc.errors import BadFrameError
from fanjoin.ipc.messages import Outcome, Ping, Pong, Result

WHO = {"run_id": "i", "attempt_id": "d.1"}


def large(size: int = INLINE_LIMIT) -> Result:
    """Return a message that is too large for a frame."""
    return Result(**WHO, outcome=Outcome(status="completed", text="x" * size))


@given(st.binary(max_size=200))
def test_garbage_is_refused_and_nothing_else_happens(frame: bytes) -> None:
    """Whatever bytes arrive, they are a message or a bad frame."""
    try:
        message = back_side().decode(frame)
    except BadFrameError:
        return
    assert message.run_id is not None


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\xc1",
        b"\x91" * 100_000,
        msgspec.msgpack.encode({"type": "hello"}),
        msgspec.msgpack.encode({"type": "shutdown"}),
        msgspec.msgpack.encode({"type": "bye", **WHO, "childless": "yes"}),
        msgspec.msgpack.encode([1, 2]),
        b"\x81\xa4type\xa3\xff\xfe\xfd",
    ],
    ids=["empty", "reserved", "nested", "cut", "unknown", "wrong type", "list", "no text"],
)
def test_a_bad_frame_says_so(frame: bytes) -> None:
    """Empty, nested without end, cut, unknown, of a wrong type: one error for all."""
    with pytest.raises(BadFrameError, match="not a message"):
        back_side().decode(frame)


def test_a_large_message_travels_as_a_private_file(tmp_path: Path) -> None:
    """The frame stays small, the file is readable by its owner only, and is gone once it is read."""
    message = large()
    frame = agent_side(tmp_path).encode(message)
    (file,) = tmp_path.iterdir()
    assert len(frame) < 200
    assert sys.platform == "win32" or stat.S_IMODE(file.stat().st_mode) == 0o600
    assert back_side(tmp_path).decode(frame) == message
    assert not list(tmp_path.iterdir())


def test_a_message_at_the_limit_travels_inline(tmp_path: Path) -> None:
    """The last byte that fits needs no file; the next one does."""
    overhead = len(agent_side().encode(large(INLINE_LIMIT // 2))) - INLINE_LIMIT // 2
    agent = agent_side(tmp_path)
    assert len(agent.encode(large(INLINE_LIMIT - overhead))) == INLINE_LIMIT
    assert not list(tmp_path.iterdir())
    agent.encode(large(INLINE_LIMIT - overhead + 1))
    assert len(list(tmp_path.iterdir())) == 1


def test_a_frame_over_the_limit_is_refused_unread() -> None:
    """A peer that sends its bulk in a frame is refused before a byte is decoded."""
    with pytest.raises(BadFrameError, match="over the limit"):
        back_side().decode(bytes(INLINE_LIMIT + 1))


def test_without_a_spool_a_large_message_is_not_sent() -> None:
    """There is nowhere to put it."""
    with pytest.raises(BadFrameError, match="too large to send"):
        agent_side().encode(large())


def test_a_message_over_the_spool_limit_is_not_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk is bounded, too."""
    monkeypatch.setattr(codec, "SPOOL_LIMIT", INLINE_LIMIT + 10)
    with pytest.raises(BadFrameError, match="too large to send"):
        agent_side(tmp_path).encode(large())
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "name", ["../secret", "/etc/hostname", "", ".", "a/b", "no-such", "nosuch"], ids=lambda name: name or "empty"
)
def test_a_spooled_name_never_leads_out_of_the_spool(tmp_path: Path, name: str) -> None:
    """Names with separators, dots or nothing in them are refused; a missing file is a bad frame."""
    spool = tmp_path / "spool"
    spool.mkdir()
    (tmp_path / "secret").write_bytes(b"x")
    with pytest.raises(BadFrameError):
        back_side(spool).decode(agent_side().encode(Spooled(name=name, size=1, sha256="0")))
    assert (tmp_path / "secret").exists()


@pytest.mark.parametrize("change", ["shorter", "longer", "other"])
def test_a_spool_file_that_was_changed_is_refused(tmp_path: Path, change: str) -> None:
    """Size and digest have to be what the frame says."""
    frame = agent_side(tmp_path).encode(large())
    (file,) = tmp_path.iterdir()
    body = file.read_bytes()
    file.write_bytes({"shorter": body[:-1], "longer": body + b"x", "other": body[:-1] + b"\xc0"}[change])
    with pytest.raises(BadFrameError, match="not what its frame says"):
        back_side(tmp_path).decode(frame)


def test_a_spooled_size_beyond_all_bounds_is_refused_unread(tmp_path: Path) -> None:
    """A frame cannot make the receiver read more than the spool allows."""
    (tmp_path / "aa").write_bytes(b"x")
    with pytest.raises(BadFrameError, match="bad name or size"):
        back_side(tmp_path).decode(agent_side().encode(Spooled(name="aa", size=SPOOL_LIMIT + 1, sha256="0")))


def test_a_spooled_negative_size_is_refused(tmp_path: Path) -> None:
    """A size below zero would read the whole file."""
    (tmp_path / "aa").write_bytes(b"x" * 100)
    with pytest.raises(BadFrameError):
        back_side(tmp_path).decode(agent_side().encode(Spooled(name="aa", size=-2, sha256="0")))


def test_a_spooled_message_that_names_another_is_refused(tmp_path: Path) -> None:
    """No chain of files is followed."""
    inner = agent_side().encode(Spooled(name="bb", size=1, sha256="0"))
    (tmp_path / "aa").write_bytes(inner)
    outer = Spooled(name="aa", size=len(inner), sha256=codec._digest(inner))
    with pytest.raises(BadFrameError, match="names another"):
        back_side(tmp_path).decode(agent_side().encode(outer))


def test_a_spooled_message_keeps_its_direction(tmp_path: Path) -> None:
    """The file may hold only what the frame may hold."""
    frame = agent_side(tmp_path).encode(large())
    with pytest.raises(BadFrameError, match="not a message"):
        front_side(tmp_path).decode(frame)


def test_both_views_of_memory_are_decoded() -> None:
    """A frame may be bytes or a view of a socket's buffer."""
    frame = front_side().encode(Ping(request_id="r"))
    assert front_side().decode(memoryview(frame)) == Ping(request_id="r")
    with pytest.raises(BadFrameError):
        front_side().decode(front_side().encode(Pong(request_id="r")))
