import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from store_samples import accepted, open_store, owner, receipt, turn

from fanjoin.ipc.errors import StorageError
from fanjoin.ipc.paths import database_file
from fanjoin.ipc.state_file import SCHEMA_VERSION
from fanjoin.supervisor.records import AdmissionEnded, AdmissionStarted, Record
from fanjoin.supervisor.store.connection import connect
from fanjoin.supervisor.store.owners import register_owner
from fanjoin.supervisor.store.rows import write
from fanjoin.supervisor.store.schema import STEPS, migrate
from fanjoin.supervisor.store.writer import open_database

GOLDEN = Path(__file__).parent
NEXT = (*STEPS, ("ALTER TABLE sessions ADD COLUMN color TEXT NOT NULL DEFAULT 'blue'",))


def schema_of(connection: sqlite3.Connection) -> str:
    """Return every statement that made the schema, spacing apart."""
    statements = connection.execute("SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL AND name != 'sqlite_sequence'")
    return "".join(" ".join(sql.split()) + ";\n" for (sql,) in statements)


def fill(connection: sqlite3.Connection, *records: Record) -> None:
    """Write records as the supervisor would."""
    for record in records:
        write(connection, record, "i_one")


@pytest.mark.parametrize("version", range(1, len(STEPS) + 1))
def test_the_schema_is_the_published_one(home: Path, version: int) -> None:
    """A version never changes: what differs goes into a new step."""
    with closing(connect(database_file(home))) as connection:
        migrate(connection, database_file(home), STEPS[:version])
        assert schema_of(connection) == (GOLDEN / f"schema-{version}.sql").read_text(encoding="utf-8")
        assert connection.execute("PRAGMA user_version").fetchone() == (version,)


def test_the_version_is_the_one_that_readers_know() -> None:
    """Every step raises the version that readers accept."""
    assert len(STEPS) == SCHEMA_VERSION


@pytest.mark.parametrize(
    ("table", "columns"),
    [
        (
            "session_admissions",
            "seq admission_id request_id principal_id target_session_id payload_json payload_digest status outcome",
        ),
        (
            "async_delegations",
            "delegation_id session_id state delivery_state dispatched_at completed_at delivered_at",
        ),
        ("delegations", "receipt_id delegation_id goal"),
        ("receipts", "receipt_id delegation_id status reason"),
        ("attempts", "attempt_id receipt_id pid"),
        ("sessions", "session_id"),
        ("messages", "session_id message"),
    ],
)
def test_names_that_others_read(database: sqlite3.Connection, table: str, columns: str) -> None:
    """Tables and columns that other programs rely on are there, in STRICT tables."""
    assert set(columns.split()) <= {row[1] for row in database.execute(f"PRAGMA table_info({table})")}
    assert database.execute("SELECT strict FROM pragma_table_list WHERE name = ?", (table,)).fetchone() == (1,)


def test_an_older_schema_is_migrated_and_keeps_its_rows(home: Path) -> None:
    """A step that is missing is applied once, in a transaction."""
    path = database_file(home)
    with closing(open_database(home)) as connection:
        register_owner(connection, owner(), 0.5)
        fill(connection, *turn()[:1])
        for _ in range(2):
            migrate(connection, path, NEXT)
        assert connection.execute("SELECT session_id, color FROM sessions").fetchall() == [("s_1", "blue")]
        assert connection.execute("PRAGMA user_version").fetchone() == (len(NEXT),)


def test_a_migration_that_fails_changes_nothing(home: Path) -> None:
    """The steps are one transaction: a later one that fails takes the earlier ones back."""
    with closing(connect(database_file(home))) as connection:
        with pytest.raises(sqlite3.OperationalError):
            migrate(connection, database_file(home), (*NEXT, ("this is no SQL",)))
        assert schema_of(connection) == ""
        assert connection.execute("PRAGMA user_version").fetchone() == (0,)


def test_a_newer_schema_is_refused(home: Path) -> None:
    """A file of a newer version is left as it is, and the message says what to do."""
    with closing(open_database(home)) as connection:
        migrate(connection, database_file(home), NEXT)
        before = schema_of(connection)
    with pytest.raises(StorageError, match=rf"has schema {len(NEXT)}; .* only up to {len(STEPS)}(?s:.*)Update fanjoin"):
        open_store(home, owner(), lambda _: None)
    with closing(sqlite3.connect(database_file(home))) as connection:
        assert schema_of(connection) == before


def test_a_database_of_another_program_is_refused(home: Path) -> None:
    """A file with foreign tables and no version of ours is not taken over."""
    with closing(sqlite3.connect(database_file(home))) as connection:
        connection.execute("CREATE TABLE theirs (x)")
    with pytest.raises(StorageError, match=r"database of another program: it has 'theirs'(?s:.*)FANJOIN_HOME"):
        open_database(home)


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("UPDATE receipts SET status = 'failed'", "never changes"),
        ("DELETE FROM receipts", "never deleted"),
        ("INSERT OR REPLACE INTO receipts SELECT * FROM receipts", "has its receipt"),
        ("UPDATE OR REPLACE receipts SET receipt_id = receipt_id", "never changes"),
    ],
)
def test_a_receipt_is_immutable(database: sqlite3.Connection, statement: str, reason: str) -> None:
    """No statement changes or removes a receipt."""
    fill(database, *turn(), accepted("d_1"), receipt("d_1"))
    with pytest.raises(sqlite3.IntegrityError, match=reason):
        database.execute(statement)
    assert database.execute("SELECT receipt_id, status FROM receipts").fetchall() == [("d_1", "completed")]


def test_a_turn_ends_once(database: sqlite3.Connection) -> None:
    """A terminal turn is never started or ended again."""
    fill(database, *turn(), AdmissionEnded(admission_id="t_1", outcome={"status": "completed"}, at=9.0))
    with pytest.raises(sqlite3.IntegrityError, match="this turn has ended"):
        fill(database, AdmissionEnded(admission_id="t_1", outcome={"status": "failed"}, at=9.0))
    with pytest.raises(ValueError, match="no row to change"):
        fill(database, AdmissionStarted(admission_id="t_1", at=9.0))
    row = database.execute("SELECT status, outcome, ended_at FROM session_admissions").fetchone()
    assert row == ("terminal", '{"status":"completed"}', 9.0)


def test_an_unknown_session_is_refused(database: sqlite3.Connection) -> None:
    """Foreign keys are on: a turn belongs to a session that exists."""
    with pytest.raises(sqlite3.IntegrityError, match="FOREIGN KEY"):
        fill(database, turn()[1])


def test_a_finite_turn_leaves_no_row_of_detached_calls(database: sqlite3.Connection) -> None:
    """Only detached calls have rows in ``async_delegations``; accepting a delegate adds none."""
    fill(database, *turn(), accepted("d_1"), receipt("d_1"))
    assert database.execute("SELECT COUNT(*) FROM async_delegations").fetchone() == (0,)
