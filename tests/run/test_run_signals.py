"""Signals and kills, while delegates hang in HTTP, hold the interpreter in C code, or are stopped."""

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing

import psutil
import pytest
from run_support import CHILDREN, DEADLINE, GONE_SECONDS, MISBEHAVE, Home, delegate_plan, wait_until

from fanjoin.ipc import platform

if sys.platform == "win32":
    pytest.skip("there are no signals between processes on Windows", allow_module_level=True)

HANGING = delegate_plan("[[hang]] a", "[[hang]] b", "gil", "stop")
EXIT_CODES = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129, signal.SIGKILL: -9}


def start_hanging(home: Home, **popen: object) -> "subprocess.Popen[bytes]":
    """Start a run whose four delegates hang, each in its own way, and return when all of them do."""
    process = home.start(HANGING, entry=MISBEHAVE, **popen)  # type: ignore[arg-type]
    wait_until(lambda: len(home.provider.requests()) == 3, "requests of the root and two delegates")
    for deed in ("gil", "stop"):
        wait_until((home.path / f"reached-{deed}").exists, f"delegate that does {deed}")
    return process


def core_of(home: Home) -> psutil.Process:
    """Return the supervisor's process."""
    return next(process for process in home.processes() if "supervisor.main" in " ".join(process.cmdline()))


def zygote_of(home: Home) -> psutil.Process:
    """Return the process that forks agents: it has its supervisor's command line."""
    core = core_of(home)
    return next(child for child in core.children() if child.cmdline() == core.cmdline())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_run_with_receipts_and_nothing_left(home: Home, number: signal.Signals) -> None:
    """The exit code is the signal's, every delegate has its receipt, and no process outlives the command."""
    home.config("delegation: {cancel_grace_seconds: 0.5}")
    process = start_hanging(home)
    process.send_signal(number)
    process.communicate(timeout=GONE_SECONDS)
    assert process.returncode == EXIT_CODES[number]
    home.check_nothing_left()
    assert home.statuses() == [("cancelled", "cancelled")] * 4


def test_a_second_interrupt_kills_at_once_and_still_writes_receipts(home: Home) -> None:
    """With a long grace, the second Ctrl-C does not wait for it."""
    home.config("delegation: {cancel_grace_seconds: 60}")
    process = start_hanging(home)
    process.send_signal(signal.SIGINT)
    wait_until(lambda: len(home.rows("SELECT 1 FROM receipts")) == 2, "receipts of the delegates that can answer")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=GONE_SECONDS)
    assert process.returncode == 130
    home.check_nothing_left()
    assert home.statuses() == [("cancelled", "cancelled")] * 4


def test_a_third_interrupt_exits_at_once_and_lifelines_do_the_rest(home: Home) -> None:
    """The command is gone immediately; its supervisor follows, with receipts."""
    home.config("delegation: {cancel_grace_seconds: 60}")
    process = start_hanging(home)
    core = core_of(home)
    core.suspend()
    for _ in range(3):
        process.send_signal(signal.SIGINT)
        time.sleep(0.05)  # signals of one kind merge when they are sent faster than they are delivered
    process.communicate(timeout=DEADLINE)
    assert process.returncode == 130
    core.resume()
    home.check_nothing_left()


def test_a_killed_command_takes_its_supervisor_with_it(home: Home) -> None:
    """SIGKILL of the command: the supervisor sees its lifeline end, cancels, writes receipts and goes."""
    process = start_hanging(home)
    process.kill()
    process.communicate(timeout=GONE_SECONDS)
    assert process.returncode == EXIT_CODES[signal.SIGKILL]
    home.check_nothing_left()
    assert home.statuses() == [("cancelled", "viewer_lost")] * 4


def test_a_killed_supervisor_is_reported_and_recovered_at_the_next_start(home: Home) -> None:
    """SIGKILL of the supervisor: exit 1 with what to do next; nothing lives on; the next start writes ``lost``."""
    process = start_hanging(home)
    core_of(home).kill()
    _, err = process.communicate(timeout=GONE_SECONDS)
    assert process.returncode == 1
    assert b"fanjoin chat --resume s_" in err
    assert b"Traceback" not in err
    home.check_no_process()
    assert home.rows("SELECT 1 FROM receipts") == []
    assert home.chat("Hello.").returncode == 0
    assert home.statuses() == [("lost", "owner_lost")] * 4
    assert [row[0] for row in home.rows("SELECT status FROM session_admissions ORDER BY seq")] == [
        "unknown",
        "terminal",
    ]


def test_a_shell_that_forwards_nothing_does_not_keep_the_run_alive(home: Home) -> None:
    """The command's parent is a shell: killing the shell's command by pid ends everything below it."""
    script = " ".join(f"'{part}'" for part in home.command("chat", "-Q", *home.model(), entry=MISBEHAVE))
    shell = subprocess.Popen(
        ["/bin/sh", "-c", f'{script} -q "$QUERY"; true'],
        env={**home.env, "QUERY": HANGING},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    wait_until((home.path / "reached-gil").exists, "delegate that holds the interpreter")
    command = next(process for process in home.processes() if str(CHILDREN / "chat_with.py") in process.cmdline())
    command.terminate()
    assert shell.wait(GONE_SECONDS) == 0
    home.check_no_process()
    home.check_records()


def test_an_ignored_signal_stays_ignored(home: Home) -> None:
    """A run below nohup, where SIGHUP is inherited as ignored, goes on after one."""
    query = delegate_plan("[[sleep 1]] count these words")
    process = home.start(query, preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    wait_until(lambda: len(home.provider.requests()) == 2, "request of the delegate")
    process.send_signal(signal.SIGHUP)
    process.communicate(timeout=20)
    assert process.returncode == 0
    home.check_nothing_left()


def test_a_signal_in_the_launch_window_is_not_lost(home: Home) -> None:
    """SIGINT at any moment after our first lines ends the run with 130 and leaves nothing, whatever was launched."""
    for delay in (0.0, 0.03, 0.07, 0.1, 0.15, 0.2):
        process = home.start(delegate_plan("[[hang]] a", "[[hang]] b"))
        wait_until(lambda: len(home.processes()) > 1, "supervisor's process")
        time.sleep(delay)  # the moment is the point; no event marks it
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=GONE_SECONDS)
        assert process.returncode == 130
        home.check_no_process()


def test_a_stopped_supervisor_is_named_and_ended(home: Home) -> None:
    """SIGSTOP of the supervisor: the command says that it does not answer, ends it, and exits 1."""
    home.config("supervisor: {silence_seconds: 2}")
    process = home.start(delegate_plan("[[hang]] a"))
    wait_until(lambda: len(home.provider.requests()) == 2, "request of the delegate")
    core_of(home).suspend()
    _, err = process.communicate(timeout=15)
    assert process.returncode == 1
    assert b"did not answer for 2 s" in err
    home.check_no_process()


def test_a_dead_zygote_harms_nobody(home: Home) -> None:
    """SIGKILL of the zygote while delegates run: they finish, later ones start from a new one, causes stay known."""
    home.config("delegation: {max_concurrent_children: 2}")
    query = delegate_plan("[[sleep 1]] one", "exit3", "[[sleep 1]] three", "segfault", "[[sleep 1]] five")
    process = home.start(query, "--format", "json", entry=MISBEHAVE)
    wait_until((home.path / "reached-exit3").exists, "first delegates")
    zygote_of(home).kill()
    process.communicate(timeout=30)
    assert process.returncode == 0
    home.check_nothing_left()
    assert home.statuses() == [
        ("completed", ""),
        ("crashed", "exit_code"),
        ("completed", ""),
        ("crashed", "signal"),
        ("completed", ""),
    ]


def test_a_stopped_zygote_is_replaced(home: Home) -> None:
    """A zygote that tells of no exit and starts nobody is ended; the run goes on with another and completes."""
    home.config("delegation: {max_concurrent_children: 1}")
    process = home.start(delegate_plan("[[sleep 0.5]] one", "two"))
    wait_until(lambda: len(home.provider.requests()) == 2, "first delegate")
    zygote_of(home).suspend()
    process.communicate(timeout=DEADLINE)
    assert process.returncode == 0
    home.check_nothing_left()
    assert home.statuses() == [("completed", "")] * 2


def test_a_stop_of_the_whole_tree_is_no_stall(home: Home) -> None:
    """After SIGSTOP and SIGCONT of everything for longer than every timeout, the run completes."""
    home.config("delegation: {stall_seconds: 2, child_timeout_seconds: 4}\nsupervisor: {silence_seconds: 3}")
    process = home.start(delegate_plan("[[sleep 1]] count these words"))
    wait_until(lambda: len(home.provider.requests()) == 2, "request of the delegate")
    stopped = home.processes()
    for one in stopped:
        one.suspend()
    time.sleep(6)  # a stop is a length of time
    for one in stopped:
        with contextlib.suppress(psutil.NoSuchProcess):
            one.resume()
    process.communicate(timeout=20)
    assert process.returncode == 0
    home.check_nothing_left()


def test_a_command_that_dies_early_takes_its_waiting_supervisor_with_it(home: Home) -> None:
    """SIGKILL of the command while its supervisor still waits for a locked database: nothing waits on."""
    assert home.chat("Hello.").returncode == 0
    with closing(sqlite3.connect(home.path / "state.db")) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        process = home.start("Hello.")
        wait_until(lambda: list((home.path / "run").glob("i_*")), "supervisor that has begun")
        process.kill()
        process.communicate(timeout=GONE_SECONDS)
        home.check_no_process()


@pytest.mark.parametrize("command", ["chat", "delegate"])
def test_an_interrupt_does_not_wait_for_a_locked_database(home: Home, command: str) -> None:
    """Ctrl-C while the supervisor waits for somebody's transaction: 130 within seconds, and nothing is left."""
    assert home.chat("Hello.").returncode == 0
    with closing(sqlite3.connect(home.path / "state.db")) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        text = ["-Q", "-q", "Hello."] if command == "chat" else ["-g", "Hello."]
        arguments = home.command(command, *home.model(), *text)
        process = subprocess.Popen(arguments, env=home.env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        wait_until(lambda: list((home.path / "run").glob("i_*")), "supervisor that has begun")
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=GONE_SECONDS)
        assert (process.returncode, b"Interrupted" in err, b"Traceback" in err) == (130, True, False)
        home.check_no_process()


def test_a_supervisor_that_is_told_to_end_says_so(home: Home) -> None:
    """SIGTERM of the supervisor alone: the turn is cancelled, and nobody claims that its reader was gone."""
    process = start_hanging(home)
    core_of(home).terminate()
    _, err = process.communicate(timeout=GONE_SECONDS)
    assert (process.returncode, b"was told to end" in err) == (1, True)
    assert set(home.statuses()) == {("cancelled", "cancelled")}
    home.check_nothing_left()


def test_folders_of_supervisors_that_died_before_they_were_known_are_removed(home: Home) -> None:
    """An old folder whose lock is free goes at the next start; one that is locked, or young, stays."""
    assert home.chat("Hello.").returncode == 0
    old, held, young = (home.path / "run" / name for name in ("i_old", "i_held", "i_young"))
    for folder in (old, held, young):
        folder.mkdir()
    lock = platform.try_lock(held / "lock")
    for folder in (old, held):
        os.utime(folder, (0, 0))
    process = home.start("Hello.")
    process.communicate(timeout=20)
    assert (process.returncode, old.exists(), held.exists(), young.exists()) == (0, False, True, True)
    assert lock is not None
    lock.close()
