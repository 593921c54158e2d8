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
    """How the run ended: the exit code and the answer of ``chat``, and the receipts, by goal."""

    exit_code: int
    answer: str
    receipts: dict[str, dict[str, Any]]


class DemoRun:
    """One run of ``fanjoin chat`` in a folder of its own."""

    def __init__(self, folder: Path, provider: EmbeddedProvider, log: Path) -> None:
        self.home = folder / "home"
        self._environment = {**allowed_environment(os.environ, ("FANJOIN_*",)), "FANJOIN_HOME": str(self.home)}
        self._folder = folder
        self._provider = provider
        self._log = log

    def chat(self, query: str, victim_goal: str) -> Outcome:
        """Run the turn, kill the delegate with this goal while the provider holds its reply back, and return the end.

        Raises:
            RunError: the run was not done in time.
        """
        query_file, answer_file = self._folder / "query.txt", self._folder / "answer.txt"
        query_file.write_text(query, encoding="utf-8", newline="\n")
        with query_file.open("rb") as stdin, answer_file.open("wb") as stdout:
            process = subprocess.Popen(self._command(), stdin=stdin, stdout=stdout, env=self._environment)
            try:
                self._kill_while_it_waits(process, victim_goal)
                code = process.wait(DEADLINE_SECONDS)
            except subprocess.TimeoutExpired as error:
                raise RunError(f"The run was not done within {DEADLINE_SECONDS:.0f} s and was ended.") from error
            finally:
                _end(process)
        answer = answer_file.read_text(encoding="utf-8", errors="replace").removesuffix("\n")
        receipts = self._listed("receipts", "list", "--limit", "1000")
        return Outcome(code, answer, {receipt["goal"]: receipt for receipt in receipts})

    def show_receipts(self) -> None:
        """Print the receipts of the run to standard error, as a user lists them."""
        shown = subprocess.run(
            [*_FANJOIN, "receipts", "list"], env=self._environment, stdout=subprocess.PIPE, check=False
        )
        say("the receipts, as `fanjoin receipts list` shows them:")
        click.echo(shown.stdout, err=True, nl=False)

    def _command(self) -> list[str]:
        endpoint = ("--base-url", self._provider.url, "-m", self._provider.model)
        return [*_FANJOIN, "chat", "--oneshot", *endpoint, "--toolsets", "delegation", "--query-file", "-"]

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
        return next((row for row in self._listed("ps") if row["goal"] == goal and row["pid"]), None)

    def _listed(self, *command: str) -> list[dict[str, Any]]:
        """Return what a listing command says about this home."""
        said = subprocess.run(
            [*_FANJOIN, *command, "--format", "json"], env=self._environment, stdout=subprocess.PIPE, check=False
        )
        return list(json.loads(said.stdout or "[]"))


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


def shortcomings(outcome: Outcome, goals: list[str], victim: int) -> list[str]:
    """Return what is not as it should be: the victim crashed, all others completed, and the answer says so."""
    found = [] if outcome.exit_code == 0 else [f"exit code {outcome.exit_code}"]
    for index, goal in enumerate(goals):
        should = "crashed" if index == victim else "completed"
        status = outcome.receipts.get(goal, {}).get("status", "without a receipt")
        if status != should:
            found.append(f"delegate {index + 1} is {status} instead of {should}")
    if f"{len(goals) - 1} of {len(goals)} delegates completed" not in outcome.answer:
        found.append("the answer does not tell how many delegates completed")
    return found
