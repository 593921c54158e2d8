"""Each record as SQL: one function per record, chosen by its type.

A change of a row that is not there, or is past that change, is an error: the core would have lost its order.
"""

import sqlite3
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec.structs import asdict

from fanjoin.supervisor import records
from fanjoin.supervisor.records import Record


class OutOfOrderError(ValueError):
    """A record changes a row that does not exist or has moved on."""


def write(connection: sqlite3.Connection, record: Record, owner_id: str) -> int:
    """Write one record inside the caller's transaction and return the number of its (last) row.

    Args:
        connection: with an open transaction.
        record: what to write.
        owner_id: the supervisor that the new row belongs to.

    Raises:
        sqlite3.Error: a constraint or the file refused it.
        OutOfOrderError: the row to change is not there.
        ValueError: a text holds what UTF-8 or JSON cannot.
    """
    return _WRITERS[type(record)](connection, record, owner_id)


def json_text(value: object) -> str:
    """Return a value as the JSON text of a column."""
    return msgspec.json.encode(value).decode()


def insert(connection: sqlite3.Connection, table: str, row: dict[str, Any]) -> int:
    """Insert one row, whose keys are column names, and return its number."""
    columns, marks = ", ".join(row), ", ".join("?" * len(row))
    cursor = connection.execute(f"INSERT INTO {table} ({columns}) VALUES ({marks})", tuple(row.values()))  # noqa: S608
    return cursor.lastrowid or 0


def _row(record: Record, when: str, **more: Any) -> dict[str, Any]:
    """Return the record's fields as columns: ``at`` under the column's own name, and ``more`` replaced or added."""
    row = asdict(record)
    row[when] = row.pop("at")
    return row | more


def _change(connection: sqlite3.Connection, record: Record, sql: str, **more: Any) -> int:
    """Run an update of one row, whose parameters are the record's fields and ``more``."""
    if connection.execute(sql, asdict(record) | more).rowcount != 1:
        raise OutOfOrderError(f"{type(record).__name__} has no row to change")
    return 0


def _session_created(connection: sqlite3.Connection, record: records.SessionCreated, owner_id: str) -> int:
    return insert(connection, "sessions", _row(record, "created_at", owner_id=owner_id))


def _session_deleted(connection: sqlite3.Connection, record: records.SessionDeleted, _owner_id: str) -> int:
    connection.execute("DELETE FROM messages WHERE session_id = ?", (record.session_id,))
    sql = "UPDATE sessions SET deleted_at = :at WHERE session_id = :session_id AND deleted_at IS NULL"
    return _change(connection, record, sql)


def _admission_queued(connection: sqlite3.Connection, record: records.AdmissionQueued, owner_id: str) -> int:
    row = _row(record, "queued_at", status="queued", owner_id=owner_id)
    row["target_session_id"] = row.pop("session_id")
    return insert(connection, "session_admissions", row)


def _admission_started(connection: sqlite3.Connection, record: records.AdmissionStarted, owner_id: str) -> int:
    sql = """
        UPDATE session_admissions SET status = 'started', started_at = :at, owner_id = :owner_id
        WHERE admission_id = :admission_id AND status IN ('queued', 'unknown')
    """
    return _change(connection, record, sql, owner_id=owner_id)


def _admission_ended(connection: sqlite3.Connection, record: records.AdmissionEnded, _owner_id: str) -> int:
    sql = """
        UPDATE session_admissions SET status = 'terminal', outcome = :outcome, ended_at = :at
        WHERE admission_id = :admission_id
    """
    return _change(connection, record, sql, outcome=json_text(record.outcome))


def _messages_added(connection: sqlite3.Connection, record: records.MessagesAdded, _owner_id: str) -> int:
    sql = "INSERT INTO messages (session_id, admission_id, role, message, created_at) VALUES (?, ?, ?, ?, ?)"
    rows = (
        (record.session_id, record.admission_id, str(message.get("role", "")), json_text(message), record.at)
        for message in record.messages
    )
    connection.executemany(sql, rows)
    return 0


def _delegate_accepted(connection: sqlite3.Connection, record: records.DelegateAccepted, owner_id: str) -> int:
    return insert(connection, "delegations", _row(record, "accepted_at", owner_id=owner_id))


def _attempt_intended(connection: sqlite3.Connection, record: records.AttemptIntended, owner_id: str) -> int:
    row = _row(record, "intended_at", owner_id=owner_id, receipt_id=record.receipt_id or None)
    return insert(connection, "attempts", row)


def _attempt_started(connection: sqlite3.Connection, record: records.AttemptStarted, _owner_id: str) -> int:
    sql = """
        UPDATE attempts SET pid = :pid, process_start = :process_start, started_at = :at
        WHERE attempt_id = :attempt_id AND started_at IS NULL
    """
    return _change(connection, record, sql)


def _attempt_ended(connection: sqlite3.Connection, record: records.AttemptEnded, _owner_id: str) -> int:
    sql = """
        UPDATE attempts SET exit_code = :exit_code, exit_signal = :exit_signal, cause = :cause,
            stderr_tail = :stderr_tail, ended_at = :at
        WHERE attempt_id = :attempt_id AND ended_at IS NULL
    """
    return _change(connection, record, sql)


def _receipt_written(connection: sqlite3.Connection, record: records.ReceiptWritten, _owner_id: str) -> int:
    as_json = {name: json_text(getattr(record, name)) for name in ("usage", "usage_total", "trace", "entry")}
    return insert(connection, "receipts", _row(record, "written_at", **as_json))


def _call_dispatched(connection: sqlite3.Connection, record: records.CallDispatched, owner_id: str) -> int:
    row = _row(record, "dispatched_at", owner_id=owner_id, state="running", delivery_state="pending")
    return insert(connection, "async_delegations", row)


def _call_completed(connection: sqlite3.Connection, record: records.CallCompleted, _owner_id: str) -> int:
    sql = """
        UPDATE async_delegations SET state = 'completed', result = :result, completed_at = :at
        WHERE delegation_id = :delegation_id AND state = 'running'
    """
    return _change(connection, record, sql)


def _call_claimed(connection: sqlite3.Connection, record: records.CallClaimed, _owner_id: str) -> int:
    sql = """
        UPDATE async_delegations SET delivery_state = 'claimed', claim_token = :admission_id, claimed_at = :at
        WHERE delegation_id = :delegation_id AND state = 'completed' AND delivery_state = 'pending'
    """
    return _change(connection, record, sql)


def _call_released(connection: sqlite3.Connection, record: records.CallReleased, _owner_id: str) -> int:
    sql = """
        UPDATE async_delegations SET delivery_state = 'pending', claim_token = NULL, claimed_at = NULL
        WHERE delegation_id = :delegation_id AND delivery_state = 'claimed' AND claim_token = :admission_id
    """
    return _change(connection, record, sql)


def _call_delivered(connection: sqlite3.Connection, record: records.CallDelivered, _owner_id: str) -> int:
    sql = """
        UPDATE async_delegations
        SET delivery_state = 'delivered', delivered_admission_id = :admission_id, delivered_at = :at
        WHERE delegation_id = :delegation_id AND delivery_state = 'claimed' AND claim_token = :admission_id
    """
    return _change(connection, record, sql)


_WRITERS: dict[type[Record], Callable[[sqlite3.Connection, Any, str], int]] = {
    records.SessionCreated: _session_created,
    records.AdmissionQueued: _admission_queued,
    records.AdmissionStarted: _admission_started,
    records.AdmissionEnded: _admission_ended,
    records.MessagesAdded: _messages_added,
    records.DelegateAccepted: _delegate_accepted,
    records.AttemptIntended: _attempt_intended,
    records.AttemptStarted: _attempt_started,
    records.AttemptEnded: _attempt_ended,
    records.ReceiptWritten: _receipt_written,
    records.CallDispatched: _call_dispatched,
    records.CallCompleted: _call_completed,
    records.CallClaimed: _call_claimed,
    records.CallReleased: _call_released,
    records.CallDelivered: _call_delivered,
    records.SessionDeleted: _session_deleted,
}
