"""Storage: locked, full, read-only, damaged, newer; and what is in the file after the supervisor was killed."""

import contextlib
import json
import os
import resource
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from faults_support import MISSPEAK, core_of, count
from run_support import CHILDREN, GONE_SECONDS, Home, delegate_plan, wait_until

if sys.platform == "win32":
    pytest.skip("mode bits, limits and kills are those of POSIX systems", allow_module_level=True)

_CAP_DAC_OVERRIDE, _CAP_SYS_ADMIN = 1, 21
_PR_CAPBSET_DROP = 24


@contextlib.contextmanager
def write_lock(home: Home) -> Iterator[None]:
    """Hold the write lock of the database in another process."""
    holder = [sys.executable, str(CHILDREN / "store_lock_holder.py"), str(home.path / "state.db")]
    with subprocess.Popen(holder, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"locked\n"
        try:
            yield
        finally:
            process.communicate(timeout=10)


def completed_in(file: Path) -> list[str]:
    """Return the receipts that a run has told of so far in its stream of events."""
    lines = file.read_bytes().split(b"\n")[:-1]
    events = [json.loads(line) for line in lines]
    return [event["entry"]["receipt_id"] for event in events if event["type"] == "delegation.completed"]


def test_results_that_arrive_under_a_lock_are_told_only_once_they_are_recorded(home: Home, tmp_path: Path) -> None:
    """Somebody holds the write lock for seconds while all delegates answer: nothing is told, nothing is lost."""
    stream = tmp_path / "events"
    with stream.open("wb") as out:
        process = home.start(delegate_plan(*["[[sleep 0.4]] a"] * 6), "--format", "stream-json", stdout=out)
        wait_until(lambda: len(home.provider.requests()) == 7, "requests of all delegates")
        with write_lock(home):
            time.sleep(1.5)  # a lock is a length of time
            assert completed_in(stream) == []
            assert process.poll() is None
        process.communicate(timeout=20)
    assert process.returncode == 0
    assert len(completed_in(stream)) == 6
    home.check_nothing_left()
    assert home.statuses() == [("completed", "")] * 6


def test_a_start_waits_for_a_lock(home: Home) -> None:
    """The write lock is held while a run starts: it begins when it can, and completes."""
    home.chat("Hello.")
    with write_lock(home):
        process = home.start(delegate_plan("a"))
        wait_until(lambda: psutil.Process(process.pid).children(), "supervisor")
        time.sleep(1)  # a lock is a length of time
        assert not home.provider.requests()[1:]
    process.communicate(timeout=20)
    assert process.returncode == 0
    home.check_nothing_left()


def capable(number: int) -> bool:
    """Say whether this process has a capability of Linux."""
    if sys.platform != "linux":
        return False
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return bool(int(status.split("CapEff:")[1].split()[0], 16) >> number & 1)


def quota() -> None:
    """Let no file of this process and what it starts grow beyond a few receipts."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, 400_000))


@contextlib.contextmanager
def small_disk(folder: Path) -> Iterator[Callable[[], None]]:
    """Mount a disk of 1 MiB on a folder; what is returned makes it larger."""
    options = ["-t", "tmpfs", "-o", "size=1m,mode=0700", "none", str(folder)]
    subprocess.run(["mount", *options], check=True)  # noqa: S607 - found on PATH
    try:
        grow = ["mount", "-o", "remount,size=32m", str(folder)]
        yield lambda: subprocess.run(grow, check=True).check_returncode()
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)  # noqa: S607 - found on PATH


def check_cramped_run(home: Home, limit: Callable[[], None], make_room: Callable[[], None]) -> None:
    """Check a run whose receipts find no room, and the one after it that does."""
    process = home.start(delegate_plan(*["[[size 20000]]"] * 40), preexec_fn=limit)
    out, err = process.communicate(timeout=40)
    home.check_no_process()
    assert process.returncode == 1, err
    assert b"storage_unavailable" in err
    assert b"state.db" in err
    assert b"Traceback" not in err
    assert len(out) > 100
    assert home.rows("PRAGMA integrity_check") == [("ok",)]
    receipts = home.rows("SELECT status, LENGTH(summary), entry FROM receipts")
    assert len(receipts) < 40
    for status, length, entry in receipts:
        assert (status, length, json.loads(entry)["ok"]) == ("completed", 20000, True)
    make_room()
    assert home.chat("Hello.").returncode == 0
    assert {status for status, _ in home.statuses()} <= {"completed", "lost"}


def test_files_that_may_not_grow_cost_receipts_but_not_the_answer(home: Home) -> None:
    """Exit 1 with the reason, the answer is printed, what is in the file is whole; the next run closes the rest."""
    check_cramped_run(home, quota, lambda: None)


if capable(_CAP_SYS_ADMIN):

    def test_a_full_disk_costs_receipts_but_not_the_answer(home: Home) -> None:
        """The same on a disk of 1 MiB, which everything else in the home fills as well; only root can mount one."""
        home.path.mkdir(mode=0o700)
        with small_disk(home.path) as make_room:
            check_cramped_run(home, lambda: None, make_room)


def test_no_room_at_all_starts_nothing(home: Home) -> None:
    """A database that cannot even be made: a clear message, and no request was sent."""
    process = home.start(delegate_plan("a"), preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000)))
    _, err = process.communicate(timeout=20)
    home.check_no_process()
    assert process.returncode in {1, 2}
    assert b"state.db" in err
    assert b"Traceback" not in err
    assert home.provider.requests() == []


def obey_mode_bits() -> None:
    """Give up root's power to write anywhere; for other users nothing changes."""
    if capable(_CAP_DAC_OVERRIDE):
        import ctypes

        ctypes.CDLL(None).prctl(_PR_CAPBSET_DROP, _CAP_DAC_OVERRIDE, 0, 0, 0)


@pytest.mark.parametrize("used_before", [False, True])
def test_a_read_only_home_is_refused_in_a_sentence(home: Home, used_before: bool) -> None:
    """A home, new or used, that may not be written: non-zero, a reason and an advice; nothing was started."""
    if used_before:
        home.chat("Hello.")
        home.provider.forget()
    else:
        home.path.mkdir()
    folders = [home.path, *(path for path in home.path.rglob("*") if path.is_dir())]
    files = [path for path in home.path.rglob("*") if path.is_file()]
    for path in [*files, *folders]:
        path.chmod(0o400 if path.is_file() else 0o500)
    try:
        process = home.start(delegate_plan("a"), preexec_fn=obey_mode_bits)
        _, err = process.communicate(timeout=20)
    finally:
        for path in [*folders, *files]:
            path.chmod(0o700)
    home.check_no_process()
    assert process.returncode in {1, 2}
    assert str(home.path).encode() in err
    assert b"FANJOIN_HOME" in err
    assert b"Traceback" not in err
    assert home.provider.requests() == []


def damage(path: Path) -> None:
    """Overwrite a database from its first byte on."""
    path.write_bytes(b"not a database at all " * 1000)


def damage_pages(path: Path) -> None:
    """Overwrite everything but the header page."""
    data = path.read_bytes()
    path.write_bytes(data[:4096] + b"\xff" * (len(data) - 4096))


def make_newer(path: Path) -> None:
    """Give the schema a version of the future."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 99")


@pytest.mark.parametrize(
    ("harm", "advice"),
    [(damage, b"Move it away"), (damage_pages, b"Move it away"), (make_newer, b"Update fanjoin")],
)
def test_a_database_that_cannot_be_used_is_left_alone(home: Home, harm: Callable[[Path], None], advice: bytes) -> None:
    """Damaged or newer: the message names the file and what to do, no request was sent, the file is as it was."""
    home.chat("Hello.")
    home.provider.forget()
    file = home.path / "state.db"
    harm(file)
    before = file.read_bytes()
    with home.start(delegate_plan("a"), "--format", "json") as process:
        out, err = process.communicate(timeout=20)
    home.check_no_process()
    assert process.returncode in {1, 2}
    assert json.loads(out)["exit_code"] == process.returncode
    assert b"state.db" in err
    assert advice in err
    assert b"Traceback" not in err
    assert home.provider.requests() == []
    assert file.read_bytes() == before
    assert not list((home.path / "run").glob("*"))


def acknowledged(home: Home) -> set[str]:
    """Return the delegates whose agent was told that its result is committed."""
    names = (path.name.removeprefix("acked-") for path in home.path.glob("acked-d_*"))
    return {name.partition(".")[0] for name in names}


@pytest.mark.parametrize("receipts", [1, 15])
def test_what_was_acknowledged_is_in_the_file_after_a_kill(home: Home, tmp_path: Path, receipts: int) -> None:
    """SIGKILL of the supervisor amid results and commits: what any agent or viewer was told of has its receipt."""
    stream = tmp_path / "events"
    with stream.open("wb") as out:
        query = delegate_plan(*[f"[[answer {number}]]" for number in range(60)])
        process = home.start(query, "--format", "stream-json", entry=MISSPEAK, stdout=out)
        wait_until(lambda: count(home, "receipts") >= receipts, "receipts")
        core_of(home).kill()
        _, err = process.communicate(timeout=GONE_SECONDS)
    assert process.returncode == 1
    assert b"--resume s_" in err
    home.check_no_process()
    kept = {receipt_id for (receipt_id,) in home.rows("SELECT receipt_id FROM receipts")}
    assert acknowledged(home) <= kept
    assert set(completed_in(stream)) <= kept
    assert receipts <= len(kept) < 60
    last = json.loads(stream.read_bytes().splitlines()[-1])
    assert (last["type"], last["error"]["reason"]) == ("result", "owner_lost")
    home.chat("Hello.")
    ends = home.statuses()
    assert len(ends) == 60
    assert ends.count(("completed", "")) == len(kept)
    assert ends.count(("lost", "owner_lost")) == 60 - len(kept)


@pytest.mark.parametrize("moment", ["delegations", "attempts WHERE receipt_id <> '' AND pid > 0"])
def test_a_kill_while_delegates_are_launched_leaves_nothing(home: Home, moment: str) -> None:
    """SIGKILL of the supervisor with intents written and forks under way: no process stays, the next run closes all."""
    home.config("delegation: {max_concurrent_children: 30}")
    process = home.start(delegate_plan(*["[[hang]] x"] * 40))
    wait_until(lambda: count(home, moment), moment)
    os.kill(core_of(home).pid, signal.SIGKILL)
    process.communicate(timeout=GONE_SECONDS)
    assert process.returncode == 1
    home.check_no_process()
    home.chat("Hello.")
    assert set(home.statuses()) <= {("lost", "owner_lost")}


def test_a_folder_in_the_place_of_the_database_is_named(home: Home) -> None:
    """``state.db`` is a folder: a sentence that says so, nothing is started."""
    (home.path / "state.db").mkdir(parents=True)
    with home.start(delegate_plan("a")) as process:
        _, err = process.communicate(timeout=20)
    home.check_no_process()
    assert process.returncode in {1, 2}
    assert b"cannot be opened" in err
