import sqlite3
from typing import Any

import msgspec
import pytest
from store_samples import accepted, intended, receipt, started, turn

from fanjoin.ipc.messages import JsonObject, ToolTrace, Usage
from fanjoin.supervisor import records
from fanjoin.supervisor.records import AttemptEnded, MessagesAdded, Record
from fanjoin.supervisor.store import rows


def stored(database: sqlite3.Connection, sql: str) -> dict[str, Any]:
    """Return the one row of a query by its columns."""
    cursor = database.execute(sql)
    (row,) = cursor.fetchall()
    return dict(zip([column[0] for column in cursor.description], row, strict=True))


@pytest.fixture
def running(database: sqlite3.Connection) -> sqlite3.Connection:
    """Give a database with one running turn."""
    for record in turn():
        rows.write(database, record, "i_one")
    return database


def write(database: sqlite3.Connection, *all_records: Record) -> None:
    """Write records as the supervisor would."""
    for record in all_records:
        rows.write(database, record, "i_one")


def test_every_record_has_its_sql() -> None:
    """A record that the core may ask for can be written."""
    assert set(rows._WRITERS) == set(records.Record.__args__)


def test_a_session_and_its_turn(running: sqlite3.Connection) -> None:
    """A session and a turn keep every field of their records."""
    assert stored(running, "SELECT * FROM sessions") == {
        "session_id": "s_1",
        "principal_id": "owner",
        "request_id": "create-s_1",
        "source": "cli",
        "title": "A title",
        "cwd": "/somewhere",
        "settings_json": "{}",
        "created_at": 1.0,
        "deleted_at": None,
        "owner_id": "i_one",
        "fields_digest": "",
    }
    assert stored(running, "SELECT * FROM session_admissions") == {
        "seq": 1,
        "admission_id": "t_1",
        "request_id": "request-t_1",
        "principal_id": "owner",
        "target_session_id": "s_1",
        "payload_json": '{"text": "hi"}',
        "payload_digest": "digest",
        "status": "started",
        "outcome": None,
        "owner_id": "i_one",
        "queued_at": 2.0,
        "started_at": 3.0,
        "ended_at": None,
        "keyed": 0,
    }


def test_messages_keep_their_order_and_form(running: sqlite3.Connection) -> None:
    """Messages are stored one a row, as the API knows them, in order."""
    messages: list[JsonObject] = [
        {"role": "user", "content": "hi\x00"},
        {"role": "assistant", "content": None, "tool_calls": []},
    ]
    write(running, MessagesAdded(session_id="s_1", admission_id="t_1", messages=messages, at=4.0))
    kept = running.execute("SELECT role, message FROM messages ORDER BY seq").fetchall()
    assert [role for role, _ in kept] == ["user", "assistant"]
    assert [msgspec.json.decode(text) for _, text in kept] == messages


def test_a_delegate_and_its_process(running: sqlite3.Connection) -> None:
    """A delegate's goal is kept whole, NUL and all; its process is told from intent to end."""
    ended = AttemptEnded(
        attempt_id="d_1.1", exit_code=None, exit_signal="SIGKILL", cause="killed", stderr_tail="Boo", at=8.0
    )
    write(running, accepted("d_1"), intended("d_1"), started("d_1.1", 77), ended)
    delegate = stored(running, "SELECT * FROM delegations")
    assert delegate["goal"] == "Count the words.\x00 Größe 🦉"
    assert (delegate["owner_id"], delegate["accepted_at"], delegate["parent_id"]) == ("i_one", 4.0, "t_1")
    assert stored(running, "SELECT * FROM attempts") == {
        "attempt_id": "d_1.1",
        "admission_id": "t_1",
        "receipt_id": "d_1",
        "number": 1,
        "tag": "tag-d_1",
        "owner_id": "i_one",
        "intended_at": 5.0,
        "pid": 77,
        "process_start": "18",
        "started_at": 6.0,
        "exit_code": None,
        "exit_signal": "SIGKILL",
        "cause": "killed",
        "stderr_tail": "Boo",
        "ended_at": 8.0,
    }


def test_the_root_of_a_turn_is_an_attempt_without_a_delegate(running: sqlite3.Connection) -> None:
    """The root's process belongs to the turn and to no delegate."""
    write(running, intended(""))
    attempt = stored(running, "SELECT attempt_id, receipt_id, admission_id FROM attempts")
    assert attempt == {"attempt_id": "t_1.1", "receipt_id": None, "admission_id": "t_1"}


def test_a_receipt_keeps_everything(running: sqlite3.Connection) -> None:
    """Counts, the trace and the entry are JSON that reads back to what was written."""
    written = msgspec.structs.replace(
        receipt("d_1", usage=Usage(input_tokens=1, output_tokens=2, cached_tokens=1)),
        trace=[ToolTrace(tool="read_file")],
    )
    write(running, accepted("d_1"), written)
    kept = stored(running, "SELECT * FROM receipts")
    assert msgspec.json.decode(kept["usage"], type=Usage) == written.usage
    assert msgspec.json.decode(kept["usage_total"], type=Usage) == written.usage_total
    assert msgspec.json.decode(kept["trace"], type=list[ToolTrace]) == written.trace
    assert msgspec.json.decode(kept["entry"]) == written.entry
    assert (kept["summary"], kept["status"], kept["written_at"]) == ("done", "completed", 7.0)
