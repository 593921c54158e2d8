"""What viewers ask that changes nothing: read in the store's thread, after all that was written before."""

import sqlite3
from typing import Any

import msgspec

from fanjoin.ipc.messages import JsonObject, Refused
from fanjoin.ipc.session_messages import (
    LATEST,
    DelegateLine,
    DelegationList,
    Delegations,
    ListSessions,
    MessagePage,
    PromptReceipt,
    ReadMessages,
    SessionInfo,
    SessionLine,
    SessionList,
    SessionSnapshot,
    TurnLine,
    TurnReceipt,
)
from fanjoin.supervisor.questions import FindTurn
from fanjoin.supervisor.store.sessions import LATEST_SQL, answer

PAGE_BYTES = 4 << 20
"""Of the messages in one answer: the rest is asked for in pages."""

Reading = PromptReceipt | ListSessions | SessionInfo | ReadMessages | DelegationList
Told = TurnReceipt | SessionList | SessionSnapshot | MessagePage | Delegations | Refused


def read(connection: sqlite3.Connection, request: Reading, instance_id: str) -> Told:
    """Answer a viewer.

    Raises:
        sqlite3.Error: the database could not be read.
    """
    match request:
        case PromptReceipt():
            return _receipt(connection, request)
        case ListSessions():
            return _sessions(connection, request)
        case SessionInfo():
            return snapshot(connection, request, instance_id)
        case ReadMessages():
            return _page(connection, request)
        case DelegationList():
            return _delegates(connection, request)


def snapshot(connection: sqlite3.Connection, request: SessionInfo, instance_id: str) -> SessionSnapshot | Refused:
    """Return what a session holds, or that there is none; the number of its last event is not known here."""
    request_id, session_id = request.request_id, request.session_id
    if session_id == LATEST:
        row = connection.execute(LATEST_SQL).fetchone()
        session_id = row[0] if row else LATEST
    sql = "SELECT title, source, settings_json, created_at FROM sessions WHERE session_id = ? AND deleted_at IS NULL"
    row = connection.execute(sql, (session_id,)).fetchone()
    if row is None:
        return Refused(request_id=request_id, reason="not_found", message=f"There is no session {session_id}.")
    messages, first, count = _messages(connection, session_id, None)
    pending = "SELECT COUNT(*) FROM async_delegations WHERE session_id = ? AND delivery_state != 'delivered'"
    return SessionSnapshot(
        request_id=request_id,
        session_id=session_id,
        title=row[0],
        source=row[1],
        settings=msgspec.json.decode(row[2], type=JsonObject),
        created_at=row[3],
        messages=messages,
        first=first,
        message_count=count,
        turns=_turns(connection, session_id),
        pending=connection.execute(pending, (session_id,)).fetchone()[0],
        sequence=0,
        instance_id=instance_id,
    )


def _messages(connection: sqlite3.Connection, session_id: str, before: int | None) -> tuple[list[JsonObject], int, int]:
    """Return messages that end before a number (or at the end), the number of the first, and how many there are."""
    count = connection.execute("SELECT COUNT(*) FROM messages WHERE session_id = ?", (session_id,)).fetchone()[0]
    end = count if before is None else max(0, min(before, count))
    sql = "SELECT message FROM messages WHERE session_id = ? ORDER BY seq DESC LIMIT -1 OFFSET ?"
    found: list[JsonObject] = []
    size = 0
    for (text,) in connection.execute(sql, (session_id, count - end)):
        size += len(text)
        if size > PAGE_BYTES and found:
            break
        found.append(msgspec.json.decode(text, type=JsonObject))
    return found[::-1], end - len(found), count


def _turns(connection: sqlite3.Connection, session_id: str) -> list[TurnLine]:
    sql = """
        SELECT admission_id, request_id, seq, status, payload_json FROM session_admissions
        WHERE target_session_id = ? AND status != 'terminal' ORDER BY seq
    """
    return [
        TurnLine(
            admission_id=row[0],
            input_id=row[1],
            sequence=row[2],
            status=row[3],
            text=str(msgspec.json.decode(row[4], type=JsonObject).get("text", "")),
        )
        for row in connection.execute(sql, (session_id,))
    ]


def _page(connection: sqlite3.Connection, request: ReadMessages) -> MessagePage:
    messages, first, count = _messages(connection, request.session_id, request.before)
    return MessagePage(
        request_id=request.request_id,
        session_id=request.session_id,
        messages=messages,
        first=first,
        message_count=count,
    )


def _receipt(connection: sqlite3.Connection, request: PromptReceipt) -> TurnReceipt | Refused:
    question = FindTurn(
        principal_id=request.principal_id,
        session_id=request.session_id,
        request_id=request.input_id,
        admission_id=request.admission_id,
    )
    turn: Any = answer(connection, question, "", lambda _: None)
    if turn is None:
        return Refused(request_id=request.request_id, reason="not_found", message="There is no such submission.")
    return TurnReceipt(
        request_id=request.request_id,
        session_id=turn.session_id,
        admission_id=turn.admission_id,
        input_id=turn.request_id,
        sequence=turn.sequence,
        status=turn.status,
        outcome=turn.outcome,
        results=turn.results,
    )


def _sessions(connection: sqlite3.Connection, request: ListSessions) -> SessionList:
    sql = """
        SELECT session_id, title, source, cwd,
               COALESCE((SELECT status FROM session_admissions
                         WHERE target_session_id = session_id AND status != 'terminal' ORDER BY seq LIMIT 1), 'idle'),
               COUNT(admission_id), created_at, COALESCE(MAX(queued_at), created_at) AS used_at
        FROM sessions LEFT JOIN session_admissions ON target_session_id = session_id
        WHERE deleted_at IS NULL GROUP BY session_id ORDER BY used_at DESC, sessions.rowid DESC LIMIT ?
    """
    names = SessionLine.__struct_fields__
    rows = connection.execute(sql, (request.limit,))
    lines = [SessionLine(**dict(zip(names, row, strict=True))) for row in rows]
    return SessionList(request_id=request.request_id, sessions=lines)


def _delegates(connection: sqlite3.Connection, request: DelegationList) -> Delegations:
    sql = """
        SELECT d.receipt_id, d.delegation_id, d.session_id, d.admission_id, d.goal,
               CASE WHEN a.started_at IS NULL THEN 'queued' ELSE 'running' END,
               CASE WHEN a.ended_at IS NULL THEN a.pid END, a.started_at
        FROM delegations AS d
        LEFT JOIN attempts AS a ON a.receipt_id = d.receipt_id
            AND a.number = (SELECT MAX(number) FROM attempts WHERE receipt_id = d.receipt_id)
        WHERE (:session = '' OR d.session_id = :session)
            AND NOT EXISTS (SELECT 1 FROM receipts WHERE receipts.receipt_id = d.receipt_id)
        ORDER BY d.rowid
    """
    names = DelegateLine.__struct_fields__
    rows = connection.execute(sql, {"session": request.session_id})
    lines = [DelegateLine(**dict(zip(names, row, strict=True))) for row in rows]
    return Delegations(request_id=request.request_id, delegates=lines)
