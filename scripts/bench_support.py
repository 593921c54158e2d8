"""What the parts of the benchmark share: a provider, a query with a plan, and rows of a table."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager


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
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield json.loads(process.stdout.readline())["url"]
    finally:
        process.stdin.close()
        process.wait()


def chat(url: str, asked: str, entry: str = "") -> list[str]:
    """Return the command line of a quiet run."""
    program = ["-m", "fanjoin.cli"]
    if entry:
        code = "import sys, fanjoin.client.run as run; run.AGENT_ENTRY = sys.argv.pop(1); from fanjoin.cli.main import main; main()"
        program = ["-c", code, entry]
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
