"""The core's memory and its outbox. Every rule is a function over this state."""

from collections import deque
from collections.abc import Callable
from pathlib import Path

from fanjoin.ipc.ids import NewId
from fanjoin.ipc.messages import ToAgent, ToViewer
from fanjoin.supervisor.core.effects import Ask, Effect, Persist, Send, Stop, Tell
from fanjoin.supervisor.core.event_log import EventLog
from fanjoin.supervisor.core.model import Asker, Attempt, Call, Delegate, Intent, Session, Turn, Work
from fanjoin.supervisor.core.timers import Timers
from fanjoin.supervisor.questions import Answer, Question
from fanjoin.supervisor.records import Record

Committed = Callable[[str | None, dict[str, int]], None]
"""Called with the store's error, if any, and the sequence numbers of new admissions."""

Answering = Callable[[Answer, str | None], None]
"""Called with the store's answer, or its error."""


class State:
    """What is going on, and what is to be done about it.

    Args:
        home: the home folder; paths below it are named in tasks and receipts.
        new_id: makes identifiers.
        max_processes: how many agent processes may exist at once.
        instance_id: names this supervisor to viewers.
    """

    def __init__(self, *, home: Path, new_id: NewId, max_processes: int, instance_id: str = "") -> None:
        self.home = home
        self.instance_id = instance_id
        self.new_id = new_id
        self.max_processes = max_processes
        self.now = 0.0
        self.wall = 0.0
        self.timers = Timers()
        self.sessions: dict[str, Session] = {}
        self.touched: set[str] = set()
        self.opening = 0
        self.submitting: dict[Asker, Intent | None] = {}
        self.draining = False
        self.closing = False
        self.log = EventLog()
        self.turns: dict[str, Turn] = {}
        self.queues: dict[str, deque[Turn]] = {}
        self.delegates: dict[str, Delegate] = {}
        self.attempts: dict[str, Attempt] = {}
        self.orphaning: list[Work] = []
        self.calls_over: list[Call] = []
        self.launch_failures: deque[float] = deque()
        self.refused: dict[tuple[str, str], tuple[str, ...]] = {}
        """What endpoints were found to refuse, by URL and model: each agent is told, so that none has to find out."""
        self._effects: list[Effect] = []
        self._writes: list[Effect] = []
        self._records: list[Record] = []
        self._committed: list[Committed] = []
        self._pending: dict[int, list[Committed]] = {}
        self._asked: dict[int, Answering] = {}
        self._tickets = 0
        self._questions = 0

    def send(self, attempt: Attempt, message: ToAgent) -> None:
        """Send a message to an agent."""
        self._effects.append(Send(attempt_id=attempt.attempt_id, message=message))

    def stop(self, attempt: Attempt, *, hard: bool) -> None:
        """End a process by signal."""
        self._effects.append(Stop(attempt_id=attempt.attempt_id, hard=hard))

    def do(self, effect: Effect) -> None:
        """Have something done."""
        self._effects.append(effect)

    def tell(self, viewer: str, message: ToViewer) -> None:
        """Send a message to a viewer; turns that nobody brought have none."""
        if viewer:
            self._effects.append(Tell(viewer=viewer, message=message))

    def announce(self, turn: Turn, name: str, **data: object) -> None:
        """Send an event of a turn to its viewer and to all who follow the session, numbered within the session."""
        event = self.log.add(turn.session_id, turn.admission_id, name, dict(data))
        session = self.sessions.get(turn.session_id)
        for viewer in turn.viewers | (session.followers if session else set()):
            self.tell(viewer, event)

    def add_session(self, session: Session) -> None:
        """Hold a session until nothing of it is open."""
        self.sessions[session.session_id] = session
        self.touched.add(session.session_id)

    def ask(self, question: Question, then: Answering) -> None:
        """Ask the store; it has seen what was persisted before, and not what comes after."""
        self._flush_records()
        self._questions += 1
        self._asked[self._questions] = then
        self._writes.append(Ask(ticket=self._questions, question=question))

    def answered(self, ticket: int, answer: Answer, error: str | None) -> None:
        """Go on with what waited for an answer."""
        self._asked.pop(ticket)(answer, error)

    def persist(self, records: list[Record], then: Committed | None = None) -> None:
        """Write records; all of one event go into one transaction. ``then`` is called when it ended, well or not."""
        self._records += records
        if then is not None:
            self._committed.append(then)

    def keep(self, turn: Turn, records: list[Record]) -> None:
        """Write records that nothing waits for; when they could not be kept, the end of their turn says so."""

        def committed(error: str | None, _: dict[str, int]) -> None:
            turn.unrecorded = turn.unrecorded or error or ""

        self.persist(records, committed)

    def recorded(self, ticket: int, error: str | None, sequences: dict[str, int]) -> None:
        """Go on with what waited for a commit."""
        for then in self._pending.pop(ticket, []):
            then(error, sequences)

    def take_effects(self) -> list[Effect]:
        """Return what is to be done, writing first: an act comes after its intent was handed to the store."""
        self._flush_records()
        effects = self._writes + self._effects
        self._writes, self._effects = [], []
        return effects

    def _flush_records(self) -> None:
        if not self._records:
            return
        self._tickets += 1
        self._writes.append(Persist(ticket=self._tickets, records=self._records))
        self._pending[self._tickets] = self._committed
        self._records, self._committed = [], []
