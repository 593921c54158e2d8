"""A session followed over many turns: a thread listens, so that what happens by itself is heard at any time."""

import queue
import threading
from collections import deque
from collections.abc import Callable

from msgspec import Struct

from fanjoin.client.core import Core
from fanjoin.client.run import bootstrap_for
from fanjoin.client.viewer import BEAT_SECONDS, Patience, Viewer
from fanjoin.client.wake import Wake
from fanjoin.ipc.messages import Pong, ToViewer
from fanjoin.ipc.settings import SupervisorSettings

CLOSE_SECONDS = 20.0


class Lost(Struct, frozen=True):
    """Heard when the supervisor died or stopped answering; nothing comes after it."""

    what: str


class Signalled(Struct, frozen=True):
    """Heard when a signal arrived: in its place among all that is heard, so that it breaks nothing off."""

    number: int


Heard = ToViewer | Lost | Signalled


class Line:
    """The connection of a conversation. Messages are taken by one thread, and told of by another.

    Args:
        core: whose supervisor it is.
        settings: the supervisor's own.
        environ: what turns need of the environment that nobody brings settings for.
        arrived: called from the listening thread when there is something to take.

    Raises:
        UserError, RunError: the supervisor cannot run here.
        OwnerLostError: it died.
    """

    def __init__(
        self, core: Core, settings: SupervisorSettings, environ: dict[str, str], arrived: Callable[[], None]
    ) -> None:
        self._core = core
        self._settings = settings
        self._arrived = arrived
        self._outgoing: deque[Struct] = deque()
        self._incoming: queue.SimpleQueue[Heard] = queue.SimpleQueue()
        self._next: deque[Heard] = deque()
        self._wake = Wake()
        self._closed = False
        self._viewer = Viewer(core.endpoints(bootstrap_for(core, settings, environ=environ)), core.viewer)
        self._viewer.also_watch(self._wake.fileno())
        core.call_when_gone(self._wake.set)
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def send(self, message: Struct) -> None:
        """Send a message soon."""
        self._outgoing.append(message)
        self._wake.set()

    def take(self, seconds: float = 0.0) -> Heard | None:
        """Return what was heard next, waiting for it at most so long."""
        try:
            return self._next.popleft() if self._next else self._incoming.get(timeout=seconds)
        except queue.Empty:
            return None

    def skip(self, silent: Callable[[Heard], bool]) -> bool:
        """Drop what was heard up to the first thing that is not silent, and say whether there is one."""
        while (heard := self.take()) is not None:
            if not silent(heard):
                self._next.appendleft(heard)
                return True
        return False

    def _listen(self) -> None:
        patience = Patience(self._settings.silence_seconds)
        while not self._closed:
            alive = self._core.alive
            while (message := self._viewer.receive()) is not None:
                patience.heard()
                if not isinstance(message, Pong):
                    self.hear(message)
            if not alive:
                self.hear(Lost("The supervisor died"))
                return
            self._send_all()
            if not self._viewer.wait(BEAT_SECONDS) and patience.is_over(self._viewer):
                self.hear(Lost(f"The supervisor did not answer for {self._settings.silence_seconds:g} s"))
                return
            self._wake.clear()
        self._send_all()

    def _send_all(self) -> None:
        while self._outgoing:
            self._viewer.send(self._outgoing.popleft())

    def hear(self, heard: Heard) -> None:
        """Note what is to be taken; from any thread, and from a signal handler."""
        self._incoming.put(heard)
        self._arrived()

    def close(self) -> None:
        """Leave: a daemon goes on, a supervisor of our own ends what runs and then itself."""
        self._closed = True
        self._wake.set()
        self._thread.join(CLOSE_SECONDS)
        self._viewer.close()
        self._core.close(CLOSE_SECONDS)
