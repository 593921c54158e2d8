"""What delegates leave behind, and what dead runs left: ended when it is ours, never touched when it is not."""

import contextlib
import json
import sqlite3
import subprocess
import sys
from collections.abc import Iterator

import psutil
import pytest
from faults_support import core_of, count, fates
from run_support import GONE_SECONDS, MISBEHAVE, Home, delegate_plan, wait_until

from fanjoin.ipc import platform

if sys.platform == "win32":
    pytest.skip("sessions and double forks are POSIX", allow_module_level=True)

LAUNCHERS = ["zygote", "spawn"] if sys.platform == "linux" else ["spawn"]


def left(home: Home) -> list[int]:
    """Return those of the processes left behind that live."""
    pids = [int(path.name.partition("-")[2]) for path in home.path.glob("left-*")]
    return [pid for pid in pids if platform.process_start(pid)]


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_what_a_delegate_left_is_gone_within_a_second_of_its_end(home: Home, launcher: str) -> None:
    """Own sessions, double forks, deaf to SIGTERM: gone while a sibling still works, long before the run's end."""
    home.config(f"delegation: {{launcher: {launcher}}}")
    process = home.start(delegate_plan("leave", "[[sleep 1.5]] b"), "--format", "json", entry=MISBEHAVE)
    wait_until(lambda: count(home, "receipts"), "receipt of the first delegate")
    wait_until(lambda: not left(home), "end of what it left", 1)
    assert process.poll() is None
    assert len(list(home.path.glob("left-*"))) == 3
    out, _ = process.communicate(timeout=20)
    assert fates(json.loads(out)) == [("completed", "")] * 2
    home.check_nothing_left()


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_the_whole_tree_of_a_delegate_ends_with_its_timeout(home: Home, launcher: str) -> None:
    """A timeout, a crash, a clean exit: when the command has exited, nothing that they started lives."""
    timeout = "child_timeout_seconds: 1, cancel_grace_seconds: 0.3"
    home.config(f"delegation: {{launcher: {launcher}, {timeout}}}")
    process = home.start(delegate_plan("leave-and-hang", "detached", "daemon"), "--format", "json", entry=MISBEHAVE)
    out, _ = process.communicate(timeout=20)
    assert home.processes() == []
    assert fates(json.loads(out)) == [("timeout", "child_timeout")] + [("crashed", "exit_code")] * 2
    assert len(list(home.path.glob("left-*"))) == 3
    home.check_nothing_left()


def test_a_killed_run_leaves_no_tree(home: Home) -> None:
    """SIGKILL of the supervisor while delegates' processes ignore SIGTERM: all of them are gone within seconds."""
    process = home.start(delegate_plan("leave-and-hang", "stubborn"), entry=MISBEHAVE)
    wait_until(lambda: len(left(home)) == 3, "processes of the delegate")
    wait_until((home.path / "reached-stubborn").exists, "stubborn delegate")
    core_of(home).kill()
    process.communicate(timeout=GONE_SECONDS)
    home.check_no_process()
    assert left(home) == []


@pytest.fixture
def stranger() -> Iterator[psutil.Process]:
    """Return a living process that has nothing to do with us."""
    process = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(300)"])
    yield psutil.Process(process.pid)
    process.kill()
    process.wait()


def leave_open_attempt(home: Home) -> str:
    """Kill a run's supervisor while a delegate works, and return the attempt that stays open in the database."""
    process = home.start(delegate_plan("[[hang]]"))
    wait_until(lambda: count(home, "attempts WHERE receipt_id <> '' AND pid > 0"), "running delegate")
    core_of(home).kill()
    process.communicate(timeout=GONE_SECONDS)
    home.check_no_process()
    attempt: str = home.rows("SELECT attempt_id FROM attempts WHERE receipt_id <> ''")[0][0]
    return attempt


def write(home: Home, sql: str, *values: object) -> None:
    """Change the database from outside."""
    with contextlib.closing(sqlite3.connect(home.path / "state.db", isolation_level=None)) as connection:
        connection.execute(sql, values)


def test_a_foreign_process_in_our_rows_is_never_signalled(home: Home, stranger: psutil.Process) -> None:
    """A reused pid in attempt and owner: the start differs, so the attempt is closed and the process lives on."""
    attempt = leave_open_attempt(home)
    write(home, "UPDATE attempts SET pid = ? WHERE attempt_id = ?", stranger.pid, attempt)
    write(home, "UPDATE owners SET pid = ?", stranger.pid)
    home.chat("Hello.")
    assert stranger.is_running()
    assert stranger.status() != psutil.STATUS_ZOMBIE
    assert home.statuses() == [("lost", "owner_lost")]


def test_an_attempt_is_kept_until_it_is_proven_gone(home: Home, stranger: psutil.Process) -> None:
    """A process with the recorded pid and start, but without our mark: not signalled, not forgotten; later closed."""
    attempt = leave_open_attempt(home)
    start = platform.process_start(stranger.pid)
    write(home, "UPDATE attempts SET pid = ?, process_start = ? WHERE attempt_id = ?", stranger.pid, start, attempt)
    is_open = f"attempts WHERE attempt_id = '{attempt}' AND ended_at IS NULL"
    assert run_hello(home) == 0
    assert stranger.is_running()
    assert count(home, is_open) == 1
    assert home.statuses() == [("lost", "owner_lost")]
    stranger.kill()
    wait_until(lambda: not platform.process_start(stranger.pid), "end of the stranger")
    home.chat("Hello.")
    assert count(home, is_open) == 0


def run_hello(home: Home) -> int:
    """Run a turn while an older run is not closed yet."""
    with home.start("Hello.") as process:
        process.communicate(timeout=20)
    home.check_no_process()
    return process.returncode


def test_a_restart_of_the_machine_makes_every_recorded_pid_void(home: Home, stranger: psutil.Process) -> None:
    """Another boot id: whatever runs under the recorded pid and start is not ours, the attempt is closed at once."""
    attempt = leave_open_attempt(home)
    start = platform.process_start(stranger.pid)
    write(home, "UPDATE attempts SET pid = ?, process_start = ? WHERE attempt_id = ?", stranger.pid, start, attempt)
    write(home, "UPDATE owners SET boot_id = 'an earlier boot'")
    home.chat("Hello.")
    assert stranger.is_running()
