"""Linux: the proc file system, child subreapers, and SIGKILL as a pipe's notice."""

import contextlib
import fcntl
import functools
import os
import resource
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from fanjoin.ipc.environment import RUN_TAG

if TYPE_CHECKING:
    import ctypes
    import subprocess

__all__ = [
    "POLLS_PIPES",
    "arm_backstop",
    "await_exit",
    "become",
    "become_subreaper",
    "boot_id",
    "can_write",
    "contain_own_tree",
    "detached_flags",
    "end_process",
    "has_children",
    "is_locked",
    "lead_group",
    "leftovers",
    "limit_memory",
    "oom_kills",
    "open_log",
    "polite_stop",
    "process_start",
    "raise_descriptor_limit",
    "reap_group",
    "replace",
    "reset_signals",
    "run_members",
    "shell_command",
    "signal_name",
    "try_lock",
]

if sys.platform == "linux":
    from fanjoin.ipc.platform.posix import (
        POLLS_PIPES,
        become,
        can_write,
        contain_own_tree,
        detached_flags,
        end_process,
        is_locked,
        lead_group,
        open_log,
        polite_stop,
        raise_descriptor_limit,
        reap_group,
        replace,
        reset_signals,
        shell_command,
        signal_name,
        try_lock,
    )

    _PR_SET_CHILD_SUBREAPER = 36
    _STATE, _PPID, _STARTTIME = 0, 1, 19  # fields of /proc/PID/stat after the name, proc(5)

    def become_subreaper() -> None:
        """Adopt whatever descendants lose their parent, so that none of them escapes to init."""
        libc().prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

    @functools.cache
    def libc() -> "ctypes.CDLL":
        """Return this process's one handle of the C library, which forked processes inherit."""
        import ctypes  # late: a command that starts a supervisor has no use for it

        return ctypes.CDLL(None)

    def arm_backstop(descriptor: int) -> None:
        """Let the kernel SIGKILL this process when the last writer of the pipe is gone, even when it is stuck in C.

        The inherited descriptor is closed for one of our own: the owner of a pipe's signal is kept with the open file,
        which all that inherited it share.
        """
        own = os.open(f"/proc/self/fd/{descriptor}", os.O_RDONLY | os.O_NONBLOCK)
        os.close(descriptor)
        fcntl.fcntl(own, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(own, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(own, fcntl.F_SETFL, fcntl.fcntl(own, fcntl.F_GETFL) | os.O_ASYNC)

    def limit_memory(megabytes: int) -> None:
        """Let this process allocate so many MiB more than it has now; past it, allocation fails."""
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[5])
        limit = pages * os.sysconf("SC_PAGESIZE") + (megabytes << 20)
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))

    def await_exit(process: "subprocess.Popen[bytes]") -> None:
        """Wait until a process has ended; as a zombie it keeps its number, which is its group's, in use."""
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)

    def has_children() -> bool:
        """Say whether the kernel knows of any child of this process, running or waiting to be reaped."""
        with contextlib.suppress(ChildProcessError):
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            return True
        return False

    def boot_id() -> str:
        """Return a text that differs after every start of the machine."""
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()

    def process_start(pid: int) -> str:
        """Return the system's mark of when a process started, or nothing when there is none (or only its zombie)."""
        fields = _stat(pid)
        return fields[_STARTTIME] if fields and fields[_STATE] not in {"Z", "X"} else ""

    def leftovers(agent_pid: int, tag: str, known: set[int]) -> list[int]:
        """Return the living processes that dead agents left behind, reaping the dead ones among them.

        Each agent adopts its own orphans while it lives; when it dies they become children of this process. So every
        child of ours that is not known is a leftover, whatever session or group it moved to.
        """
        del agent_pid, tag
        me = str(os.getpid())
        alive = []
        for pid in _pids():
            fields = _stat(pid)
            if fields and fields[_PPID] == me and pid not in known and not _reap(pid):
                alive.append(pid)
        return alive

    def run_members(tag: str) -> list[int]:
        """Return the processes of this user whose environment carries the run's tag, except this one."""
        needle = f"{RUN_TAG}={tag}".encode()
        return [pid for pid in _pids() if pid != os.getpid() and needle in _environ(pid).split(b"\0")]

    def oom_kills() -> int | None:
        """Return how many processes of our cgroup the kernel ended for memory, or None where that cannot be read."""
        with contextlib.suppress(OSError, ValueError, IndexError):
            group = Path("/proc/self/cgroup").read_text(encoding="utf-8").rsplit("0::", 1)[1].strip()
            events = Path(f"/sys/fs/cgroup{group}/memory.events").read_text(encoding="ascii")
            return int(dict(line.split() for line in events.splitlines())["oom_kill"])
        return None

    def _pids() -> Iterator[int]:
        return (int(name) for name in os.listdir("/proc") if name.isdigit())

    def _stat(pid: int) -> list[str]:
        """Return the fields of /proc/PID/stat that follow the command's name."""
        try:
            with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
                return file.read().rpartition(")")[2].split()
        except OSError:
            return []

    def _environ(pid: int) -> bytes:
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                return file.read()
        except OSError:
            return b""

    def _reap(pid: int) -> bool:
        """Reap a child that has ended; False while it lives."""
        try:
            return os.waitpid(pid, os.WNOHANG)[0] == pid
        except ChildProcessError:
            return True
