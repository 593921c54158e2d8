"""A store for the core's tests."""

from collections import deque

from fanjoin.supervisor.core.effects import Persist
from fanjoin.supervisor.core.events import Recorded
from fanjoin.supervisor.records import (
    AdmissionEnded,
    AdmissionQueued,
    AdmissionStarted,
    AttemptEnded,
    AttemptIntended,
    AttemptStarted,
    DelegateAccepted,
    ReceiptWritten,
    Record,
)


class Journal:
    """The store: it commits in order, refuses what is planned, and what hangs on something that it refused."""

    def __init__(self, failing: frozenset[int]) -> None:
        self._failing = failing
        self.queue: deque[Persist] = deque()
        self.committed: dict[tuple[str, str], Record] = {}
        self.refused = 0

    def answer(self) -> Recorded:
        """Take the oldest ticket and return its fate."""
        persist = self.queue.popleft()
        error = "disk full" if persist.ticket in self._failing else None
        keys = [_key(record) for record in persist.records if _key(record)[1]]
        if error is None:
            known = {*self.committed, *keys}
            missing = [need for record in persist.records for need in _needs(record) if need not in known]
            assert not missing or self.refused, f"{missing} was never handed to the store"
            error = f"no row for {missing}" if missing else None
        if error is None:
            for key, record in zip(keys, (r for r in persist.records if _key(r)[1]), strict=True):
                assert key not in self.committed, f"{key} was written twice"
                self.committed[key] = record
        else:
            self.refused += 1
        return Recorded(ticket=persist.ticket, error=error)


def _key(record: Record) -> tuple[str, str]:
    match record:
        case ReceiptWritten() | DelegateAccepted():
            return (type(record).__name__, record.receipt_id)
        case AdmissionQueued() | AdmissionStarted() | AdmissionEnded():
            return (type(record).__name__, record.admission_id)
        case AttemptIntended() | AttemptStarted() | AttemptEnded():
            return (type(record).__name__, record.attempt_id)
        case _:
            return ("", "")


def _needs(record: Record) -> list[tuple[str, str]]:
    match record:
        case AdmissionStarted() | AdmissionEnded() | DelegateAccepted():
            return [("AdmissionQueued", record.admission_id)]
        case AttemptIntended():
            parent = ("DelegateAccepted", record.receipt_id) if record.receipt_id else None
            return [parent or ("AdmissionStarted", record.admission_id)]
        case ReceiptWritten():
            return [("DelegateAccepted", record.receipt_id)]
        case AttemptStarted() | AttemptEnded():
            return [("AttemptIntended", record.attempt_id)]
        case _:
            return []
