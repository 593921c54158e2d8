"""HTTP/1.1 to one endpoint, on asyncio and h11: replies come in pieces as they arrive, connections are used again."""

import asyncio
import ssl
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from urllib.parse import urlsplit

import certifi
import h11

_READ_BYTES = 65_536
_CONNECT_SECONDS = 30.0

Piece = h11.Response | bytes


class UpstreamError(Exception):
    """The endpoint closed a connection too early, refused it, or did not speak HTTP."""


class Upstream:
    """The way to an endpoint.

    Args:
        base_url: its base URL; a request's path is put behind it.
    """

    def __init__(self, base_url: str) -> None:
        parts = urlsplit(base_url)
        self._host = parts.hostname or ""
        self._netloc = parts.netloc.rpartition("@")[2]
        self._path = parts.path.rstrip("/")
        self._port = parts.port or (443 if parts.scheme == "https" else 80)
        self._ssl = ssl.create_default_context(cafile=certifi.where()) if parts.scheme == "https" else None
        self._idle: list[_Connection] = []

    async def ask(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> AsyncGenerator[Piece]:
        """Yield the head of the reply, then its body piece by piece.

        Raises:
            UpstreamError: there is no whole reply.
        """
        fields = [("Host", self._netloc), ("Content-Length", str(len(body))), *headers.items()]
        request = h11.Request(method=method, target=self._path + path, headers=fields)
        connection = await self._connection()
        try:
            await connection.send(request, body)
            async with aclosing(connection.pieces()) as pieces:
                async for piece in pieces:
                    yield piece
        except h11.ProtocolError as error:
            raise UpstreamError("reply broken off, or no HTTP") from error
        except OSError as error:
            raise UpstreamError(type(error).__name__) from error
        finally:
            if connection.reusable():
                self._idle.append(connection)
            else:
                connection.close()

    async def _connection(self) -> "_Connection":
        while self._idle:
            connection = self._idle.pop()
            if connection.alive():
                return connection
            connection.close()
        try:
            opening = asyncio.open_connection(self._host, self._port, ssl=self._ssl)
            return _Connection(*await asyncio.wait_for(opening, _CONNECT_SECONDS))
        except OSError as error:
            raise UpstreamError(f"no connection: {type(error).__name__}") from error

    def close(self) -> None:
        """Close what is idle."""
        for connection in self._idle:
            connection.close()


class _Connection:
    """One connection, for one request at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._http = h11.Connection(h11.CLIENT)

    async def send(self, request: h11.Request, body: bytes) -> None:
        """Send a request."""
        head, data = self._http.send(request) or b"", self._http.send(h11.Data(data=body)) or b""
        self._writer.write(head + data + (self._http.send(h11.EndOfMessage()) or b""))
        await self._writer.drain()

    async def pieces(self) -> AsyncGenerator[Piece]:
        """Yield the reply."""
        while True:
            event = self._http.next_event()
            if event is h11.NEED_DATA:
                self._http.receive_data(await self._reader.read(_READ_BYTES))
            elif isinstance(event, h11.Response):
                yield event
            elif isinstance(event, h11.Data):
                yield bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                return
            elif isinstance(event, h11.ConnectionClosed):
                raise h11.RemoteProtocolError("the connection was closed without a reply")

    def reusable(self) -> bool:
        """Say whether another request may follow, and be ready for it."""
        if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
            return False
        self._http.start_next_cycle()
        return True

    def alive(self) -> bool:
        """Say whether the other side has kept it open, as far as is known."""
        return not self._reader.at_eof() and not self._writer.is_closing()

    def close(self) -> None:
        """Close it."""
        self._writer.close()
