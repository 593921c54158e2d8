"""The listening thread: a loop of its own, which meets the supervisor's loop only by messages handed over."""

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future

from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response
from websockets.typing import Subprotocol

from fanjoin.ipc.messages import FromViewer, ToViewer
from fanjoin.supervisor.gateway import guard, rpc
from fanjoin.supervisor.gateway.connection import Connection, Method

MOST_CONNECTIONS = 512
"""Each is a descriptor, of which a supervisor must never run out."""
_HARD_FRAME = 2 * rpc.MAX_FRAME
"""Frames up to here are answered by an error; larger ones end their connection (1009)."""
_CLOSE_SECONDS = 2.0
_START_SECONDS = 10.0

Tell = Callable[[ToViewer], None]


class FrontOffice:
    """What the gateway wants of the supervisor; each may be called from any thread."""

    def __init__(
        self,
        join: Callable[[str, Tell], None],
        say: Callable[[str, FromViewer], None],
        leave: Callable[[str], None],
    ) -> None:
        self.join = join
        self.say = say
        self.leave = leave


class Gateway:
    """Listens on the loopback interface, on a port that the system gives, until it is closed.

    Args:
        office: where viewers are heard.
        method: does what a request asks for.
        token: opens a connection.

    Raises:
        OSError: it cannot listen.
    """

    def __init__(self, office: FrontOffice, method: Method, token: str) -> None:
        self._office = office
        self._method = method
        self._token = token
        self._count = 0
        self._connections: dict[str, Connection] = {}
        self._closing = asyncio.Event()
        self._loop = asyncio.new_event_loop()
        listening: Future[int] = Future()
        self._thread = threading.Thread(target=self._run, args=(listening,), name="gateway", daemon=True)
        self._thread.start()
        self.port = listening.result(_START_SECONDS)
        self.url = f"ws://127.0.0.1:{self.port}"

    def _run(self, listening: "Future[int]") -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve(listening))

    async def _serve(self, listening: "Future[int]") -> None:
        try:
            server = await self._listen()
        except OSError as error:
            listening.set_exception(error)
            return
        self._port = server.sockets[0].getsockname()[1]
        listening.set_result(self._port)
        await self._closing.wait()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_SECONDS / 2):
                await asyncio.gather(*(one.all_sent() for one in self._connections.values()))
        server.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_SECONDS):
                await server.wait_closed()

    async def _listen(self) -> Server:
        quiet = logging.getLogger("fanjoin.gateway")
        quiet.addHandler(logging.NullHandler())
        quiet.propagate = False
        return await serve(
            self._connected,
            "127.0.0.1",
            0,
            process_request=self._admit,
            select_subprotocol=_choose,
            create_connection=self._guarded(),
            compression=None,
            server_header=None,
            max_size=_HARD_FRAME,
            max_queue=4,
            ping_interval=None,
            close_timeout=_CLOSE_SECONDS / 2,
            logger=quiet,
        )

    def _guarded(self) -> type[ServerConnection]:
        """Return a connection that is dropped where there are too many, before anything was read of it."""
        gateway = self

        class Guarded(ServerConnection):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                gateway._count += 1
                super().connection_made(transport)
                if gateway._count > MOST_CONNECTIONS:
                    self.transport.abort()

            def connection_lost(self, exc: Exception | None) -> None:
                gateway._count -= 1
                super().connection_lost(exc)

        return Guarded

    def _admit(self, wire: ServerConnection, request: Request) -> Response | None:
        headers = request.headers
        knock = guard.Knock(
            hosts=headers.get_all("Host"),
            origins=headers.get_all("Origin"),
            authorizations=headers.get_all("Authorization"),
            subprotocols=headers.get_all("Sec-WebSocket-Protocol"),
        )
        refused = guard.refusal(knock, self._port, self._token)
        return None if refused is None else wire.respond(refused.status, refused.text)

    async def _connected(self, wire: ServerConnection) -> None:
        name = f"ws-{wire.id.hex}"
        connection = self._connections[name] = Connection(wire, name, self._office.say, self._method)
        self._office.join(name, lambda message: self._hear(connection, message))
        try:
            await connection.serve()
        except ConnectionClosed:
            return
        finally:
            del self._connections[name]
            self._office.leave(name)

    def _hear(self, connection: Connection, message: ToViewer) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended, and the client with it
            self._loop.call_soon_threadsafe(connection.hear, message)

    def close(self) -> None:
        """Send what waits, close every connection, stop listening. The supervisor's loop must not be waited for."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._closing.set)
        self._thread.join(2 * _CLOSE_SECONDS)


def _choose(_wire: ServerConnection, offered: Sequence[Subprotocol]) -> Subprotocol | None:
    """Speak our subprotocol with a client that offers it; the token that it offers beside is never repeated."""
    return Subprotocol(guard.PROTOCOL) if guard.PROTOCOL in offered else None
