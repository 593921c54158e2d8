"""What Linux and macOS have in common."""

import contextlib
import fcntl
import os
import resource
import select
import signal
import sys
import time
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

from fanjoin.ipc.platform.lockfile import LockFile

if sys.platform != "win32":
    POLLS_PIPES = True
    """Whether ZeroMQ can wait for a pipe; where it cannot, a thread has to read it."""

    _LOOK_SECONDS = 0.05
    """How long a lock is tried for while somebody only looks whether it is held."""
    _DESCRIPTORS = (65_536, 24_576, 10_240)
    """What macOS may allow where it calls the hard limit infinite: its ``kern.maxfilesperproc``, at least OPEN_MAX."""
    _RESET = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD)

    def try_lock(path: Path) -> LockFile | None:
        """Take the lock of a file, made when missing; None when another process holds it."""
        file = open(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "r+b")  # noqa: SIM115 - it is the lock
        deadline = time.monotonic() + _LOOK_SECONDS
        while not _flock(file, fcntl.LOCK_EX):
            if not _flock(file, fcntl.LOCK_SH) or time.monotonic() > deadline:
                file.close()
                return None
            _flock(file, fcntl.LOCK_UN)  # somebody only looks: a moment later it is free
            time.sleep(0.001)
        return LockFile(file)

    def is_locked(path: Path) -> bool:
        """Say whether a process holds the lock of a file; many may look at once. A missing file has no holder."""
        try:
            with open(os.open(path, os.O_RDONLY | os.O_CLOEXEC), "rb") as file:
                return not _flock(file, fcntl.LOCK_SH)
        except FileNotFoundError:
            return False

    def _flock(file: BinaryIO, kind: int) -> bool:
        try:
            fcntl.flock(file, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def can_write(descriptor: int, seconds: float) -> bool:
        """Wait at most so long until a write of up to 4096 bytes would not block; says whether it would not."""
        return bool(select.select([], [descriptor], [], seconds)[1])

    def open_log(path: Path) -> int:
        """Return a descriptor that appends to a file, made when missing, whatever becomes of its name and its size."""
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def replace(source: str | Path, target: str | Path) -> None:
        """Put a file in the place of another, at once."""
        os.replace(source, target)

    def become(entry: str, environ: dict[str, str], frame: bytes) -> NoReturn:
        """Go on as another program of ours, under the same process number and with nothing of what was.

        Args:
            entry: the ``module:function`` to run.
            environ: its whole environment.
            frame: what it finds on its standard input; at most what a pipe holds.
        """
        reader, writer = os.pipe()
        os.write(writer, frame)
        os.close(writer)
        os.dup2(reader, 0)
        os.close(reader)
        module, _, function = entry.partition(":")
        code = f"from {module} import {function}; {function}()"
        os.execve(sys.executable, [sys.executable, "-P", "-c", code], environ)  # noqa: S606 - no shell is wanted

    def detached_flags() -> dict[str, Any]:
        """Return the arguments of ``Popen`` that put a process outside the reach of the terminal's signals."""
        return {"start_new_session": True}

    def polite_stop(pid: int) -> None:
        """Ask the session of an agent to end: SIGTERM, and SIGCONT for what is stopped."""
        with contextlib.suppress(OSError):
            os.killpg(pid, signal.SIGTERM)
        with contextlib.suppress(OSError):
            os.killpg(pid, signal.SIGCONT)

    def end_process(pid: int) -> None:
        """End one process at once, with what shares its process group when it leads one."""
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(OSError):
            os.killpg(pid, signal.SIGKILL)

    def shell_command(command: str) -> list[str]:
        """Return the arguments of ``Popen`` that run a command line by the system's shell."""
        return ["/bin/sh", "-c", command]

    def lead_group(pid: int) -> None:
        """Do nothing: a process that was started in a session of its own leads a group already."""
        del pid

    def reap_group(pid: int, seconds: float) -> None:
        """Wait for so long until nothing of a killed process group is left, reaping what became our children."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-pid, os.WNOHANG)[0]:
                    pass
            try:
                os.killpg(pid, 0)
            except OSError:
                return
            time.sleep(0.002)

    def reset_signals() -> None:
        """Give signals their default meaning: a caller may have handed them down ignored or blocked.

        An ignored SIGCHLD makes every exit code read 0. SIGPIPE alone is ignored: a pipe to a process that just died
        has to raise an error here, not to end this process without a word.
        """
        for number in _RESET:
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_SETMASK, set())

    def raise_descriptor_limit() -> int:
        """Raise the soft limit of open files as far as the system lets us and return it."""
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        for wanted in (hard, *_DESCRIPTORS):
            with contextlib.suppress(OSError, ValueError):
                resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
                return wanted
        return soft

    def contain_own_tree() -> None:
        """Bind everything that this process starts to its own life (Windows only; elsewhere sweeps do it)."""

    def signal_name(number: int) -> str:
        """Return the name of a signal, such as SIGKILL."""
        try:
            return signal.Signals(number).name
        except ValueError:
            return f"signal {number}"
