"""A relay between the delegates and their endpoint: it passes bytes on as they come, and writes down when they came.

It is the one place where the first byte of a reply and the pauses within it can be seen without changing an agent.
A slow tool is acted here, too: a delegate's next request is held back as long as its tool would have taken, before
its clock begins, so the endpoint sees the same traffic and no agent needs a tool that waits.
"""

import asyncio
import re
import threading
import time
from collections import Counter
from contextlib import aclosing
from http import HTTPStatus
from typing import Self

import h11

from fanjoin.cli.loadtest_upstream import Upstream, UpstreamError
from fanjoin.cli.provider.server import Exchange, HttpServer
from fanjoin.client.load_stats import Call

_MARK = re.compile(rb"load-(\d+-\d+)\.")
_OWN_HEADERS = ("host", "content-length", "connection", "transfer-encoding", "accept-encoding", "expect")
_READY_SECONDS = 10.0


class Hooks:
    """What happens to a delegate's requests on their way; this one lets all pass at once."""

    def think(self, mark: str) -> float:
        """Return how many seconds the tool took that comes before a request."""
        del mark
        return 0.0

    def held(self, mark: str) -> bool:
        """Say whether a request is never passed on."""
        del mark
        return False


class Relay:
    """A relay that runs in a thread of its own until it is left.

    Args:
        target: the endpoint's base URL.
        hooks: what happens on the way.
    """

    def __init__(self, target: str, hooks: Hooks) -> None:
        self.url = ""
        self.calls: list[Call] = []
        self._hooks = hooks
        self._asked: Counter[str] = Counter()
        self._ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._ended = asyncio.Event()
        self._upstream = Upstream(target)
        self._thread = threading.Thread(target=self._run, name="relay", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        if not self._ready.wait(_READY_SECONDS):
            raise RuntimeError("the relay did not begin to listen")
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join(_READY_SECONDS)

    def take(self) -> list[Call]:
        """Return the calls so far, and begin anew."""
        calls, self.calls = self.calls, []
        return calls

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        server = HttpServer(self._pass_on)
        self.url = f"http://127.0.0.1:{await server.listen('127.0.0.1', 0)}"
        self._ready.set()
        await self._ended.wait()
        server.close()
        self._upstream.close()

    async def _pass_on(self, exchange: Exchange) -> None:
        found = _MARK.search(exchange.request.body)
        call = Call(mark=found[1].decode() if found else "", arrived=time.time())
        if found:
            self.calls.append(call)
            await self._hold(call)
        call.sent = time.time()
        try:
            await self._forward(exchange, call)
        except UpstreamError as error:
            call.error = str(error)
            exchange.cut()
        finally:
            call.ended = time.time()

    async def _hold(self, call: Call) -> None:
        self._asked[call.mark] += 1
        if self._hooks.held(call.mark):
            call.error = "held for ever"
            await asyncio.get_running_loop().create_future()
        if self._asked[call.mark] > 1:
            await asyncio.sleep(self._hooks.think(call.mark))

    async def _forward(self, exchange: Exchange, call: Call) -> None:
        request = exchange.request
        headers = {name: value for name, value in request.headers.items() if name not in _OWN_HEADERS}
        headers["accept-encoding"] = "identity"
        before = 0.0
        async with aclosing(self._upstream.ask(request.method, request.path, headers, request.body)) as pieces:
            async for piece in pieces:
                now = time.time()
                if isinstance(piece, h11.Response):
                    call.status = piece.status_code
                    await exchange.start(piece.status_code, _kept(piece))
                    continue
                if call.status == HTTPStatus.OK:
                    _note(call, before, now)
                before = now
                await exchange.send(piece)
        exchange.finish()


def _kept(reply: h11.Response) -> dict[str, str]:
    """Return the headers that are passed back."""
    named = {name.decode("latin-1"): value.decode("latin-1") for name, value in reply.headers}
    kept = {name: value for name, value in named.items() if name not in _OWN_HEADERS}
    return {"Content-Type": kept.pop("content-type", "application/json"), **kept}


def _note(call: Call, before: float, now: float) -> None:
    """Write down when a piece of a body came."""
    if before:
        call.gaps.append(now - before)
    else:
        call.first = now
