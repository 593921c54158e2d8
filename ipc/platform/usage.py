"""What a process and everything below it uses: CPU time and memory, as far as this system tells."""

import contextlib
import os
import sys
from pathlib import Path

from msgspec import Struct


class TreeUsage(Struct, frozen=True, kw_only=True):
    """CPU seconds of a tree since its processes began, and bytes of memory by process.

    ``ended_children``: the CPU of children that ended and were waited for is a part of it.
    """

    cpu: float
    memory: dict[int, int]
    ended_children: bool


if sys.platform == "linux":
    MEMORY_KIND = "proportional set size"
    _TICKS = os.sysconf("SC_CLK_TCK")
    _PPID, _TIMES = 1, slice(11, 15)

    def tree_usage(root: int, *, memory: bool = True) -> TreeUsage:
        """Return what a process and its descendants use; nothing of those that end while it looks."""
        found = {int(path.name): _stat(path) for path in Path("/proc").iterdir() if path.name.isdigit()}
        parents = {pid: int(fields[_PPID]) for pid, fields in found.items() if fields}
        members = _members(root, parents)
        cpu = sum(int(ticks) for pid in members for ticks in found[pid][_TIMES]) / _TICKS
        return TreeUsage(cpu=cpu, memory={pid: _pss(pid) for pid in members} if memory else {}, ended_children=True)

    def _stat(path: Path) -> list[str]:
        """Return the fields of ``stat`` from the state on."""
        try:
            return (path / "stat").read_text(encoding="utf-8", errors="replace").rpartition(") ")[2].split()
        except OSError:
            return []

    def _pss(pid: int) -> int:
        """Return the memory of a process, of shared pages its share."""
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines():
                if line.startswith("Pss:"):
                    return int(line.split()[1]) * 1024
        return 0

else:
    import psutil

    MEMORY_KIND = "resident set size"

    def tree_usage(root: int, *, memory: bool = True) -> TreeUsage:
        """Return what a process and its descendants use; nothing of those that end while it looks."""
        cpu, used, waited = 0.0, {}, False
        with contextlib.suppress(psutil.Error):
            parent = psutil.Process(root)
            for process in [parent, *parent.children(recursive=True)]:
                with contextlib.suppress(psutil.Error):
                    times = process.cpu_times()
                    ended = getattr(times, "children_user", 0.0) + getattr(times, "children_system", 0.0)
                    waited = waited or bool(ended)
                    cpu += times.user + times.system + ended
                    if memory:
                        used[process.pid] = int(process.memory_info().rss)
        return TreeUsage(cpu=cpu, memory=used, ended_children=waited)


def _members(root: int, parents: dict[int, int]) -> list[int]:
    """Return a process and its descendants, by the parent of each process."""
    children: dict[int, list[int]] = {}
    for pid, parent in parents.items():
        children.setdefault(parent, []).append(pid)
    members = [root] * (root in parents)
    for pid in members:
        members.extend(children.get(pid, []))
    return members
