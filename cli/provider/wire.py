"""The JSON of the chat-completions API: requests as read, chunks, completions and errors as written.

The standard ``json`` module is used on purpose: it passes lone surrogates and NaN through as escapes, and a provider
that hands such things out is what an agent has to be tested against.
"""

import json
from collections.abc import Iterable
from http import HTTPStatus
from typing import Any

import msgspec
from msgspec import Struct, field

JsonObject = dict[str, Any]


class BadRequestError(Exception):
    """The request cannot be answered as it stands; message and code go back to the client with status 400."""

    def __init__(self, message: str, code: str = "") -> None:
        super().__init__(message)
        self.code = code


class Message(Struct, kw_only=True):
    """One entry of the conversation."""

    role: str = ""
    content: str | list[JsonObject] | None = None
    tool_calls: list[JsonObject] | None = None
    tool_call_id: str = ""

    @property
    def text(self) -> str:
        """The text of the content, parts of other kinds left out."""
        if isinstance(self.content, list):
            return "".join(str(part.get("text", "")) for part in self.content)
        return self.content or ""


class ChatRequest(Struct, kw_only=True):
    """What a client asks for; members that no provider here looks at are ignored."""

    messages: list[Message]
    model: str = ""
    stream: bool | None = None
    stream_options: JsonObject | None = None
    tools: list[JsonObject] | None = None
    tool_choice: Any = None
    response_format: JsonObject | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None

    @property
    def user_text(self) -> str:
        """The last user message: the one that this turn answers."""
        return next((message.text for message in reversed(self.messages) if message.role == "user"), "")

    @property
    def since_user(self) -> list[Message]:
        """What followed the last user message."""
        users = [index for index, message in enumerate(self.messages) if message.role == "user"]
        return self.messages[users[-1] + 1 :] if users else []

    @property
    def step(self) -> int:
        """How many replies this turn has had already."""
        return sum(message.role == "assistant" for message in self.since_user)

    @property
    def tool_names(self) -> list[str]:
        """The names of the tools on offer."""
        return [str(tool.get("function", {}).get("name", "")) for tool in self.tools or []]

    @property
    def wants_usage(self) -> bool:
        """Whether a stream ends with a chunk of token counts."""
        return bool((self.stream_options or {}).get("include_usage"))


class ToolCall(Struct, frozen=True):
    """A call that a reply makes; the arguments are sent as they stand, valid JSON or not."""

    name: str
    arguments: str


class Usage(Struct, frozen=True):
    """Token counts of one reply; ``cached_tokens`` is a part of ``prompt_tokens``."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0

    def to_json(self) -> JsonObject:
        """Return the counts under their names in the API."""
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "total_tokens": self.prompt_tokens + self.completion_tokens,
            "prompt_tokens_details": {"cached_tokens": self.cached_tokens},
        }


class Head(Struct, frozen=True):
    """What every part of one reply repeats: its identifier, its model and when it began (Unix time)."""

    reply_id: str
    model: str
    created: int


def parse_request(body: bytes) -> ChatRequest:
    """Read a request's body.

    Raises:
        BadRequestError: it is not JSON or not a chat-completions request.
    """
    try:
        return msgspec.convert(json.loads(body), ChatRequest)
    except (ValueError, RecursionError) as error:
        raise BadRequestError(f"The body is not a chat-completions request: {error}") from error


def tool(name: str, description: str | None, parameters: JsonObject | None) -> JsonObject:
    """Return a tool on offer, from the members that other APIs have for it."""
    function = {"name": name, "description": description or "", "parameters": parameters or {"type": "object"}}
    return {"type": "function", "function": function}


def to_bytes(value: object) -> bytes:
    """Encode a JSON value in ASCII, everything else escaped."""
    return json.dumps(value, separators=(",", ":")).encode("ascii")


def event(value: object) -> bytes:
    """Encode one server-sent event."""
    return b"data: " + to_bytes(value) + b"\n\n"


DONE = b"data: [DONE]\n\n"


def chunk(head: Head, delta: JsonObject, finish_reason: str | None = None) -> JsonObject:
    """Return one chunk of a streamed reply."""
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
    return {**_common(head, "chat.completion.chunk"), "choices": [choice]}


def usage_chunk(head: Head, usage: Usage) -> JsonObject:
    """Return the chunk that holds no choice, only the token counts."""
    return {**_common(head, "chat.completion.chunk"), "choices": [], "usage": usage.to_json()}


def completion(head: Head, message: JsonObject, finish_reason: str, usage: Usage) -> JsonObject:
    """Return a whole reply that is not streamed."""
    choice = {"index": 0, "message": message, "finish_reason": finish_reason}
    return {**_common(head, "chat.completion"), "choices": [choice], "usage": usage.to_json()}


def _common(head: Head, kind: str) -> JsonObject:
    return {"id": head.reply_id, "object": kind, "created": head.created, "model": head.model}


def call_deltas(calls: Iterable[ToolCall], prefix: str, size: int = 64) -> Iterable[JsonObject]:
    """Yield the deltas of tool calls: for each its identifier and name, then its arguments in pieces of ``size``."""
    for index, call in enumerate(calls):
        start = {"name": call.name, "arguments": ""}
        yield {"tool_calls": [{"index": index, "id": f"{prefix}_{index}", "type": "function", "function": start}]}
        step = max(size, len(call.arguments) // 256)
        for at in range(0, len(call.arguments), step):
            piece = {"arguments": call.arguments[at : at + step]}
            yield {"tool_calls": [{"index": index, "function": piece}]}


class Assembly(Struct):
    """The deltas of a reply put together again, for a client that does not stream."""

    content: list[str] = field(default_factory=list)
    calls: list[JsonObject] = field(default_factory=list)

    def add(self, delta: JsonObject) -> None:
        """Take one delta in."""
        if delta.get("content"):
            self.content.append(delta["content"])
        for part in delta.get("tool_calls", ()):
            if "id" in part:
                call = {key: part[key] for key in ("id", "type")}
                self.calls.append({**call, "function": dict(part["function"])})
            else:
                self.calls[part["index"]]["function"]["arguments"] += part["function"]["arguments"]

    def message(self) -> JsonObject:
        """Return the assistant's message."""
        text = "".join(self.content)
        if self.calls:
            return {"role": "assistant", "content": text or None, "tool_calls": self.calls}
        return {"role": "assistant", "content": text}


def error_body(status: int, message: str, code: str = "") -> JsonObject:
    """Return the body of an error reply."""
    kinds = {401: "authentication_error", 429: "rate_limit_error"}
    kind = kinds.get(status, "server_error" if status >= HTTPStatus.INTERNAL_SERVER_ERROR else "invalid_request_error")
    return {"error": {"message": message, "type": kind, "code": code or None}}
