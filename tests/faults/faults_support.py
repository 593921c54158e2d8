"""What the tests of faults share: the agents' entries, processes as seen from outside, fates as pairs."""

import contextlib
import sqlite3
from typing import Any

import psutil
from run_support import CHILDREN, Home

MISSPEAK = f"{CHILDREN / 'misspeak.py'}:run"
MUTE = f"{CHILDREN / 'misspeak.py'}:mute"
EARLY = f"{CHILDREN / 'misspeak.py'}:early"


def fates(result: dict[str, Any]) -> list[tuple[str, str]]:
    """Return (status, reason) of every entry of a run's result, in its order."""
    return [(entry["status"], entry.get("error", {}).get("reason", "")) for entry in result["results"]]


def core_of(home: Home) -> psutil.Process:
    """Return the process of the home's one supervisor."""
    found = {process.pid: process for process in home.processes() if "supervisor.main" in _command(process)}
    return next(process for process in found.values() if _parent(process) not in {0, *found})


def _command(process: psutil.Process) -> str:
    """Return a process's command line, nothing when it has just ended."""
    with contextlib.suppress(psutil.Error):
        return " ".join(process.cmdline())
    return ""


def _parent(process: psutil.Process) -> int:
    with contextlib.suppress(psutil.Error):
        return process.ppid()
    return 0


def count(home: Home, what: str) -> int:
    """Return how many rows a part of a query (``receipts WHERE ...``) has by now; 0 while there is no table yet."""
    if not (home.path / "state.db").exists():
        return 0
    with contextlib.suppress(sqlite3.OperationalError):
        number: int = home.rows(f"SELECT COUNT(*) FROM {what}")[0][0]  # noqa: S608
        return number
    return 0


def living_delegates(home: Home) -> list[psutil.Process]:
    """Return the processes of delegates that run now, by what the database says of them."""
    found = []
    for pid, start in home.rows("SELECT pid, process_start FROM attempts WHERE receipt_id <> '' AND ended_at IS NULL"):
        with contextlib.suppress(psutil.Error):
            if pid is not None and _start_mark(pid) == start:
                found.append(psutil.Process(pid))
    return found


def _start_mark(pid: int) -> str:
    from fanjoin.ipc import platform

    return platform.process_start(pid)
