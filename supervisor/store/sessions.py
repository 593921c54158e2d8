"""Sessions as their owner takes them over: one owner each, and everything that it has to know of them."""

import hashlib
import sqlite3
from collections.abc import Callable
from typing import Any

import msgspec

from fanjoin.ipc.messages import JsonObject
from fanjoin.ipc.session_messages import LATEST, CreateSession
from fanjoin.supervisor.questions import (
    Answer,
    EarlierReceipt,
    FindReceipts,
    FindTurn,
    OpenSession,
    Question,
    SessionOpened,
    SessionRefused,
    StoredCall,
    StoredTurn,
)
from fanjoin.supervisor.records import SessionCreated
from fanjoin.supervisor.store.connection import immediate
from fanjoin.supervisor.store.rows import write

Recover = Callable[[sqlite3.Connection], object]
"""Puts right what owners left that have died meanwhile; who lives is left alone."""

LATEST_SQL = """
    SELECT session_id FROM sessions WHERE deleted_at IS NULL
    ORDER BY COALESCE((SELECT MAX(queued_at) FROM session_admissions WHERE target_session_id = session_id), created_at)
    DESC, rowid DESC LIMIT 1
"""
_TURN = """
    SELECT admission_id, target_session_id, request_id, principal_id, seq, status, payload_json, payload_digest, keyed,
           outcome
    FROM session_admissions
"""
_CALL = """
    SELECT delegation_id, result, keyed FROM async_delegations JOIN session_admissions USING (admission_id)
"""


class _Refusal(Exception):  # noqa: N818 - an answer, no error of ours
    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.refused = SessionRefused(reason=reason, message=message)


def answer(connection: sqlite3.Connection, question: Question, owner_id: str, recover: Recover) -> Answer:
    """Answer a question of the core.

    Raises:
        sqlite3.Error: the database could not be read or written.
    """
    match question:
        case OpenSession():
            try:
                return _open(connection, question, owner_id, recover)
            except _Refusal as refusal:
                return refusal.refused
        case FindTurn():
            return _find_turn(connection, question)
        case FindReceipts(admission_id=admission_id):
            return _earlier_receipts(connection, admission_id)


def fields_digest(fields: JsonObject) -> str:
    """Return what two requests to create a session have in common exactly when they ask for the same."""
    return hashlib.sha256(msgspec.json.encode(fields, order="sorted")).hexdigest()


def left_sessions(connection: sqlite3.Connection, owner_id: str) -> list[str]:
    """Return the sessions of other daemons that have something to do: turns that wait, or results to be told."""
    sql = """
        SELECT session_id FROM sessions JOIN owners ON instance_id = sessions.owner_id
        WHERE kind = 'daemon' AND instance_id != ? AND deleted_at IS NULL AND (
            EXISTS (SELECT 1 FROM session_admissions WHERE target_session_id = session_id AND status = 'queued')
            OR EXISTS (SELECT 1 FROM async_delegations AS a
                       WHERE a.session_id = sessions.session_id AND delivery_state != 'delivered'))
        ORDER BY sessions.rowid
    """
    return [row[0] for row in connection.execute(sql, (owner_id,))]


def _open(connection: sqlite3.Connection, question: OpenSession, owner_id: str, recover: Recover) -> SessionOpened:
    with immediate(connection):
        session_id, created = _existing_or_new(connection, question, owner_id)
        other = _other_owner(connection, session_id, owner_id)
        if not other:
            _take_over(connection, session_id, owner_id)
    if other:
        recover(connection)
        with immediate(connection):
            if _lives(connection, other):
                raise _Refusal("session_busy", _busy(connection, session_id, other))
            _take_over(connection, session_id, owner_id)
    return _load(connection, session_id, created=created)


def _existing_or_new(connection: sqlite3.Connection, question: OpenSession, owner_id: str) -> tuple[str, bool]:
    create, session_id = question.create, question.session_id
    if create is not None:
        return _created(connection, question, create, owner_id)
    if session_id == LATEST:
        row = connection.execute(LATEST_SQL).fetchone()
        session_id = row[0] if row else LATEST
    sql = "SELECT 1 FROM sessions WHERE session_id = ? AND deleted_at IS NULL"
    if connection.execute(sql, (session_id,)).fetchone() is None:
        raise _Refusal("not_found", f"There is no session {session_id}. `fanjoin sessions list` names them all.")
    return session_id, False


def _created(
    connection: sqlite3.Connection, question: OpenSession, create: CreateSession, owner_id: str
) -> tuple[str, bool]:
    digest = fields_digest(create.fields)
    sql = "SELECT session_id, fields_digest, deleted_at FROM sessions WHERE principal_id = ? AND request_id = ?"
    row = connection.execute(sql, (create.principal_id, create.request_id)).fetchone()
    if row is None:
        write(connection, _record(question, create, digest), owner_id)
        return question.session_id, True
    if row[2] is not None:
        raise _Refusal("not_found", f"The session {row[0]} that this request made was deleted.")
    if question.compare and row[1] != digest:
        raise _Refusal(
            "invalid_params",
            f"The request {create.request_id!r} has made session {row[0]} with other fields. Send the same fields, "
            "or another request_id for another session.",
        )
    return row[0], False


def _record(question: OpenSession, create: CreateSession, digest: str) -> SessionCreated:
    return SessionCreated(
        session_id=question.session_id,
        principal_id=create.principal_id,
        request_id=create.request_id,
        source=create.source,
        title=create.title,
        cwd=str(create.settings.get("cwd") or ""),
        settings_json=msgspec.json.encode(create.settings).decode(),
        fields_digest=digest,
        at=question.at,
    )


def _other_owner(connection: sqlite3.Connection, session_id: str, owner_id: str) -> str:
    """Return another owner that has not ended in good order, or nothing."""
    sql = """
        SELECT instance_id FROM sessions JOIN owners ON instance_id = owner_id
        WHERE session_id = ? AND ended_at IS NULL AND instance_id != ?
    """
    row = connection.execute(sql, (session_id, owner_id)).fetchone()
    return row[0] if row else ""


def _lives(connection: sqlite3.Connection, instance_id: str) -> bool:
    sql = "SELECT 1 FROM owners WHERE instance_id = ? AND ended_at IS NULL"
    return connection.execute(sql, (instance_id,)).fetchone() is not None


def _busy(connection: sqlite3.Connection, session_id: str, instance_id: str) -> str:
    sql = "SELECT kind, pid FROM owners WHERE instance_id = ?"
    kind, pid = connection.execute(sql, (instance_id,)).fetchone()
    what = "the daemon" if kind == "daemon" else "another run"
    return (
        f"Session {session_id} belongs to {what} {instance_id} (pid {pid}), which is at work. "
        "Nothing was run; wait until it has ended" + (", or let chat attach to it." if kind == "daemon" else ".")
    )


def _take_over(connection: sqlite3.Connection, session_id: str, owner_id: str) -> None:
    connection.execute(
        "UPDATE sessions SET owner_id = ? WHERE session_id = ? AND owner_id IS NOT ?", (owner_id, session_id, owner_id)
    )
    connection.execute(
        "UPDATE session_admissions SET owner_id = ? WHERE target_session_id = ? AND status IN ('queued', 'unknown')",
        (owner_id, session_id),
    )


def _load(connection: sqlite3.Connection, session_id: str, *, created: bool) -> SessionOpened:
    settings = connection.execute("SELECT settings_json FROM sessions WHERE session_id = ?", (session_id,)).fetchone()
    messages = connection.execute("SELECT message FROM messages WHERE session_id = ? ORDER BY seq", (session_id,))
    unsettled = f"{_TURN} WHERE target_session_id = ? AND status != 'terminal' ORDER BY seq"
    turns = connection.execute(unsettled, (session_id,))
    open_turns = [_with_history(connection, _turn(row)) for row in turns.fetchall()]
    pending = (
        f"{_CALL} WHERE session_id = ? AND state = 'completed' AND delivery_state = 'pending' ORDER BY completed_at"
    )
    calls = connection.execute(pending, (session_id,))
    return SessionOpened(
        session_id=session_id,
        settings=msgspec.json.decode(settings[0], type=JsonObject),
        created=created,
        history=[msgspec.json.decode(text, type=JsonObject) for (text,) in messages],
        queued=[turn for turn in open_turns if turn.status == "queued"],
        unknown=[turn for turn in open_turns if turn.status == "unknown"],
        ready=[_call(row) for row in calls],
    )


def _call(row: tuple[Any, ...]) -> StoredCall:
    return StoredCall(delegation_id=row[0], result=row[1], keyed=bool(row[2]))


def _turn(row: tuple[Any, ...]) -> StoredTurn:
    names = ("admission_id", "session_id", "request_id", "principal_id", "sequence", "status", "payload_json")
    outcome = msgspec.json.decode(row[9], type=JsonObject) if row[9] is not None else None
    return StoredTurn(**dict(zip(names, row, strict=False)), payload_digest=row[7], keyed=bool(row[8]), outcome=outcome)


def _with_history(connection: sqlite3.Connection, turn: StoredTurn) -> StoredTurn:
    """Add what an earlier owner's try of this turn left."""
    count = connection.execute(
        "SELECT COALESCE(MAX(number), 0) FROM attempts WHERE admission_id = ? AND receipt_id IS NULL",
        (turn.admission_id,),
    ).fetchone()[0]
    calls = connection.execute(f"{_CALL} WHERE claim_token = ? AND delivery_state = 'claimed'", (turn.admission_id,))
    last = connection.execute(
        "SELECT message FROM messages WHERE admission_id = ? ORDER BY seq DESC LIMIT 1", (turn.admission_id,)
    ).fetchone()
    message = msgspec.json.decode(last[0], type=JsonObject) if last else {}
    answered = message.get("role") == "assistant" and not message.get("tool_calls")
    return msgspec.structs.replace(
        turn,
        attempts=count,
        deliveries=[_call(row) for row in calls],
        answer=str(message.get("content") or "") if answered else None,
    )


def _find_turn(connection: sqlite3.Connection, question: FindTurn) -> StoredTurn | None:
    if question.admission_id:
        row = connection.execute(f"{_TURN} WHERE admission_id = ?", (question.admission_id,)).fetchone()
    else:
        identity = (question.principal_id, question.session_id, question.request_id)
        sql = f"{_TURN} WHERE principal_id = ? AND target_session_id = ? AND request_id = ?"
        row = connection.execute(sql, identity).fetchone()
    if row is None:
        return None
    turn = _turn(row)
    if turn.status != "terminal":
        return turn
    entries = connection.execute(
        "SELECT entry FROM receipts JOIN delegations USING (receipt_id) WHERE receipts.admission_id = ? "
        "ORDER BY delegations.rowid",
        (turn.admission_id,),
    )
    return msgspec.structs.replace(turn, results=[msgspec.json.decode(text, type=JsonObject) for (text,) in entries])


def _earlier_receipts(connection: sqlite3.Connection, admission_id: str) -> list[EarlierReceipt]:
    sql = """
        SELECT receipt_id, task_json, depth, entry FROM receipts JOIN delegations USING (receipt_id)
        WHERE receipts.admission_id = ? AND status = 'completed' ORDER BY delegations.rowid
    """
    return [
        EarlierReceipt(receipt_id=row[0], task_json=row[1], depth=row[2], entry=msgspec.json.decode(row[3]))
        for row in connection.execute(sql, (admission_id,))
    ]
