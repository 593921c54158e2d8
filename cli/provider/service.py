"""The routes of an embedded provider: who may ask, what is written down, what holds a reply back or refuses it."""

import asyncio

from fanjoin.cli.provider import wire
from fanjoin.cli.provider.answer import Answer, Draft
from fanjoin.cli.provider.dialect import CHAT, Dialect, dialect_at
from fanjoin.cli.provider.directives import Behaviour, behaviour_of
from fanjoin.cli.provider.faults import Dice
from fanjoin.cli.provider.journal import Journal, key_of
from fanjoin.cli.provider.memory import Barriers, Memory
from fanjoin.cli.provider.server import Exchange
from fanjoin.cli.provider.wire import ChatRequest
from fanjoin.cli.provider.writer import Options, Writer


class ChatService:
    """Answers the requests of all connections."""

    def __init__(self, writer: Writer, options: Options, journal: Journal, dice: Dice) -> None:
        self._writer = writer
        self._options = options
        self._journal = journal
        self._dice = dice
        self._memory = Memory()
        self._barriers = Barriers()
        self._in_flight = 0

    @property
    def model(self) -> str:
        """The name under which the model is listed."""
        return self._options.model

    async def handle(self, exchange: Exchange) -> None:
        """Answer one request of any kind."""
        dialect = dialect_at(exchange.request.path)
        match exchange.request.method, exchange.request.path.removeprefix("/v1"):
            case "POST", _ if dialect is not None:
                await self._chat(exchange, dialect)
            case "GET", "/models":
                self._journal.record(exchange.request.path, key_of(exchange.request.headers), self._in_flight)
                entry = {"id": self.model, "object": "model", "created": 0, "owned_by": "fanjoin"}
                await exchange.answer(200, wire.to_bytes({"object": "list", "data": [entry]}))
            case "GET", "/health":
                await exchange.answer(200, wire.to_bytes({"status": "ok", "model": self.model}))
            case method, path:
                here = "POST /v1/chat/completions, /v1/messages and /v1/responses"
                await _refuse(exchange, CHAT, 404, f"There is no {method} {path} here, only {here}.")

    async def _chat(self, exchange: Exchange, dialect: Dialect) -> None:
        """Answer one model call, counted as long as it is being answered."""
        self._in_flight += 1
        try:
            await self._answer(exchange, dialect)
        except wire.BadRequestError as error:
            if exchange.started:
                exchange.cut()
            else:
                await _refuse(exchange, dialect, 400, str(error), error.code)
        finally:
            self._in_flight -= 1

    async def _answer(self, exchange: Exchange, dialect: Dialect) -> None:
        key = key_of(exchange.request.headers)
        request = self._read(exchange, dialect, key)
        if self._options.key and key != self._options.key:
            await _refuse(
                exchange, dialect, 401, "This key is not the one that this provider accepts.", "invalid_api_key"
            )
            return
        noted = self._memory.note(request)
        reply = await self._writer.decide(request)
        behaviour = behaviour_of(reply.directives or self._dice.draw(), noted.arrival)
        if behaviour.hold:
            await self._barriers.wait(behaviour.hold_name, behaviour.hold)
        await asyncio.sleep(self._options.latency + behaviour.sleep)
        if behaviour.status:
            await _refuse_as_asked(exchange, dialect, behaviour)
        else:
            draft = Draft(dialect, request, reply, behaviour, noted)
            await Answer(self._writer, self._options, draft).send(exchange)

    def _read(self, exchange: Exchange, dialect: Dialect, key: str) -> ChatRequest:
        """Read a request and write it down, also one that cannot be read."""
        request = None
        try:
            request = dialect.parse(exchange.request.body)
        finally:
            self._journal.record(exchange.request.path, key, self._in_flight, request)
        return request


async def _refuse(exchange: Exchange, dialect: Dialect, status: int, message: str, code: str = "") -> None:
    await exchange.answer(status, wire.to_bytes(dialect.error(status, message, code)))


async def _refuse_as_asked(exchange: Exchange, dialect: Dialect, behaviour: Behaviour) -> None:
    message = f"Status {behaviour.status}, as the directive or fault asked for."
    headers = {"Retry-After": behaviour.retry_after} if behaviour.retry_after else {}
    body = wire.to_bytes(dialect.error(behaviour.status, message, behaviour.code))
    await exchange.answer(behaviour.status, body, headers)
