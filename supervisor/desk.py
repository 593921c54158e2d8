"""Answers what viewers ask of the records, and has the store answer what the core asks."""

import sqlite3
from collections.abc import Callable
from typing import Protocol

from msgspec.structs import replace

from fanjoin.ipc.messages import Refused, ToViewer
from fanjoin.ipc.session_messages import SessionInfo
from fanjoin.supervisor.core.effects import Ask, Snapshot
from fanjoin.supervisor.core.events import Answered
from fanjoin.supervisor.loop import Loop
from fanjoin.supervisor.questions import Answer, Question
from fanjoin.supervisor.store.reading import Reading, read, snapshot
from fanjoin.supervisor.store.writer import StoreWriter

Reader = Callable[[sqlite3.Connection], ToViewer]
Answerer = Callable[[sqlite3.Connection, Question], Answer]


class Hearer(Protocol):
    """Who hears the answers: the driver."""

    def tell(self, viewer: str, message: ToViewer) -> None:
        """Send a message to a viewer."""
        ...

    def feed(self, event: Answered) -> None:
        """Hand an event to the core."""
        ...


class Desk:
    """Takes questions to the store's thread and brings the answers back into the loop's.

    Args:
        store: answers after all that was written before.
        loop: where answers are heard.
        hearer: hears them.
        answer: answers the core's questions.
        instance_id: this supervisor.
    """

    def __init__(self, store: StoreWriter, loop: Loop, hearer: Hearer, answer: Answerer, instance_id: str) -> None:
        self._store = store
        self._loop = loop
        self._hearer = hearer
        self._answer_core = answer
        self._instance_id = instance_id

    def ask(self, effect: Ask) -> None:
        """Have a question of the core answered."""

        def then(found: object, error: str | None) -> None:
            event = Answered(ticket=effect.ticket, answer=found, error=error)  # type: ignore[arg-type]
            self._loop.post(lambda: self._hearer.feed(event))

        self._store.ask(lambda connection: self._answer_core(connection, effect.question), then)

    def read(self, viewer: str, request: Reading) -> None:
        """Answer a viewer that only wants to know."""
        self._answer(viewer, request.request_id, lambda connection: read(connection, request, self._instance_id))

    def snapshot(self, effect: Snapshot) -> None:
        """Tell a viewer what a session holds."""
        info = SessionInfo(request_id=effect.request_id, session_id=effect.session_id)

        def run(connection: sqlite3.Connection) -> ToViewer:
            found = snapshot(connection, info, self._instance_id)
            if isinstance(found, Refused):
                return found
            return replace(found, sequence=effect.sequence, created=effect.created)

        self._answer(effect.viewer, effect.request_id, run)

    def _answer(self, viewer: str, request_id: str, run: Reader) -> None:
        def then(found: object, error: str | None) -> None:
            refused = Refused(request_id=request_id, reason="storage_unavailable", message=error or "")
            message: ToViewer = found if error is None else refused  # type: ignore[assignment]
            self._loop.post(lambda: self._hearer.tell(viewer, message))

        self._store.ask(run, then)
