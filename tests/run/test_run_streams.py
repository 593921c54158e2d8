"""Standard streams that are closed, never end, or are read by somebody who leaves."""

import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest
from run_support import Home, delegate_plan, plan, wait_until

ONE = delegate_plan("[[answer a]]")
posix_only = pytest.mark.skipif(sys.platform == "win32", reason="needs a POSIX shell")


def by_shell(home: Home, script: str, query: str, *flags: str) -> "subprocess.CompletedProcess[bytes]":
    """Run ``chat -Q`` by a shell script in which "$@" is the command."""
    return home.run(["/bin/sh", "-c", script, "sh", *home.command("chat", "-Q", *home.model(), "-q", query, *flags)])


@posix_only
def test_closed_standard_streams_change_nothing(home: Home) -> None:
    """Standard input closed, then all three: the run completes and is recorded, the exit code is 0."""
    assert by_shell(home, 'exec "$@" <&-', ONE).stdout.startswith(b"1 of 1 delegate completed.")
    assert by_shell(home, 'exec "$@" <&- >&- 2>&-', ONE).returncode == 0
    assert by_shell(home, 'exec "$@" >&-', ONE, "--format", "stream-json").returncode == 0
    assert home.statuses() == [("completed", "")] * 3


@posix_only
def test_a_reader_that_takes_one_byte_ends_the_run_quietly(home: Home) -> None:
    """``| head -c1`` of a megabyte: no traceback, everything is recorded."""
    query = plan({"delegate": ["[[answer a]]"]}, {"do": "[[size 1000000]]"})
    done = by_shell(home, '"$@" | head -c1', query)
    assert done.stdout == b"T"
    assert [line.split()[0] for line in done.stderr.decode().splitlines()] == ["session:", "1"]
    assert home.statuses() == [("completed", "")]


def test_a_reader_that_left_before_the_answer_changes_nothing_else(home: Home) -> None:
    """Standard output is closed by its reader while delegates run: they finish, the receipts are there."""
    process = home.start(delegate_plan("[[sleep 0.3]] a"))
    assert process.stdout is not None
    process.stdout.close()
    _, err = process.communicate(timeout=20)
    home.check_nothing_left()
    assert b"Traceback" not in err
    assert b"Error" not in err
    assert home.statuses() == [("completed", "")]


def test_a_stream_whose_reader_leaves_midway_ends_the_run(home: Home) -> None:
    """``stream-json`` closed midway: nobody listens, so the delegates that hang are cancelled and recorded."""
    home.config("delegation: {cancel_grace_seconds: 1}")
    process = home.start(delegate_plan("[[answer a]]", "[[hang]]", "[[sleep 0.5]] c"), "--format", "stream-json")
    assert process.stdout is not None
    while b"delegation.completed" not in process.stdout.readline():
        continue
    process.stdout.close()
    _, err = process.communicate(timeout=20)
    home.check_nothing_left()
    assert process.returncode == 1
    assert b"Traceback" not in err
    assert ("cancelled", "viewer_lost") in home.statuses()


@posix_only
def test_an_answer_that_cannot_be_written_is_a_failure(home: Home) -> None:
    """A full device is no reader that left: exit 1, and the reason on standard error; the answer is recorded."""
    with open("/dev/full", "wb") as full:
        done = home.chat(plan({"text": "lost"}), stdout=full)
    assert done.returncode == 1
    assert b"No space left" in done.stderr
    assert b"Traceback" not in done.stderr
    assert json.loads(home.rows("SELECT outcome FROM session_admissions")[0][0])["answer"] == "lost"


@posix_only
@pytest.mark.parametrize("arguments", ["--help", "--version", "chat --help", "ps", "config show"])
def test_text_that_cannot_be_written_is_said(home: Home, arguments: str) -> None:
    """Whatever a command prints: a full device is exit 1 and one message."""
    with open("/dev/full", "wb") as full:
        command = home.command(*arguments.split())
        done = subprocess.run(command, env=home.env, stdout=full, stderr=subprocess.PIPE, timeout=30, check=False)
    assert (done.returncode, done.stderr.count(b"\n"), b"No space left" in done.stderr) == (1, 1, True)


@posix_only
def test_standard_error_that_cannot_be_written_changes_nothing(home: Home) -> None:
    """A full device, or a reader that left: the answer is written and the exit code is the turn's."""
    assert by_shell(home, 'exec "$@" 2>/dev/full', ONE).returncode == 0
    process = home.start(ONE)
    assert process.stderr is not None
    process.stderr.close()
    out, _ = process.communicate(timeout=20)
    assert (process.returncode, out[:20]) == (0, b"1 of 1 delegate comp")
    home.check_nothing_left()


def test_a_given_query_never_waits_on_standard_input(home: Home) -> None:
    """Standard input is a pipe that nobody closes: with a query given it is not read, by children neither."""
    read_end, write_end = os.pipe()
    try:
        assert home.chat(ONE, stdin=read_end).returncode == 0
        assert home.run(home.command("run", ONE, *home.model()), stdin=read_end).returncode == 0
    finally:
        os.close(read_end)
        os.close(write_end)


@pytest.mark.skipif(sys.platform == "win32", reason="there are no signals between processes on Windows")
def test_an_interrupt_while_the_query_is_awaited_ends_at_once(home: Home) -> None:
    """Ctrl-C while standard input is read: 130 at the first one, the object of a machine format, nothing left."""
    process = home.start(None, "--format", "json", stdin=subprocess.PIPE)
    wait_until(lambda: len(home.processes()) >= 3, "supervisor and zygote")
    time.sleep(0.3)  # being blocked in read() makes no event
    process.send_signal(signal.SIGINT)
    assert process.wait(5) == 130
    out, _ = process.communicate(timeout=5)
    assert json.loads(out)["exit_code"] == 130
    home.check_nothing_left()


def test_the_query_comes_from_a_file_or_standard_input(home: Home, tmp_path: Path) -> None:
    """A file with a byte-order mark, standard input by ``-``, standard input without any flag: the same text."""
    path = tmp_path / "query.txt"
    path.write_text("\ufeffone two three", encoding="utf-8")
    answers = [
        home.chat(None, "--query-file", str(path)).stdout,
        home.run(home.command("chat", "--query-file", "-", *home.model()), text_in="one two three").stdout,
        home.run(home.command("chat", *home.model()), text_in="one two three").stdout,
    ]
    assert answers[0].startswith(b"3 words in 1 line")
    assert len(set(answers)) == 1
    texts = home.rows("SELECT payload_json ->> 'text' FROM session_admissions")
    assert texts == [("one two three",)] * 3


@pytest.mark.skipif(sys.platform == "win32", reason="there are no signals between processes on Windows")
def test_a_signal_does_not_wait_for_a_reader_that_is_stuck(home: Home) -> None:
    """The pipe is full and its reader asleep: SIGTERM still ends the run in time, with 143 and its records."""
    query = plan({"delegate": ["[[answer a]]"]}, {"do": "[[size 1000000]]"})
    for count, flags in enumerate((["--format", "stream-json"], []), start=1):
        process = home.start(query, *flags)
        wait_until(lambda count=count: ended_turns(home) == count, "end of the turn, whose answer nobody reads")
        time.sleep(0.3)  # being blocked in write() makes no event
        process.send_signal(signal.SIGTERM)
        assert process.wait(15) == 143
        process.communicate(timeout=5)
        home.check_nothing_left()
    assert home.statuses() == [("completed", "")] * 2


def ended_turns(home: Home) -> int:
    """Return how many turns the database knows to be over."""
    if not (home.path / "state.db").exists():
        return 0
    with contextlib.suppress(sqlite3.OperationalError):  # its tables are being made
        return len(home.rows("SELECT 1 FROM session_admissions WHERE status = 'terminal'"))
    return 0


@posix_only
def test_a_pipe_that_does_not_block_gets_everything(home: Home) -> None:
    """The caller's end of standard output is O_NONBLOCK and is read slowly: the answer arrives whole."""
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    process = home.start("[[size 1000000]]", stdout=write_end)
    os.close(write_end)
    time.sleep(0.5)  # let the pipe fill
    with open(read_end, "rb") as reader:
        assert len(reader.read()) == 1_000_001
    process.communicate(timeout=20)
    assert process.returncode == 0
    home.check_nothing_left()
