"""One connection: requests are answered as their answers come, events go out as fast as the client reads."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

from msgspec import UNSET, Struct, to_builtins

from fanjoin.ipc.approval_messages import ApprovalAsked
from fanjoin.ipc.ids import REQUEST, new_id
from fanjoin.ipc.messages import Event, FromViewer, JsonObject, ToViewer, TurnDone
from fanjoin.ipc.messages import Refused as RefusedMessage
from fanjoin.ipc.session_messages import Gap
from fanjoin.supervisor.gateway import rpc
from fanjoin.supervisor.gateway.outbox import Outbox

MOST_AT_ONCE = 64
"""Requests of one connection that wait for their answers, and answers that wait to be read."""

Method = Callable[["Connection", rpc.Request], Awaitable[object]]
Say = Callable[[str, FromViewer], None]


class Wire(Protocol):
    """What is used of a WebSocket."""

    async def recv(self) -> str | bytes:
        """Return the next frame."""
        ...

    async def send(self, message: bytes, *, text: bool | None = None) -> None:
        """Send a frame; returns once the client reads."""
        ...


class Connection:
    """A viewer at the other end of a WebSocket. Everything here runs in the gateway's thread.

    Args:
        wire: the WebSocket.
        name: the viewer's name.
        say: hands a message to the supervisor.
        method: does what a request asks for.
    """

    def __init__(self, wire: Wire, name: str, say: Say, method: Method) -> None:
        self._wire = wire
        self._name = name
        self._say = say
        self._method = method
        self._outbox = Outbox()
        self._to_send = asyncio.Event()
        self._sent = asyncio.Event()
        self._waiting: dict[str, asyncio.Future[ToViewer]] = {}
        self._holds: dict[str, int] = {}
        self._held: dict[str, list[Event | Gap]] = {}
        self._ends: dict[str, Event] = {}
        self._turns: set[str] = set()
        self._room = asyncio.Semaphore(MOST_AT_ONCE)
        self._tasks: set[asyncio.Task[None]] = set()

    async def serve(self) -> None:
        """Read and answer until the client is gone."""
        writer = asyncio.ensure_future(self._write())
        try:
            while True:
                frame = await self._wire.recv()
                while self._outbox.answers >= MOST_AT_ONCE:
                    self._sent.clear()
                    await self._sent.wait()
                await self._take(frame)
        finally:
            writer.cancel()
            for task in self._tasks:
                task.cancel()

    async def _take(self, frame: str | bytes) -> None:
        size = len(frame) if isinstance(frame, bytes) or len(frame) < rpc.MAX_FRAME // 4 else len(frame.encode())
        if size > rpc.MAX_FRAME:
            self._put(rpc.error(rpc.id_of(frame), rpc.too_large(size)))
            return
        try:
            request = rpc.read_request(frame)
        except rpc.RpcError as error:
            self._put(rpc.error(None, error))
            return
        await self._room.acquire()
        task = asyncio.ensure_future(self._answer(request))
        self._tasks.add(task)
        task.add_done_callback(self._answered)

    def _answered(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._room.release()

    async def _answer(self, request: rpc.Request) -> None:
        request_id = None if request.id is UNSET else request.id
        try:
            frame = rpc.answer(request_id, to_builtins(await self._method(self, request)))
        except rpc.RpcError as error:
            frame = rpc.error(request_id, error)
        except Exception as error:  # noqa: BLE001 - a fault of ours is an answer, too: the client waits for one
            frame = rpc.error(request_id, rpc.RpcError(rpc.INTERNAL_ERROR, f"{type(error).__name__}: {error}"))
        if request.id is not UNSET:
            self._put(frame)

    def _put(self, frame: bytes) -> None:
        self._outbox.put_answer(frame)
        self._to_send.set()

    async def _write(self) -> None:
        while True:
            await self._to_send.wait()
            self._to_send.clear()
            while (frame := self._outbox.take()) is not None:
                await self._wire.send(frame, text=True)
                self._sent.set()

    # --- towards the supervisor -----------------------------------------------------------------------------------

    async def ask(self, make: Callable[[str], FromViewer]) -> ToViewer:
        """Send a message that is answered under its request_id, and return the answer.

        Raises:
            Refused: it was refused.
        """
        return await self.ask_as(new_id(REQUEST), make)

    async def ask_as(self, request_id: str, make: Callable[[str], FromViewer]) -> ToViewer:
        """Do that under a given request_id; the same one at a time."""
        while (earlier := self._waiting.get(request_id)) is not None:
            await asyncio.wait([earlier])
        answer = self._waiting[request_id] = asyncio.get_running_loop().create_future()
        try:
            self._say(self._name, make(request_id))
            told: ToViewer = await answer
        finally:
            del self._waiting[request_id]
        if isinstance(told, RefusedMessage):
            raise rpc.Refused(told.reason, told.message)
        return told

    def say(self, message: FromViewer) -> None:
        """Send a message that is not answered."""
        self._say(self._name, message)

    def own(self, admission_id: str) -> None:
        """Note a turn whose end is told to this viewer twice: as an event, and whole."""
        self._turns.add(admission_id)

    def hold(self, session_id: str) -> None:
        """Keep the events of a session back, so that they come after the answer that announces them."""
        self._holds[session_id] = self._holds.get(session_id, 0) + 1
        self._held.setdefault(session_id, [])

    def let_go(self, session_id: str) -> None:
        """Send the events that were kept back, once the answer is on its way."""
        asyncio.get_running_loop().call_soon(self._let_go, session_id)

    def _let_go(self, session_id: str) -> None:
        self._holds[session_id] -= 1
        if self._holds[session_id]:
            return
        del self._holds[session_id]
        for message in self._held.pop(session_id):
            self._happened(message)

    # --- from the supervisor --------------------------------------------------------------------------------------

    def hear(self, message: ToViewer) -> None:
        """Take a message of the supervisor."""
        match message:
            case Event(name="message.complete", admission_id=admission_id) if admission_id in self._turns:
                self._ends[admission_id] = message
            case Event() | Gap():
                self._happened(message)
            case TurnDone(admission_id=admission_id):
                self._turns.discard(admission_id)
                if event := self._ends.pop(admission_id, None):
                    self._happened(_whole(event, message))
            case ApprovalAsked():
                return  # no submission of this door asks
            case _:
                answer = self._waiting.get(message.request_id)
                if answer is not None and not answer.done():
                    answer.set_result(message)

    def _happened(self, message: Event | Gap) -> None:
        if (held := self._held.get(message.session_id)) is not None:
            held.append(message)
            return
        match message:
            case Gap(session_id=session_id, first=first, last=last):
                self._outbox.leave_out(session_id, first, last)
            case Event(session_id=session_id, sequence=sequence):
                frame = rpc.notification(message.name, session_id, message.admission_id, sequence, message.data)
                if len(frame) > rpc.MAX_FRAME:
                    self._outbox.leave_out(session_id, sequence, sequence)
                else:
                    self._outbox.put_event(session_id, sequence, frame)
        self._to_send.set()

    async def all_sent(self) -> None:
        """Wait until the client has been sent everything."""
        while self._outbox:
            self._sent.clear()
            await self._sent.wait()


class _End(Struct):
    """What the whole end of a turn says beyond its event."""

    retryable: bool
    usage: JsonObject
    results: list[JsonObject]
    recorded: bool


def _whole(event: Event, done: TurnDone) -> Event:
    end = _End(done.retryable, to_builtins(done.usage_total), done.results, done.recorded)
    return Event(
        session_id=event.session_id,
        admission_id=event.admission_id,
        sequence=event.sequence,
        name=event.name,
        data={**event.data, **to_builtins(end)},
    )
