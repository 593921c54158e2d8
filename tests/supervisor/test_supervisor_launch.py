"""Both launchers behind their one seam, with real processes."""

import ctypes
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from supervisor_support import CHILDREN, Reports, order, until

from fanjoin.supervisor.exit_cause import Exit
from fanjoin.supervisor.launch.base import Launcher, OomWatch, Order
from fanjoin.supervisor.launch.spawn import SpawnLauncher
from fanjoin.supervisor.loop import Loop

ONE, TWO = "d_one.1", "d_two.1"
KINDS = ["zygote", "spawn"] if sys.platform == "linux" else ["spawn"]
linux = pytest.mark.skipif(sys.platform != "linux", reason="a zygote needs Linux")
_PR_SET_CHILD_SUBREAPER = 36


class Nursery:
    """A launcher, what it reported, and where its processes print."""

    def __init__(self, folder: Path, kind: str, loop: Loop) -> None:
        self.folder = folder
        self.loop = loop
        self.reports = Reports()
        self.let_gone: set[str] = set()
        self.launcher: Launcher = self._zygote() if kind == "zygote" else self._spawn()

    def _zygote(self) -> Launcher:
        """Return a launcher whose first zygote is dead, so that it starts one: a fork of this process is not safe."""
        from fanjoin.supervisor.launch.zygote import ZygoteHandle, ZygoteLauncher

        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        theirs.close()
        self.backstop = os.pipe()
        return ZygoteLauncher(ZygoteHandle(os.getpid(), ours, self.backstop), self.loop, self.reports)

    def _spawn(self) -> Launcher:
        return SpawnLauncher(self.loop, self.reports, self.folder, 1, None)

    def start(self, entry: str, attempt_id: str = ONE) -> int:
        """Launch an entry and return its pid."""
        self.launcher.launch(order(self.folder, entry, attempt_id))
        return until(self.loop, lambda: self.reports.pids.get(attempt_id), "a process")

    def end(self, attempt_id: str = ONE) -> Exit:
        """Wait for an end."""
        return until(self.loop, lambda: self.reports.ends.get(attempt_id), "its end")

    def let_go(self, attempt_id: str = ONE) -> None:
        """Let a process that lives end by its lifeline."""
        self.launcher.release(attempt_id)
        self.let_gone.add(attempt_id)

    def printed(self, attempt_id: str = ONE) -> str:
        """Return what a process has printed so far."""
        log = self.folder / f"{attempt_id}.log"
        return log.read_text(encoding="utf-8") if log.exists() else ""

    def close(self) -> None:
        """End everything that was started here."""
        for attempt_id, pid in self.reports.pids.items():
            if attempt_id not in {*self.reports.ends, *self.let_gone}:
                os.kill(pid, signal.SIGTERM)
                self.end(attempt_id)
            self.launcher.release(attempt_id)
        self.launcher.close()
        for descriptor in getattr(self, "backstop", ()):
            os.close(descriptor)


@pytest.fixture
def nursery(request: pytest.FixtureRequest, tmp_path: Path, loop: Loop) -> Iterator[Nursery]:
    """Give a launcher of the kind that the test asks for, under a subreaper as a supervisor is one."""
    prctl: Callable[..., int] = ctypes.CDLL(None).prctl if sys.platform == "linux" else lambda *_: 0
    prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    nursery = Nursery(tmp_path, getattr(request, "param", "zygote"), loop)
    yield nursery
    nursery.close()
    prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


both = pytest.mark.parametrize("nursery", KINDS, indirect=True)


@both
def test_a_process_knows_itself_and_ends_with_its_lifeline(nursery: Nursery) -> None:
    """Its own session, its marks, nothing on standard input; when the lifeline is let go, it ends well."""
    pid = nursery.start("report")
    until(nursery.loop, lambda: nursery.printed().count("\n"))
    session = "True" if sys.platform != "win32" else "False"
    assert nursery.printed().split() == [ONE, ONE, "1", session, "b''"]
    assert pid in nursery.launcher.pids()
    nursery.let_go()
    until(nursery.loop, lambda: not _alive(pid), "the end of the process")


def _alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@both
@pytest.mark.parametrize(
    ("entry", "end"),
    [
        ("leave", Exit(code=0)),
        ("leave_with_3", Exit(code=3)),
        ("fail", Exit(code=1)),
        ("segfault", Exit(signal="SIGSEGV")),
    ],
)
def test_every_end_is_reported_as_it_was(nursery: Nursery, entry: str, end: Exit) -> None:
    """Codes and signals are told apart, and what a dying process said is kept."""
    pid = nursery.start(entry)
    assert nursery.end() == end
    assert pid not in nursery.launcher.pids()
    assert ("broken on purpose" in nursery.printed()) == (entry == "fail")


@both
def test_a_kill_from_outside_is_reported_by_its_name(nursery: Nursery) -> None:
    """SIGKILL, with no memory short."""
    os.kill(nursery.start("hang"), signal.SIGKILL)
    assert nursery.end() == Exit(signal="SIGKILL")


@both
def test_ends_of_many_are_not_mixed_up(nursery: Nursery) -> None:
    """Eight processes, each with its own fate."""
    fates = {"leave": Exit(code=0), "leave_with_3": Exit(code=3), "segfault": Exit(signal="SIGSEGV")}
    wanted = {f"d_{number}.1": list(fates)[number % 3] for number in range(8)}
    for attempt_id, entry in wanted.items():
        nursery.launcher.launch(order(nursery.folder, entry, attempt_id))
    until(nursery.loop, lambda: len(nursery.reports.ends) == 8)
    assert nursery.reports.ends == {attempt_id: fates[entry] for attempt_id, entry in wanted.items()}
    assert len(set(nursery.reports.pids.values())) == 8


@both
def test_a_process_that_cannot_be_started_is_reported(nursery: Nursery) -> None:
    """There is no place for its output: the failure names the reason, and the next one starts."""
    bad = order(nursery.folder, "report")
    nursery.launcher.launch(
        Order(attempt_id=bad.attempt_id, bootstrap=bad.bootstrap, log=nursery.folder / "no" / "log")
    )
    if nursery.reports.failures:
        assert "could not be started" in nursery.reports.failures[ONE]
        nursery.start("leave", TWO)
        assert nursery.end(TWO) == Exit(code=0)
    else:  # a spare had a log already
        nursery.let_go()


@both
def test_nothing_of_a_launcher_is_left(tmp_path: Path, loop: Loop, nursery: Nursery) -> None:
    """Closed, it leaves no process, and released processes no descriptor."""
    del tmp_path, loop
    nursery.start("leave", "d_warm.1")
    nursery.end("d_warm.1")
    nursery.launcher.release("d_warm.1")
    me = psutil.Process()
    if sys.platform == "linux":
        before = me.num_fds() - _spare_pipes(nursery)
        for number in range(6):
            attempt_id = f"d_{number}.1"
            nursery.start("leave", attempt_id)
            nursery.end(attempt_id)
            nursery.launcher.release(attempt_id)
        assert me.num_fds() - _spare_pipes(nursery) == before
    helpers = nursery.launcher.pids()
    nursery.launcher.close()
    until(nursery.loop, lambda: not any(_alive(pid) for pid in helpers))


def _spare_pipes(nursery: Nursery) -> int:
    return len(nursery.launcher._spares) if isinstance(nursery.launcher, SpawnLauncher) else 0


# --- the zygote ---


@linux
def test_a_forked_process_has_only_its_own_descriptors(nursery: Nursery) -> None:
    """Nothing of the zygote's, nor of a sibling's: the lifeline, its standard streams and the backstop."""
    nursery.start("report", TWO)
    nursery.start("descriptors")
    until(nursery.loop, lambda: nursery.printed().count("\n"))
    assert nursery.printed().count("pipe:") == 1, nursery.printed()
    assert "socket:" not in nursery.printed()


@linux
def test_a_dead_zygote_is_replaced_and_its_children_live_on(nursery: Nursery) -> None:
    """Killed with two at work: both are unharmed, their ends are still known, and the next one starts."""
    pids = [nursery.start("report", ONE), nursery.start("hang", TWO)]
    (zygote,) = nursery.launcher.pids() - set(pids)
    os.kill(zygote, signal.SIGKILL)
    nursery.start("leave_with_3", "d_three.1")
    assert nursery.end("d_three.1") == Exit(code=3)
    assert zygote not in nursery.launcher.pids()
    assert set(pids) < nursery.launcher.pids()
    os.kill(pids[1], signal.SIGKILL)
    assert nursery.end(TWO) == Exit(signal="SIGKILL")
    os.kill(pids[0], signal.SIGTERM)
    assert nursery.end(ONE) == Exit(signal="SIGTERM")
    assert ONE not in nursery.reports.failures


@linux
def test_what_a_dead_zygote_was_asked_is_asked_again(nursery: Nursery) -> None:
    """A request that a stopped, then killed, zygote never served is served by its successor, once."""
    pid = nursery.start("hang", TWO)
    (zygote,) = nursery.launcher.pids() - {pid}
    os.kill(zygote, signal.SIGSTOP)
    nursery.launcher.launch(order(nursery.folder, "leave_with_3"))
    os.kill(zygote, signal.SIGKILL)
    assert nursery.end() == Exit(code=3)
    assert nursery.reports.failures == {}


@linux
def test_without_its_supervisor_a_zygote_ends_its_children(nursery: Nursery) -> None:
    """The control socket ends: within two seconds nothing of it lives, a process that ignores its lifeline included."""
    from fanjoin.supervisor.launch.zygote import ZygoteLauncher

    assert isinstance(nursery.launcher, ZygoteLauncher)
    pid = nursery.start("hang")
    until(nursery.loop, nursery.printed)
    (zygote,) = nursery.launcher.pids() - {pid}
    assert nursery.launcher._zygote is not None
    control = nursery.launcher._zygote.control
    nursery.loop.unwatch(control.fileno())
    began = time.monotonic()
    control.close()
    until(nursery.loop, lambda: not _alive(pid) and not _alive(zygote))
    assert time.monotonic() - began < 4
    nursery.reports.ends[ONE] = Exit(signal="SIGKILL")
    nursery.launcher._zygote = None
    os.waitpid(zygote, 0)


# --- fresh interpreters ---


@pytest.mark.parametrize("nursery", ["spawn"], indirect=True)
def test_a_spare_is_used_and_replaced_and_a_dead_one_skipped(nursery: Nursery) -> None:
    """The warm interpreter becomes the process; one that died meanwhile harms nobody."""
    (spare,) = nursery.launcher.pids()
    assert nursery.start("leave") == spare
    assert nursery.end() == Exit(code=0)
    (second,) = nursery.launcher.pids()
    psutil.Process(second).kill()
    until(nursery.loop, lambda: not _alive(second))
    assert nursery.start("leave_with_3", TWO) != second
    assert nursery.end(TWO) == Exit(code=3)


def test_a_kill_is_for_memory_only_when_the_kernels_count_rose() -> None:
    """The count is compared with the one before; where there is none, nothing is claimed."""
    counts = iter([3, 3, 4, 4])
    watch = OomWatch(lambda: next(counts))
    assert [watch.moved() for _ in range(3)] == [False, True, False]
    assert not OomWatch(lambda: None).moved()


def test_the_children_of_these_tests_are_where_they_are_looked_for() -> None:
    """A missing file would make every process fail alike."""
    assert (CHILDREN / "launched.py").exists()
