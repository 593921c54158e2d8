"""Windows: job objects bind a tree to its owner; there are no sessions, signals to groups or orphans to adopt."""

import contextlib
import ctypes
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, NoReturn

import psutil

from fanjoin.ipc.environment import RUN_TAG
from fanjoin.ipc.platform.lockfile import LockFile

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

if sys.platform == "win32":
    import msvcrt
    from ctypes import wintypes

    POLLS_PIPES = False

    _EXTENDED_LIMIT_INFORMATION = 9
    _KILL_ON_JOB_CLOSE = 0x2000
    _PROCESS_MEMORY = 0x100
    _SET_QUOTA_AND_TERMINATE = 0x101
    _APPEND, _SHARE_ALL, _OPEN_ALWAYS, _NORMAL = 0x4, 0x7, 4, 0x80
    _SHARING_SECONDS = 2.0  # how long others may have a file open that is to be replaced
    _kernel32 = ctypes.WinDLL("kernel32", use_last_error=True)

    class _BasicLimits(ctypes.Structure):
        """JOBOBJECT_BASIC_LIMIT_INFORMATION of the Windows API."""

        _fields_ = (
            ("PerProcessUserTimeLimit", wintypes.LARGE_INTEGER),
            ("PerJobUserTimeLimit", wintypes.LARGE_INTEGER),
            ("LimitFlags", wintypes.DWORD),
            ("MinimumWorkingSetSize", ctypes.c_size_t),
            ("MaximumWorkingSetSize", ctypes.c_size_t),
            ("ActiveProcessLimit", wintypes.DWORD),
            ("Affinity", ctypes.c_size_t),
            ("PriorityClass", wintypes.DWORD),
            ("SchedulingClass", wintypes.DWORD),
        )

    class _ExtendedLimits(ctypes.Structure):
        """JOBOBJECT_EXTENDED_LIMIT_INFORMATION of the Windows API."""

        _fields_ = (
            ("BasicLimitInformation", _BasicLimits),
            ("IoInfo", ctypes.c_ulonglong * 6),
            ("ProcessMemoryLimit", ctypes.c_size_t),
            ("JobMemoryLimit", ctypes.c_size_t),
            ("PeakProcessMemoryUsed", ctypes.c_size_t),
            ("PeakJobMemoryUsed", ctypes.c_size_t),
        )

    _kernel32.CreateJobObjectW.restype = wintypes.HANDLE
    _kernel32.GetCurrentProcess.restype = wintypes.HANDLE
    _kernel32.OpenProcess.restype = wintypes.HANDLE
    _kernel32.CreateFileW.restype = wintypes.HANDLE
    _kernel32.CreateFileW.argtypes = (
        *(wintypes.LPCWSTR, wintypes.DWORD, wintypes.DWORD, wintypes.LPVOID),
        *(wintypes.DWORD, wintypes.DWORD, wintypes.HANDLE),
    )
    _kernel32.AssignProcessToJobObject.argtypes = (wintypes.HANDLE, wintypes.HANDLE)
    _kernel32.TerminateJobObject.argtypes = (wintypes.HANDLE, wintypes.UINT)
    _kernel32.CloseHandle.argtypes = (wintypes.HANDLE,)
    _kernel32.SetInformationJobObject.argtypes = (wintypes.HANDLE, ctypes.c_int, ctypes.c_void_p, wintypes.DWORD)
    _jobs: list[int] = []  # handles that must stay open as long as this process
    _groups: dict[int, int] = {}  # the job of each process that leads a group

    def _new_job(process: int, flags: int, memory_bytes: int = 0) -> int:
        """Put a process into a job of its own and return that; jobs nest, so a caller's job does no harm."""
        limits = _ExtendedLimits()
        limits.BasicLimitInformation.LimitFlags = flags
        limits.ProcessMemoryLimit = memory_bytes
        job: int = _kernel32.CreateJobObjectW(None, None)
        size = ctypes.sizeof(limits)
        if _kernel32.SetInformationJobObject(job, _EXTENDED_LIMIT_INFORMATION, ctypes.byref(limits), size):
            _kernel32.AssignProcessToJobObject(job, process)
        return job

    def contain_own_tree() -> None:
        """Bind everything that this process starts to its own life: the job ends with its last handle."""
        _jobs.append(_new_job(_kernel32.GetCurrentProcess(), _KILL_ON_JOB_CLOSE))

    def limit_memory(megabytes: int) -> None:
        """Limit what this process may commit; past it, allocation fails."""
        _jobs.append(_new_job(_kernel32.GetCurrentProcess(), _PROCESS_MEMORY, megabytes << 20))

    def lead_group(pid: int) -> None:
        """Let a process that has just been started lead a group: what it starts from now on ends with it."""
        process = _kernel32.OpenProcess(_SET_QUOTA_AND_TERMINATE, 0, pid)
        if process:
            _groups[pid] = _new_job(process, _KILL_ON_JOB_CLOSE)
            _kernel32.CloseHandle(process)

    def become_subreaper() -> None:
        """Bind this agent's tools to its own life."""
        contain_own_tree()

    def arm_backstop(descriptor: int) -> None:
        """Do nothing: the supervisor's job object ends its agents."""
        del descriptor

    def try_lock(path: Path) -> LockFile | None:
        """Take the lock of a file, made when missing; None when another process holds it."""
        file = open(os.open(path, os.O_RDWR | os.O_CREAT | os.O_BINARY | os.O_NOINHERIT, 0o600), "r+b")  # noqa: SIM115
        try:
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        except OSError:
            file.close()
            return None
        file.write(b"\0")  # so that there is something that others cannot read
        file.flush()
        return LockFile(file)

    def is_locked(path: Path) -> bool:
        """Say whether a process holds the lock of a file; many may look at once. A missing file has no holder."""
        try:
            path.read_bytes()
        except FileNotFoundError:
            return False
        except PermissionError:
            return True
        return False

    def can_write(descriptor: int, seconds: float) -> bool:
        """Say yes: there is no way to ask a pipe or a console, so a write may block."""
        del descriptor, seconds
        return True

    def open_log(path: Path) -> int:
        """Return a descriptor that appends to a file, made when missing, whatever becomes of its name and its size.

        What the C library opens for appending is not: a child gets the handle, and its writes go where that stands.
        """
        handle = _kernel32.CreateFileW(str(path), _APPEND, _SHARE_ALL, None, _OPEN_ALWAYS, _NORMAL, None)
        if handle in (None, wintypes.HANDLE(-1).value):
            raise ctypes.WinError(ctypes.get_last_error())
        return msvcrt.open_osfhandle(handle, os.O_APPEND | os.O_NOINHERIT)

    def replace(source: str | Path, target: str | Path) -> None:
        """Put a file in the place of another, which a reader or a virus scanner may have open for an instant."""
        deadline = time.monotonic() + _SHARING_SECONDS
        while True:
            try:
                os.replace(source, target)
            except PermissionError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.005)
            else:
                return

    def become(entry: str, environ: dict[str, str], frame: bytes) -> NoReturn:
        """Go on as another program of ours: its function is called here, since a process cannot be exchanged.

        Args:
            entry: the ``module:function`` to run.
            environ: what is added to the environment.
            frame: what it finds on its standard input.
        """
        import importlib

        reader, writer = os.pipe()

        def write() -> None:
            with open(writer, "wb") as stream:
                stream.write(frame)

        threading.Thread(target=write, daemon=True).start()  # a pipe holds only 4 KiB here
        os.dup2(reader, 0)
        os.close(reader)
        os.environ.update(environ)
        module, _, function = entry.partition(":")
        getattr(importlib.import_module(module), function)()
        os._exit(0)

    def detached_flags() -> dict[str, Any]:
        """Return the arguments of ``Popen`` for a process without a window, outside the console's Ctrl-C."""
        return {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP | subprocess.CREATE_NO_WINDOW}

    def polite_stop(pid: int) -> None:
        """Do nothing: there is no polite signal for a process without a console; the cancel message was it."""
        del pid

    def end_process(pid: int) -> None:
        """End one process at once, with its group when it leads one, and with its descendants."""
        if pid in _groups:
            _kernel32.TerminateJobObject(_groups[pid], 1)
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(pid)
            for child in process.children(recursive=True):
                with contextlib.suppress(psutil.Error):
                    child.kill()
            process.kill()

    def await_exit(process: "subprocess.Popen[bytes]") -> None:
        """Wait until a process has ended."""
        process.wait()

    def shell_command(command: str) -> str:
        """Return the arguments of ``Popen`` that run a command line by the system's shell."""
        return f'"{os.environ.get("COMSPEC", "cmd.exe")}" /d /s /c "{command}"'

    def reap_group(pid: int, seconds: float) -> None:
        """Close the group that a process led, which ends what is left of it."""
        del seconds
        job = _groups.pop(pid, None)
        if job is not None:
            _kernel32.CloseHandle(job)

    def reset_signals() -> None:
        """Do nothing: signals are not inherited here."""

    def raise_descriptor_limit() -> int:
        """Return a bound of our own: handles are limited by memory only, sockets by ZeroMQ (its default is 1023)."""
        return 1023

    def has_children() -> bool:
        """Say whether this process has children."""
        return bool(psutil.Process().children())

    def boot_id() -> str:
        """Return a text that differs after every start of the machine."""
        return str(int(psutil.boot_time()))

    def process_start(pid: int) -> str:
        """Return the system's mark of when a process started, or nothing when there is none."""
        with contextlib.suppress(psutil.Error):
            return f"{psutil.Process(pid).create_time():.3f}"
        return ""

    def leftovers(agent_pid: int, tag: str, known: set[int]) -> list[int]:
        """Return nothing: the agent's job ended its tree with it."""
        del agent_pid, tag, known
        return []

    def run_members(tag: str) -> list[int]:
        """Return the processes whose environment carries the run's tag, except this one."""
        members = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                if process.pid != os.getpid() and process.environ().get(RUN_TAG) == tag:
                    members.append(process.pid)
        return members

    def oom_kills() -> int | None:
        """Return None: Windows keeps no such count."""
        return None

    def signal_name(number: int) -> str:
        """Return a name for what is no signal here."""
        return f"signal {number}"
