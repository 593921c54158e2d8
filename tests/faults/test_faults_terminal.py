"""The terminal: a window that is resized without end while a run waits for its delegates."""

import os
import signal
import sys
import time

import pytest
from faults_support import core_of
from run_support import Home, delegate_plan, wait_until

if sys.platform == "win32":
    pytest.skip("there are no pseudo-terminals of this kind on Windows", allow_module_level=True)

import fcntl
import pty
import struct
import termios


def read_all(descriptor: int) -> bytes:
    """Return what is written to a pseudo-terminal until its other end is closed."""
    data = b""
    try:
        while part := os.read(descriptor, 65536):
            data += part
    except OSError:  # Linux says EIO at the end
        return data
    return data


def test_a_terminal_is_given_no_orders(home: Home) -> None:
    """Goals and answers with escape sequences: on a terminal they are text, in a pipe they are what the model said."""
    order = "\x1b]0;owned\x07\x1b[2J\x9b1m"
    ours, theirs = pty.openpty()
    query = delegate_plan(f"[[answer {order}done]]")
    process = home.start(query, "--oneshot", stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True)
    os.close(theirs)
    output = read_all(ours)
    os.close(ours)
    assert process.wait(20) == 0
    assert b"done" in output
    assert {b"\x1b", b"\x07", b"\xc2\x9b"} & {output[i : i + n] for n in (1, 2) for i in range(len(output))} == set()
    assert order.encode() in home.chat(f"[[answer {order}done]]").stdout


def test_a_storm_of_resizes_during_a_join_changes_nothing(home: Home) -> None:
    """A hundred SIGWINCH a second, by the terminal itself and to supervisor and command: the run completes."""
    ours, theirs = pty.openpty()
    query = delegate_plan("[[sleep 1]][[answer one]]", "[[sleep 1]][[answer two]]")
    process = home.start(query, "--oneshot", stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True)
    os.close(theirs)
    wait_until(lambda: len(home.provider.requests()) == 3, "requests of the delegates")
    core = core_of(home)
    resizes = 0
    while len(home.provider.requests()) == 3:
        fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("HHHH", 20 + resizes % 50, 80, 0, 0))
        os.kill(process.pid, signal.SIGWINCH)
        core.send_signal(signal.SIGWINCH)
        resizes += 1
        time.sleep(0.01)  # a rate of signals, nothing that is waited for
    output = read_all(ours)
    os.close(ours)
    assert process.wait(20) == 0
    assert resizes > 30
    assert b"2 of 2 delegates completed" in output
    assert b"Traceback" not in output
    home.check_nothing_left()
    assert home.statuses() == [("completed", "")] * 2
