"""What earlier runs did with the same tasks, by the digest that each delegate's row keeps."""

import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec import Struct, field

from fanjoin.client.records import OwnerLives, open_readonly, owner_lives
from fanjoin.ipc.errors import UserError
from fanjoin.ipc.messages import DirectTask, JsonObject

PATIENCE_SECONDS = 15.0
"""How long a run that is just ending is waited for: what it completes now must not be run again."""
_LOOK_SECONDS = 0.05


class Earlier(Struct, kw_only=True):
    """The entries of tasks that completed, and the tasks that were begun but did not complete, by their ids."""

    completed: dict[str, JsonObject] = field(default_factory=dict)
    tried: set[str] = field(default_factory=set)


class _Kept(Struct):
    """What is read of a delegate's ``task_json``."""

    task_id: str = ""
    digest: str = ""


class _Past(Struct):
    """One delegate of an earlier run."""

    receipt_id: str
    lock_path: str
    ended_at: float | None
    status: str | None


def look_back(home: Path, tasks: list[DirectTask], lives: OwnerLives = owner_lives) -> Earlier:
    """Return what became of these tasks in every earlier run under this home.

    Raises:
        UserError: some of them run right now.
        StorageError: the database cannot be read.
    """
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        earlier, running = _look(home, {task.digest: task.task_id for task in tasks}, lives)
        if not running:
            return earlier
        if time.monotonic() > deadline:
            named = ", ".join(running[:5])
            raise UserError(
                f"{len(running)} of these tasks run right now in another run ({named}). Nothing was run.\n"
                "Wait for its end; fanjoin ps shows them."
            )
        time.sleep(_LOOK_SECONDS)


def _look(home: Path, wanted: dict[str, str], lives: OwnerLives) -> tuple[Earlier, list[str]]:
    earlier = Earlier()
    running: list[str] = []
    living: dict[str, bool] = {}
    with open_readonly(home) as connection:
        for digest, past in _delegates(connection):
            task_id = wanted.get(digest)
            if task_id is None:
                continue
            if past.status is None and past.ended_at is None:
                if past.lock_path not in living:
                    living[past.lock_path] = lives(Path(past.lock_path))
                if living[past.lock_path]:
                    running.append(past.receipt_id)
            if past.status == "completed" and connection is not None:
                sql = "SELECT entry FROM receipts WHERE receipt_id = ?"
                (entry,) = connection.execute(sql, (past.receipt_id,)).fetchone()
                earlier.completed[task_id] = msgspec.json.decode(entry)
            earlier.tried.add(task_id)
    earlier.tried -= earlier.completed.keys()
    return earlier, running


def _delegates(connection: sqlite3.Connection | None) -> Iterator[tuple[str, _Past]]:
    """Yield the digest and the fate of every delegate that was a given task, oldest first."""
    if connection is None:
        return
    sql = """
        SELECT task_json, d.receipt_id, lock_path, ended_at, status FROM delegations AS d
        JOIN owners ON instance_id = owner_id LEFT JOIN receipts USING (receipt_id) ORDER BY d.rowid
    """
    kept = msgspec.json.Decoder(_Kept)
    for task_json, *past in connection.execute(sql):
        if digest := kept.decode(task_json).digest:
            yield digest, _Past(*past)


def entries_of(home: Path, admission_id: str) -> Iterator[JsonObject]:
    """Yield the entries of a turn's receipts, in the order of their tasks.

    Raises:
        StorageError: the database cannot be read.
    """
    sql = """
        SELECT entry FROM receipts JOIN delegations USING (receipt_id)
        WHERE receipts.admission_id = ? ORDER BY task_index
    """
    with open_readonly(home) as connection:
        rows = [] if connection is None else connection.execute(sql, (admission_id,)).fetchall()
    for (entry,) in rows:
        yield msgspec.json.decode(entry)
