"""The viewers' door. A viewer is known by a name that it gives; what was told to it before it came waits for it."""

from collections import deque
from collections.abc import Callable

import zmq
from msgspec import Struct, field
from msgspec.structs import replace

from fanjoin.ipc.approval_messages import ApprovalAsked
from fanjoin.ipc.codec import Codec
from fanjoin.ipc.errors import BadFrameError
from fanjoin.ipc.messages import Attach, Event, FromViewer, Pong, Refused, ToViewer, TurnDone
from fanjoin.ipc.session_messages import Gap
from fanjoin.ipc.text import head_and_tail

MAX_WAITING = 10_000
"""Messages kept for a viewer that does not read; beyond it events are dropped, answers never."""
MAX_ANSWER_CHARS = 200_000
"""How much of an answer is told when there is no room for the whole."""
_BATCH = 500


class _Viewer(Struct):
    routing_id: bytes | None = None
    waiting: deque[bytes] = field(default_factory=deque)
    missed: dict[str, tuple[int, int]] = field(default_factory=dict)
    lost: bool = False


class FrontDoor:
    """Reads viewers' frames and keeps what they cannot take yet."""

    def __init__(
        self,
        router: "zmq.Socket[bytes]",
        codec: Codec[FromViewer],
        heard: Callable[[str, FromViewer], None],
    ) -> None:
        self._router = router
        self._codec = codec
        self._heard = heard
        self._viewers: dict[str, _Viewer] = {}
        self._names: dict[bytes, str] = {}
        self._inside: dict[str, Callable[[ToViewer], None]] = {}
        self.awaits_viewers = True
        """Keep what is told to a viewer that has not come yet; those of a daemon come before they are told anything."""

    def join(self, name: str, tell: Callable[[ToViewer], None]) -> None:
        """Let in a viewer that comes through no socket, such as a connection of the gateway."""
        self._inside[name] = tell

    def drain(self) -> None:
        """Read what has arrived, at most a batch, so that a flood cannot keep the loop from its other work."""
        for _ in range(_BATCH):
            try:
                parts = self._router.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            self._take(parts)

    def _take(self, parts: list[bytes]) -> None:
        try:
            message = self._codec.decode(parts[-1])
        except BadFrameError:
            return
        if isinstance(message, Attach):
            self._names[parts[0]] = message.viewer
            viewer = self._viewers.setdefault(message.viewer, _Viewer())
            viewer.routing_id, viewer.lost = parts[0], False
        name = self._names.get(parts[0])
        if name is not None:
            self._flush(self._viewers[name])
            if not isinstance(message, Attach):
                self._heard(name, message)

    def tell(self, name: str, message: ToViewer) -> None:
        """Send a message to a viewer, now or when it reads again."""
        inside = self._inside.get(name)
        if inside is not None:
            inside(message)
            return
        if name not in self._viewers and not self.awaits_viewers:
            return
        viewer = self._viewers.setdefault(name, _Viewer())
        if isinstance(message, Event):
            if len(viewer.waiting) >= MAX_WAITING:
                first, _ = viewer.missed.get(message.session_id, (message.sequence, 0))
                viewer.missed[message.session_id] = first, message.sequence
                return
            self._tell_gap(viewer, message.session_id)
        viewer.waiting.append(self._encode(message))
        self._flush(viewer)

    def _tell_gap(self, viewer: _Viewer, session_id: str) -> None:
        """Say which events were dropped because this viewer read too slowly, before it gets the next one."""
        missed = viewer.missed.pop(session_id, None)
        if missed is not None:
            gap = Gap(session_id=session_id, first=missed[0], last=missed[1])
            viewer.waiting.append(self._encode(gap))

    def _encode(self, message: ToViewer) -> bytes:
        """Return a frame; of a message that is large while the spool has no room, one that fits: somebody waits."""
        try:
            return self._codec.encode(message)
        except (OSError, BadFrameError) as error:
            return self._codec.encode(_small(message, str(error)))

    def forget(self, name: str) -> None:
        """Keep nothing more for a viewer that is gone for good."""
        self._inside.pop(name, None)
        self._viewers.pop(name, None)
        self._names = {routing_id: known for routing_id, known in self._names.items() if known != name}

    def flush(self) -> None:
        """Try again to send what waits."""
        for viewer in self._viewers.values():
            for session_id in [*viewer.missed] if len(viewer.waiting) < MAX_WAITING else []:
                self._tell_gap(viewer, session_id)
            self._flush(viewer)

    def probe(self) -> list[str]:
        """Say a word to every viewer, which is how one that is gone shows, and return the names of those."""
        for viewer in self._viewers.values():
            if viewer.routing_id is not None and not viewer.waiting:
                viewer.waiting.append(self._encode(Pong(request_id="")))
            self._flush(viewer)
        return [name for name, viewer in self._viewers.items() if viewer.lost]

    def _flush(self, viewer: _Viewer) -> None:
        while viewer.waiting and viewer.routing_id is not None:
            try:
                self._router.send_multipart([viewer.routing_id, viewer.waiting[0]], zmq.NOBLOCK)
            except zmq.Again:
                return
            except zmq.ZMQError:
                viewer.routing_id, viewer.lost = None, True
                return
            viewer.waiting.popleft()


def _small(message: ToViewer, problem: str) -> ToViewer:
    """Return what is told instead of a message that cannot be sent whole: a turn's end, or that an answer cannot be."""
    match message:
        case TurnDone():
            answer = head_and_tail(message.answer, MAX_ANSWER_CHARS)
            return replace(message, answer=answer, results=[], recorded=False, storage_error=problem)
        case Event():
            return replace(message, data={})
        case Gap() | ApprovalAsked():
            return message
        case _:
            text = f"The answer is too large to be told: {problem}."
            return Refused(request_id=message.request_id, reason="storage_unavailable", message=text)
