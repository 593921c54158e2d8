"""A small HTTP/1.1 server on asyncio and h11: one connection, one request at a time, one handler for all of them.

The handler is cancelled the moment its client is gone, so that whatever waits on its behalf stops waiting.
"""

import asyncio
import sys
import traceback
from collections.abc import Awaitable, Callable
from typing import Any

import h11
from msgspec import Struct

MAX_BODY = 64 * 1024 * 1024
"""A request's body may hold so many bytes."""

JSON_TYPE = "application/json"


class HttpRequest(Struct, frozen=True):
    """One request; header names are in lower case."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


class Exchange:
    """One request and the way to answer it."""

    def __init__(self, request: HttpRequest, connection: "_Connection") -> None:
        self.request = request
        self.started = False
        self._connection = connection

    async def answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        """Send a whole JSON reply."""
        await self.start(status, {"Content-Length": str(len(body)), **(headers or {})})
        await self.send(body)
        self.finish()

    async def start(self, status: int, headers: dict[str, str]) -> None:
        """Send the head; without a Content-Length the body goes in chunks."""
        fields = [("Content-Type", JSON_TYPE)] * ("Content-Type" not in headers)
        head = h11.Response(status_code=status, headers=[*fields, *headers.items()], reason=b"")
        self.started = True
        await self._connection.write(head)

    async def send(self, data: bytes) -> None:
        """Send a part of the body, as fast as the client reads it."""
        if data:
            await self._connection.write(h11.Data(data=data))

    def finish(self) -> None:
        """End the reply."""
        self._connection.write_now(h11.EndOfMessage())

    def cut(self) -> None:
        """Close the connection, whatever is missing."""
        self._connection.close()


Handler = Callable[[Exchange], Awaitable[None]]


class _Connection(asyncio.Protocol):
    """One client."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self._http = h11.Connection(h11.SERVER)
        self._head: h11.Request | None = None
        self._body = bytearray()
        self._task: asyncio.Task[None] | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - the base class names it
        self._writable.set()
        if self._task:
            self._task.cancel()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def data_received(self, data: bytes) -> None:
        self._http.receive_data(data)
        self._advance()

    def _advance(self) -> None:
        """Take what the client sent as far as it goes, and refuse what is not HTTP."""
        try:
            self._read_events()
        except h11.RemoteProtocolError as error:
            self._refuse(error.error_status_hint, str(error))

    def _read_events(self) -> None:
        """Take events up to the end of one request."""
        while not self._task:
            event = self._http.next_event()
            if isinstance(event, h11.Request):
                self._head, self._body = event, bytearray()
                self._check_size(int(dict(event.headers).get(b"content-length", b"0")))
                self._send_continue()
            elif isinstance(event, h11.Data):
                self._body += event.data
                self._check_size(len(self._body))
            elif isinstance(event, h11.EndOfMessage):
                self._task = asyncio.get_running_loop().create_task(self._serve())
            else:
                return

    def _check_size(self, size: int) -> None:
        if size > MAX_BODY:
            raise h11.RemoteProtocolError(f"The body is larger than {MAX_BODY} bytes.", error_status_hint=413)

    def _send_continue(self) -> None:
        if self._http.they_are_waiting_for_100_continue:
            self.write_now(h11.InformationalResponse(status_code=100, headers=[]))

    async def _serve(self) -> None:
        """Answer one request, then look for the next one."""
        try:
            await self._handler(Exchange(self._request(), self))
        except Exception:  # noqa: BLE001 - a fault of ours must not look like silence
            traceback.print_exc(file=sys.stderr)
            self._refuse(500, "The provider failed; its standard error says how.")
        self._task = None
        self._next_cycle()

    def _next_cycle(self) -> None:
        if self._http.our_state is h11.DONE and self._http.their_state is h11.DONE:
            self._http.start_next_cycle()
            self._advance()
        else:
            self.close()

    def _request(self) -> HttpRequest:
        if self._head is None:
            raise RuntimeError("a request ended before it began")
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in self._head.headers}
        path = self._head.target.decode("latin-1").partition("?")[0]
        return HttpRequest(self._head.method.decode("ascii"), path, headers, bytes(self._body))

    def _refuse(self, status: int, message: str) -> None:
        """Answer with an error where a reply has not begun, and close."""
        if self._http.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            body = message.encode()
            headers = [("Content-Type", "text/plain"), ("Content-Length", str(len(body))), ("Connection", "close")]
            for event in (h11.Response(status_code=status, headers=headers), h11.Data(data=body)):
                self.write_now(event)
        self.close()

    async def write(self, event: Any) -> None:
        """Write one part of a reply, waiting for a client that reads slowly."""
        await self._writable.wait()
        self.write_now(event)

    def write_now(self, event: Any) -> None:
        """Write one part of a reply."""
        data = self._http.send(event)
        if data and not self._transport.is_closing():
            self._transport.write(data)

    def close(self) -> None:
        """Close after what was written has left."""
        self._transport.close()


class HttpServer:
    """A listening server; it hands every request to one handler."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self._server: asyncio.Server | None = None

    async def listen(self, host: str, port: int) -> int:
        """Listen and return the port; 0 asks the system for a free one.

        Raises:
            OSError: the address cannot be had.
        """
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Connection(self._handler), host, port, backlog=1024)
        return int(self._server.sockets[0].getsockname()[1])

    def close(self) -> None:
        """Stop listening. Open connections end with the event loop."""
        if self._server:
            self._server.close()
