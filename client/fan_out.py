"""A fan-out without a parent model: its settings, its submission, and its results as they come."""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from fanjoin.client.earlier import entries_of
from fanjoin.ipc.config import Flags, NotConfiguredError, Resolved, load_config, resolve
from fanjoin.ipc.ids import REQUEST, new_id
from fanjoin.ipc.messages import Accepted, DirectTask, Event, JsonObject, Submit, Usage
from fanjoin.ipc.settings import Endpoint, TurnSettings, Worker
from fanjoin.ipc.text import clean, clean_tree

STATUSES = ("completed", "failed", "crashed", "timeout", "cancelled", "lost")
_NOWHERE = "http://127.0.0.1:9/"
_PROGRAM = "program:"
"""What stands for a URL where no model is asked."""


class Failure(Struct, frozen=True, kw_only=True):
    """Why a task did not complete."""

    reason: str
    message: str


class ProgramExit(Struct, frozen=True, kw_only=True):
    """How a process ended, where its death decided the status; a signal by its name."""

    code: int | None = None
    signal: str | None = None


class Result(Struct, frozen=True, kw_only=True):
    """How one task ended. ``entry`` is the whole of it, as the receipt keeps it."""

    id: str
    status: str
    ok: bool
    receipt_id: str
    summary: str | None = None
    error: Failure | None = None
    exit: ProgramExit | None = None
    output: JsonObject | None = None
    partial_text: str = ""
    attempts: int = 0
    model: str = ""
    steps: int = 0
    duration_seconds: float = 0.0
    queued_seconds: float = 0.0
    usage_total: Usage = Usage()
    transcript: str = ""
    summary_path: str = ""
    resumed: bool = False
    entry: JsonObject = field(default_factory=dict)


def result_of(entry: JsonObject) -> Result:
    """Return an entry with types."""
    return msgspec.convert({**entry, "entry": entry}, Result)


def settings_for(home: Path, environ: Mapping[str, str], flags: Flags, worker: Worker | None = None) -> Resolved:
    """Return what a fan-out runs with. A program as the worker needs no model endpoint.

    Raises:
        UserError: something is missing or wrong.
    """
    config = load_config(home)
    try:
        resolved = resolve(config, environ, flags)
    except NotConfiguredError:
        if worker is None:
            raise
        resolved = resolve(config, {}, replace(flags, base_url=_NOWHERE, model="none", provider="custom"))
    return resolved if worker is None else replace(resolved, turn=_for_program(resolved.turn, worker))


def _for_program(turn: TurnSettings, worker: Worker) -> TurnSettings:
    """Return the settings for a program, which is asked instead of a model."""
    program = Endpoint(base_url=_PROGRAM, model=Path(worker.command[0]).name)
    limits = replace(turn.limits, stall_seconds=0.0)  # silence says nothing: many print once, at their end
    return replace(turn, endpoint=program, delegate_endpoint=program, limits=limits, worker=worker)


def submission(tasks: list[DirectTask], settings: TurnSettings, told: Mapping[str, Any]) -> Submit:
    """Return the turn that runs the tasks; ``told`` are the flags to keep with it, without any value that is secret."""
    digest = hashlib.sha256("".join(task.digest for task in tasks).encode()).hexdigest()
    given = {"count": len(tasks), "sha256": digest}
    payload = {"text": "", "finite": True, "tasks": given, "cli_turn_v1": dict(told)}
    return Submit(
        request_id=new_id(REQUEST),
        session_id="",
        text="",
        finite=True,
        payload_json=msgspec.json.encode(clean_tree(payload)).decode(),
        settings=settings,
        source="delegate",
        title=clean(tasks[0].goal[:80]),
        tasks=tasks,
    )


class Collector:
    """Takes what is told of a turn and hands on the entry of each task, once.

    Args:
        task_ids: whose entries are expected.
        arrived: called with each entry as it comes.
    """

    def __init__(self, task_ids: Iterable[str], arrived: Callable[[JsonObject], None]) -> None:
        self.missing = set(task_ids)
        self._arrived = arrived

    def told(self, message: Accepted | Event) -> None:
        """Take a message."""
        if isinstance(message, Event) and message.name == "delegation.completed":
            self._take(message.data["entry"])

    def fill(self, home: Path, admission_id: str) -> None:
        """Read the entries that were not told: a supervisor drops events for a viewer that reads too slowly."""
        if self.missing and admission_id:
            for entry in entries_of(home, admission_id):
                self._take(entry)

    def _take(self, entry: JsonObject) -> None:
        if entry.get("id") in self.missing:
            self.missing.discard(entry["id"])
            self._arrived(entry)
