"""The APIs that a provider answers: each reads a request into the same form, and writes a reply in its own.

The inside knows the chat-completions API alone; its deltas and messages are what the others are made from.
"""

from collections.abc import Callable
from typing import Protocol

from msgspec import Struct

from fanjoin.cli.provider import wire
from fanjoin.cli.provider.wire import ChatRequest, Head, JsonObject, Usage


class Form(Protocol):
    """One reply on its way out, in the form of one API."""

    def opening(self) -> list[bytes]:
        """Return the events that a stream begins with."""

    def piece(self, delta: JsonObject) -> bytes:
        """Return the events of one delta."""

    def closing(self, finish: str, usage: Usage) -> list[bytes]:
        """Return the events that a stream ends with."""

    def whole(self, message: JsonObject, finish: str, usage: Usage) -> JsonObject:
        """Return a reply that is not streamed."""


class Dialect(Struct, frozen=True):
    """One API: how its requests are read, its replies and its errors written."""

    parse: Callable[[bytes], ChatRequest]
    form: Callable[[Head, ChatRequest], Form]
    error: Callable[[int, str, str], JsonObject] = wire.error_body


class ChatForm:
    """A reply of the chat-completions API."""

    def __init__(self, head: Head, request: ChatRequest) -> None:
        self._head = head
        self._wants_usage = request.wants_usage

    def opening(self) -> list[bytes]:
        """Return the role."""
        return [wire.event(wire.chunk(self._head, {"role": "assistant", "content": None}))]

    def piece(self, delta: JsonObject) -> bytes:
        """Return the delta."""
        return wire.event(wire.chunk(self._head, delta))

    def closing(self, finish: str, usage: Usage) -> list[bytes]:
        """Return the finish_reason, the token counts where they are wanted, and the mark of the end."""
        counts = [wire.event(wire.usage_chunk(self._head, usage))] if self._wants_usage else []
        return [wire.event(wire.chunk(self._head, {}, finish)), *counts, wire.DONE]

    def whole(self, message: JsonObject, finish: str, usage: Usage) -> JsonObject:
        """Return the completion."""
        return wire.completion(self._head, message, finish, usage)


CHAT = Dialect(wire.parse_request, ChatForm)


def dialect_at(path: str) -> Dialect | None:
    """Return the API that answers at a path, None where there is none."""
    match path.removeprefix("/v1"):
        case "/chat/completions":
            return CHAT
        case "/messages":
            from fanjoin.cli.provider.messages_dialect import MESSAGES

            return MESSAGES
        case "/responses":
            from fanjoin.cli.provider.responses_dialect import RESPONSES

            return RESPONSES
    return None
