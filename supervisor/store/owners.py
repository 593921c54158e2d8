"""Who wrote what: one row per supervisor instance. Its lock, not this row, says whether it lives."""

import sqlite3

from msgspec import Struct
from msgspec.structs import asdict

from fanjoin.supervisor.store.connection import immediate
from fanjoin.supervisor.store.rows import insert


class Owner(Struct, frozen=True, kw_only=True):
    """A supervisor instance. ``process_start`` and ``boot_id`` tell its process from one that got the same pid later.

    ``run_tag`` marks the environment of every process below it; the file at ``lock_path`` is locked while it lives.
    ``kind`` is ``private`` (it lives for its viewer) or ``daemon``.
    """

    instance_id: str
    run_tag: str
    pid: int
    process_start: str
    boot_id: str
    lock_path: str
    kind: str = "private"


def register_owner(connection: sqlite3.Connection, owner: Owner, at: float) -> None:
    """Add the row of a supervisor that starts; it holds its lock already."""
    with immediate(connection):
        insert(connection, "owners", asdict(owner) | {"started_at": at})


def end_owner(connection: sqlite3.Connection, instance_id: str, at: float) -> bool:
    """Mark a supervisor as ended, unless it leaves something open: that is for recovery to close.

    Returns:
        Whether it is marked now.
    """
    sql = """
        UPDATE owners SET ended_at = :at WHERE instance_id = :id AND ended_at IS NULL
        AND NOT EXISTS (SELECT 1 FROM attempts WHERE owner_id = :id AND ended_at IS NULL)
        AND NOT EXISTS (SELECT 1 FROM session_admissions WHERE owner_id = :id AND status = 'started')
        AND NOT EXISTS (SELECT 1 FROM delegations LEFT JOIN receipts USING (receipt_id)
                        WHERE owner_id = :id AND receipts.receipt_id IS NULL)
        AND NOT EXISTS (SELECT 1 FROM async_delegations WHERE owner_id = :id AND state = 'running')
    """
    with immediate(connection):
        return connection.execute(sql, {"at": at, "id": instance_id}).rowcount == 1


def unended_owners(connection: sqlite3.Connection) -> list[Owner]:
    """Return the supervisors that live, or died without having ended."""
    fields = ", ".join(Owner.__struct_fields__)
    rows = connection.execute(f"SELECT {fields} FROM owners WHERE ended_at IS NULL").fetchall()  # noqa: S608
    return [Owner(**dict(zip(Owner.__struct_fields__, row, strict=True))) for row in rows]
