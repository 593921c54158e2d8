"""The core's memory and its outbox. Every rule is a function over this state."""

from collections import deque
from collections.abc import Callable
from pathlib import Path

from fanjoin.ipc.ids import NewId
from fanjoin.ipc.messages import Event, JsonObject, ToAgent, ToViewer
from fanjoin.supervisor.core.effects import Effect, Persist, Send, Stop, Tell
from fanjoin.supervisor.core.model import Attempt, Delegate, Turn, Work
from fanjoin.supervisor.core.timers import Timers
from fanjoin.supervisor.records import Record

Committed = Callable[[str | None, dict[str, int]], None]
"""Called with the store's error, if any, and the sequence numbers of new admissions."""


class State:
    """What is going on, and what is to be done about it.

    Args:
        home: the home folder; paths below it are named in tasks and receipts.
        new_id: makes identifiers.
        max_processes: how many agent processes may exist at once.
    """

    def __init__(self, *, home: Path, new_id: NewId, max_processes: int) -> None:
        self.home = home
        self.new_id = new_id
        self.max_processes = max_processes
        self.now = 0.0
        self.wall = 0.0
        self.timers = Timers()
        self.turns: dict[str, Turn] = {}
        self.queues: dict[str, deque[Turn]] = {}
        self.delegates: dict[str, Delegate] = {}
        self.attempts: dict[str, Attempt] = {}
        self.orphaning: list[Work] = []
        self.launch_failures: deque[float] = deque()
        self.refused: dict[tuple[str, str], tuple[str, ...]] = {}
        """What endpoints were found to refuse, by URL and model: each agent is told, so that none has to find out."""
        self._effects: list[Effect] = []
        self._records: list[Record] = []
        self._committed: list[Committed] = []
        self._pending: dict[int, list[Committed]] = {}
        self._tickets = 0
        self._event_numbers: dict[str, int] = {}

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
        """Send a message to a viewer."""
        self._effects.append(Tell(viewer=viewer, message=message))

    def announce(self, turn: Turn, name: str, **data: object) -> None:
        """Send an event of a turn to its viewer, numbered within the session."""
        number = self._event_numbers.get(turn.session_id, 0) + 1
        self._event_numbers[turn.session_id] = number
        content: JsonObject = dict(data)
        event = Event(
            session_id=turn.session_id, admission_id=turn.admission_id, sequence=number, name=name, data=content
        )
        self.tell(turn.viewer, event)

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
        effects, self._effects = self._effects, []
        if self._records:
            self._tickets += 1
            effects.insert(0, Persist(ticket=self._tickets, records=self._records))
            self._pending[self._tickets] = self._committed
            self._records, self._committed = [], []
        return effects
