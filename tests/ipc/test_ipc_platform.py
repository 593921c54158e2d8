"""The one seam between systems, on the system that runs the tests."""

import ast
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fanjoin.ipc import platform
from fanjoin.ipc.environment import ATTEMPT_TAG, RUN_TAG

DEADLINE = 20.0
SLEEPER = [sys.executable, "-S", "-c", "print('up', flush=True); import time; time.sleep(60)"]
linux = pytest.mark.skipif(sys.platform != "linux", reason="the kernel's own means of Linux")
posix = pytest.mark.skipif(sys.platform == "win32", reason="signals and sessions")


@pytest.fixture
def sleeper() -> Iterator["subprocess.Popen[bytes]"]:
    """Start a process that sleeps, detached and with both marks of a run."""
    env = {**os.environ, RUN_TAG: "run-of-this-test", ATTEMPT_TAG: "attempt-of-this-test"}
    with subprocess.Popen(SLEEPER, stdout=subprocess.PIPE, env=env, **platform.detached_flags()) as process:
        assert process.stdout
        assert process.stdout.readline().strip() == b"up"
        yield process
        process.kill()


def run(code: str, *, seconds: float = DEADLINE) -> "subprocess.CompletedProcess[str]":
    """Run code in a process of its own that knows the seam."""
    program = "import os, sys, time\nfrom fanjoin.ipc import platform\n" + code
    return subprocess.run(
        [sys.executable, "-P", "-c", program], capture_output=True, text=True, timeout=seconds, check=False
    )


def test_every_system_offers_the_same_names() -> None:
    """A name that one of them lacks would be an error there only."""
    folder = Path(platform.__file__).parent
    seams = [_names((folder / f"{name}.py").read_text(encoding="utf-8")) for name in ("linux", "macos", "windows")]
    assert seams[0] == seams[1] == seams[2] != []
    assert all(hasattr(platform, name) for name in seams[0])


def _names(source: str) -> list[str]:
    """Return the ``__all__`` of a module that may be importable on its own system only."""
    texts = [ast.unparse(one.value) for one in ast.parse(source).body if isinstance(one, ast.Assign)]
    return [str(name) for name in ast.literal_eval(texts[0])]


def test_a_lock_has_one_holder_until_it_is_closed(tmp_path: Path) -> None:
    """The second taker gets nothing; after the first has let go, it gets it."""
    first = platform.try_lock(tmp_path / "lock")
    assert first is not None
    assert platform.try_lock(tmp_path / "lock") is None
    first.close()
    again = platform.try_lock(tmp_path / "lock")
    assert again is not None
    again.close()


def test_looking_at_a_lock_takes_it_from_nobody(tmp_path: Path) -> None:
    """However many look at once: a free lock never seems held and can be taken; a held one seems held to all."""
    path = tmp_path / "lock"
    assert not platform.is_locked(path)
    assert not path.exists()
    path.touch()
    looks = 1_500
    with ThreadPoolExecutor(4) as pool:
        seen = [pool.submit(lambda: [platform.is_locked(path) for _ in range(looks)]) for _ in range(4)]
        assert not any(any(one.result()) for one in seen)
        for _ in range(4):
            pool.submit(lambda: [platform.is_locked(path) for _ in range(looks)])
        lock = platform.try_lock(path)
        assert lock is not None
        assert platform.is_locked(path)
    lock.close()


def test_a_lock_dies_with_its_holder(tmp_path: Path) -> None:
    """A killed process leaves no lock behind."""
    path = tmp_path / "lock"
    code = f"lock = platform.try_lock(__import__('pathlib').Path({str(path)!r})); os._exit(lock is None)"
    assert run(code).returncode == 0
    lock = platform.try_lock(path)
    assert lock is not None
    lock.close()


def test_a_process_is_known_by_its_start(sleeper: "subprocess.Popen[bytes]") -> None:
    """The mark stays the same while it lives, differs from another's, and is nothing once it is gone."""
    mark = platform.process_start(sleeper.pid)
    assert mark
    assert platform.process_start(sleeper.pid) == mark
    assert platform.process_start(os.getpid()) != mark
    sleeper.kill()
    sleeper.wait(DEADLINE)
    assert platform.process_start(sleeper.pid) == ""


def test_the_boot_has_a_mark() -> None:
    """Two questions, one answer."""
    assert platform.boot_id() == platform.boot_id() != ""


def test_a_run_is_found_by_its_tag_and_no_other(sleeper: "subprocess.Popen[bytes]") -> None:
    """Only what carries the tag in its environment; never the one who asks."""
    members = platform.run_members("run-of-this-test")
    assert sleeper.pid in members
    assert sys.platform == "win32" or len(members) == 1  # there, the host of its console has its environment, too
    assert platform.run_members("run-of-this-tes") == []


def test_a_detached_process_is_ended_at_once(sleeper: "subprocess.Popen[bytes]") -> None:
    """Force needs no consent; ending it again does no harm."""
    platform.end_process(sleeper.pid)
    assert sleeper.wait(DEADLINE) != 0
    platform.end_process(sleeper.pid)


@posix
def test_a_polite_stop_reaches_a_stopped_process(sleeper: "subprocess.Popen[bytes]") -> None:
    """SIGTERM alone would wait for ever in a process that is stopped."""
    import signal

    os.kill(sleeper.pid, signal.SIGSTOP)
    platform.polite_stop(sleeper.pid)
    assert sleeper.wait(DEADLINE) == -signal.SIGTERM
    platform.polite_stop(sleeper.pid)


@posix
def test_inherited_ignored_signals_get_their_meaning_back() -> None:
    """A caller that ignored SIGCHLD would make every exit code read 0."""
    code = """
import signal, subprocess
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
platform.reset_signals()
assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == set()
sys.exit(subprocess.call([sys.executable, "-S", "-c", "raise SystemExit(7)"]))
"""
    assert run(code).returncode == 7


@posix
def test_a_pipe_that_nobody_reads_is_an_error_and_no_end() -> None:
    """A supervisor that writes to a process which just died must hear of it, not die without a word."""
    code = """
import os
platform.reset_signals()
reader, writer = os.pipe()
os.close(reader)
try:
    os.write(writer, b"x")
except BrokenPipeError:
    sys.exit(7)
"""
    assert run(code).returncode == 7


@posix
def test_signals_have_names() -> None:
    """Known ones their own, others a number."""
    assert platform.signal_name(9) == "SIGKILL"
    assert platform.signal_name(200) == "signal 200"


def test_the_descriptor_limit_is_raised_to_what_is_allowed() -> None:
    """A process that starts with few descriptors gets all it may have, and says how many."""
    if sys.platform == "win32":
        assert platform.raise_descriptor_limit() == 1023
        return
    code = """
import resource
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
assert platform.raise_descriptor_limit() == resource.getrlimit(resource.RLIMIT_NOFILE)[0] == hard
"""
    done = run(code)
    assert done.returncode == 0, done.stderr


@posix
def test_a_limit_called_infinite_is_raised_as_far_as_the_system_lets_us(monkeypatch: pytest.MonkeyPatch) -> None:
    """A system such as macOS refuses to raise the limit to what it says is the hard one."""
    import resource

    most = 20_000

    def limit(_kind: int, limits: tuple[int, int]) -> None:
        if limits[0] > most:
            raise ValueError("not allowed to raise maximum limit")

    monkeypatch.setattr(resource, "getrlimit", lambda _kind: (256, (1 << 63) - 1))
    monkeypatch.setattr(resource, "setrlimit", limit)
    assert 10_000 < platform.raise_descriptor_limit() <= most


def test_a_log_is_appended_to_whatever_becomes_of_it(tmp_path: Path) -> None:
    """While a child writes to it, it can be renamed, emptied without a hole, and removed."""
    log, renamed = tmp_path / "log", tmp_path / "renamed"
    code = "import sys\nfor line in sys.stdin: print(line, end='', flush=True); print('ok', file=sys.stderr)"
    with open(platform.open_log(log), "ab") as output:
        child = subprocess.Popen(
            [sys.executable, "-S", "-c", code], stdin=subprocess.PIPE, stdout=output, stderr=subprocess.PIPE
        )
    with child:
        assert child.stdin
        assert child.stderr
        for word, act in ((b"one", lambda: os.replace(log, renamed)), (b"two", lambda: os.truncate(renamed, 0))):
            child.stdin.write(word + b"\n")
            child.stdin.flush()
            assert child.stderr.readline().strip() == b"ok"
            assert renamed.read_text() if word == b"two" else log.read_text()
            act()
        child.stdin.write(b"three\n")
        child.stdin.flush()
        assert child.stderr.readline().strip() == b"ok"
        assert renamed.read_bytes().split() == [b"three"]
        renamed.unlink()


def test_a_file_is_replaced_though_somebody_reads_it_for_an_instant(tmp_path: Path) -> None:
    """Windows alone refuses that as long as it is open."""
    (tmp_path / "new").write_text("new", encoding="utf-8")
    (tmp_path / "old").write_text("old", encoding="utf-8")
    reader = (tmp_path / "old").open("rb")
    closing = threading.Timer(0.1, reader.close)
    closing.start()
    platform.replace(tmp_path / "new", tmp_path / "old")
    closing.join()
    assert (tmp_path / "old").read_text(encoding="utf-8") == "new"


def test_a_process_that_allocates_past_its_limit_is_refused() -> None:
    """MemoryError, not the machine's last page."""
    if sys.platform == "darwin":
        pytest.skip("macOS enforces the limit loosely")
    code = "platform.limit_memory(300)\ntry:\n    bytearray(1 << 30)\nexcept MemoryError:\n    print('refused')"
    assert run(code).stdout.strip() == "refused"


@linux
def test_an_orphan_comes_to_its_subreaper_and_is_a_leftover() -> None:
    """A double fork in a session of its own does not get away; a dead one is reaped in passing."""
    code = """
platform.become_subreaper()
assert not platform.has_children()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(60)
    os._exit(0)
os.wait()
assert platform.has_children()
(left,) = platform.leftovers(0, "", {1})
assert platform.leftovers(0, "", {left}) == []
platform.end_process(left)
while platform.leftovers(0, "", set()):
    time.sleep(0.001)
assert not platform.has_children()
print("clean")
"""
    done = run(code)
    assert done.stdout.strip() == "clean", done.stderr


@linux
def test_the_kernel_ends_a_process_whose_backstop_ends(tmp_path: Path) -> None:
    """The last writer of the pipe goes, and a process that holds the interpreter in C code is gone, too."""
    code = """
import ctypes
read = os.open(f"/proc/self/fd/{0}", os.O_RDONLY | os.O_NONBLOCK)
platform.arm_backstop(read)
print("armed", flush=True)
ctypes.PyDLL(None).sleep(60)
"""
    program = "import os\nfrom fanjoin.ipc import platform\n" + code
    with subprocess.Popen(
        [sys.executable, "-P", "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=tmp_path
    ) as process:
        assert process.stdin
        assert process.stdout
        assert process.stdout.readline().strip() == b"armed"
        began = time.monotonic()
        process.stdin.close()
        assert process.wait(DEADLINE) == -9
        assert time.monotonic() - began < 5


@linux
def test_the_count_of_memory_kills_is_a_number_or_unknown() -> None:
    """Where the cgroup keeps none, nothing is claimed."""
    count = platform.oom_kills()
    assert count is None or count >= 0
