"""What the tests of ``fanjoin delegate`` share: the command with a worker, and what it said."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from run_support import CHILDREN, Home

WORKER = f"{sys.executable} -P {CHILDREN / 'worker.py'}"


def start(home: Home, *arguments: str, worker: str | None = WORKER, **popen: Any) -> "subprocess.Popen[bytes]":
    """Start ``fanjoin delegate``."""
    program = ["--worker", worker] if worker else home.model()
    command = home.command("delegate", *program, *arguments)
    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, env={**home.env, **popen.pop("env", {})}, **{**streams, **popen})


def delegated(
    home: Home, *arguments: str, worker: str | None = WORKER, **more: Any
) -> "subprocess.CompletedProcess[bytes]":
    """Run ``fanjoin delegate`` to its end and check that nothing of it is left."""
    program = ["--worker", worker] if worker else home.model()
    return home.run(home.command("delegate", *program, *arguments), **more)


def result(home: Home, *arguments: str, **more: Any) -> dict[str, Any]:
    """Run it with ``--format json`` and return its object."""
    done = delegated(home, "--format", "json", *arguments, **more)
    assert done.stdout, done.stderr
    value: dict[str, Any] = json.loads(done.stdout)
    assert value["exit_code"] == done.returncode, done.stderr
    return value


def goals(*texts: str) -> list[str]:
    """Return flags that give these goals."""
    return [word for text in texts for word in ("-g", text)]


def fates(value: dict[str, Any]) -> list[tuple[str, str]]:
    """Return (status, reason) of each result."""
    return [(one["status"], one.get("error", {}).get("reason", "")) for one in value["results"]]


def task_file(path: Path, *tasks: dict[str, Any]) -> str:
    """Write tasks as JSON lines and return the file's name."""
    path.write_text("".join(json.dumps(task) + "\n" for task in tasks), encoding="utf-8")
    return str(path)


def lines(path: Path) -> list[dict[str, Any]]:
    """Return the lines of a file of JSON lines; the last one may be cut by a kill."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    return [json.loads(line) for line in text.split("\n")[:-1]]


def times_run(home: Home, goal: str) -> int:
    """Return how often the worker was started for a goal."""
    mark = home.path / f"mark-ran-{goal.replace(' ', '-')[:40]}"
    return len(mark.read_text(encoding="utf-8").splitlines()) if mark.exists() else 0
