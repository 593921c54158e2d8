"""The life of a provider's process: listen, say where, serve until it is told to end."""

import asyncio
import json
import os
import signal
import sys
import threading
from collections.abc import Callable

from fanjoin.cli.provider.server import HttpServer
from fanjoin.cli.provider.service import ChatService


def serve(service: ChatService, host: str, port: int, *, lifeline: bool) -> None:
    """Serve until SIGINT, SIGTERM or, with a lifeline, the end of standard input.

    One line of JSON on standard output says where, as soon as requests are answered.

    Raises:
        OSError: the address cannot be had.
    """
    asyncio.run(_serve(service, host, port, lifeline=lifeline))


async def _serve(service: ChatService, host: str, port: int, *, lifeline: bool) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()

    def stop() -> None:
        loop.call_soon_threadsafe(stopped.set)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop())
    if lifeline:
        threading.Thread(target=_watch_lifeline, args=(stop,), daemon=True).start()
    server = HttpServer(service.handle)
    bound = await server.listen(host, port)
    sys.stdout.write(json.dumps({"url": _url(host, bound), "pid": os.getpid(), "model": service.model}) + "\n")
    sys.stdout.flush()
    await stopped.wait()
    server.close()


def _url(host: str, port: int) -> str:
    return f"http://[{host}]:{port}/v1" if ":" in host else f"http://{host}:{port}/v1"


def _watch_lifeline(stop: Callable[[], None]) -> None:
    """Wait for the end of standard input. The descriptor is read, not the stream: a stream's lock outlives us."""
    while os.read(0, 4096):
        pass
    stop()
