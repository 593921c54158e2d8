"""The demo's run: ``fanjoin chat`` as a process, the killing of one delegate, and what the end should be."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import click
from msgspec import Struct

from fanjoin.client.local_model import EmbeddedProvider
from fanjoin.ipc.environment import allowed_environment
from fanjoin.ipc.errors import RunError
from fanjoin.ipc.platform import end_process

DEADLINE_SECONDS = 170.0
_LOOK_SECONDS = 0.05
_END_SECONDS = 15.0
_ENOUGH_CHARACTERS = 100
"""So much of a goal tells it from the others in the provider's log."""

_FANJOIN = (sys.executable, "-P", "-m", "fanjoin.cli")


class Outcome(Struct, frozen=True):
    """What ``chat`` said in the end. Entries are those of the joined result, in task order."""

    exit_code: int
    answer: str
    entries: list[dict[str, Any]]


class DemoRun:
    """One run of ``fanjoin chat`` in a folder of its own."""

    def __init__(self, folder: Path, provider: EmbeddedProvider, log: Path) -> None:
        self.home = folder / "home"
        self._environment = {**allowed_environment(os.environ), "FANJOIN_HOME": str(self.home)}
        self._folder = folder
        self._provider = provider
        self._log = log

    def chat(self, query: str, victim_goal: str) -> Outcome:
        """Run the turn, kill the delegate with this goal while the provider holds its reply back, and return the end.

        Raises:
            RunError: the run was not done in time, or said nothing that can be read.
        """
        query_file, result_file = self._folder / "query.txt", self._folder / "result.json"
        query_file.write_text(query, encoding="utf-8", newline="\n")
        with query_file.open("rb") as stdin, result_file.open("wb") as stdout:
            process = subprocess.Popen(self._command(), stdin=stdin, stdout=stdout, env=self._environment)
            try:
                self._kill_while_it_waits(process, victim_goal)
                code = process.wait(DEADLINE_SECONDS)
            except subprocess.TimeoutExpired as error:
                raise RunError(f"The run was not done within {DEADLINE_SECONDS:.0f} s and was ended.") from error
            finally:
                _end(process)
        return _outcome(code, result_file.read_bytes())

    def show_receipts(self) -> None:
        """Print the receipts of the run to standard error."""
        shown = subprocess.run([*_FANJOIN, "receipts", "list"], env=self._environment, capture_output=True, check=False)
        say("the receipts, as `fanjoin receipts list` shows them:")
        click.echo(shown.stdout, err=True, nl=False)

    def _command(self) -> list[str]:
        endpoint = ("--base-url", self._provider.url, "-m", self._provider.model)
        return [*_FANJOIN, "chat", "-Q", *endpoint, "--toolsets", "delegation", "--format", "json", "--query-file", "-"]

    def _kill_while_it_waits(self, process: subprocess.Popen[bytes], goal: str) -> None:
        """Wait until the delegate's request is with the provider, then kill its process."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while process.poll() is None and time.monotonic() < deadline:
            if self._has_asked(goal) and (running := self._running(goal)):
                say(f"killing {running['receipt_id']} (process {running['pid']}), whose reply is held back")
                end_process(running["pid"])
                return
            time.sleep(_LOOK_SECONDS)

    def _has_asked(self, goal: str) -> bool:
        """Return whether the provider has had a request with this goal."""
        lines = self._log.read_text(encoding="utf-8").splitlines()
        return any(json.loads(line).get("user", "").startswith(goal[:_ENOUGH_CHARACTERS]) for line in lines)

    def _running(self, goal: str) -> dict[str, Any] | None:
        """Return the delegate with this goal that has a process."""
        listed = subprocess.run(
            [*_FANJOIN, "ps", "--format", "json"], env=self._environment, stdout=subprocess.PIPE, check=False
        )
        rows = json.loads(listed.stdout or "[]")
        return next((row for row in rows if row["goal"] == goal and row["pid"]), None)


def say(text: str) -> None:
    """Tell the person in front of it what happens; standard output is for the answer."""
    click.echo(f"demo: {text}", err=True)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a run that is not over: politely, then by force."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _outcome(code: int, written: bytes) -> Outcome:
    try:
        said = json.loads(written)
        return Outcome(code, str(said["answer"] or ""), list(said["results"]))
    except (ValueError, KeyError, TypeError) as error:
        raise RunError(f"The run ended with exit code {code} and no result; its messages above say why.") from error


def shortcomings(outcome: Outcome, victim: int, tasks: int) -> list[str]:
    """Return what is not as it should be: the victim crashed, all others completed, and the answer says so."""
    found = [] if outcome.exit_code == 0 else [f"exit code {outcome.exit_code}"]
    if len(outcome.entries) != tasks:
        found.append(f"{len(outcome.entries)} results for {tasks} delegates")
    for entry in outcome.entries:
        should = "crashed" if entry["task_index"] == victim else "completed"
        if entry["status"] != should:
            found.append(f"delegate {entry['task_index'] + 1} is {entry['status']} instead of {should}")
    if f"{tasks - 1} of {tasks} delegates completed" not in outcome.answer:
        found.append("the answer does not tell how many delegates completed")
    return found
