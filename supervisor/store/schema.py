"""The tables of ``state.db`` and the steps that lead to them.

A column has the name of the record's field that fills it. Times are Unix seconds. Columns that hold JSON are text.
Identifiers of delegates are their receipts' (``receipt_id``): a delegate has that one from the moment it is accepted.
"""

import sqlite3
from collections.abc import Sequence
from pathlib import Path

from fanjoin.ipc.errors import StorageError
from fanjoin.ipc.state_file import require_known_version
from fanjoin.supervisor.store.connection import immediate

_OWNERS = """
CREATE TABLE owners (
    instance_id   TEXT PRIMARY KEY,
    run_tag       TEXT NOT NULL,
    pid           INTEGER NOT NULL,
    process_start TEXT NOT NULL,
    boot_id       TEXT NOT NULL,
    lock_path     TEXT NOT NULL,
    started_at    REAL NOT NULL,
    ended_at      REAL
) STRICT
"""

_SESSIONS = """
CREATE TABLE sessions (
    session_id    TEXT PRIMARY KEY,
    principal_id  TEXT NOT NULL,
    request_id    TEXT NOT NULL,
    source        TEXT NOT NULL,
    title         TEXT NOT NULL,
    cwd           TEXT NOT NULL,
    settings_json TEXT NOT NULL,
    created_at    REAL NOT NULL,
    deleted_at    REAL,
    UNIQUE (principal_id, request_id)
) STRICT
"""

_SESSION_ADMISSIONS = """
CREATE TABLE session_admissions (
    seq               INTEGER PRIMARY KEY AUTOINCREMENT,
    admission_id      TEXT NOT NULL UNIQUE,
    request_id        TEXT NOT NULL,
    principal_id      TEXT NOT NULL,
    target_session_id TEXT NOT NULL REFERENCES sessions (session_id),
    payload_json      TEXT NOT NULL,
    payload_digest    TEXT NOT NULL,
    status            TEXT NOT NULL CHECK (status IN ('queued', 'started', 'unknown', 'terminal')),
    outcome           TEXT,
    owner_id          TEXT NOT NULL REFERENCES owners (instance_id),
    queued_at         REAL NOT NULL,
    started_at        REAL,
    ended_at          REAL,
    UNIQUE (principal_id, target_session_id, request_id),
    CHECK ((status = 'terminal') = (outcome IS NOT NULL))
) STRICT
"""

_MESSAGES = """
CREATE TABLE messages (
    seq          INTEGER PRIMARY KEY,
    session_id   TEXT NOT NULL REFERENCES sessions (session_id),
    admission_id TEXT NOT NULL REFERENCES session_admissions (admission_id),
    role         TEXT NOT NULL,
    message      TEXT NOT NULL,
    created_at   REAL NOT NULL
) STRICT
"""

_DELEGATIONS = """
CREATE TABLE delegations (
    receipt_id      TEXT PRIMARY KEY,
    delegation_id   TEXT NOT NULL,
    admission_id    TEXT NOT NULL REFERENCES session_admissions (admission_id),
    session_id      TEXT NOT NULL REFERENCES sessions (session_id),
    parent_id       TEXT NOT NULL,
    task_index      INTEGER NOT NULL,
    depth           INTEGER NOT NULL,
    goal            TEXT NOT NULL,
    task_json       TEXT NOT NULL,
    model           TEXT NOT NULL,
    transcript_path TEXT NOT NULL,
    owner_id        TEXT NOT NULL REFERENCES owners (instance_id),
    accepted_at     REAL NOT NULL
) STRICT
"""

_ATTEMPTS = """
CREATE TABLE attempts (
    attempt_id    TEXT PRIMARY KEY,
    admission_id  TEXT NOT NULL REFERENCES session_admissions (admission_id),
    receipt_id    TEXT REFERENCES delegations (receipt_id),
    number        INTEGER NOT NULL,
    tag           TEXT NOT NULL,
    owner_id      TEXT NOT NULL REFERENCES owners (instance_id),
    intended_at   REAL NOT NULL,
    pid           INTEGER,
    process_start TEXT,
    started_at    REAL,
    exit_code     INTEGER,
    exit_signal   TEXT,
    cause         TEXT,
    stderr_tail   TEXT,
    ended_at      REAL
) STRICT
"""

_RECEIPTS = """
CREATE TABLE receipts (
    receipt_id    TEXT PRIMARY KEY REFERENCES delegations (receipt_id),
    delegation_id TEXT NOT NULL,
    session_id    TEXT NOT NULL REFERENCES sessions (session_id),
    admission_id  TEXT NOT NULL REFERENCES session_admissions (admission_id),
    status        TEXT NOT NULL
                  CHECK (status IN ('completed', 'failed', 'crashed', 'timeout', 'cancelled', 'lost')),
    reason        TEXT NOT NULL,
    message       TEXT NOT NULL,
    summary       TEXT,
    partial_text  TEXT NOT NULL,
    usage         TEXT NOT NULL,
    usage_total   TEXT NOT NULL,
    steps         INTEGER NOT NULL,
    attempts      INTEGER NOT NULL,
    trace         TEXT NOT NULL,
    entry         TEXT NOT NULL,
    written_at    REAL NOT NULL
) STRICT
"""

_ASYNC_DELEGATIONS = """
CREATE TABLE async_delegations (
    delegation_id          TEXT PRIMARY KEY,
    session_id             TEXT NOT NULL REFERENCES sessions (session_id),
    admission_id           TEXT NOT NULL REFERENCES session_admissions (admission_id),
    owner_id               TEXT NOT NULL REFERENCES owners (instance_id),
    tool_call_id           TEXT NOT NULL,
    state                  TEXT NOT NULL CHECK (state IN ('running', 'completed')),
    result                 TEXT,
    delivery_state         TEXT NOT NULL CHECK (delivery_state IN ('pending', 'claimed', 'delivered')),
    claim_token            TEXT,
    delivered_admission_id TEXT REFERENCES session_admissions (admission_id),
    dispatched_at          REAL NOT NULL,
    completed_at           REAL,
    claimed_at             REAL,
    delivered_at           REAL
) STRICT
"""

_INDEXES = (
    "CREATE INDEX owners_open ON owners (instance_id) WHERE ended_at IS NULL",
    "CREATE INDEX admissions_of_session ON session_admissions (target_session_id, seq)",
    "CREATE INDEX admissions_open ON session_admissions (owner_id) WHERE status IN ('queued', 'started')",
    "CREATE INDEX messages_of_session ON messages (session_id, seq)",
    "CREATE INDEX delegates_of_call ON delegations (delegation_id, task_index)",
    "CREATE INDEX delegates_of_owner ON delegations (owner_id)",
    "CREATE INDEX attempts_of_delegate ON attempts (receipt_id, number)",
    "CREATE INDEX attempts_open ON attempts (owner_id) WHERE ended_at IS NULL",
    "CREATE INDEX calls_undelivered ON async_delegations (session_id) WHERE delivery_state != 'delivered'",
)

# REPLACE deletes without firing the delete trigger, hence the one on insert.
_TRIGGERS = (
    """
    CREATE TRIGGER receipts_never_change BEFORE UPDATE ON receipts
    BEGIN SELECT RAISE(ABORT, 'a receipt never changes'); END
    """,
    """
    CREATE TRIGGER receipts_never_go BEFORE DELETE ON receipts
    BEGIN SELECT RAISE(ABORT, 'a receipt is never deleted'); END
    """,
    """
    CREATE TRIGGER receipts_come_once BEFORE INSERT ON receipts
    WHEN EXISTS (SELECT 1 FROM receipts WHERE receipt_id = NEW.receipt_id)
    BEGIN SELECT RAISE(ABORT, 'this delegate has its receipt'); END
    """,
    """
    CREATE TRIGGER admissions_end_once BEFORE UPDATE OF status, outcome ON session_admissions
    WHEN OLD.status = 'terminal'
    BEGIN SELECT RAISE(ABORT, 'this turn has ended'); END
    """,
)

_SESSIONS_OUTLIVE_THEIR_OWNER = (
    "ALTER TABLE owners ADD COLUMN kind TEXT NOT NULL DEFAULT 'private'",
    "ALTER TABLE sessions ADD COLUMN owner_id TEXT REFERENCES owners (instance_id)",
    "ALTER TABLE sessions ADD COLUMN fields_digest TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE session_admissions ADD COLUMN keyed INTEGER NOT NULL DEFAULT 0",
    "CREATE INDEX admissions_unsettled ON session_admissions (target_session_id, seq) WHERE status != 'terminal'",
    "CREATE INDEX calls_of_owner ON async_delegations (owner_id) WHERE state = 'running'",
    "CREATE INDEX receipts_of_turn ON receipts (admission_id)",
)

Steps = Sequence[Sequence[str]]

STEPS: Steps = (
    (
        *(_OWNERS, _SESSIONS, _SESSION_ADMISSIONS, _MESSAGES, _DELEGATIONS, _ATTEMPTS, _RECEIPTS, _ASYNC_DELEGATIONS),
        *_INDEXES,
        *_TRIGGERS,
    ),
    _SESSIONS_OUTLIVE_THEIR_OWNER,
)
"""Step ``n`` leads from version ``n`` to ``n + 1``. A step that was published never changes; new ones are added."""


def migrate(connection: sqlite3.Connection, path: Path, steps: Steps = STEPS) -> None:
    """Bring the schema to the newest version in one transaction; ``path`` is for messages.

    Raises:
        StorageError: the schema is newer than this version knows, or the file belongs to another program.
    """
    found = _version(connection)
    require_known_version(found, path, len(steps))
    if found == len(steps):
        return
    with immediate(connection):
        found = _version(connection)
        if found == 0:
            _require_empty(connection, path)
        for statement in (statement for step in steps[found:] for statement in step):
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {len(steps)}")


def _version(connection: sqlite3.Connection) -> int:
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    return version


def _require_empty(connection: sqlite3.Connection, path: Path) -> None:
    table = connection.execute("SELECT name FROM sqlite_schema").fetchone()
    if table is not None:
        raise StorageError(
            f"{path} is a database of another program: it has {table[0]!r} and no version of ours. "
            "Nothing was changed in it.\nMove it away, or name another home with FANJOIN_HOME."
        )
