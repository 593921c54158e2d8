"""A store for the core's tests."""

from collections import deque

from fanjoin.supervisor.core.effects import Ask, Persist
from fanjoin.supervisor.core.events import Answered, Recorded
from fanjoin.supervisor.questions import OpenSession, SessionOpened
from fanjoin.supervisor.records import (
    AdmissionEnded,
    AdmissionQueued,
    AdmissionStarted,
    AttemptEnded,
    AttemptIntended,
    AttemptStarted,
    CallClaimed,
    CallCompleted,
    CallDelivered,
    CallDispatched,
    CallReleased,
    DelegateAccepted,
    ReceiptWritten,
    Record,
)


class Journal:
    """The store: it commits in order, refuses what is planned, and what hangs on something that it refused."""

    def __init__(self, failing: frozenset[int]) -> None:
        self._failing = failing
        self.queue: deque[Persist | Ask] = deque()
        self.committed: dict[tuple[str, str], Record] = {}
        self.refused = 0

    def answer(self) -> Recorded | Answered:
        """Take the oldest ticket or question and return its fate."""
        item = self.queue.popleft()
        return self._found(item) if isinstance(item, Ask) else self._written(item)

    def _found(self, ask: Ask) -> Answered:
        """Answer as a store does that knows each session and no earlier turn of it."""
        question, answer = ask.question, None
        if isinstance(question, OpenSession):
            answer = SessionOpened(
                session_id=question.session_id,
                settings={},
                created=False,
                history=[],
                queued=[],
                unknown=[],
                ready=[],
            )
        return Answered(ticket=ask.ticket, answer=answer)

    def _written(self, persist: Persist) -> Recorded:
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
                if isinstance(record, CallReleased):
                    del self.committed[key], self.committed["CallClaimed", record.delegation_id]
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
        case CallDispatched() | CallCompleted() | CallClaimed() | CallReleased() | CallDelivered():
            return (type(record).__name__, record.delegation_id)
        case _:
            return ("", "")


def _needs(record: Record) -> list[tuple[str, str]]:
    """Return the records that must have been written before."""
    match record:
        case AdmissionStarted() | AdmissionEnded() | DelegateAccepted():
            return [("AdmissionQueued", record.admission_id)]
        case AttemptIntended() | ReceiptWritten() if record.receipt_id:
            return [("DelegateAccepted", record.receipt_id)]
        case AttemptIntended() | CallDispatched():
            return [("AdmissionStarted", record.admission_id)]
        case AttemptStarted() | AttemptEnded():
            return [("AttemptIntended", record.attempt_id)]
        case CallCompleted() | CallClaimed() | CallReleased() | CallDelivered():
            return _needs_of_call(record)
        case _:
            return []


def _needs_of_call(record: CallCompleted | CallClaimed | CallReleased | CallDelivered) -> list[tuple[str, str]]:
    before = {CallCompleted: "CallDispatched", CallClaimed: "CallCompleted"}
    needs = [(before.get(type(record), "CallClaimed"), record.delegation_id)]
    if not isinstance(record, CallCompleted):
        needs.append(("AdmissionQueued", record.admission_id))
    return needs
