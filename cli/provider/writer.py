"""The seam between serving a reply and writing it, and what a whole provider is set to."""

from collections.abc import AsyncGenerator
from typing import Protocol

from msgspec import Struct

from fanjoin.cli.provider.plan import Reply
from fanjoin.cli.provider.wire import ChatRequest, Usage


class Writer(Protocol):
    """Who decides about a reply and writes its text."""

    live: bool
    """Whether pieces come one by one and have to be sent as they come."""

    async def decide(self, request: ChatRequest) -> Reply:
        """Return what to answer. Raises wire.BadRequestError."""

    def write(self, request: ChatRequest, reply: Reply) -> AsyncGenerator[str | Usage]:
        """Yield the text piece by piece; token counts too, where they are known better than by estimate."""


class Options(Struct, frozen=True, kw_only=True):
    """How a provider behaves to all. ``latency`` is in seconds to the first byte, ``token_rate`` in pieces a second."""

    model: str
    latency: float = 0.0
    token_rate: float = 0.0
    key: str = ""
