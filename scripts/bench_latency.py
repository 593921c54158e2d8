"""Joins and memory: how fast a result or a death reaches the parent, and what waiting delegates weigh."""

import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import psutil
from bench_support import chat, environment, percentile, provider, query, row

ENTRY = f"{Path(__file__).with_name('bench_agents.py')}:run"
CALLS = 60
WAITING = 8


def commits(home: str, count: int) -> list[float]:
    """Return the seconds of single commits with a full fsync, in the same file system."""
    connection = sqlite3.connect(Path(home) / "commits.db", isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("CREATE TABLE t (a)")
    times = []
    for _ in range(count):
        began = time.perf_counter()
        connection.execute("INSERT INTO t VALUES (?)", ("x" * 2000,))
        times.append(time.perf_counter() - began)
    connection.close()
    return times


def ends_to_joins(url: str, home: str, goal: str) -> list[float]:
    """Return the seconds from each child's end to its parent's join, one call after the other."""
    times = Path(home) / "times"
    times.unlink(missing_ok=True)
    asked = query(*[[f"{goal} {number}"] for number in range(CALLS)])
    subprocess.run(
        chat(url, asked, ENTRY), env=environment(home), check=False, stdin=subprocess.DEVNULL, capture_output=True
    )
    stamps = [line.split() for line in times.read_text(encoding="utf-8").splitlines()]
    ended = [float(stamp) for what, stamp in stamps if what == "ended"]
    joined = [float(stamp) for what, stamp in stamps if what == "joined"]
    return [after - before for before, after in zip(ended, joined, strict=True)]


def weigh(url: str, home: str) -> tuple[float, float]:
    """Return the own memory of a waiting delegate and of the supervisor, in MiB."""
    asked = query([f"[[hang]] {number}" for number in range(WAITING)])
    process = subprocess.Popen(
        chat(url, asked),
        env=environment(home),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        core = wait_for_delegates(process.pid)
        time.sleep(1)  # all of them have sent their request by then
        zygote = next(child for child in core.children() if child.cmdline() == core.cmdline())
        agents = [child for child in zygote.children() if child.children() == []]
        own = sorted(agent.memory_full_info().uss for agent in agents)[:WAITING]
        return median(own) / (1 << 20), core.memory_full_info().uss / (1 << 20)
    finally:
        process.terminate()
        process.wait()


def wait_for_delegates(pid: int) -> psutil.Process:
    """Return the supervisor once the root and every delegate exist."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        for core in psutil.Process(pid).children():
            for zygote in core.children():
                if len(zygote.children()) == WAITING + 1:
                    return core
        time.sleep(0.05)
    sys.exit("the delegates did not start")


def main() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as home, provider() as url:
        with tempfile.TemporaryDirectory() as beside:  # a home takes no foreign files
            fsync = commits(beside, 200)
        results = ends_to_joins(url, home, "count the words of line")
        deaths = ends_to_joins(url, home, "die")
        agent, core = weigh(url, home)
    commit, worst = median(fsync) * 1000, percentile(fsync, 0.99) * 1000
    row("one commit (fsync), median and p99", f"{commit:.1f} and {worst:.1f} ms", "")
    row(
        "last result to the parent's join, median",
        f"{median(results) * 1000:.1f} ms",
        f"≤ {commit + 3:.1f} ms (one commit + 3)",
    )
    row(
        "SIGKILL of a child to its entry at the parent, p99",
        f"{percentile(deaths, 0.99) * 1000:.1f} ms",
        f"≤ {worst + 10:.1f} ms (one commit + 10)",
    )
    row("own memory (USS) of a waiting delegate", f"{agent:.1f} MiB", "≤ 2.5 MiB")
    row("own memory (USS) of the supervisor", f"{core:.1f} MiB", "< 45 MiB")


if __name__ == "__main__":
    main()
