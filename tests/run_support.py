"""What the tests of whole runs share: a provider process, a home, the command line, and a look from outside."""

import json
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import psutil

from fanjoin.ipc.paths import instance_folder, socket_folder

CHILDREN = Path(__file__).parent / "children"
MISBEHAVE = f"{CHILDREN / 'misbehave.py'}:run"
DEADLINE = 30.0
GONE_SECONDS = 6.0

Value = TypeVar("Value")


def wait_until(probe: Callable[[], Value], what: str, seconds: float = DEADLINE) -> Value:
    """Return the first true value of the probe; fail when there is none in time."""
    deadline = time.monotonic() + seconds
    while not (value := probe()):
        assert time.monotonic() < deadline, f"no {what} within {seconds} s"
        time.sleep(0.005)
    return value


def plan(*replies: dict[str, Any], text: str = "Do it.") -> str:
    """Return a query that carries its own plan for the synthetic provider."""
    return f"{text}\n\n```plan\n{json.dumps(replies)}\n```\n"


def delegate_plan(*goals: str | dict[str, Any]) -> str:
    """Return a query whose plan is one call with these goals; the provider then reports the joined result."""
    return plan({"delegate": list(goals)})


class Provider:
    """The synthetic provider as a process of its own."""

    def __init__(self, log: Path, *flags: str, env: dict[str, str] | None = None) -> None:
        self._log = log
        self._forgotten = 0
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "fanjoin.cli.provider", "--lifeline", "--log", str(log), *flags],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **(env or {})},
        )
        assert self.process.stdout is not None
        self.url: str = json.loads(self.process.stdout.readline())["url"]

    def requests(self) -> list[dict[str, Any]]:
        """Return what the provider noted of each request, in the order of arrival."""
        return [json.loads(line) for line in self._lines()[self._forgotten :]]

    def forget(self) -> None:
        """Leave the requests so far out of ``requests``."""
        self._forgotten = len(self._lines())

    def _lines(self) -> list[str]:
        return self._log.read_text(encoding="utf-8").splitlines() if self._log.exists() else []

    def close(self) -> None:
        """End it by its lifeline."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait(10)
        self.process.stdout.close()


class Home:
    """A home folder of one test, and the command line in it."""

    def __init__(self, path: Path, provider: Provider) -> None:
        self.path = path
        self.provider = provider
        self.env = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("FANJOIN", "OPENAI", "PYTHON", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"))
        }
        self.env["FANJOIN_HOME"] = str(path)

    def config(self, text: str) -> None:
        """Write config.yaml."""
        self.path.mkdir(parents=True, exist_ok=True)
        (self.path / "config.yaml").write_text(text, encoding="utf-8")

    def command(self, *arguments: str, entry: str = "") -> list[str]:
        """Return the command line, with another agent entry where one is given."""
        program = [str(CHILDREN / "chat_with.py"), entry] if entry else ["-m", "fanjoin.cli"]
        return [sys.executable, "-P", *program, *arguments]

    def model(self) -> list[str]:
        """Return the flags that name this test's provider."""
        return ["--base-url", self.provider.url, "-m", "synthetic"]

    def start(
        self, query: str | None, *flags: str, entry: str = "", env: dict[str, str] | None = None, **popen: Any
    ) -> "subprocess.Popen[bytes]":
        """Start ``fanjoin chat -Q`` with the query on its command line."""
        asked = [] if query is None else ["-q", query]
        arguments = self.command("chat", "-Q", *self.model(), *asked, *flags, entry=entry)
        streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen(arguments, env={**self.env, **(env or {})}, **{**streams, **popen})

    def chat(self, query: str | None, *flags: str, **more: Any) -> "subprocess.CompletedProcess[bytes]":
        """Run ``fanjoin chat -Q`` to its end and check that nothing of it is left."""
        with self.start(query, *flags, **more) as process:
            out, err = process.communicate(timeout=60)
        self.check_nothing_left()
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def result(self, query: str, *flags: str, **more: Any) -> dict[str, Any]:
        """Run a turn with ``--format json`` and return its object."""
        done = self.chat(query, "--format", "json", *flags, **more)
        value: dict[str, Any] = json.loads(done.stdout)
        assert value["exit_code"] == done.returncode, done.stderr
        return value

    def run(
        self, command: list[str], *, text_in: str | None = None, env: dict[str, str] | None = None, **popen: Any
    ) -> "subprocess.CompletedProcess[bytes]":
        """Run any command line in this home to its end and check that nothing of it is left.

        ``text_in`` goes to its standard input.
        """
        source = subprocess.DEVNULL if text_in is None else subprocess.PIPE
        streams = {"stdin": source, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        with subprocess.Popen(command, env={**self.env, **(env or {})}, **{**streams, **popen}) as process:
            out, err = process.communicate(None if text_in is None else text_in.encode(), timeout=60)
        self.check_nothing_left()
        return subprocess.CompletedProcess(command, process.returncode, out, err)

    def other(self, *arguments: str) -> "subprocess.CompletedProcess[bytes]":
        """Run another command of the program to its end."""
        return subprocess.run(self.command(*arguments), env=self.env, capture_output=True, timeout=60, check=False)

    @contextmanager
    def database(self) -> Iterator[sqlite3.Connection]:
        """Open state.db to look at it."""
        with closing(sqlite3.connect(f"file:{self.path / 'state.db'}?mode=ro", uri=True, timeout=10)) as connection:
            yield connection

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """Return the rows of a query on state.db."""
        with self.database() as connection:
            return connection.execute(sql).fetchall()

    def processes(self) -> list[psutil.Process]:
        """Return the living processes of this home, found from outside by their environment."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.environ().get("FANJOIN_HOME") == str(self.path) and process.status() != "zombie":
                    found.append(process)
            except (psutil.Error, OSError):
                continue
        return found

    def check_no_process(self) -> None:
        """Check that within the promised time no process of this home lives."""
        wait_until(lambda: not self.processes(), "end of all processes", GONE_SECONDS)

    def check_nothing_left(self) -> None:
        """Check what is promised after every run: no process, no socket, no open row."""
        self.check_no_process()
        assert not list((self.path / "run").glob("*")), "a run left its folder behind"
        if (self.path / "state.db").exists():
            self.check_records()
            for (instance_id,) in self.rows("SELECT instance_id FROM owners"):
                assert not socket_folder(instance_folder(self.path, instance_id)).exists(), "sockets were left behind"

    def check_records(self) -> None:
        """Check that no turn is open, every delegate has its one receipt, and every attempt is closed.

        Only recovery, after the death of an owner, makes a turn ``unknown``.
        """
        assert self.rows("SELECT admission_id FROM session_admissions WHERE status IN ('queued', 'started')") == []
        open_delegates = "SELECT receipt_id FROM delegations WHERE receipt_id NOT IN (SELECT receipt_id FROM receipts)"
        assert self.rows(open_delegates) == []
        assert self.rows("SELECT attempt_id FROM attempts WHERE ended_at IS NULL") == []

    def statuses(self) -> list[tuple[str, str]]:
        """Return (status, reason) of every receipt, in the order in which they were accepted."""
        return self.rows(
            "SELECT receipts.status, receipts.reason FROM receipts JOIN delegations USING (receipt_id) "
            "ORDER BY delegations.rowid"
        )
