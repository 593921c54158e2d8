import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from store_samples import accepted, finished, intended, owner, receipt, started, turn

from fanjoin.client.records import RunningDelegate, find_receipt, list_receipts, list_running, owner_lives
from fanjoin.ipc.errors import StorageError, UserError
from fanjoin.ipc.paths import database_file
from fanjoin.ipc.platform import try_lock
from fanjoin.supervisor.records import AttemptEnded, Record
from fanjoin.supervisor.store.owners import register_owner
from fanjoin.supervisor.store.rows import write


def fill(connection: sqlite3.Connection, *records: Record, instance_id: str = "i_one") -> None:
    """Write records as the supervisor would."""
    for record in records:
        write(connection, record, instance_id)


def living(_path: Path) -> bool:
    """Say of every owner that it lives."""
    return True


def test_what_runs_is_listed_whole(home: Path, database: sqlite3.Connection) -> None:
    """Delegates without a receipt are listed, with the process of their newest attempt; ended ones are not."""
    ended = AttemptEnded(attempt_id="d_2.1", exit_code=1, exit_signal=None, cause="exit 1", stderr_tail="", at=7.0)
    fill(database, *turn(), accepted("d_1"), accepted("d_2"), intended("d_2"), started("d_2.1", 11), ended)
    fill(database, intended("d_2", 2), started("d_2.2", 12), *finished("d_3"))
    goal = "Count the words.\x00 Größe 🦉"
    assert list_running(home, living) == [
        RunningDelegate(receipt_id="d_1", delegation_id="c_1", pid=None, goal=goal, status="queued", started_at=None),
        RunningDelegate(receipt_id="d_2", delegation_id="c_1", pid=12, goal=goal, status="running", started_at=6.0),
    ]


def test_delegates_of_a_dead_owner_are_not_running(home: Path, database: sqlite3.Connection) -> None:
    """Only an owner that holds its lock has running delegates, and asking leaves no lock file behind."""
    lock = try_lock(home / "held")
    assert lock is not None
    register_owner(database, owner("i_living", home / "held"), 0.0)
    register_owner(database, owner("i_dead", home / "missing"), 0.0)
    fill(database, *turn(), accepted("d_1"), instance_id="i_living")
    fill(database, accepted("d_2"), instance_id="i_dead")
    assert [delegate.receipt_id for delegate in list_running(home)] == ["d_1"]
    assert not (home / "missing").exists()
    lock.close()
    assert list_running(home) == []
    assert not owner_lives(home / "held")


def test_receipts_are_listed_newest_first(home: Path, database: sqlite3.Connection) -> None:
    """The listing holds the newest receipts, up to the limit, each with its goal."""
    fill(database, *turn(), *(record for number in range(5) for record in finished(f"d_{number}")))
    lines = list_receipts(home, 3)
    assert [line.receipt_id for line in lines] == ["d_4", "d_3", "d_2"]
    assert (lines[0].status, lines[0].goal[:5], lines[0].accepted_at) == ("completed", "Count", 4.0)


def test_a_receipt_is_found_by_any_unique_prefix(home: Path, database: sqlite3.Connection) -> None:
    """A whole identifier wins over longer ones that begin with it; letters of LIKE and GLOB mean themselves."""
    fill(database, *turn(), *finished("d_ab"), *finished("d_abc", "the whole text"), *finished("d_xy"))
    assert find_receipt(home, "d_x").receipt_id == "d_xy"
    assert find_receipt(home, "d_ab").receipt_id == "d_ab"
    found = find_receipt(home, "d_abc")
    assert (found.summary, found.entry["summary"], found.parent_id) == ("the whole text", "the whole text", "t_1")
    for prefix in ("", "d_%", "d*", "e", "d_abcd"):
        with pytest.raises(UserError, match="No delegate is called"):
            find_receipt(home, prefix)


def test_an_ambiguous_prefix_names_the_candidates(home: Path, database: sqlite3.Connection) -> None:
    """The message names those that begin alike, but not hundreds of them."""
    fill(database, *turn(), *(record for number in range(10, 40) for record in finished(f"d_{number}")))
    with pytest.raises(UserError, match=r"more than one delegate: d_20, .*, d_29\.\n"):
        find_receipt(home, "d_2")
    with pytest.raises(UserError, match=r"d_10, .*, d_19, …\."):
        find_receipt(home, "d_")


def test_a_delegate_that_runs_has_no_receipt_yet(home: Path, database: sqlite3.Connection) -> None:
    """Asking for the receipt of a delegate that has not ended says so."""
    fill(database, *turn(), accepted("d_1"))
    with pytest.raises(UserError, match="has no receipt yet"):
        find_receipt(home, "d_1")


def test_a_home_without_a_database_is_an_empty_listing(home: Path) -> None:
    """Nothing was recorded: nothing is listed, and nothing is made."""
    assert list_running(home) == []
    assert list_receipts(home, 10) == []
    with pytest.raises(UserError, match="No delegate is called 'd_1'"):
        find_receipt(home, "d_1")
    assert list(home.iterdir()) == []


def test_a_database_that_is_being_made_is_an_empty_listing(home: Path) -> None:
    """Between its creation and its first migration the file has no tables yet."""
    with closing(sqlite3.connect(database_file(home))) as connection:
        connection.execute("PRAGMA journal_mode = WAL").fetchone()
        assert list_running(home) == []


def test_reading_goes_on_while_somebody_writes(home: Path, database: sqlite3.Connection) -> None:
    """An open write transaction neither blocks readers nor shows them what is not committed."""
    fill(database, *turn(), accepted("d_1"))
    database.execute("BEGIN IMMEDIATE")
    fill(database, receipt("d_1"))
    assert [delegate.receipt_id for delegate in list_running(home, living)] == ["d_1"]
    assert list_receipts(home, 10) == []
    database.execute("COMMIT")
    assert list_running(home, living) == []


@pytest.mark.parametrize(
    "read", [list_running, lambda home: list_receipts(home, 1), lambda home: find_receipt(home, "d")]
)
def test_a_database_that_cannot_be_read_is_a_clear_error(home: Path, read: object) -> None:
    """Damaged and newer files are errors for a person, for every reader."""
    assert callable(read)
    database_file(home).write_bytes(b"garbage" * 100)
    with pytest.raises(StorageError, match=r"damaged(?s:.*)Move it away"):
        read(home)
    database_file(home).unlink()
    with closing(sqlite3.connect(database_file(home))) as connection:
        connection.execute("PRAGMA user_version = 99")
    with pytest.raises(StorageError, match="has schema 99"):
        read(home)
