import os
import re
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from store_samples import CHILDREN

from fanjoin.ipc.errors import StorageError
from fanjoin.ipc.paths import database_file
from fanjoin.supervisor.store.connection import BUSY_SECONDS, configure, immediate
from fanjoin.supervisor.store.writer import open_database

Query = Callable[..., list[tuple[object, ...]]]


def value(connection: sqlite3.Connection, pragma: str) -> object:
    """Return the value of a PRAGMA."""
    return connection.execute(f"PRAGMA {pragma}").fetchone()[0]


def open_in_child(home: Path, instance_id: str = "i_child", who: str = "as-is") -> "subprocess.Popen[str]":
    """Open the store in a process of its own."""
    command = [sys.executable, str(CHILDREN / "store_opener.py"), str(home), instance_id, who]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, encoding="utf-8")


def said(child: "subprocess.Popen[str]") -> str:
    """Return what such a process printed."""
    output = child.communicate(timeout=60)[0]
    assert child.returncode == 0
    return output.strip()


def test_the_connection_is_durable(database: sqlite3.Connection) -> None:
    """A write is on disk when it is committed, whatever the build's defaults are."""
    assert value(database, "journal_mode") == "wal"
    assert value(database, "synchronous") == 2
    assert value(database, "foreign_keys") == 1
    assert value(database, "busy_timeout") == BUSY_SECONDS * 1000
    assert value(database, "fullfsync") == 1


@pytest.mark.skipif(sys.platform == "win32", reason="mode bits are POSIX")
def test_the_files_are_private(database: sqlite3.Connection, home: Path) -> None:
    """The database and what SQLite puts next to it are readable by their user alone, also when they were not."""
    del database
    assert {path.stat().st_mode & 0o777 for path in home.glob("state.db*")} == {0o600}
    database_file(home).chmod(0o644)
    open_database(home).close()
    assert database_file(home).stat().st_mode & 0o777 == 0o600


def test_a_block_that_fails_leaves_nothing(database: sqlite3.Connection) -> None:
    """A write transaction is undone as a whole when its block raises."""

    def write_and_fail() -> None:
        with immediate(database):
            database.execute("UPDATE owners SET pid = 1")
            raise KeyError

    with pytest.raises(KeyError):
        write_and_fail()
    assert not database.in_transaction
    assert database.execute("SELECT pid FROM owners").fetchone() == (4242,)


def test_a_file_system_without_wal_gets_the_rollback_journal(home: Path) -> None:
    """Where SQLite cannot share memory between processes, the database works with a rollback journal."""
    vfs = "win32-none" if sys.platform == "win32" else "unix-dotfile"
    uri = f"{database_file(home).as_uri()}?vfs={vfs}"
    with closing(sqlite3.connect(uri, uri=True, isolation_level=None)) as connection:
        configure(connection)
        assert value(connection, "journal_mode") == "delete"
        assert value(connection, "synchronous") == 2
        with immediate(connection):
            connection.execute("CREATE TABLE t (x)")


def test_many_first_starts_at_once(home: Path, query: Query) -> None:
    """Supervisors that start at the same moment on an empty home all get the one database."""
    children = [open_in_child(home, f"i_{number}") for number in range(6)]
    assert [said(child) for child in children] == ["ok"] * 6
    assert query("SELECT COUNT(*) FROM owners WHERE ended_at IS NOT NULL") == [(6,)]


@pytest.mark.parametrize("garbage", [b"not a database, " * 300, b"SQLite format 3\x00" + b"\xff" * 4080])
def test_a_file_that_is_no_database_is_refused_and_kept(home: Path, garbage: bytes) -> None:
    """A file that SQLite cannot read is named, is not touched, and the message says what to do."""
    database_file(home).write_bytes(garbage)
    with pytest.raises(StorageError, match=r"damaged(?s:.*)Nothing was changed(?s:.*)Move it away") as caught:
        open_database(home)
    assert str(database_file(home)) in str(caught.value)
    assert database_file(home).read_bytes() == garbage


def test_a_damaged_page_is_a_clear_error(home: Path, database: sqlite3.Connection) -> None:
    """Damage inside a database that opens well is found at the first use of it."""
    database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    root = database.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'owners'").fetchone()[0]
    size = value(database, "page_size")
    assert isinstance(size, int)
    database.close()
    with database_file(home).open("r+b") as file:
        file.seek((root - 1) * size)
        file.write(b"\xff" * size)
    asked = ["chat", "-Q", "-q", "x", "--base-url", "http://127.0.0.1:9/v1", "-m", "m"]
    environment = {**os.environ, "FANJOIN_HOME": str(home)}
    command = [sys.executable, "-P", "-m", "fanjoin.cli", *asked]
    done = subprocess.run(command, env=environment, capture_output=True, encoding="utf-8", check=False)
    assert (done.returncode, done.stdout, "Traceback" in done.stderr) == (1, "", False)
    assert re.search(r"is damaged(?s:.*)Move it away", done.stderr)


def test_a_folder_in_the_place_of_the_database_is_a_clear_error(home: Path) -> None:
    """A path that cannot be opened at all is named."""
    database_file(home).mkdir()
    with pytest.raises(StorageError, match=r"state\.db cannot be opened(?s:.*)FANJOIN_HOME"):
        open_database(home)


def test_a_missing_home_is_a_clear_error(tmp_path: Path) -> None:
    """A home that went away is named, and is not made by the store."""
    with pytest.raises(StorageError, match="cannot be opened"):
        open_database(tmp_path / "gone")


def test_a_read_only_database_is_a_clear_error() -> None:
    """A database that may not be written is refused at the start, with what to do."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        open_database(home).close()
        database_file(home).chmod(0o444)
        home.chmod(0o555)
        text = said(open_in_child(home, who="nobody"))
        home.chmod(0o700)
        database_file(home).chmod(0o600)
    assert "state.db cannot be" in text
    assert "FANJOIN_HOME" in text


@pytest.mark.skipif(sys.platform == "win32", reason="a folder's read-only bit means nothing there")
def test_a_read_only_home_is_a_clear_error() -> None:
    """A home in which nothing can be made is refused at the start."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o555)
        text = said(open_in_child(Path(folder), who="nobody"))
        Path(folder).chmod(0o700)
    assert "state.db cannot be opened" in text
