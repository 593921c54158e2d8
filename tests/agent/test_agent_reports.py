"""What an agent leaves behind: progress, its account, its transcript, the file of a long answer."""

import json
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from agent_support import task
from hypothesis import given
from hypothesis import strategies as st

from fanjoin.agent_proc.account import Account
from fanjoin.agent_proc.provider.reply import Reply
from fanjoin.agent_proc.reporter import TEXT_CHARACTERS, Reporter
from fanjoin.agent_proc.summary import shortened
from fanjoin.agent_proc.transcript import Transcript
from fanjoin.ipc.codec import INLINE_LIMIT, agent_side
from fanjoin.ipc.messages import Outcome, Progress, Usage
from fanjoin.ipc.settings import DelegationLimits


class Desk:
    """A reporter with a clock that the test moves, and the progress that it sent."""

    def __init__(self) -> None:
        self.now = 100.0
        self.sent: list[Progress] = []
        self.account = Account()
        self.reporter = Reporter(
            self.send, self.account, Transcript("", ""), keeps_messages=True, clock=lambda: self.now
        )
        self.reporter.begin_reply()

    def send(self, kind: type[msgspec.Struct], **fields: Any) -> None:
        """Record a message."""
        assert kind is Progress
        self.sent.append(Progress(run_id="r", attempt_id="a", **fields))

    @property
    def deltas(self) -> list[str]:
        """The texts sent so far."""
        return [progress.delta for progress in self.sent]


def test_the_first_text_is_sent_at_once_and_later_ones_are_gathered() -> None:
    """The first piece of a reply goes out at once; the next ones wait for 50 ms together."""
    desk = Desk()
    for text in ("a", "b", "c"):
        desk.reporter.text(text)
    assert desk.deltas == ["a"]
    desk.now += 0.06
    desk.reporter.text("d")
    assert desk.deltas == ["a", "bcd"]


def test_much_text_does_not_wait() -> None:
    """A fast model's text goes out whenever enough has come."""
    desk = Desk()
    desk.reporter.text("a")
    desk.reporter.text("x" * TEXT_CHARACTERS)
    assert desk.deltas == ["a", "x" * TEXT_CHARACTERS]


def test_a_model_that_only_thinks_is_seen_to_move() -> None:
    """Signs of life without text are reported every few seconds, not each time."""
    desk = Desk()
    for _ in range(100):
        desk.reporter.text("")
        desk.now += 0.1
    assert desk.deltas == ["", ""]


def test_a_huge_piece_travels_inline() -> None:
    """No message with text is ever so large that it needs the spool, not even of four-byte letters."""
    desk = Desk()
    desk.reporter.text("😀" * 1_000_000)
    assert "".join(desk.deltas) == "😀" * 1_000_000
    assert all(len(agent_side().encode(progress)) <= INLINE_LIMIT for progress in desk.sent)


@given(st.lists(st.tuples(st.text(max_size=3), st.floats(0, 0.2)), max_size=30))
def test_no_text_is_lost_or_turned_around(pieces: list[tuple[str, float]]) -> None:
    """Whatever the timing, the reported text is the text."""
    desk = Desk()
    for text, wait in pieces:
        desk.reporter.text(text)
        desk.now += wait
    desk.reporter.end_reply(Reply())
    assert "".join(desk.deltas) == "".join(text for text, _ in pieces)


def test_token_counts_are_told_when_more_is_to_come() -> None:
    """A step that follows another one, and tools that begin, tell what was used; a first step has nothing to tell."""
    desk = Desk()
    desk.reporter.begin_step()
    assert desk.sent == []
    desk.account.steps, desk.account.usage = 1, Usage(input_tokens=7)
    desk.reporter.begin_step()
    desk.reporter.tools_started(["a", "b"])
    assert [(one.usage, one.tool_started) for one in desk.sent] == [(Usage(input_tokens=7), t) for t in ("", "a, b")]


def test_a_refusal_is_told_once() -> None:
    """What an endpoint turned out to refuse is told to the supervisor, and not what that knows already."""
    desk = Desk()
    desk.account.refused = frozenset({"tools"})
    for known in ({"tools"}, {"tools", "stream"}, {"tools", "stream"}):
        desk.reporter.end_reply(Reply(refused=frozenset(known)))
    assert [one.refused for one in desk.sent] == [("stream", "tools")]


def test_partial_text_survives_a_retry() -> None:
    """What a cut reply had said is kept until the next one says something."""
    account = Account()
    account.say("half")
    account.begin_reply()
    assert account.ended("failed", "network", "cut").partial_text == "half"
    account.say("new")
    assert account.ended("failed", "network", "cut").partial_text == "new"


def test_partial_text_is_bounded() -> None:
    """Of a long partial text, head and tail are kept."""
    account = Account()
    account.partial_limit = 100
    account.say("a" * 1000 + "z")
    text = account.ended("cancelled", "cancelled", "").partial_text
    assert len(text) < 200
    assert text.endswith("z")


@pytest.mark.parametrize(("depth", "length", "short"), [(0, 5000, False), (1, 100, False), (1, 101, True)])
def test_only_a_delegates_long_text_is_shortened(tmp_path: Path, depth: int, length: int, short: bool) -> None:
    """The root's text stays whole, and so does what is within the limit."""
    path = tmp_path / "s.txt"
    given_task = task(depth=depth, summary_path=str(path), limits=DelegationLimits(max_summary_chars=100))
    outcome = shortened(Outcome(status="completed", text="ü" * length), given_task)
    assert outcome.summary_truncated is short
    assert path.exists() is short
    assert (outcome.text == "ü" * length) is not short
    assert [entry.name for entry in tmp_path.iterdir()] == (["s.txt"] if short else [])


def test_a_long_text_that_cannot_be_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a place for the whole text the shortened one is handed on, and no path is claimed."""
    given_task = task(depth=1, summary_path=str(tmp_path / "no" / "s"), limits=DelegationLimits(max_summary_chars=10))
    outcome = shortened(Outcome(status="completed", text="x" * 50), given_task)
    assert (outcome.summary_truncated, outcome.summary_path) == (True, "")
    assert "could not be kept" in capsys.readouterr().err


def test_the_transcript_is_live_and_private(tmp_path: Path) -> None:
    """Each event is one line of JSON, written at once, for its owner only, without the key in any escaping."""
    path, key = tmp_path / "t.jsonl", 'k"ey\\-0123456789abcdef'
    transcript = Transcript(str(path), key)
    transcript.add("note", text=f"line\nbreak {key}")
    image = {"type": "image_url", "image_url": {"url": "data:..."}}
    transcript.add_messages([{"role": "user", "content": [{"type": "text", "text": "t"}, image]}])
    lines = path.read_text(encoding="utf-8").splitlines()
    transcript.close()
    first, second = map(json.loads, lines)
    assert first["text"].startswith("line\nbreak …")
    assert key not in first["text"]
    assert second["content"] == [{"type": "text", "text": "t"}, {"type": "image_url"}]
    if sys.platform != "win32":
        assert path.stat().st_mode & 0o077 == 0


def test_a_transcript_that_cannot_be_written_stops_nobody(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A folder that is not there is told once on standard error."""
    transcript = Transcript(str(tmp_path / "no" / "t.jsonl"), "")
    transcript.add("note")
    transcript.add("note")
    assert capsys.readouterr().err.count("not written any further") == 1
