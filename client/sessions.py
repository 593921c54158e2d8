"""What ``state.db`` says of sessions, for the commands that resume, list, show and export them. Nothing here writes."""

import sqlite3
from pathlib import Path

import msgspec
from msgspec import Struct

from fanjoin.client.records import open_readonly
from fanjoin.ipc.errors import UserError
from fanjoin.ipc.messages import JsonObject
from fanjoin.ipc.session_messages import LATEST, SessionLine

_CANDIDATES = 10
_USED = """
    SELECT session_id, title, source, cwd,
           COALESCE((SELECT status FROM session_admissions
                     WHERE target_session_id = session_id AND status != 'terminal' ORDER BY seq LIMIT 1), 'idle'),
           COUNT(admission_id), created_at, COALESCE(MAX(queued_at), created_at) AS used_at
    FROM sessions LEFT JOIN session_admissions ON target_session_id = session_id
    WHERE deleted_at IS NULL GROUP BY session_id ORDER BY used_at DESC, sessions.rowid DESC
"""


class StoredSession(Struct, frozen=True, kw_only=True):
    """A session that is there; ``settings`` are those that it has kept from its creation."""

    session_id: str
    settings: JsonObject


class StoredAdmission(Struct, frozen=True, kw_only=True):
    """A turn of a session: its submission, and its outcome once it is ``terminal``. Times are Unix seconds."""

    admission_id: str
    input_id: str
    status: str
    payload: JsonObject
    outcome: JsonObject | None
    queued_at: float
    ended_at: float | None


class Transcript(Struct, frozen=True, kw_only=True):
    """A whole session."""

    session: SessionLine
    settings: JsonObject
    turns: list[StoredAdmission]
    messages: list[JsonObject]


def list_sessions(home: Path, limit: int) -> list[SessionLine]:
    """Return the sessions, the one that was used last first.

    Raises:
        StorageError: the database cannot be read.
    """
    with open_readonly(home) as connection:
        if connection is None:
            return []
        return [_line(row) for row in connection.execute(f"{_USED} LIMIT ?", (limit,))]


def find_session(home: Path, name: str) -> StoredSession:
    """Return the session that a unique beginning of its identifier, or ``latest``, names.

    Raises:
        UserError: there is none, or more than one.
        StorageError: the database cannot be read.
    """
    with open_readonly(home) as connection:
        session_id = _only(connection, name) if connection is not None and name else None
        if connection is None or session_id is None:
            what = "There is no session yet" if name == LATEST else f"No session is called {name!r}"
            raise UserError(f"{what} under {home}.\n`fanjoin sessions list` names them all.")
        sql = "SELECT settings_json FROM sessions WHERE session_id = ?"
        text = connection.execute(sql, (session_id,)).fetchone()[0]
    return StoredSession(session_id=session_id, settings=msgspec.json.decode(text, type=JsonObject))


def find_unknown(home: Path, session_id: str) -> str | None:
    """Return the submission of the session's turn that may have lost its supervisor, as it is stored; None if none.

    Raises:
        StorageError: the database cannot be read.
    """
    sql = """
        SELECT payload_json FROM session_admissions
        WHERE target_session_id = ? AND status IN ('unknown', 'started') ORDER BY seq LIMIT 1
    """
    with open_readonly(home) as connection:
        row = connection.execute(sql, (session_id,)).fetchone() if connection is not None else None
    return row[0] if row else None


def read_session(home: Path, name: str) -> Transcript:
    """Return a whole session.

    Raises:
        UserError: there is none of this name, or more than one.
        StorageError: the database cannot be read.
    """
    found = find_session(home, name)
    with open_readonly(home) as connection:
        assert connection is not None  # noqa: S101 - the session was found in it
        lines = [_line(row) for row in connection.execute(_USED) if row[0] == found.session_id]
        messages = connection.execute(
            "SELECT message FROM messages WHERE session_id = ? ORDER BY seq", (found.session_id,)
        ).fetchall()
        turns = connection.execute(
            "SELECT admission_id, request_id, status, payload_json, outcome, queued_at, ended_at "
            "FROM session_admissions WHERE target_session_id = ? ORDER BY seq",
            (found.session_id,),
        ).fetchall()
    return Transcript(
        session=lines[0],
        settings=found.settings,
        turns=[_admission(row) for row in turns],
        messages=[msgspec.json.decode(text, type=JsonObject) for (text,) in messages],
    )


def _line(row: tuple[object, ...]) -> SessionLine:
    return SessionLine(**dict(zip(SessionLine.__struct_fields__, row, strict=True)))  # type: ignore[arg-type]


def _admission(row: tuple[object, ...]) -> StoredAdmission:
    fields = dict(zip(StoredAdmission.__struct_fields__, row, strict=True))
    payload, outcome = fields["payload"], fields["outcome"]
    fields["payload"] = msgspec.json.decode(str(payload), type=JsonObject)
    fields["outcome"] = msgspec.json.decode(str(outcome), type=JsonObject) if outcome is not None else None
    return StoredAdmission(**fields)  # type: ignore[arg-type]


def _only(connection: sqlite3.Connection, name: str) -> str | None:
    """Return the one session that a name stands for; None when there is none."""
    if name == LATEST:
        row = connection.execute(f"{_USED} LIMIT 1").fetchone()
        return row[0] if row else None
    sql = """
        SELECT session_id FROM sessions WHERE session_id >= ? AND session_id < ? AND deleted_at IS NULL
        ORDER BY session_id LIMIT ?
    """
    found = [row[0] for row in connection.execute(sql, (name, name + "\U0010ffff", _CANDIDATES + 1))]
    if name in found or len(found) == 1:
        return name if name in found else str(found[0])
    if not found:
        return None
    names = ", ".join(found[:_CANDIDATES]) + (", …" if len(found) > _CANDIDATES else "")
    raise UserError(f"{name!r} is the beginning of more than one session: {names}.\nGive more of its letters.")
