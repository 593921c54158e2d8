"""The one thread that writes ``state.db`` for a supervisor: it commits when idle.

Everything that queued up while the last transaction was on its way to the disk goes into the next one. Nothing waits
for a timer: one sender alone pays one fsync each, many at once share it.
"""

import contextlib
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec import Struct, field

from fanjoin.ipc.errors import StorageError
from fanjoin.ipc.paths import database_file
from fanjoin.ipc.state_file import explain
from fanjoin.supervisor.records import AdmissionQueued, Record
from fanjoin.supervisor.store.connection import connect, immediate
from fanjoin.supervisor.store.owners import end_owner
from fanjoin.supervisor.store.rows import write
from fanjoin.supervisor.store.schema import migrate

_LOCK_TRIES = 2
"""A lock that somebody holds is waited for this often, ``BUSY_SECONDS`` each time."""

_REFUSED = (
    *(sqlite3.IntegrityError, sqlite3.DataError, sqlite3.InterfaceError, sqlite3.ProgrammingError),
    *(TypeError, ValueError, OverflowError, RecursionError, MemoryError),
)
"""What a submission brings upon itself: it is undone alone, the rest of its transaction stands."""


class Submission(Struct, frozen=True):
    """Records that are written together or not at all."""

    ticket: int
    records: Sequence[Record]


class Committed(Struct, frozen=True):
    """The fate of one submission: on disk, or not at all (``error`` says why, in words for the user).

    ``sequences`` gives the sequence number of each turn that was queued, by its admission.
    """

    ticket: int
    error: str | None = None
    sequences: dict[str, int] = field(default_factory=dict)


class Asking(Struct, frozen=True):
    """A question: what answers it, and who is told the answer, or why there is none."""

    run: Callable[[sqlite3.Connection], object]
    then: Callable[[object, str | None], None]


Item = Submission | Asking
Notify = Callable[[list[Committed]], None]


def open_database(home: Path) -> sqlite3.Connection:
    """Open the home's database with the newest schema.

    Raises:
        StorageError: it cannot be opened, is damaged, not ours, or newer than this version.
    """
    path = database_file(home)
    try:
        connection = connect(path)
    except sqlite3.Error as error:
        raise StorageError(explain(error, path)) from error
    try:
        migrate(connection, path)
    except BaseException as error:
        connection.close()
        if isinstance(error, sqlite3.Error):
            raise StorageError(explain(error, path)) from error
        raise
    return connection


class StoreWriter:
    """Writes in a thread of its own and says what is on disk.

    Args:
        connection: handed over: from here on only the thread uses it.
        path: of the database, for messages.
        owner_id: the registered supervisor whose rows these are.
        notify: called from the thread after each transaction; it must be quick and must not raise.
    """

    def __init__(self, connection: sqlite3.Connection, path: Path, owner_id: str, notify: Notify) -> None:
        self._connection = connection
        self._path = path
        self._owner_id = owner_id
        self._notify = notify
        self._queue: queue.SimpleQueue[Item | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="store-writer", daemon=True)
        self._thread.start()

    def submit(self, ticket: int, records: Sequence[Record]) -> None:
        """Queue records to be written together; their fate comes as the ``Committed`` of this ticket."""
        self._queue.put(Submission(ticket, records))

    def ask(self, run: Callable[[sqlite3.Connection], object], then: Callable[[object, str | None], None]) -> None:
        """Have the thread run something outside of any transaction, after all that was submitted before.

        ``then`` is called from the thread with what it returned, or with None and an error in words for the user.
        """
        self._queue.put(Asking(run, then))

    def close(self, timeout: float) -> bool:
        """Write what is queued, mark the owner as ended, close the file.

        Returns:
            Whether that was done within ``timeout`` seconds; if not, the thread goes on trying.
        """
        self._queue.put(None)
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            while batch := self._take():
                submissions = [item for item in batch if isinstance(item, Submission)]
                if submissions:
                    self._notify(self._commit(submissions))
                for item in batch:
                    if isinstance(item, Asking):
                        self._answer(item)
            self._end()
        finally:
            self._connection.close()

    def _take(self) -> list[Item]:
        """Wait for something, then take all that is there; empty at the end.

        What was asked first is answered late at worst: after everything that is taken with it.
        """
        batch: list[Item] = []
        item = self._queue.get()
        while item is not None:
            batch.append(item)
            try:
                item = self._queue.get_nowait()
            except queue.Empty:
                return batch
        if batch:
            self._queue.put(None)
        return batch

    def _answer(self, asking: Asking) -> None:
        try:
            asking.then(asking.run(self._connection), None)
        except sqlite3.Error as error:
            asking.then(None, explain(error, self._path))
        except _REFUSED as error:
            asking.then(None, self._refusal(error))

    def _commit(self, batch: list[Submission]) -> list[Committed]:
        """Write a batch in one transaction; what only the whole of it could not do is tried again one by one."""
        try:
            return self._in_one_transaction(batch)
        except sqlite3.Error as error:
            if len(batch) > 1 and not _is_locked(error):
                return [committed for submission in batch for committed in self._commit([submission])]
            text = explain(error, self._path)
            return [Committed(submission.ticket, text) for submission in batch]

    def _in_one_transaction(self, batch: list[Submission]) -> list[Committed]:
        for tries_left in reversed(range(_LOCK_TRIES)):
            try:
                with immediate(self._connection):
                    return [self._write(submission) for submission in batch]
            except sqlite3.OperationalError as error:
                if not _is_locked(error) or not tries_left:
                    raise
        raise AssertionError

    def _write(self, submission: Submission) -> Committed:
        self._connection.execute("SAVEPOINT submission")
        try:
            sequences = self._write_records(submission.records)
        except _REFUSED as error:
            if not self._connection.in_transaction:
                raise
            self._connection.execute("ROLLBACK TO submission")
            return Committed(submission.ticket, self._refusal(error))
        finally:
            if self._connection.in_transaction:
                self._connection.execute("RELEASE submission")
        return Committed(submission.ticket, None, sequences)

    def _write_records(self, records: Sequence[Record]) -> dict[str, int]:
        sequences = {}
        for record in records:
            number = write(self._connection, record, self._owner_id)
            if isinstance(record, AdmissionQueued):
                sequences[record.admission_id] = number
        return sequences

    def _refusal(self, error: Exception) -> str:
        return (
            f"{self._path} refused what was to be recorded: {error}. Nothing of this step was kept in it; "
            "the rest of the run is not affected.\nReport this: it is a fault of this program."
        )

    def _end(self) -> None:
        """Leave the file tidy; where that fails the owner counts as not ended, and the next start recovers it."""
        with contextlib.suppress(sqlite3.Error):
            end_owner(self._connection, self._owner_id, time.time())
            self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()


def _is_locked(error: sqlite3.Error) -> bool:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
