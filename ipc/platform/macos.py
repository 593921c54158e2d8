"""macOS: no subreaper and no pidfd; leftovers are found by session and by the tag in their environment."""

import contextlib
import ctypes
import os
import resource
import select
import sys
from typing import TYPE_CHECKING

import psutil

from fanjoin.ipc.environment import ATTEMPT_TAG, RUN_TAG

if TYPE_CHECKING:
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

if sys.platform == "darwin":
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

    def become_subreaper() -> None:
        """Do nothing: macOS gives orphans to launchd; the tag finds them."""

    def arm_backstop(descriptor: int) -> None:
        """Do nothing: no signal can be bound to a pipe here; the supervisor's children poll their parent instead."""
        del descriptor

    def limit_memory(megabytes: int) -> None:
        """Limit the address space of this process (macOS enforces it loosely)."""
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_DATA, (megabytes << 20, megabytes << 20))

    def await_exit(process: "subprocess.Popen[bytes]") -> None:
        """Wait until a process has ended; as a zombie it keeps its number, which is its group's, in use."""
        with contextlib.closing(select.kqueue()) as queue, contextlib.suppress(ProcessLookupError):
            exited = select.kevent(process.pid, select.KQ_FILTER_PROC, select.KQ_EV_ADD, select.KQ_NOTE_EXIT)
            queue.control([exited], 1)

    def has_children() -> bool:
        """Say whether this process has children."""
        return bool(psutil.Process().children())

    def boot_id() -> str:
        """Return a text that differs after every start of the machine; the time of that start moves with the clock."""
        size = ctypes.c_size_t(64)
        text = ctypes.create_string_buffer(size.value)
        libc = ctypes.CDLL(None)
        if libc.sysctlbyname(b"kern.bootsessionuuid", text, ctypes.byref(size), None, ctypes.c_size_t(0)):
            return str(int(psutil.boot_time()))
        return text.value.decode("ascii")

    def process_start(pid: int) -> str:
        """Return the system's mark of when a process started, or nothing when there is none."""
        with contextlib.suppress(psutil.Error):
            return f"{psutil.Process(pid).create_time():.3f}"
        return ""

    def leftovers(agent_pid: int, tag: str, known: set[int]) -> list[int]:
        """Return the living processes of a dead agent: of its session, or with its tag in their environment."""
        return [
            process.pid
            for process in psutil.process_iter()
            if process.pid not in known and (_session(process.pid) == agent_pid or _has(process, ATTEMPT_TAG, tag))
        ]

    def run_members(tag: str) -> list[int]:
        """Return the processes of this user whose environment carries the run's tag, except this one."""
        return [
            process.pid
            for process in psutil.process_iter()
            if process.pid != os.getpid() and _has(process, RUN_TAG, tag)
        ]

    def oom_kills() -> int | None:
        """Return None: macOS keeps no such count."""
        return None

    def _session(pid: int) -> int:
        try:
            return os.getsid(pid)
        except OSError:
            return -1

    def _has(process: psutil.Process, name: str, value: str) -> bool:
        with contextlib.suppress(psutil.Error, OSError, ValueError):
            return process.environ().get(name) == value and process.status() != psutil.STATUS_ZOMBIE
        return False
