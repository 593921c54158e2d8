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
from collections.abc import Callable
from typing import Self

import httpx

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
        self._target = target.rstrip("/")
        self._hooks = hooks
        self._asked: Counter[str] = Counter()
        self._ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._ended = asyncio.Event()
        self._client: httpx.AsyncClient
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
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=256)
        async with httpx.AsyncClient(timeout=None, limits=limits, trust_env=False) as self._client:  # noqa: S113 - agents have one
            server = HttpServer(self._pass_on)
            self.url = f"http://127.0.0.1:{await server.listen('127.0.0.1', 0)}"
            self._ready.set()
            await self._ended.wait()
            server.close()

    async def _pass_on(self, exchange: Exchange) -> None:
        found = _MARK.search(exchange.request.body)
        call = Call(mark=found[1].decode() if found else "", arrived=time.time())
        if found:
            self.calls.append(call)
            await self._hold(call)
        call.sent = time.time()
        try:
            await self._forward(exchange, call)
        except httpx.HTTPError as error:
            call.error = type(error).__name__
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
        url = self._target + request.path
        async with self._client.stream(request.method, url, headers=headers, content=request.body) as reply:
            call.status = reply.status_code
            kept = {name: value for name, value in reply.headers.items() if name not in _OWN_HEADERS}
            kept["Content-Type"] = kept.pop("content-type", "application/json")
            await exchange.start(reply.status_code, kept)
            await self._stream(reply, exchange, call)
        exchange.finish()

    async def _stream(self, reply: httpx.Response, exchange: Exchange, call: Call) -> None:
        before = 0.0
        note: Callable[[float], None] = call.gaps.append
        async for piece in reply.aiter_raw():
            now = time.time()
            if reply.status_code == httpx.codes.OK:
                if before:
                    note(now - before)
                else:
                    call.first = now
                before = now
            await exchange.send(piece)
