"""What a connection still has to send: answers all, events as many as fit; for the others one gap a session."""

from collections import deque
from typing import NamedTuple

from fanjoin.supervisor.gateway.rpc import notification

MOST_EVENTS = 1_000
MOST_BYTES = 8 << 20
"""Of the events that wait for a viewer that does not read."""


class _Waiting(NamedTuple):
    frame: bytes
    is_event: bool


class Outbox:
    """A queue that never grows beyond its bounds, whoever does not read.

    Once an event of a session does not fit, those that follow are left out, too, until the queue is empty: then the
    gap is told, and the next event follows it.
    """

    def __init__(self, most_events: int = MOST_EVENTS, most_bytes: int = MOST_BYTES) -> None:
        self._most_events = most_events
        self._most_bytes = most_bytes
        self._queue: deque[_Waiting] = deque()
        self._events = 0
        self._bytes = 0
        self._gaps: dict[str, tuple[int, int]] = {}

    @property
    def answers(self) -> int:
        """Return how many answers wait."""
        return len(self._queue) - self._events

    def __bool__(self) -> bool:
        return bool(self._queue or self._gaps)

    def put_answer(self, frame: bytes) -> None:
        """Add an answer; whoever asks for more while many wait has to wait first."""
        self._queue.append(_Waiting(frame, is_event=False))

    def put_event(self, session_id: str, sequence: int, frame: bytes) -> None:
        """Add an event, or note that it is left out."""
        full = self._events >= self._most_events or self._bytes + len(frame) > self._most_bytes
        if session_id in self._gaps or full:
            self.leave_out(session_id, sequence, sequence)
            return
        self._queue.append(_Waiting(frame, is_event=True))
        self._events += 1
        self._bytes += len(frame)

    def leave_out(self, session_id: str, first: int, last: int) -> None:
        """Note that events will not be sent."""
        begun = self._gaps.get(session_id)
        self._gaps[session_id] = (begun[0] if begun else first, last)

    def take(self) -> bytes | None:
        """Return the next frame to send, or None when there is nothing."""
        if self._queue:
            waiting = self._queue.popleft()
            if waiting.is_event:
                self._events -= 1
                self._bytes -= len(waiting.frame)
            return waiting.frame
        if not self._gaps:
            return None
        session_id = next(iter(self._gaps))
        first, last = self._gaps.pop(session_id)
        return notification("gap", session_id, "", last, {"first": first, "last": last})
