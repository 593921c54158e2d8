"""The events of sessions, numbered from 1, the newest of them kept for viewers that come back."""

from collections import OrderedDict, deque

import msgspec
from msgspec import Struct, field

from fanjoin.ipc.messages import Event, JsonObject
from fanjoin.ipc.session_messages import Gap

KEPT_EVENTS = 500
KEPT_BYTES = 2 << 20
"""Of one session; the older ones are forgotten first."""
KEPT_SESSIONS = 64


class _Ring(Struct):
    events: deque[tuple[int, Event]] = field(default_factory=deque)
    size: int = 0

    def add(self, event: Event) -> None:
        size = len(msgspec.msgpack.encode(event))
        self.events.append((size, event))
        self.size += size
        while self.events and (len(self.events) > KEPT_EVENTS or self.size > KEPT_BYTES):
            self.size -= self.events.popleft()[0]


class EventLog:
    """Numbers events and keeps the newest; it holds so many sessions, those with the newest events."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._rings: OrderedDict[str, _Ring] = OrderedDict()

    def last(self, session_id: str) -> int:
        """Return the number of the session's last event, 0 when there was none."""
        return self._numbers.get(session_id, 0)

    def add(self, session_id: str, admission_id: str, name: str, data: JsonObject) -> Event:
        """Make the session's next event."""
        number = self._numbers[session_id] = self.last(session_id) + 1
        event = Event(session_id=session_id, admission_id=admission_id, sequence=number, name=name, data=data)
        self._rings.setdefault(session_id, _Ring()).add(event)
        self._rings.move_to_end(session_id)
        if len(self._rings) > KEPT_SESSIONS:
            self._rings.popitem(last=False)
        return event

    def since(self, session_id: str, number: int) -> list[Event | Gap]:
        """Return the events after a number; when the first of them are gone, what says so comes before the rest."""
        last = self.last(session_id)
        ring = self._rings.get(session_id, _Ring())
        events: list[Event | Gap] = [event for _, event in ring.events if event.sequence > number]
        first = last - len(events) + 1
        if number < first - 1:
            events.insert(0, Gap(session_id=session_id, first=number + 1, last=first - 1))
        return events
