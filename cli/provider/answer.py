"""One reply on its way out: streamed or whole, at the pace that is set, to its end or to the place where it breaks."""

import asyncio
import time
import uuid
from collections.abc import AsyncGenerator
from contextlib import aclosing

from msgspec import Struct
from msgspec.structs import replace

from fanjoin.cli.provider import wire
from fanjoin.cli.provider.dialect import Dialect
from fanjoin.cli.provider.directives import Behaviour
from fanjoin.cli.provider.memory import Noted, tokens_of
from fanjoin.cli.provider.plan import Reply
from fanjoin.cli.provider.server import Exchange
from fanjoin.cli.provider.wire import ChatRequest, JsonObject, Usage
from fanjoin.cli.provider.writer import Options, Writer

FLUSH_BYTES = 65_536
"""Events of a reply that is not paced are sent in parts of about this size."""

SSE_HEADERS = {"Content-Type": "text/event-stream", "Cache-Control": "no-cache"}

GARBAGE_EVENTS = b"data: {not json\n\n\xff\xfe: this is no event\n\n"
GARBAGE_BODY = b"<html>this is no JSON\xff"


class Draft(Struct, frozen=True):
    """What a reply is made from: the API, what was asked and known, what to say, and how to behave."""

    dialect: Dialect
    request: ChatRequest
    reply: Reply
    behaviour: Behaviour
    noted: Noted


class _Breaks(Exception):  # noqa: N818 - it is an order, not an error
    """The reply ends here, in the way that its directives ask for."""


class Answer:
    """One reply on its way out."""

    def __init__(self, writer: Writer, options: Options, draft: Draft) -> None:
        self._writer = writer
        self._options = options
        self._request = draft.request
        self._reply = draft.reply
        self._behaviour = draft.behaviour
        self._noted = draft.noted
        self._counted: Usage | None = None
        self._words = 0
        reply_id = uuid.uuid4().hex[:24]
        head = wire.Head(f"chatcmpl-{reply_id}", draft.request.model or options.model, int(time.time()))
        self._form = draft.dialect.form(head, draft.request)
        self._call_prefix = f"call_{reply_id[:12]}"

    async def send(self, exchange: Exchange) -> None:
        """Send the reply in the form that the client asked for."""
        if self._behaviour.ending == "drop":
            exchange.cut()
        elif self._behaviour.ending in ("hang", "silence") and not self._behaviour.after:
            await _for_ever()
        elif self._request.stream:
            await self._stream(exchange)
        else:
            await self._send_whole(exchange)

    async def _stream(self, exchange: Exchange) -> None:
        """Send piece after piece as server-sent events."""
        waiting = self._form.opening()
        size = 0
        try:
            async with aclosing(self._deltas()) as deltas:
                async for delta in deltas:
                    waiting.append(self._form.piece(delta))
                    size += len(waiting[-1])
                    if self._immediate or size > FLUSH_BYTES:
                        await _send_events(exchange, waiting)
                        waiting, size = [], 0
        except _Breaks:
            await _send_events(exchange, waiting)
            await self._break_stream(exchange)
            return
        await _send_events(exchange, [*waiting, *self._form.closing(self._finish_reason, self._usage)])
        exchange.finish()

    async def _break_stream(self, exchange: Exchange) -> None:
        if self._behaviour.ending == "garbage":
            await _send_events(exchange, [GARBAGE_EVENTS])
            exchange.finish()
        else:
            await self._break(exchange)

    async def _send_whole(self, exchange: Exchange) -> None:
        """Send the reply as one JSON object."""
        assembly = wire.Assembly()
        broken = False
        try:
            async for delta in self._deltas():
                assembly.add(delta)
        except _Breaks:
            broken = True
        body = wire.to_bytes(self._form.whole(assembly.message(), self._finish_reason, self._usage))
        if broken and self._behaviour.ending == "garbage":
            await exchange.answer(200, GARBAGE_BODY)
        elif broken:
            await exchange.start(200, {"Content-Length": str(len(body))})
            await exchange.send(body[: len(body) // 2])
            await self._break(exchange)
        else:
            await exchange.answer(200, body)

    async def _break(self, exchange: Exchange) -> None:
        """Leave a reply without an end, in the way that was asked for."""
        if self._behaviour.ending == "cut":
            exchange.cut()
        else:
            await _for_ever()

    async def _deltas(self) -> AsyncGenerator[JsonObject]:
        """Yield the parts of the reply, as fast as asked for, until its end or the place where it breaks."""
        started, number = time.monotonic(), 0
        async with aclosing(self._all_deltas()) as deltas:
            async for delta in deltas:
                if self._behaviour.ending and number >= self._behaviour.after:
                    raise _Breaks
                number += 1
                if self._options.token_rate:
                    await asyncio.sleep(started + number / self._options.token_rate - time.monotonic())
                yield delta
        if self._behaviour.ending:
            raise _Breaks

    async def _all_deltas(self) -> AsyncGenerator[JsonObject]:
        async with aclosing(self._pieces()) as pieces:
            async for piece in pieces:
                if isinstance(piece, Usage):
                    self._counted = piece
                else:
                    self._words += len(piece.split())
                    yield {"content": piece}
        for delta in wire.call_deltas(self._reply.calls, self._call_prefix):
            yield delta

    def _pieces(self) -> AsyncGenerator[str | Usage]:
        text = self._reply.text if self._behaviour.answer is None else self._behaviour.answer
        return self._writer.write(self._request, replace(self._reply, text=text))

    @property
    def _immediate(self) -> bool:
        return self._writer.live or self._options.token_rate > 0

    @property
    def _finish_reason(self) -> str:
        asked = self._behaviour.finish or self._reply.finish_reason
        return asked or ("tool_calls" if self._reply.calls else "stop")

    @property
    def _usage(self) -> Usage:
        if self._counted:
            return self._counted
        words = self._words + sum(len(call.arguments.split()) for call in self._reply.calls)
        return Usage(self._noted.prompt_tokens, tokens_of(words), self._noted.cached_tokens)


async def _send_events(exchange: Exchange, events: list[bytes]) -> None:
    """Send events; the head goes out with the first of them, so that until then an error can be said properly."""
    if not exchange.started:
        await exchange.start(200, SSE_HEADERS)
    await exchange.send(b"".join(events))


async def _for_ever() -> None:
    """Wait until the client is gone."""
    await asyncio.get_running_loop().create_future()
