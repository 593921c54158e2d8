import sqlite3
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from store_samples import DEADLINE, accepted, finished, intended, owner, queued, receipt, session, started, turn

from fanjoin.ipc.messages import Usage
from fanjoin.ipc.platform import try_lock
from fanjoin.supervisor.records import AdmissionStarted, AttemptEnded, Record
from fanjoin.supervisor.store.connection import immediate
from fanjoin.supervisor.store.owners import register_owner, unended_owners
from fanjoin.supervisor.store.recovery import AttemptLeft, Recovered, recover, recover_dead_owners
from fanjoin.supervisor.store.rows import write
from fanjoin.supervisor.store.writer import open_database

AT = 1000.0
STAGES = ("queued", "intended", "started", "ended", "finished")


class FreeLock:
    """A lock that nobody else wants."""

    def close(self) -> None:
        """Free nothing."""


def take(_path: Path) -> FreeLock:
    """Take a lock that is always free."""
    return FreeLock()


def gone(_attempt: AttemptLeft) -> bool:
    """Say of every process that it is gone."""
    return True


def fill(connection: sqlite3.Connection, instance_id: str, *records: Record) -> None:
    """Write records as a supervisor would."""
    with immediate(connection):
        for record in records:
            write(connection, record, instance_id)


def life(receipt_id: str, parent_id: str, depth: int, stage: str) -> list[Record]:
    """Return a delegate's records up to a stage."""
    ended = AttemptEnded(attempt_id=f"{receipt_id}.1", exit_code=0, exit_signal=None, cause="", stderr_tail="", at=8.0)
    steps: list[Record] = [
        accepted(receipt_id, parent_id, depth=depth),
        intended(receipt_id),
        started(f"{receipt_id}.1"),
        ended,
        receipt(receipt_id),
    ]
    return steps[: STAGES.index(stage) + 1]


@contextmanager
def fresh_home() -> Iterator[Path]:
    """Give a home of its own to each example."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def everything(connection: sqlite3.Connection) -> list[object]:
    """Return all rows."""
    tables = ("owners", "session_admissions", "delegations", "attempts", "receipts")
    return [connection.execute(f"SELECT * FROM {table} ORDER BY 1").fetchall() for table in tables]  # noqa: S608


def statuses(connection: sqlite3.Connection) -> dict[str, str]:
    """Return the status of each receipt."""
    return dict(connection.execute("SELECT receipt_id, status FROM receipts").fetchall())


delegates = st.lists(st.tuples(st.sampled_from(STAGES), st.booleans(), st.booleans()), max_size=12)


@settings(max_examples=60, deadline=None)
@given(delegates)
def test_every_delegate_gets_exactly_one_receipt(plan: list[tuple[str, bool, bool]]) -> None:
    """Whatever state the owner died in: one receipt each, what is recorded stays, and a second time changes nothing."""
    with fresh_home() as home, closing(open_database(home)) as connection:
        register_owner(connection, owner(), 0.0)
        fill(connection, "i_one", *turn())
        provable = {}
        for number, (stage, below, provably_gone) in enumerate(plan):
            parent, depth = (f"d_{number - 1}", number + 1) if below and number else ("t_1", 1)
            fill(connection, "i_one", *life(f"d_{number}", parent, depth, stage))
            provable[f"d_{number}.1"] = provably_gone
        recorded = connection.execute("SELECT * FROM receipts ORDER BY receipt_id").fetchall()

        def end(attempt: AttemptLeft) -> bool:
            return provable[attempt.attempt_id]

        recover_dead_owners(connection, "i_me", take, AT, end)
        once = everything(connection)
        recover_dead_owners(connection, "i_me", take, AT + 1, end)
        assert everything(connection) == once

        expected = {f"d_{n}": "completed" if stage == "finished" else "lost" for n, (stage, *_) in enumerate(plan)}
        assert statuses(connection) == expected
        kept = connection.execute("SELECT * FROM receipts WHERE status != 'lost' ORDER BY receipt_id").fetchall()
        assert kept == recorded
        open_after = {row[0] for row in connection.execute("SELECT attempt_id FROM attempts WHERE ended_at IS NULL")}
        assert open_after == {
            f"d_{n}.1" for n, (stage, _, sure) in enumerate(plan) if stage in {"intended", "started"} and not sure
        }
        assert bool(unended_owners(connection)) == bool(open_after)
        assert connection.execute("SELECT status FROM session_admissions").fetchall() == [("unknown",)]

        recover_dead_owners(connection, "i_me", take, AT + 2, gone)
        assert not unended_owners(connection)
        assert statuses(connection) == expected


def test_a_lost_delegate_is_told_like_any_other(database: sqlite3.Connection) -> None:
    """A lost receipt has the whole entry of a joined result, and counts the tokens of what completed below it."""
    usage = Usage(input_tokens=30, output_tokens=20, cached_tokens=10)
    below: list[Record] = [
        accepted("d_2", "d_1", depth=2),
        receipt("d_2", usage=usage),
        accepted("d_3", "d_1", depth=2),
    ]
    fill(database, "i_one", *turn(), *life("d_1", "t_1", 1, "started"), *below)
    recover(database, owner(), AT, gone)
    columns = "status, reason, message, attempts, written_at, usage_total, entry"
    sql = f"SELECT {columns} FROM receipts WHERE receipt_id = 'd_1'"  # noqa: S608
    status, reason, message, attempts, at, total, text = database.execute(sql).fetchone()
    assert (status, reason, attempts, at) == ("lost", "owner_lost", 1, AT)
    assert msgspec.json.decode(total, type=Usage) == usage
    nothing = {"input_tokens": 0, "output_tokens": 0, "cached_tokens": 0}
    assert msgspec.json.decode(text) == {
        "task_index": 0,
        "status": "lost",
        "ok": False,
        "summary": None,
        "error": {"reason": "owner_lost", "message": message},
        "exit": None,
        "receipt_id": "d_1",
        "attempts": 1,
        "model": "m",
        "steps": 0,
        "duration_seconds": 0.0,
        "queued_seconds": 1.0,
        "partial_text": "",
        "usage": nothing,
        "usage_total": {"input_tokens": 30, "output_tokens": 20, "cached_tokens": 10},
        "tool_trace": [],
        "transcript": "/t.jsonl",
    }


def test_queued_turns_stay_queued(database: sqlite3.Connection) -> None:
    """A turn that had not begun may still run; one that had begun is unknown, and one that ended stays ended."""
    fill(database, "i_one", session(), queued("t_1"), queued("t_2"), AdmissionStarted(admission_id="t_1", at=3.0))
    assert recover(database, owner(), AT, gone).turns_unknown == 1
    rows = database.execute("SELECT admission_id, status FROM session_admissions ORDER BY seq").fetchall()
    assert rows == [("t_1", "unknown"), ("t_2", "queued")]


def test_what_is_told_of_a_process_that_is_left(database: sqlite3.Connection) -> None:
    """Ending a process needs more than its pid: boot, start mark and both tags come with it."""
    fill(database, "i_one", *turn(), *life("d_1", "t_1", 1, "started"), *life("d_2", "t_1", 1, "intended"))
    asked: list[AttemptLeft] = []

    def end(attempt: AttemptLeft) -> bool:
        asked.append(attempt)
        return False

    recovered = recover(database, owner(), AT, end)
    common = {"run_tag": "run-i_one", "boot_id": "boot"}
    assert asked == [
        AttemptLeft(attempt_id="d_1.1", tag="tag-d_1", pid=99, process_start="18", **common),
        AttemptLeft(attempt_id="d_2.1", tag="tag-d_2", pid=None, process_start=None, **common),
    ]
    assert recovered == Recovered(
        instance_id="i_one", attempts_ended=0, attempts_left=2, receipts_written=2, turns_unknown=1
    )


def test_a_living_owner_is_left_alone(home: Path, database: sqlite3.Connection) -> None:
    """An owner whose lock is held, and the one that asks, are not recovered; one whose lock is gone is."""
    lock = try_lock(home / "held")
    assert lock is not None
    for instance_id, name in (("i_living", "held"), ("i_me", "free"), ("i_dead", "free"), ("i_swept", "gone/lock")):
        register_owner(database, owner(instance_id, home / name), 0.0)
    fill(database, "i_living", *turn(), *life("d_1", "t_1", 1, "started"))
    fill(database, "i_dead", accepted("d_2"))
    fill(database, "i_swept", accepted("d_3"))
    recovered = recover_dead_owners(database, "i_me", try_lock, AT, gone)
    lock.close()
    assert {one.instance_id for one in recovered} == {"i_one", "i_dead", "i_swept"}
    assert statuses(database) == {"d_2": "lost", "d_3": "lost"}
    assert {one.instance_id for one in unended_owners(database)} == {"i_living", "i_me"}


def test_two_that_recover_at_once_do_no_harm(home: Path, database: sqlite3.Connection) -> None:
    """Even when a lock fails to keep them apart, two recoveries write one receipt for each delegate."""
    fill(database, "i_one", *turn(), *life("d_1", "t_1", 1, "started"), *finished("d_2"), accepted("d_3"))
    together = threading.Barrier(2, timeout=DEADLINE)
    written: list[int] = []

    def meet(_attempt: AttemptLeft) -> bool:
        together.wait()
        return True

    def work() -> None:
        with closing(open_database(home)) as connection:
            written.append(recover(connection, owner(), AT, meet).receipts_written)

    both = [threading.Thread(target=work) for _ in range(2)]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join(DEADLINE)
    assert sorted(written) == [0, 2]
    assert statuses(database) == {"d_1": "lost", "d_2": "completed", "d_3": "lost"}


def test_a_thousand_open_attempts_are_recovered_quickly(database: sqlite3.Connection) -> None:
    """A start after a crash with 1,000 running delegates is not held up by the database: under 300 ms."""
    lives = [record for number in range(1000) for record in life(f"d_{number}", "t_1", 1, "started")]
    fill(database, "i_one", *turn(), *lives)
    began = time.process_time()
    recovered = recover(database, owner(), AT, gone)
    assert time.process_time() - began < 0.3
    assert (recovered.attempts_ended, recovered.receipts_written) == (1000, 1000)
