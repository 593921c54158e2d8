"""Both doors of a supervisor with their sockets, and the clients of a test that connect to them."""

from pathlib import Path

import zmq
from supervisor_support import RUN, until

from fanjoin.ipc.codec import Codec, agent_side, back_side, front_side
from fanjoin.ipc.endpoints import Endpoints
from fanjoin.ipc.messages import FromAgent, FromViewer, ToAgent, ToViewer
from fanjoin.supervisor.back import BackDoor
from fanjoin.supervisor.front import FrontDoor
from fanjoin.supervisor.loop import Loop
from fanjoin.supervisor.sockets import Sockets

ONE = "d_one.1"


class House:
    """Sockets, both doors, and what was heard at each."""

    def __init__(self, folder: Path, transport: str, loop: Loop) -> None:
        folder.mkdir(mode=0o700)
        self.loop = loop
        self.sockets = Sockets(folder, transport, loop)
        self.spool = Path(self.sockets.endpoints.spool)
        self.heard: list[FromAgent] = []
        self.offenders: list[tuple[str, str]] = []
        self.viewers: list[tuple[str, FromViewer]] = []
        self.back = BackDoor(
            self.sockets.back,
            back_side(self.spool),
            RUN,
            self.heard.append,
            lambda attempt_id, what: self.offenders.append((attempt_id, what)),
        )
        self.front = FrontDoor(
            self.sockets.front, front_side(self.spool), lambda name, message: self.viewers.append((name, message))
        )
        loop.watch(self.sockets.back, self.back.drain)
        loop.watch(self.sockets.front, self.front.drain)
        self.context = zmq.Context()
        self.clients: list[Client] = []

    def client(self, address: str, identity: str = ONE, keys: Endpoints | None = None) -> "Client":
        """Connect with these keys; the run's own when none are given."""
        self.clients.append(Client(self, address, identity, keys or self.sockets.endpoints))
        return self.clients[-1]

    def close(self) -> None:
        """Close every socket of this house."""
        for client in self.clients:
            client.socket.close()
        self.context.term()
        for door in (self.sockets.back, self.sockets.front):
            self.loop.unwatch(door)
        self.sockets.close()

    def agent(self, identity: str = "right") -> "Client":
        """Connect to the agents' door."""
        return self.client(self.sockets.endpoints.back, identity)

    def viewer(self, identity: str = "viewer-1") -> "Client":
        """Connect to the viewers' door."""
        return self.client(self.sockets.endpoints.front, identity)


class Client:
    """A DEALER of the test."""

    def __init__(self, house: House, address: str, identity: str, keys: Endpoints) -> None:
        self.house = house
        self.codec = agent_side(house.spool)
        self.socket = house.context.socket(zmq.DEALER)
        self.socket.setsockopt(zmq.ROUTING_ID, identity.encode())
        self.socket.setsockopt(zmq.LINGER, 0)
        if keys.server_key:
            self.socket.setsockopt(zmq.CURVE_SERVERKEY, keys.server_key.encode())
            self.socket.setsockopt(zmq.CURVE_PUBLICKEY, keys.client_public.encode())
            self.socket.setsockopt(zmq.CURVE_SECRETKEY, keys.client_secret.encode())
        self.socket.connect(address)

    def say(self, *messages: object) -> None:
        """Send messages, or bytes as they are."""
        for message in messages:
            self.socket.send(message if isinstance(message, bytes) else self.codec.encode(message))  # type: ignore[arg-type]

    def receive(self, side: Codec[ToAgent] | Codec[ToViewer]) -> ToAgent | ToViewer:
        """Wait for a message."""
        until(self.house.loop, lambda: self.socket.poll(0))
        return side.decode(self.socket.recv())
