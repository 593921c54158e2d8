"""What the parts of the benchmark share: a provider, a query with a plan, and rows of a table."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

CHAT_WITH = Path(__file__).parents[1] / "tests" / "children" / "chat_with.py"
"""The command line with another agent entry; the tests use it, too."""


def query(*calls: Sequence[str]) -> str:
    """Return a query whose plan is one ``delegate_task`` call after the other."""
    replies = [{"delegate": list(goals)} for goals in calls]
    return f"Go.\n\n```plan\n{json.dumps(replies)}\n```\n"


@contextmanager
def provider() -> Iterator[str]:
    """Run a synthetic provider without latency and yield its URL."""
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "fanjoin.cli.provider", "--lifeline"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with process:
        ready = process.stdout.readline() if process.stdout else b""
        try:
            yield json.loads(ready)["url"]
        finally:
            process.communicate()  # closes its lifeline


def chat(url: str, asked: str, entry: str = "") -> list[str]:
    """Return the command line of a quiet run."""
    program = [str(CHAT_WITH), entry] if entry else ["-m", "fanjoin.cli"]
    return [sys.executable, "-P", *program, "chat", "-Q", "--base-url", url, "-m", "synthetic", "-q", asked]


def environment(home: str) -> dict[str, str]:
    """Return an environment with a home of the benchmark's own."""
    return {**os.environ, "FANJOIN_HOME": home}


def row(what: str, measured: str, target: str) -> None:
    """Print a row of the table."""
    print(f"| {what} | {measured} | {target} |", flush=True)


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value below which that share of the values lies."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
