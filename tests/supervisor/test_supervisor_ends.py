"""Exit causes, the undertaker, and what runs of dead supervisors left."""

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from fanjoin.ipc import platform
from fanjoin.ipc.environment import ATTEMPT_TAG, RUN_TAG
from fanjoin.ipc.paths import instance_folder
from fanjoin.supervisor import tree
from fanjoin.supervisor.exit_cause import Exit, describe, explain
from fanjoin.supervisor.leftovers import LeftoverRuns
from fanjoin.supervisor.store.recovery import AttemptLeft, Recovered
from fanjoin.supervisor.tree import RESCAN_SECONDS, SLOW_AFTER, SLOW_RESCAN_SECONDS, Undertaker

DEADLINE = 20.0
SLEEPER = [sys.executable, "-S", "-c", "print('up', flush=True); import time; time.sleep(120)"]
linux = pytest.mark.skipif(sys.platform != "linux", reason="subreapers are of Linux")


@pytest.mark.parametrize(
    ("end", "reason", "said"),
    [
        (Exit(code=0), "no_result", "exit code 0"),
        (Exit(code=3), "exit_code", "exit code 3"),
        (Exit(signal="SIGSEGV"), "signal", "SIGSEGV"),
        (Exit(signal="SIGKILL"), "killed", "SIGKILL"),
        (Exit(signal="SIGKILL", out_of_memory=True), "out_of_memory", "memory"),
        (Exit(), "exit_code", "could not be read"),
    ],
)
def test_every_death_has_its_reason(end: Exit, reason: str, said: str) -> None:
    """Never an unknown error: each kind of end has a word and a sentence."""
    cause = explain(end)
    assert cause.reason == reason
    assert said in cause.message


def test_an_end_has_a_short_text() -> None:
    """For lists: the signal, the code, or that nobody knows."""
    assert [describe(end) for end in (Exit(signal="SIGTERM"), Exit(code=2), Exit())] == [
        "SIGTERM",
        "exit code 2",
        "exit code unknown",
    ]


# --- the undertaker ---


def test_a_childless_death_needs_no_scan() -> None:
    """The process had asked the kernel itself."""
    gone: list[str] = []
    undertaker = Undertaker(set, gone.append)
    undertaker.add("d.1", 1, childless=True, now=0.0)
    assert gone == ["d.1"]
    assert undertaker.due() is None


def test_what_does_not_go_is_killed_again_ever_more_slowly(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process stuck in the kernel keeps its attempt open; the scans get rare, and end when it is gone."""
    killed: list[int] = []
    left = [77]
    monkeypatch.setattr(tree.platform, "leftovers", lambda _pid, _tag, _known: list(left))
    monkeypatch.setattr(tree.platform, "end_process", killed.append)
    gone: list[str] = []
    undertaker = Undertaker(set, gone.append)
    undertaker.add("d.1", 1, childless=False, now=0.0)
    assert undertaker.due() == 0.0
    now = 0.0
    for _ in range(SLOW_AFTER - 1):
        undertaker.step(now)
        assert undertaker.due() == pytest.approx(now + RESCAN_SECONDS)
        undertaker.step(now)
        now += RESCAN_SECONDS
    assert len(killed) == SLOW_AFTER - 1
    undertaker.step(now)
    assert undertaker.due() == pytest.approx(now + SLOW_RESCAN_SECONDS)
    left.clear()
    undertaker.step(now + SLOW_RESCAN_SECONDS)
    assert gone == ["d.1"]
    assert undertaker.due() is None


@pytest.fixture
def subreaper() -> Iterator[None]:
    """Make this process one that adopts orphans, as a supervisor is."""
    prctl = ctypes.CDLL(None).prctl
    prctl(36, 1, 0, 0, 0)
    yield
    prctl(36, 0, 0, 0, 0)


@linux
def test_an_orphan_of_a_dead_agent_is_ended_and_known_processes_are_not(subreaper: None) -> None:
    """Double-forked, in a session of its own: gone; whoever is known lives on."""
    del subreaper
    code = (
        "import os, time\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    print(os.getpid(), flush=True)\n"
        "    os.close(1)\n"
        "    time.sleep(120)\n"
        "os._exit(3)"
    )
    agent = subprocess.run([sys.executable, "-S", "-c", code], stdout=subprocess.PIPE, check=False, timeout=DEADLINE)
    orphan = int(agent.stdout)
    with subprocess.Popen(SLEEPER, stdout=subprocess.PIPE) as known:
        others = {child.pid for child in psutil.Process().children()} - {orphan}
        gone: list[str] = []
        undertaker = Undertaker(lambda: others, gone.append)
        undertaker.add("d.1", 1, childless=False, now=time.monotonic())
        deadline = time.monotonic() + DEADLINE
        while not gone and time.monotonic() < deadline:
            undertaker.step(time.monotonic())
        assert gone == ["d.1"]
        assert not psutil.pid_exists(orphan)
        assert known.poll() is None
        known.kill()


# --- runs of dead supervisors ---


@pytest.fixture
def member() -> Iterator["subprocess.Popen[bytes]"]:
    """Start a process that carries the tag of a run."""
    env = {**os.environ, RUN_TAG: "tag-of-a-dead-run", ATTEMPT_TAG: "d_old.1"}
    with subprocess.Popen(SLEEPER, stdout=subprocess.PIPE, env=env, **platform.detached_flags()) as process:
        assert process.stdout
        process.stdout.readline()
        yield process
        process.kill()


def attempt(pid: int | None, *, start: str = "", tag: str = "", boot: str | None = None) -> AttemptLeft:
    """Return an attempt as a dead supervisor's rows tell of it."""
    return AttemptLeft(
        attempt_id="d_old.1",
        pid=pid,
        process_start=start,
        tag="d_old.1",
        run_tag=tag,
        boot_id=platform.boot_id() if boot is None else boot,
    )


def test_a_process_of_a_dead_run_is_ended_by_its_tag(tmp_path: Path, member: "subprocess.Popen[bytes]") -> None:
    """It is gone, and then the attempt is proven gone."""
    start = platform.process_start(member.pid)
    left = attempt(member.pid, start=start, tag="tag-of-a-dead-run")
    runs = LeftoverRuns(tmp_path)
    runs.end_process(left)
    assert member.wait(DEADLINE) == (1 if sys.platform == "win32" else -signal.SIGKILL)
    assert runs.end_process(left)


def test_a_foreign_process_with_a_recorded_pid_is_left_alone(tmp_path: Path, member: "subprocess.Popen[bytes]") -> None:
    """Its start differs: the recorded one is gone, and this one was never touched."""
    assert LeftoverRuns(tmp_path).end_process(attempt(member.pid, start="long ago", tag="another-run"))
    assert member.poll() is None


def test_after_a_restart_of_the_machine_every_attempt_is_gone(
    tmp_path: Path, member: "subprocess.Popen[bytes]"
) -> None:
    """Nothing is looked for, and nothing ended."""
    start = platform.process_start(member.pid)
    left = attempt(member.pid, start=start, tag="tag-of-a-dead-run", boot="another boot")
    assert LeftoverRuns(tmp_path).end_process(left)
    assert member.poll() is None


def test_an_attempt_that_is_not_proven_gone_is_kept(tmp_path: Path, member: "subprocess.Popen[bytes]") -> None:
    """The recorded process lives and carries no tag of the run: it is neither ended nor forgotten."""
    start = platform.process_start(member.pid)
    assert not LeftoverRuns(tmp_path).end_process(attempt(member.pid, start=start, tag="another-run"))
    assert member.poll() is None


def test_an_attempt_without_a_process_is_gone(tmp_path: Path) -> None:
    """It was never started."""
    assert LeftoverRuns(tmp_path).end_process(attempt(None))


def test_the_folder_of_a_run_goes_with_its_last_attempt(tmp_path: Path) -> None:
    """Kept while an attempt is not proven gone, removed after that."""
    folder = instance_folder(tmp_path, "i_old")
    folder.mkdir(parents=True)
    (folder / "lock").touch()
    runs = LeftoverRuns(tmp_path)
    for left in (1, 0):
        runs.remove_folder(
            Recovered(instance_id="i_old", attempts_ended=0, attempts_left=left, receipts_written=0, turns_unknown=0)
        )
        assert folder.exists() == bool(left)
