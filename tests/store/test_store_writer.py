import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from store_samples import CHILDREN, Listener, accepted, finished, open_store, owner, queued, receipt, session, started

from fanjoin.supervisor.records import AttemptEnded
from fanjoin.supervisor.store.writer import StoreWriter

Query = Callable[..., list[tuple[object, ...]]]
Free = Callable[[], None]


def test_a_committed_ticket_is_in_the_file(writer: StoreWriter, listener: Listener, query: Query) -> None:
    """What is acknowledged can be read by another connection at once."""
    writer.submit(1, finished("d_1"))
    assert listener.wait(1).error is None
    assert query("SELECT receipt_id, status FROM receipts") == [("d_1", "completed")]


def test_queued_turns_get_growing_sequence_numbers(writer: StoreWriter, listener: Listener) -> None:
    """Each queued turn's number is told by its admission, and grows."""
    writer.submit(1, [queued("t_2"), queued("t_3")])
    sequences = listener.wait(1).sequences
    assert set(sequences) == {"t_2", "t_3"}
    assert 1 < sequences["t_2"] < sequences["t_3"]


def test_it_commits_when_idle(
    database: sqlite3.Connection, writer: StoreWriter, listener: Listener, lock: Free, query: Query
) -> None:
    """What queues up while one transaction is on its way shares the next one."""
    commits: list[str] = []
    database.set_trace_callback(lambda sql: commits.append(sql) if sql == "COMMIT" else None)
    for ticket in range(1, 501):
        writer.submit(ticket, finished(f"d_{ticket}"))
    lock()
    assert all(listener.wait(ticket).error is None for ticket in range(1, 501))
    assert len(commits) <= 2
    assert query("SELECT COUNT(*) FROM receipts") == [(500,)]


def test_one_bad_submission_does_not_fail_the_others(
    writer: StoreWriter, listener: Listener, lock: Free, query: Query
) -> None:
    """Within one transaction, each fault costs only its own submission, whole."""
    writer.submit(1, finished("d_1"))
    writer.submit(2, [*finished("d_2"), receipt("d_2")])
    writer.submit(3, [accepted("d_3"), receipt("d_unknown")])
    writer.submit(4, finished("d_4", summary="\ud800"))
    writer.submit(5, [started("no-such-attempt")])
    writer.submit(6, [queued("t_9", request_id="request-t_1")])
    writer.submit(7, finished("d_7"))
    lock()
    errors = [listener.wait(ticket).error for ticket in range(1, 8)]
    assert [error is None for error in errors] == [True, False, False, False, False, False, True]
    assert "this delegate has its receipt" in str(errors[1])
    assert query("SELECT receipt_id FROM receipts ORDER BY receipt_id") == [("d_1",), ("d_7",)]
    assert query("SELECT receipt_id FROM delegations ORDER BY receipt_id") == [("d_1",), ("d_7",)]


def test_a_change_that_came_already_is_refused(writer: StoreWriter, listener: Listener) -> None:
    """A process ends once; the core would have lost its order otherwise."""
    ended = AttemptEnded(attempt_id="gone", exit_code=0, exit_signal=None, cause="", stderr_tail="", at=9.0)
    writer.submit(1, [ended])
    assert "AttemptEnded has no row to change" in str(listener.wait(1).error)


def test_a_lock_that_is_freed_loses_nothing(writer: StoreWriter, listener: Listener, lock: Free) -> None:
    """While another process holds the write lock nothing is acknowledged, and everything is kept."""
    writer.submit(1, finished("d_1"))
    assert not listener.answered(1, 0.5)
    lock()
    assert listener.wait(1).error is None


def test_a_lock_that_stays_is_an_error_and_the_writer_lives_on(
    database: sqlite3.Connection, writer: StoreWriter, listener: Listener, lock: Free, query: Query
) -> None:
    """A lock held for too long fails what waited, by name of the file, and later submissions are written."""
    database.execute("PRAGMA busy_timeout = 50")
    writer.submit(1, finished("d_1"))
    error = str(listener.wait(1).error)
    assert "state.db was locked by another process" in error
    lock()
    writer.submit(2, finished("d_2"))
    assert listener.wait(2).error is None
    assert query("SELECT receipt_id FROM receipts") == [("d_2",)]


def test_a_full_disk_fails_only_what_does_not_fit(
    database: sqlite3.Connection, writer: StoreWriter, listener: Listener, lock: Free, query: Query
) -> None:
    """No half receipt, no false acknowledgement; what still fits is written, then and later."""
    pages = database.execute("PRAGMA page_count").fetchone()[0]
    database.execute(f"PRAGMA max_page_count = {pages + 3}")
    writer.submit(1, finished("d_1"))
    writer.submit(2, finished("d_2", summary="x" * 1_000_000))
    writer.submit(3, finished("d_3"))
    lock()
    assert listener.wait(1).error is None
    assert "disk" in str(listener.wait(2).error)
    assert "full" in str(listener.wait(2).error)
    assert listener.wait(3).error is None
    writer.submit(4, finished("d_4"))
    assert listener.wait(4).error is None
    assert query("SELECT receipt_id FROM delegations ORDER BY receipt_id") == [("d_1",), ("d_3",), ("d_4",)]


def test_closing_writes_what_is_queued(home: Path, query: Query) -> None:
    """Close flushes, and leaves one file with everything in it and no owner that looks alive."""
    listener = Listener()
    store = open_store(home, owner(), listener)
    store.submit(1, [session(), queued(), *finished("d_1")])
    for ticket in range(2, 200):
        store.submit(ticket, finished(f"d_{ticket}"))
    assert store.close(20)
    assert listener.wait(199).error is None
    assert query("SELECT COUNT(*) FROM receipts") == [(199,)]
    assert query("SELECT ended_at IS NOT NULL FROM owners") == [(1,)]


def test_an_owner_that_leaves_something_open_has_not_ended(home: Path, query: Query) -> None:
    """A delegate without a receipt keeps its owner on the list for recovery."""
    listener = Listener()
    store = open_store(home, owner(), listener)
    store.submit(1, [session(), queued(), accepted("d_1")])
    assert store.close(20)
    assert query("SELECT ended_at FROM owners") == [(None,)]


@pytest.mark.parametrize("acknowledged", [1, 700])
def test_what_was_acknowledged_survives_a_kill(home: Path, query: Query, acknowledged: int) -> None:
    """A writer that is killed in the middle has on disk every ticket that it told, and the file is sound."""
    command = [sys.executable, str(CHILDREN / "store_flood.py"), str(home), str(Path(__file__).parent)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as flood:
        assert flood.stdout is not None
        lines = [flood.stdout.readline() for _ in range(acknowledged + 1)]
        flood.kill()
        lines += flood.stdout.read().splitlines(keepends=True)
    assert flood.returncode in (-getattr(signal, "SIGKILL", 9), 1)
    told = [line.split(maxsplit=1) for line in lines if line.endswith("\n")]
    assert {fate.strip() for _, fate in told} == {"ok"}
    kept = {receipt_id for (receipt_id,) in query("SELECT receipt_id FROM receipts")}
    assert {f"d_{ticket}" for ticket, _ in told if ticket != "0"} <= kept
    assert query("PRAGMA integrity_check") == [("ok",)]
