"""The daemon: what a run beside it costs, how soon a submission starts, many sessions at once, and recovery."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import psutil
from bench_support import environment, percentile, provider, query, row
from websockets.sync.client import connect

if TYPE_CHECKING:
    from collections.abc import Iterator

    from websockets.sync.client import ClientConnection

OPEN_ATTEMPTS = 1_000
SESSIONS = 50
DELEGATES = 4
RESTARTS = 5
REST_SECONDS = 0.05
"""How long a turn that ended may take to leave nothing that still runs; the next one would share the cores with it."""
AFTERMATH_SECONDS = 1.5
"""How long what a killed daemon left takes to be gone; the next start would wait for that."""


class Daemon:
    """A daemon in a home of its own."""

    def __init__(self, home: str, url: str) -> None:
        self.home = Path(home)
        self.env = environment(home)
        self.program = str(Path(sys.executable).with_name("fanjoin"))
        self.home.mkdir(exist_ok=True)
        (self.home / "config.yaml").write_text(f"model: {{base_url: '{url}', model: synthetic}}\n", encoding="utf-8")

    def command(self, *arguments: str) -> None:
        """Run a command of the daemon."""
        command = [self.program, "daemon", *arguments]
        subprocess.run(command, env=self.env, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def descriptor(self) -> dict[str, Any]:
        """Return what the daemon says of itself."""
        value: dict[str, Any] = json.loads((self.home / "run" / "daemon.json").read_bytes())
        return value

    @contextmanager
    def wire(self) -> Iterator[ClientConnection]:
        """Open a connection."""
        told = self.descriptor()
        headers = {"Authorization": f"Bearer {told['token']}"}
        with connect(told["url"], additional_headers=headers, proxy=None, max_size=1 << 25) as wire:
            yield wire


def call(wire: ClientConnection, method: str, **params: Any) -> dict[str, Any]:
    """Send a request and return its result."""
    wire.send(json.dumps({"id": method, "method": method, "params": params}))
    while (message := json.loads(wire.recv())).get("id") != method:
        continue
    result: dict[str, Any] = message["result"]
    return result


def until(wire: ClientConnection, kind: str) -> dict[str, Any]:
    """Return the next event of a kind."""
    while (event := json.loads(wire.recv())["params"])["type"] != kind:
        continue
    found: dict[str, Any] = event["payload"]
    return found


def runs_beside(daemon: Daemon, rounds: int) -> None:
    """Measure ``chat -Q`` with two children against ``python -c pass``, in turn."""
    chat = [
        daemon.program,
        "chat",
        "-Q",
        "--daemon",
        "require",
        "-q",
        query(["count the words a", "count the words b"]),
    ]
    times: dict[str, list[float]] = {"pass": [], "chat": []}
    for number in range(rounds + 1):
        for name, command in (("pass", [sys.executable, "-c", "pass"]), ("chat", chat)):
            began = time.perf_counter()
            subprocess.run(command, env=daemon.env, check=True, stdin=subprocess.DEVNULL, capture_output=True)
            if number:
                times[name].append(time.perf_counter() - began)
    ratio = median(chat / nothing for chat, nothing in zip(times["chat"], times["pass"], strict=True))
    measured = f"{ratio:.1f} times ({median(times['chat']) * 1000:.0f} ms)"
    row("`chat -Q` with two children beside a daemon, against `python -c pass`", measured, "≤ 15")


def submit_to_started(daemon: Daemon, rounds: int) -> None:
    """Measure from a submission to its event ``turn.started``, each against a bare commit at the same pace."""
    times, commits = [], []
    with daemon.wire() as wire, closing(sqlite3.connect(daemon.home / "commits.db", isolation_level=None)) as plain:
        for sql in ("PRAGMA journal_mode=WAL", "PRAGMA synchronous=FULL", "CREATE TABLE t (x)"):
            plain.execute(sql)
        session_id = call(wire, "session.create")["session_id"]
        for number in range(rounds):
            params = {"session_id": session_id, "text": f"hello {number}", "finite": True}
            began = time.perf_counter()
            wire.send(json.dumps({"id": 1, "method": "prompt.submit", "params": params}))
            while json.loads(wire.recv()).get("params", {}).get("type") != "turn.started":
                continue
            times.append(time.perf_counter() - began)
            until(wire, "message.complete")
            time.sleep(REST_SECONDS)
            began = time.perf_counter()
            plain.execute("INSERT INTO t VALUES (1)")
            commits.append(time.perf_counter() - began)
    ratio = median(time / commit for time, commit in zip(times, commits, strict=True))
    measured = f"{ratio:.1f} commits (p50 {median(times) * 1000:.1f} ms; a commit {median(commits) * 1000:.1f} ms)"
    row("submit to `turn.started`", measured, "< 2 commits")


def many_sessions(daemon: Daemon, count: int) -> None:
    """Measure so many sessions at once, a turn with four delegates each; with such a provider all time is overhead."""

    def one(_: int) -> tuple[float, list[dict[str, Any]]]:
        with daemon.wire() as wire:
            session_id = call(wire, "session.create")["session_id"]
            began = time.perf_counter()
            goals = [f"count the words of line {number}" for number in range(DELEGATES)]
            call(wire, "prompt.submit", session_id=session_id, text=query(goals), finite=True)
            end = until(wire, "message.complete")
        if sum(entry["ok"] for entry in end["results"]) != DELEGATES:
            sys.exit(f"not every delegate completed: {end}")
        return time.perf_counter() - began, end["results"]

    psutil.cpu_percent()
    began = time.perf_counter()
    with ThreadPoolExecutor(count) as pool:
        ends = list(pool.map(one, range(count)))
    rate = count * DELEGATES / (time.perf_counter() - began)
    busy = psutil.cpu_percent()
    entries = [entry for _, results in ends for entry in results]
    what = f"{count} sessions at once, {DELEGATES} delegates each"
    row(what, f"{rate:.0f} tasks/s, all cores {busy:.0f} % busy", "what the cores allow")
    row("overhead of a delegate there, in the queue", spread([one["queued_seconds"] for one in entries]), "")
    row("overhead of a delegate there, from its launch on", spread([one["duration_seconds"] for one in entries]), "")
    row("a whole turn there", spread([seconds for seconds, _ in ends]), "")


def spread(seconds: list[float]) -> str:
    """Return the median and the tail of times."""
    return f"p50 {median(seconds) * 1000:.0f} ms, p99 {percentile(seconds, 0.99) * 1000:.0f} ms"


def recovery(daemon: Daemon) -> None:
    """Measure how much later a daemon is ready when it has 1,000 open attempts of a killed one to put right."""
    clean: list[float] = []
    after: list[float] = []
    for number in range(RESTARTS):
        for times, prepare in ((clean, None), (after, open_attempts)):
            os.kill(daemon.descriptor()["pid"], 9)
            if prepare is not None:
                prepare(daemon, number)
            time.sleep(AFTERMATH_SECONDS)
            times.append(start_seconds(daemon))
    daemon.command("stop", "--now")
    empty, full = median(clean), median(after)
    measured = f"{(full - empty) * 1000:.0f} ms ({full * 1000:.0f} ms against {empty * 1000:.0f} ms)"
    row(f"recovery of {OPEN_ATTEMPTS} open attempts before the daemon answers", measured, "< 300 ms")


def start_seconds(daemon: Daemon) -> float:
    """Return how long ``daemon start`` takes."""
    began = time.perf_counter()
    daemon.command("start")
    return time.perf_counter() - began


def open_attempts(daemon: Daemon, batch: int) -> None:
    """Write what a daemon leaves that is killed with so many delegates running."""
    instance = daemon.descriptor()["instance_id"]
    with closing(sqlite3.connect(daemon.home / "state.db")) as connection:
        connection.execute("PRAGMA foreign_keys=OFF")
        turn, session = connection.execute(
            "SELECT admission_id, target_session_id FROM session_admissions LIMIT 1"
        ).fetchone()
        for table, key in (("delegations", "receipt_id"), ("attempts", "attempt_id")):
            columns = [line[1] for line in connection.execute(f"PRAGMA table_info({table})")]
            sample = connection.execute(f"SELECT * FROM {table} WHERE receipt_id IS NOT NULL LIMIT 1").fetchone()  # noqa: S608
            marks = ", ".join("?" * len(columns))
            base = dict(zip(columns, sample, strict=True))
            for number in range(OPEN_ATTEMPTS):
                name = f"d_bench{batch}x{number:04}"
                own = {"receipt_id": name, "owner_id": instance, "admission_id": turn, "session_id": session}
                own |= {"attempt_id": f"{name}.1", "work_id": name, "pid": 1, "process_start": "gone"}
                own |= {
                    "ended_at": None,
                    "exit_code": None,
                    "exit_signal": None,
                    "cause": None,
                    "delegation_id": f"c_bench{batch}",
                }
                own |= {"task_index": number, key: name if key == "receipt_id" else f"{name}.1"}
                values = [own.get(column, base[column]) for column in columns]
                connection.execute(f"INSERT INTO {table} VALUES ({marks})", values)  # noqa: S608
        connection.commit()


def main() -> None:
    """Measure; the first argument is the number of rounds."""
    rounds = int(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder, provider() as url:
        daemon = Daemon(str(Path(folder) / "home"), url)
        daemon.command("start")
        runs_beside(daemon, rounds)
        submit_to_started(daemon, rounds * 5)
        many_sessions(daemon, SESSIONS)
        recovery(daemon)


if __name__ == "__main__":
    main()
