"""What ``state.db`` says, for the commands that list and show. Nothing here writes; the schema is the supervisor's."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Struct

from fanjoin.ipc.errors import StorageError, UserError
from fanjoin.ipc.messages import JsonObject
from fanjoin.ipc.paths import database_file
from fanjoin.ipc.platform import is_locked
from fanjoin.ipc.state_file import explain, require_known_version

_BUSY_SECONDS = 5.0
_CANDIDATES = 10
"""How many identifiers a message about an ambiguous prefix names."""


class RunningDelegate(Struct, frozen=True, kw_only=True):
    """A delegate that has no receipt yet: ``queued`` (then ``started_at`` is None) or ``running``."""

    receipt_id: str
    delegation_id: str
    pid: int | None
    goal: str
    status: str
    started_at: float | None


class ReceiptLine(Struct, frozen=True, kw_only=True):
    """One line of a listing of receipts; times are Unix seconds."""

    receipt_id: str
    delegation_id: str
    session_id: str
    admission_id: str
    status: str
    reason: str
    message: str
    goal: str
    steps: int
    attempts: int
    accepted_at: float
    written_at: float


class Receipt(ReceiptLine, frozen=True, kw_only=True):
    """A whole receipt. ``entry`` is what the parent was given of this delegate."""

    summary: str | None
    partial_text: str
    parent_id: str
    task_index: int
    model: str
    entry: JsonObject


_Kind = TypeVar("_Kind", bound=Struct)
OwnerLives = Callable[[Path], bool]
owner_lives: OwnerLives = is_locked


@contextmanager
def open_readonly(home: Path) -> Iterator[sqlite3.Connection | None]:
    """Open the home's database for reading; None when nothing was ever recorded there.

    Raises:
        StorageError: it cannot be read, is damaged, or a newer version wrote it.
    """
    path = database_file(home)
    if not path.exists():
        yield None
        return
    connection = None
    try:
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=_BUSY_SECONDS)
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        require_known_version(version, path)
        # Version 0: a first supervisor is about to make the tables.
        yield connection if version else None
    except sqlite3.Error as error:
        raise StorageError(explain(error, path)) from error
    finally:
        if connection is not None:
            connection.close()


def list_running(home: Path, lives: OwnerLives = owner_lives) -> list[RunningDelegate]:
    """Return the delegates that are queued or running, oldest first.

    Those of a supervisor that died are left out: they do not run, and the next start writes their receipts.

    Raises:
        StorageError: the database cannot be read.
    """
    with open_readonly(home) as connection:
        if connection is None:
            return []
        owners = connection.execute("SELECT instance_id, lock_path FROM owners WHERE ended_at IS NULL").fetchall()
        living = [instance_id for instance_id, lock_path in owners if lives(Path(lock_path))]
        return [delegate for instance_id in living for delegate in _running_of(connection, instance_id)]


def list_receipts(home: Path, limit: int) -> list[ReceiptLine]:
    """Return the newest receipts, the newest first.

    Raises:
        StorageError: the database cannot be read.
    """
    with open_readonly(home) as connection:
        if connection is None:
            return []
        sql = f"{_select(ReceiptLine)} ORDER BY receipts.rowid DESC LIMIT ?"
        return [_filled(ReceiptLine, row) for row in connection.execute(sql, (limit,))]


def find_receipt(home: Path, prefix: str) -> Receipt:
    """Return the one receipt whose identifier begins with ``prefix``.

    Raises:
        UserError: there is none, or more than one.
        StorageError: the database cannot be read.
    """
    with open_readonly(home) as connection:
        receipt_id = _only(connection, prefix) if connection is not None and prefix else None
        if connection is None or receipt_id is None:
            raise UserError(f"No delegate is called {prefix!r} under {home}.\n`fanjoin receipts list` names them all.")
        row = connection.execute(f"{_select(Receipt)} WHERE receipt_id = ?", (receipt_id,)).fetchone()
    if row is None:
        raise UserError(
            f"The delegate {receipt_id} has no receipt yet: it has not ended, or its supervisor died.\n"
            "`fanjoin ps` lists what runs; after a death the next run under this home writes the receipt."
        )
    *columns, entry = row
    return _filled(Receipt, (*columns, msgspec.json.decode(entry)))


def _running_of(connection: sqlite3.Connection, instance_id: str) -> list[RunningDelegate]:
    """Return one owner's delegates without a receipt, each with its newest attempt."""
    sql = """
        SELECT d.receipt_id, d.delegation_id, CASE WHEN a.ended_at IS NULL THEN a.pid END, d.goal,
               CASE WHEN a.started_at IS NULL THEN 'queued' ELSE 'running' END, a.started_at
        FROM delegations AS d
        LEFT JOIN attempts AS a ON a.receipt_id = d.receipt_id
            AND a.number = (SELECT MAX(number) FROM attempts WHERE receipt_id = d.receipt_id)
        WHERE d.owner_id = ? AND NOT EXISTS (SELECT 1 FROM receipts WHERE receipts.receipt_id = d.receipt_id)
        ORDER BY d.rowid
    """
    return [_filled(RunningDelegate, row) for row in connection.execute(sql, (instance_id,))]


def _only(connection: sqlite3.Connection, prefix: str) -> str | None:
    """Return the one delegate that a prefix names; None when there is none."""
    sql = "SELECT receipt_id FROM delegations WHERE receipt_id >= ? AND receipt_id < ? ORDER BY receipt_id LIMIT ?"
    past_all = prefix + "\U0010ffff"
    found = [row[0] for row in connection.execute(sql, (prefix, past_all, _CANDIDATES + 1))]
    if prefix in found or len(found) == 1:
        return prefix if prefix in found else str(found[0])
    if not found:
        return None
    names = ", ".join(found[:_CANDIDATES]) + (", …" if len(found) > _CANDIDATES else "")
    raise UserError(f"{prefix!r} is the beginning of more than one delegate: {names}.\nGive more of its letters.")


def _select(kind: type[Struct]) -> str:
    """Return the query for a struct whose fields are columns of ``receipts`` or, failing that, of ``delegations``."""
    own = {"parent_id", "task_index", "model", "goal", "accepted_at"}
    columns = ", ".join(f"{'delegations' if name in own else 'receipts'}.{name}" for name in kind.__struct_fields__)
    return f"SELECT {columns} FROM receipts JOIN delegations USING (receipt_id)"  # noqa: S608 - names of our fields


def _filled(kind: type[_Kind], row: tuple[object, ...]) -> _Kind:
    return kind(**dict(zip(kind.__struct_fields__, row, strict=True)))
