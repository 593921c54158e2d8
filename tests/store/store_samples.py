"""Records and a listener that the store's tests share."""

import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from fanjoin.ipc.messages import Usage
from fanjoin.ipc.paths import database_file
from fanjoin.supervisor.records import (
    AdmissionQueued,
    AdmissionStarted,
    AttemptIntended,
    AttemptStarted,
    DelegateAccepted,
    ReceiptWritten,
    Record,
    SessionCreated,
)
from fanjoin.supervisor.store.owners import Owner, register_owner
from fanjoin.supervisor.store.writer import Committed, StoreWriter, open_database

CHILDREN = Path(__file__).parent.parent / "children"
DEADLINE = 20.0


def open_store(home: Path, who: Owner, notify: Callable[[list[Committed]], None]) -> StoreWriter:
    """Open a home's database as a supervisor does, register it and start its writer."""
    connection = open_database(home)
    register_owner(connection, who, time.time())
    return StoreWriter(connection, database_file(home), who.instance_id, notify)


class Listener:
    """Keeps what the writer tells, and lets a test wait for a ticket."""

    def __init__(self) -> None:
        self.calls = 0
        self._told: dict[int, Committed] = {}
        self._changed = threading.Condition()

    def __call__(self, committed: list[Committed]) -> None:
        """Take what the writer's thread tells."""
        with self._changed:
            self.calls += 1
            for one in committed:
                assert one.ticket not in self._told, "a ticket is answered once"
                self._told[one.ticket] = one
            self._changed.notify_all()

    def answered(self, ticket: int, timeout: float) -> bool:
        """Wait for a ticket and say whether it came."""
        with self._changed:
            return self._changed.wait_for(lambda: ticket in self._told, timeout)

    def wait(self, ticket: int) -> Committed:
        """Return the fate of a ticket."""
        assert self.answered(ticket, DEADLINE), f"no answer for ticket {ticket}"
        return self._told[ticket]


NO_LOCK = Path(tempfile.gettempdir()) / "fanjoin-no-such-folder" / "lock"
"""Of a supervisor whose folder is gone, and with it the lock that could be held."""


def owner(instance_id: str = "i_one", lock_path: Path = NO_LOCK) -> Owner:
    """Return a supervisor instance."""
    return Owner(
        instance_id=instance_id,
        run_tag=f"run-{instance_id}",
        pid=4242,
        process_start="17",
        boot_id="boot",
        lock_path=str(lock_path),
    )


def session(session_id: str = "s_1") -> SessionCreated:
    """Return a new session."""
    return SessionCreated(
        session_id=session_id,
        principal_id="owner",
        request_id=f"create-{session_id}",
        source="cli",
        title="A title",
        cwd="/somewhere",
        settings_json="{}",
        at=1.0,
    )


def queued(admission_id: str = "t_1", session_id: str = "s_1", request_id: str = "") -> AdmissionQueued:
    """Return a turn that is admitted."""
    return AdmissionQueued(
        admission_id=admission_id,
        request_id=request_id or f"request-{admission_id}",
        principal_id="owner",
        session_id=session_id,
        payload_json='{"text": "hi"}',
        payload_digest="digest",
        at=2.0,
    )


def turn(admission_id: str = "t_1", session_id: str = "s_1") -> list[Record]:
    """Return a session with one running turn."""
    return [session(session_id), queued(admission_id, session_id), AdmissionStarted(admission_id=admission_id, at=3.0)]


def accepted(receipt_id: str, parent_id: str = "t_1", *, depth: int = 1, admission_id: str = "t_1") -> DelegateAccepted:
    """Return a delegate that was accepted."""
    return DelegateAccepted(
        receipt_id=receipt_id,
        delegation_id="c_1",
        admission_id=admission_id,
        session_id="s_1",
        parent_id=parent_id,
        task_index=0,
        depth=depth,
        goal="Count the words.\x00 Größe 🦉",
        task_json="{}",
        model="m",
        transcript_path="/t.jsonl",
        at=4.0,
    )


def intended(receipt_id: str, number: int = 1, admission_id: str = "t_1") -> AttemptIntended:
    """Return the intent to start a process; without a delegate, the root's."""
    return AttemptIntended(
        attempt_id=f"{receipt_id or admission_id}.{number}",
        admission_id=admission_id,
        receipt_id=receipt_id,
        number=number,
        tag=f"tag-{receipt_id}",
        at=5.0,
    )


def started(attempt_id: str, pid: int = 99) -> AttemptStarted:
    """Return the start of a process."""
    return AttemptStarted(attempt_id=attempt_id, pid=pid, process_start="18", at=6.0)


def receipt(receipt_id: str, *, summary: str = "done", usage: Usage | None = None) -> ReceiptWritten:
    """Return the receipt of a delegate that completed."""
    usage = usage or Usage(input_tokens=3, output_tokens=2)
    return ReceiptWritten(
        receipt_id=receipt_id,
        delegation_id="c_1",
        session_id="s_1",
        admission_id="t_1",
        status="completed",
        reason="",
        message="",
        summary=summary,
        partial_text="",
        usage=usage,
        usage_total=usage,
        steps=1,
        attempts=1,
        trace=[],
        entry={"task_index": 0, "status": "completed", "summary": summary},
        at=7.0,
    )


def finished(receipt_id: str, summary: str = "done") -> list[Record]:
    """Return a delegate and its receipt."""
    return [accepted(receipt_id), receipt(receipt_id, summary=summary)]
