"""``fanjoin chat`` on a terminal, driven through a pseudo-terminal."""

import contextlib
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest
from daemon_support import DaemonHome
from run_support import plan, wait_until

if sys.platform == "win32":
    pytest.skip("there are no pseudo-terminals on Windows", allow_module_level=True)
import fcntl
import pty
import termios

_CONTROL = re.compile(rb"\x1b\[[0-9;?]*[a-zA-Z]|\x1b[=>]|[\r\x08]")
PROMPT = ">"
BACKGROUND = plan(
    {"delegate": ["[[hold 2 name=gate]] a", "count b"]},
    {"text": "Dispatched."},
    {"text": "Second answer."},
    {"text": "Told later."},
    text="Go.",
)


class Terminal:
    """A conversation and the person in front of it."""

    def __init__(self, home: DaemonHome, *flags: str) -> None:
        self._mine, theirs = pty.openpty()
        self._seen = b""
        self._read = 0
        self.process = subprocess.Popen(
            home.command("chat", *flags),
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env={**home.env, "TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1"},
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509 - Ctrl-C needs that
        )
        os.close(theirs)

    def type(self, text: str) -> None:
        """Type a text; a carriage return is Enter."""
        os.write(self._mine, text.encode())

    def see(self, text: str, seconds: float = 30.0) -> None:
        """Wait until a text appears after what was seen before."""
        deadline = time.monotonic() + seconds
        while (place := self.screen.find(text, self._read)) < 0:
            assert time.monotonic() < deadline, f"{text!r} does not appear after {self.screen[self._read :]!r}"
            if not self._more():
                assert text in self.screen[self._read :], f"it ended without {text!r}: {self.screen[self._read :]!r}"
        self._read = place + len(text)

    @property
    def screen(self) -> str:
        """Return everything that was printed, without what moves the cursor."""
        return _CONTROL.sub(b"", self._seen).decode("utf-8", "replace")

    def _more(self) -> bool:
        if select.select([self._mine], [], [], 0.1)[0]:
            try:
                self._seen += os.read(self._mine, 65536)
            except OSError:
                return False
        return True

    def end(self) -> int:
        """Read to the end and return the exit code."""
        while self._more():
            pass
        return self.process.wait(30)

    def hang_up(self) -> None:
        """Close the terminal."""
        mine, self._mine = self._mine, -1
        with contextlib.suppress(OSError):
            os.close(mine)

    def close(self) -> None:
        """Hang up, and see to it that nothing is left."""
        self.hang_up()
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(30)


@contextlib.contextmanager
def terminal(home: DaemonHome, *flags: str) -> Iterator[Terminal]:
    """Sit down in front of a conversation."""
    sitting = Terminal(home, *flags)
    try:
        yield sitting
    finally:
        sitting.close()


def open_gate(home: DaemonHome) -> None:
    """Let a delegate that waits at the gate go on."""
    assert home.other("chat", "-Q", "--daemon", "never", "-q", "[[hold 2 name=gate]] open").returncode == 0


def test_a_seed_dispatches_and_its_result_comes_by_itself(home: DaemonHome) -> None:
    """``-q`` is the first turn; its delegates run on while more is said; the joined result is a turn of its own."""
    with terminal(home, "-q", BACKGROUND) as person:
        person.see("session: s_")
        person.see("Dispatched.")
        person.see(PROMPT)
        assert home.rows("SELECT delivery_state FROM async_delegations") == [("pending",)]
        person.type("hello there\r")
        person.see("Second answer.")
        person.see(PROMPT)
        person.type("/delegations\r")
        person.see("running: [[hold 2 name=gate]] a")
        open_gate(home)
        person.see("the result is told now")
        person.see("Told later.")
        person.type("/quit\r")
        person.see("Go on later with: fanjoin chat --resume s_")
        assert person.end() == 0
    home.check_no_process()
    assert home.rows("SELECT state, delivery_state FROM async_delegations") == [("completed", "delivered")]
    assert home.statuses() == [("completed", "")] * 2
    assert "hello there" in (home.path / "history").read_text(encoding="utf-8")
    home.check_records()


def test_ctrl_c_ends_the_turn_and_twice_the_conversation(home: DaemonHome) -> None:
    """The first leaves the prompt, with delegates that run on; two in a row leave, and nothing lives on."""
    with terminal(home) as person:
        person.see(PROMPT)
        person.type("[[hang]] now\r")
        wait_until(home.provider.requests, "request")
        person.type("\x03")
        person.see("cancelled (cancelled)")
        person.see(PROMPT)
        person.type("second\\\rline\r")
        person.see("2 words in 2 lines")
        person.see(PROMPT)
        person.type("\x03")
        person.see("Ctrl-C again leaves")
        person.see(PROMPT)
        person.type("\x03")
        assert person.end() == 130
    home.check_no_process()
    home.check_records()


def writing(name: str, answer: str) -> dict[str, Any]:
    """Return the reply of a plan that writes a file."""
    return {"calls": [{"name": "write_file", "arguments": {"path": name, "content": answer}}]}


def test_the_user_allows_what_no_rule_decides(home: DaemonHome) -> None:
    """The root's own tools ask: no, yes, and always, which holds for later turns, too; its delegates are denied."""
    work = home.path.parent / "work"
    work.mkdir()
    child = plan(writing("by a delegate", "0"), {"text": "Denied."})
    first = {"delegate": [child], "calls": writing("a", "1")["calls"]}
    seed = plan(first, writing("b", "2"), writing("c", "3"), writing("d", "4"), {"text": "All done."})
    with terminal(home, "-C", str(work), "-q", seed) as person:
        for name, answer in (("a", "n"), ("b", "y"), ("c", "a")):
            person.see(f"The agent wants: write_file {name}")
            person.see("[a]lways?")
            person.type(f"{answer}\r")
        person.see("All done.")
        person.see(PROMPT)
        person.type(plan(writing("e", "5"), {"text": "Later done."}).replace("\n", "\x1b\r") + "\r")
        person.see("Later done.")
        person.see(PROMPT)
        person.type("/quit\r")
        assert person.end() == 0
        assert "wants: write_file by" not in person.screen
        assert "wants: write_file d" not in person.screen
        assert "wants: write_file e" not in person.screen
    assert sorted(path.name for path in work.iterdir()) == ["b", "c", "d", "e"]


def test_ctrl_c_at_a_question_cancels_the_turn(home: DaemonHome) -> None:
    """It is no answer: nothing is written, and the conversation goes on."""
    work = home.path.parent / "work"
    work.mkdir()
    with terminal(home, "-C", str(work), "-q", plan(writing("a", "1"), {"text": "Done."})) as person:
        person.see("[a]lways?")
        person.type("\x03")
        person.see("cancelled (cancelled)")
        person.see(PROMPT)
        person.type("\x04")
        assert person.end() == 0
    home.check_no_process()
    assert list(work.iterdir()) == []


def test_a_seed_that_was_answered_before_is_shown_again(home: DaemonHome) -> None:
    """The same ``--idempotency-key``: no model is asked, and the stored answer is on the screen."""
    flags = ("--idempotency-key", "k", "-q", "hello")
    for _ in range(2):
        with terminal(home, *flags) as person:
            person.see("1 word in 1 line")
            person.see(PROMPT)
            person.type("/quit\r")
            assert person.end() == 0
            assert person.screen.count("1 word in 1 line") == 1
    assert len(home.provider.requests()) == 1


def test_ctrl_c_before_the_first_turn_runs_nothing(home: DaemonHome) -> None:
    """While the supervisor still starts: it is not lost, and the exit code is 130."""
    with terminal(home, "-q", "[[hang]] never") as person:
        wait_until((home.path / "logs" / "supervisor.log").exists, "start of the supervisor")
        person.type("\x03")
        person.see("None of it runs")
        assert person.end() == 130
    home.check_no_process()
    assert home.provider.requests() == []


def test_a_signal_while_leaving_and_a_terminal_that_goes(home: DaemonHome) -> None:
    """The second SIGTERM ends it at once, a terminal that is closed ends it, too; neither leaves a traceback."""
    home.configure("delegation: {cancel_grace_seconds: 2}")
    seed = plan({"delegate": ["[[hang]] a"]}, {"text": "Dispatched."})
    with terminal(home, "-q", seed) as person:
        person.see("Dispatched.")
        person.see(PROMPT)
        person.process.send_signal(signal.SIGTERM)
        person.see("They are cancelled now")
        person.see("Go on later")
        person.process.send_signal(signal.SIGTERM)
        assert person.end() in {143, -signal.SIGTERM}
        assert "Traceback" not in person.screen
    home.check_no_process()
    with terminal(home, "-q", "hello") as person:
        person.see("1 word in 1 line")
        person.see(PROMPT)
        person.hang_up()
        assert person.process.wait(20) == 129
    home.check_no_process()


def test_leaving_without_a_daemon_says_what_is_cancelled(home: DaemonHome) -> None:
    """Delegates that still run are named and end with receipts."""
    home.configure("delegation: {cancel_grace_seconds: 0.5}")
    with terminal(home, "-q", plan({"delegate": ["[[hang]] a"]}, {"text": "Dispatched."})) as person:
        person.see("Dispatched.")
        person.see(PROMPT)
        person.type("/cancel nonsense\r")
        person.see("Nothing was done")
        person.see(PROMPT)
        person.type("\x04")
        person.see("1 delegates have not ended")
        person.see("They are cancelled now")
        assert person.end() == 0
    home.check_no_process()
    home.check_records()
    assert home.statuses() == [("cancelled", "viewer_lost")]


def test_leaving_a_daemon_lets_delegates_go_on(daemon: DaemonHome) -> None:
    """They are named, end in the daemon, and their result waits for whoever resumes the session."""
    with terminal(daemon, "-q", BACKGROUND) as person:
        person.see("attached to the daemon")
        person.see("Dispatched.")
        person.see(PROMPT)
        person.type("/quit\r")
        person.see("The daemon goes on with them")
        person.see("fanjoin chat --resume ")
        assert person.end() == 0
        session_id = person.screen.split("fanjoin chat --resume ")[1].split()[0]
    open_gate(daemon)
    wait_until(lambda: daemon.statuses() == [("completed", "")] * 2, "receipts")
    told = "SELECT delivery_state FROM async_delegations"
    wait_until(lambda: daemon.rows(told) == [("delivered",)], "delivery")
    with terminal(daemon, "--resume", session_id) as person:
        person.see(PROMPT)
        person.type("/help\r")
        person.see("/delegations lists")
        person.see(PROMPT)
        person.process.send_signal(signal.SIGTERM)
        assert person.end() == 143


def test_a_lost_supervisor_ends_the_conversation_with_the_way_on(home: DaemonHome) -> None:
    """While the line is being written, the death of the supervisor is said, and the exit code is 1."""
    with terminal(home, "-q", "hello") as person:
        person.see("1 word in 1 line")
        person.see(PROMPT)
        core = next(one for one in home.processes() if "supervisor.main" in " ".join(one.cmdline()))
        core.kill()
        person.see("The supervisor died")
        assert person.end() == 1
        assert "fanjoin chat --resume s_" in person.screen
        assert "Traceback" not in person.screen
    home.check_no_process()
