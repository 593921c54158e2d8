import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from store_samples import CHILDREN, Listener, owner, turn

from fanjoin.ipc.paths import database_file
from fanjoin.supervisor.store.owners import register_owner
from fanjoin.supervisor.store.writer import StoreWriter, open_database


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Give a home whose path has a space and letters outside ASCII."""
    folder = tmp_path / "a home, größe"
    folder.mkdir(mode=0o700)
    return folder


@pytest.fixture
def database(home: Path) -> Iterator[sqlite3.Connection]:
    """Give a connection like the writer's own, with one registered owner."""
    with closing(open_database(home)) as connection:
        register_owner(connection, owner(lock_path=home / "lock"), 0.5)
        yield connection


@pytest.fixture
def listener() -> Listener:
    """Give what the writer is to notify."""
    return Listener()


@pytest.fixture
def writer(home: Path, database: sqlite3.Connection, listener: Listener) -> Iterator[StoreWriter]:
    """Give a writer on ``database`` with one session and one running turn."""
    store = StoreWriter(database, database_file(home), "i_one", listener)
    store.submit(0, turn())
    assert listener.wait(0).error is None
    yield store
    assert store.close(20)


@contextmanager
def locked(home: Path) -> Iterator[Callable[[], None]]:
    """Have another process hold the write lock; the value frees it."""
    command = [sys.executable, str(CHILDREN / "store_lock_holder.py"), str(database_file(home))]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdin is not None
        assert holder.stdout is not None
        assert holder.stdout.readline() == "locked\n"

        def free() -> None:
            holder.communicate()

        yield free
        free()


@pytest.fixture
def lock(home: Path, writer: StoreWriter) -> Iterator[Callable[[], None]]:
    """Hold the write lock in another process until the value is called."""
    del writer
    with locked(home) as free:
        yield free


def rows(home: Path, sql: str, *values: object) -> list[tuple[object, ...]]:
    """Read with a connection of its own, as another program would."""
    with closing(sqlite3.connect(database_file(home))) as connection:
        return connection.execute(sql, values).fetchall()


@pytest.fixture
def query(home: Path) -> Callable[..., list[tuple[object, ...]]]:
    """Give a way to read the database as another program would."""
    return lambda sql, *values: rows(home, sql, *values)
