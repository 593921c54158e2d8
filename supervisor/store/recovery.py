"""What is put right after a supervisor died: its processes ended, its delegates given their receipts, its turns marked.

It may run any number of times, and in two processes at once: what is closed already stays as it is.
"""

import sqlite3
from collections import defaultdict
from collections.abc import Callable
from contextlib import AbstractContextManager, closing, nullcontext
from pathlib import Path
from typing import Protocol

import msgspec
from msgspec import Struct

from fanjoin.ipc.messages import JsonObject, Usage
from fanjoin.supervisor.records import CallCompleted, ReceiptWritten
from fanjoin.supervisor.store.connection import immediate
from fanjoin.supervisor.store.owners import Owner, unended_owners
from fanjoin.supervisor.store.rows import write

_REASON = "owner_lost"
_MESSAGE = (
    "The supervisor that ran this delegate ended before the delegate's end was recorded: it died, or the disk refused "
    "the record. What the delegate had done by then is "
    "not known; it was not run again. Its transcript, if there is one, shows how far it came."
)


class AttemptLeft(Struct, frozen=True, kw_only=True):
    """A process that its dead owner had not seen end; ``pid`` is None when only the intent to start it is known.

    A pid alone proves nothing: the boot, the start mark and the tags tell this process from another with its number.
    """

    attempt_id: str
    tag: str
    run_tag: str
    boot_id: str
    pid: int | None
    process_start: str | None


class Recovered(Struct, frozen=True, kw_only=True):
    """What one dead owner had left. ``attempts_left`` could not be proven gone; the next recovery looks again."""

    instance_id: str
    attempts_ended: int
    attempts_left: int
    receipts_written: int
    turns_unknown: int


class _Lost(Struct):
    """A delegate without a receipt, in the order of the columns that are read."""

    receipt_id: str
    delegation_id: str
    session_id: str
    admission_id: str
    parent_id: str
    task_index: int
    model: str
    transcript_path: str
    attempts: int
    queued_seconds: float


class Lock(Protocol):
    """What ``take_lock`` returns."""

    def close(self) -> None:
        """Free the lock."""


EndProcess = Callable[[AttemptLeft], bool]
TakeLock = Callable[[Path], Lock | None]


def recover_dead_owners(
    connection: sqlite3.Connection, own_id: str, take_lock: TakeLock, at: float, end_process: EndProcess
) -> list[Recovered]:
    """Recover every other owner whose lock is free, each under its own lock.

    Args:
        connection: to the database, with no transaction open.
        own_id: the instance that asks; it is never recovered.
        take_lock: takes the lock of a file without waiting; None when somebody holds it.
        at: the time to write, in Unix seconds.
        end_process: see ``recover``.

    Raises:
        sqlite3.Error: the database could not be read or written; what is not done yet is left to the next time.
    """
    recovered = []
    for owner in unended_owners(connection):
        held = _held(take_lock, Path(owner.lock_path)) if owner.instance_id != own_id else None
        if held is not None:
            with held:
                recovered.append(recover(connection, owner, at, end_process))
    return recovered


def recover(connection: sqlite3.Connection, owner: Owner, at: float, end_process: EndProcess) -> Recovered:
    """Close what a dead owner left open; the caller holds that owner's lock.

    ``end_process`` ends an attempt's process if it still runs, and says whether it is proven gone. It is called before
    the transaction: ending takes time, and other supervisors want to write.
    """
    left = _attempts_left(connection, owner)
    gone = [attempt.attempt_id for attempt in left if end_process(attempt)]
    with immediate(connection):
        _end_attempts(connection, gone, at)
        lost = _lost_receipts(connection, owner, at)
        for receipt in lost:
            write(connection, receipt, owner.instance_id)
        _complete_calls(connection, owner, at)
        turns = connection.execute(
            "UPDATE session_admissions SET status = 'unknown' WHERE owner_id = ? AND status = 'started'",
            (owner.instance_id,),
        ).rowcount
        connection.execute(
            """
            UPDATE owners SET ended_at = :at WHERE instance_id = :id AND ended_at IS NULL
            AND NOT EXISTS (SELECT 1 FROM attempts WHERE owner_id = :id AND ended_at IS NULL)
            """,
            {"at": at, "id": owner.instance_id},
        )
    return Recovered(
        instance_id=owner.instance_id,
        attempts_ended=len(gone),
        attempts_left=len(left) - len(gone),
        receipts_written=len(lost),
        turns_unknown=turns,
    )


def _complete_calls(connection: sqlite3.Connection, owner: Owner, at: float) -> None:
    """Put the results of dispatched calls together: each of their delegates has its receipt now."""
    calls = connection.execute(
        "SELECT delegation_id, dispatched_at FROM async_delegations WHERE owner_id = ? AND state = 'running'",
        (owner.instance_id,),
    ).fetchall()
    for delegation_id, dispatched_at in calls:
        entries = connection.execute(
            "SELECT entry FROM receipts JOIN delegations USING (receipt_id) WHERE delegations.delegation_id = ? "
            "ORDER BY delegations.task_index",
            (delegation_id,),
        )
        result = {
            "results": [msgspec.Raw(entry.encode()) for (entry,) in entries],
            "total_duration_seconds": round(max(0.0, at - dispatched_at), 3),
            "delegation_id": delegation_id,
        }
        completed = CallCompleted(delegation_id=delegation_id, result=msgspec.json.encode(result).decode(), at=at)
        write(connection, completed, owner.instance_id)


def _held(take_lock: TakeLock, path: Path) -> AbstractContextManager[object] | None:
    try:
        lock = take_lock(path)
    except FileNotFoundError:
        # Its folder is gone, and with it the lock that could be held.
        return nullcontext()
    return closing(lock) if lock is not None else None


def _attempts_left(connection: sqlite3.Connection, owner: Owner) -> list[AttemptLeft]:
    sql = "SELECT attempt_id, tag, pid, process_start FROM attempts WHERE owner_id = ? AND ended_at IS NULL"
    return [
        AttemptLeft(
            attempt_id=attempt_id,
            tag=tag,
            run_tag=owner.run_tag,
            boot_id=owner.boot_id,
            pid=pid,
            process_start=process_start,
        )
        for attempt_id, tag, pid, process_start in connection.execute(sql, (owner.instance_id,)).fetchall()
    ]


def _end_attempts(connection: sqlite3.Connection, attempt_ids: list[str], at: float) -> None:
    sql = "UPDATE attempts SET ended_at = ?, cause = ?, stderr_tail = '' WHERE attempt_id = ? AND ended_at IS NULL"
    connection.executemany(sql, [(at, _REASON, attempt_id) for attempt_id in attempt_ids])


def _lost_receipts(connection: sqlite3.Connection, owner: Owner, at: float) -> list[ReceiptWritten]:
    """Return the receipts to write, the deepest delegates first, so that what is below one counts into its total."""
    sql = """
        SELECT receipt_id, delegation_id, session_id, delegations.admission_id, parent_id, task_index, model,
               transcript_path, COUNT(attempt_id), MAX(0.0, COALESCE(MIN(intended_at), accepted_at) - accepted_at)
        FROM delegations LEFT JOIN attempts USING (receipt_id)
        WHERE delegations.owner_id = ? AND receipt_id NOT IN (SELECT receipt_id FROM receipts)
        GROUP BY receipt_id ORDER BY depth DESC
    """
    below = _usage_below(connection, owner)
    receipts = []
    for row in connection.execute(sql, (owner.instance_id,)).fetchall():
        lost = _Lost(*row)
        below[lost.parent_id] += below[lost.receipt_id]
        receipts.append(_receipt(lost, below[lost.receipt_id], at))
    return receipts


def _usage_below(connection: sqlite3.Connection, owner: Owner) -> defaultdict[str, Usage]:
    """Return the tokens that recorded delegates used, summed for each parent."""
    sql = "SELECT parent_id, usage_total FROM delegations JOIN receipts USING (receipt_id) WHERE owner_id = ?"
    below: defaultdict[str, Usage] = defaultdict(Usage)
    for parent_id, usage in connection.execute(sql, (owner.instance_id,)):
        below[parent_id] += msgspec.json.decode(usage, type=Usage)
    return below


def _receipt(lost: _Lost, below: Usage, at: float) -> ReceiptWritten:
    return ReceiptWritten(
        receipt_id=lost.receipt_id,
        delegation_id=lost.delegation_id,
        session_id=lost.session_id,
        admission_id=lost.admission_id,
        status="lost",
        reason=_REASON,
        message=_MESSAGE,
        summary=None,
        partial_text="",
        usage=Usage(),
        usage_total=below,
        steps=0,
        attempts=lost.attempts,
        trace=[],
        entry=_entry(lost, below),
        at=at,
    )


def _entry(lost: _Lost, below: Usage) -> JsonObject:
    """Return the delegate's entry in a joined result. Its duration is unknown: nobody saw when its owner died."""
    return {
        "task_index": lost.task_index,
        "status": "lost",
        "ok": False,
        "summary": None,
        "error": {"reason": _REASON, "message": _MESSAGE},
        "exit": None,
        "receipt_id": lost.receipt_id,
        "attempts": lost.attempts,
        "model": lost.model,
        "steps": 0,
        "duration_seconds": 0.0,
        "queued_seconds": round(lost.queued_seconds, 3),
        "partial_text": "",
        "usage": msgspec.to_builtins(Usage()),
        "usage_total": msgspec.to_builtins(below),
        "tool_trace": [],
        "transcript": lost.transcript_path,
    }
