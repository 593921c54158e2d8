"""A viewer's connection to a supervisor's front door."""

from pathlib import Path

import msgspec
import zmq

from fanjoin.ipc.codec import viewer_side
from fanjoin.ipc.endpoints import Endpoints
from fanjoin.ipc.messages import Attach, Ping, ToViewer

BEAT_SECONDS = 1.0
"""How long a viewer listens before it asks for a sign of life."""


class Viewer:
    """Sends and receives messages under one name. Nothing here waits but ``wait``."""

    def __init__(self, endpoints: Endpoints, name: str) -> None:
        self._codec = viewer_side(Path(endpoints.spool))
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.setsockopt(zmq.LINGER, 1000)
        if endpoints.server_key:
            self._socket.setsockopt(zmq.CURVE_SERVERKEY, endpoints.server_key.encode())
            self._socket.setsockopt(zmq.CURVE_PUBLICKEY, endpoints.client_public.encode())
            self._socket.setsockopt(zmq.CURVE_SECRETKEY, endpoints.client_secret.encode())
        self._socket.connect(endpoints.front)
        self._poller = zmq.Poller()
        self._poller.register(self._socket, zmq.POLLIN)
        self.send(Attach(viewer=name))

    def also_watch(self, descriptor: int) -> None:
        """Let ``wait`` return when this descriptor is readable, too."""
        self._poller.register(descriptor, zmq.POLLIN)

    def wait(self, seconds: float) -> bool:
        """Wait until something can be read, at most so long, and say whether there is something."""
        return bool(self._poller.poll(int(seconds * 1000)))

    def send(self, message: msgspec.Struct) -> None:
        """Send a message; a full queue means that the supervisor does not read, which its silence will show."""
        try:
            self._socket.send(self._codec.encode(message), zmq.NOBLOCK)
        except zmq.Again:
            return

    def receive(self) -> ToViewer | None:
        """Return the next message that has arrived, or None.

        Raises:
            BadFrameError: it is not one that this version knows.
        """
        try:
            return self._codec.decode(self._socket.recv(zmq.NOBLOCK))
        except zmq.Again:
            return None

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()
        self._context.term()


class Patience:
    """How long a supervisor may be silent. Beats of ours are counted, not seconds: we may have been stopped, too.

    Args:
        seconds: so long.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._silent_beats = 0

    def heard(self) -> None:
        """Note that it said something."""
        self._silent_beats = 0

    def is_over(self, viewer: Viewer) -> bool:
        """Note a silent beat and ask for a sign of life; say whether there were too many."""
        self._silent_beats += 1
        viewer.send(Ping(request_id="beat"))
        return self._silent_beats * BEAT_SECONDS > self._seconds
