"""What everybody who opens ``state.db`` must know: the version of its schema, and how to explain what SQLite says.

Imported only where SQLite is: it is no part of an agent's start.
"""

import sqlite3
from pathlib import Path

from fanjoin.ipc.errors import StorageError

SCHEMA_VERSION = 2
"""``PRAGMA user_version`` of the schema that this version writes and reads."""

_PRIMARY = 0xFF
"""The low byte of an extended SQLite result code is its kind."""

_LOCKED = (
    "{path} was locked by another process for too long.",
    "Find who holds it (an open database shell, a backup, a virus scanner), end that and run again.",
)
_NOT_WRITABLE = (
    "{path} cannot be written.",
    "Make the file and its folder writable for you, or name another home with FANJOIN_HOME.",
)
_DAMAGED = (
    "{path} is damaged, or is no database of this program.",
    "Move it away, with its -wal and -shm files: the next start makes a new one.",
)
_EXPLANATIONS = {
    sqlite3.SQLITE_BUSY: _LOCKED,
    sqlite3.SQLITE_LOCKED: _LOCKED,
    sqlite3.SQLITE_PROTOCOL: _LOCKED,
    sqlite3.SQLITE_FULL: (
        "The disk that holds {path} is full.",
        "Free some space, or name a home on another disk with FANJOIN_HOME, and run again.",
    ),
    sqlite3.SQLITE_IOERR: (
        "The system could not read or write {path}.",
        "Check the disk and that it is still mounted; on a network folder name a local home with FANJOIN_HOME.",
    ),
    sqlite3.SQLITE_READONLY: _NOT_WRITABLE,
    sqlite3.SQLITE_PERM: _NOT_WRITABLE,
    sqlite3.SQLITE_CANTOPEN: (
        "{path} cannot be opened.",
        "Make sure that its folder is yours and nothing else has its name, or name another home with FANJOIN_HOME.",
    ),
    sqlite3.SQLITE_NOTADB: _DAMAGED,
    sqlite3.SQLITE_CORRUPT: _DAMAGED,
}
_ANYTHING_ELSE = ("SQLite could not use {path}.", "If it happens again, report it with the line below.")


def explain(error: sqlite3.Error, path: Path) -> str:
    """Return what a failure of SQLite means for the user: what happened, that nothing was written, what to do."""
    code = getattr(error, "sqlite_errorcode", 0)
    happened, advice = _EXPLANATIONS.get(code & _PRIMARY, _ANYTHING_ELSE)
    name = getattr(error, "sqlite_errorname", type(error).__name__)
    return f"{happened.format(path=path)} Nothing was changed in it.\n{advice}\n(SQLite says: {error}, {name})"


def require_known_version(found: int, path: Path, known: int = SCHEMA_VERSION) -> None:
    """Refuse a schema that a newer version wrote.

    Raises:
        StorageError: it is newer than the version that is known.
    """
    if found > known:
        raise StorageError(
            f"{path} has schema {found}; this version of fanjoin knows only up to {known}. "
            "A newer version wrote it; nothing was changed in it.\n"
            "Update fanjoin, or name another home with FANJOIN_HOME."
        )
