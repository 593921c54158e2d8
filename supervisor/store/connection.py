"""One way to open ``state.db`` for writing: durable, checked, private to its user."""

import contextlib
import sqlite3
import stat
import time
from collections.abc import Iterator
from pathlib import Path

from fanjoin.ipc.errors import StorageError

BUSY_SECONDS = 30.0
"""How long a statement waits for another process's lock."""

_SYNCHRONOUS_FULL = 2
_WAL_IMPOSSIBLE = (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_PROTOCOL, sqlite3.SQLITE_CANTOPEN)
_RETRY_SECONDS = 0.01


def connect(path: Path) -> sqlite3.Connection:
    """Open the database, which is created when missing; the connection may be handed to another thread.

    Raises:
        sqlite3.Error: it cannot be opened.
        StorageError: SQLite does not give the durability that was asked for.
    """
    connection = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    try:
        _make_private(path)
        configure(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def configure(connection: sqlite3.Connection) -> None:
    """Set what SQLite keeps per connection, and check that it is set.

    Raises:
        sqlite3.Error: the file cannot be used.
        StorageError: the build of SQLite ignores a setting that receipts depend on.
    """
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA synchronous = FULL")
    # What undoes a part of a transaction: else SQLite opens a file for it, at a time of its own choosing.
    connection.execute("PRAGMA temp_store = MEMORY")
    # macOS only: elsewhere SQLite ignores both.
    connection.execute("PRAGMA fullfsync = ON")
    connection.execute("PRAGMA checkpoint_fullfsync = ON")
    _choose_journal(connection, time.monotonic() + BUSY_SECONDS)
    if _value(connection, "synchronous") != _SYNCHRONOUS_FULL or _value(connection, "foreign_keys") != 1:
        raise StorageError(
            "SQLite ignores `synchronous = FULL` or `foreign_keys = ON`: receipts would not survive a power loss. "
            "Nothing was started.\nUse a Python with an ordinary SQLite."
        )


@contextlib.contextmanager
def immediate(connection: sqlite3.Connection) -> Iterator[None]:
    """Run the block in one write transaction, undone as a whole when the block or the commit fails."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        # SQLite has rolled back by itself after some errors (disk full, I/O).
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _choose_journal(connection: sqlite3.Connection, deadline: float) -> None:
    """Prefer WAL; where the file system cannot share memory, the rollback journal is as durable, only slower."""
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL").fetchone()
        except sqlite3.OperationalError as error:
            kind = error.sqlite_errorcode & 0xFF
            # Several first starts at once: changing the mode does not wait for the lock as other statements do.
            if kind == sqlite3.SQLITE_BUSY and time.monotonic() < deadline:
                time.sleep(_RETRY_SECONDS)
                continue
            if kind not in _WAL_IMPOSSIBLE:
                raise
            connection.execute("PRAGMA journal_mode = DELETE").fetchone()
        return


def _make_private(path: Path) -> None:
    """Take other users' rights away. SQLite gives the -wal and -shm files the same mode."""
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & 0o077:
        # Another user's file cannot be written either, and SQLite says so at the first write.
        with contextlib.suppress(PermissionError):
            path.chmod(mode & 0o700)


def _value(connection: sqlite3.Connection, pragma: str) -> int:
    value: int = connection.execute(f"PRAGMA {pragma}").fetchone()[0]
    return value
