"""What a provider remembers: how often a request arrived, which prefixes it knows, who waits for whom."""

import asyncio
import hashlib
from collections import OrderedDict, defaultdict

import msgspec
from msgspec import Struct

from fanjoin.cli.provider.wire import ChatRequest, to_bytes

REMEMBERED = 4096
"""How many prefixes and requests are kept; those unused for longest are forgotten."""


def tokens_of(words: int) -> int:
    """Estimate the tokens of so many words: four for three."""
    return (words * 4 + 2) // 3


class Recent:
    """Counts by key, for the keys used last."""

    def __init__(self, size: int = REMEMBERED) -> None:
        self._counts: OrderedDict[bytes, int] = OrderedDict()
        self._size = size

    def __contains__(self, key: bytes) -> bool:
        return key in self._counts

    def add(self, key: bytes) -> int:
        """Count one more of a key and return how many there were."""
        self._counts[key] = self._counts.pop(key, 0) + 1
        if len(self._counts) > self._size:
            self._counts.popitem(last=False)
        return self._counts[key]


class Noted(Struct, frozen=True):
    """What is known of a request when it comes in: the n-th arrival of it, its tokens, how many were known."""

    arrival: int
    prompt_tokens: int
    cached_tokens: int


class Memory:
    """Recognises requests and their prefixes, as a server with a prefix cache does."""

    def __init__(self) -> None:
        self._requests = Recent()
        self._prefixes = Recent()

    def note(self, request: ChatRequest) -> Noted:
        """Take a request in and return what is known of it."""
        digest = hashlib.sha256(to_bytes([request.model, request.tools]))
        words, cached = _words(request.tools), 0
        for message in request.messages:
            digest.update(to_bytes(msgspec.to_builtins(message)))
            words += len(message.text.split()) + _words(message.tool_calls)
            key = digest.digest()
            if key in self._prefixes:
                cached = words
            self._prefixes.add(key)
        return Noted(self._requests.add(digest.digest()), tokens_of(words), tokens_of(cached))


def _words(value: object) -> int:
    return len(str(value).split()) if value else 0


class Barriers:
    """Requests that are answered only once enough of them wait at the same time."""

    def __init__(self) -> None:
        self._waiting: defaultdict[str, list[asyncio.Future[None]]] = defaultdict(list)

    async def wait(self, name: str, number: int) -> None:
        """Return when ``number`` requests wait under this name; one whose client leaves no longer counts."""
        waiting = self._waiting[name]
        mine: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting.append(mine)
        if len(waiting) >= number:
            for other in waiting:
                other.set_result(None)
            waiting.clear()
        try:
            await mine
        finally:
            if mine in waiting:
                waiting.remove(mine)
