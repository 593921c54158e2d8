"""The Messages API of Anthropic, as a provider reads and writes it."""

import json

import msgspec
from msgspec import Struct

from fanjoin.cli.provider import wire
from fanjoin.cli.provider.dialect import Dialect
from fanjoin.cli.provider.wire import BadRequestError, ChatRequest, Head, JsonObject, Usage

_FINISHES = {"stop": "end_turn", "tool_calls": "tool_use", "length": "max_tokens", "content_filter": "refusal"}
_KINDS = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 413: "request_too_large"}
_KINDS |= {429: "rate_limit_error", 529: "overloaded_error"}
_SERVER_SIDE = 500


class _Request(Struct, kw_only=True):
    messages: list[JsonObject]
    max_tokens: int
    model: str = ""
    system: str | list[JsonObject] = ""
    tools: list[JsonObject] = []
    stream: bool = False


def parse(body: bytes) -> ChatRequest:
    """Read a request.

    Raises:
        BadRequestError: it is none of this API.
    """
    try:
        asked = msgspec.convert(json.loads(body), _Request)
        system = [{"role": "system", "content": text}] if (text := _text(asked.system)) else []
        entries = [entry for message in asked.messages for entry in _entries(message)]
        tools = [wire.tool(tool["name"], tool.get("description"), tool.get("input_schema")) for tool in asked.tools]
        chat = {"model": asked.model, "messages": system + entries, "tools": tools or None}
        return msgspec.convert({**chat, "stream": asked.stream, "max_tokens": asked.max_tokens}, ChatRequest)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise BadRequestError(f"The body is not a request of the Messages API: {error}") from error


def _entries(message: JsonObject) -> list[JsonObject]:
    """Return what one message is in the chat-completions API: answers of tools are entries of their own there."""
    content = message["content"]
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    answers = [
        {"role": "tool", "tool_call_id": block["tool_use_id"], "content": _text(block.get("content") or "")}
        for block in blocks
        if block["type"] == "tool_result"
    ]
    calls = [_call(block) for block in blocks if block["type"] == "tool_use"]
    text = _text([block for block in blocks if block["type"] == "text"])
    if calls:
        return [{"role": "assistant", "content": text or None, "tool_calls": calls}]
    return [*answers, *([{"role": message["role"], "content": text}] if text or not answers else [])]


def _call(block: JsonObject) -> JsonObject:
    function = {"name": block["name"], "arguments": json.dumps(block["input"])}
    return {"id": block["id"], "type": "function", "function": function}


def _text(content: str | list[JsonObject]) -> str:
    return content if isinstance(content, str) else "".join(str(block.get("text", "")) for block in content)


class MessagesForm:
    """A reply of the Messages API: content blocks, each begun, added to and ended."""

    def __init__(self, head: Head, _request: ChatRequest) -> None:
        self._head = head
        self._index = -1
        self._open = ""

    def opening(self) -> list[bytes]:
        """Return the empty message."""
        return [_event("message_start", message=self._message([], None, Usage()))]

    def piece(self, delta: JsonObject) -> bytes:
        """Return the events of one delta; a block begins where its kind changes."""
        if delta.get("content"):
            begun = b"" if self._open == "text" else self._begin("text", text="")
            return begun + self._add("text_delta", text=delta["content"])
        parts = [self._call_piece(part) for part in delta.get("tool_calls", ())]
        return b"".join(parts)

    def closing(self, finish: str, usage: Usage) -> list[bytes]:
        """Return the end of the last block, why the message ends, and its end."""
        delta = {"stop_reason": _FINISHES.get(finish, finish), "stop_sequence": None}
        return [self._end(), _event("message_delta", delta=delta, usage=_counts(usage)), _event("message_stop")]

    def whole(self, message: JsonObject, finish: str, usage: Usage) -> JsonObject:
        """Return the message."""
        text = [{"type": "text", "text": message["content"]}] if message["content"] else []
        calls = [
            {**_call_block(call), "input": _given(call["function"]["arguments"])}
            for call in message.get("tool_calls", ())
        ]
        return self._message([*text, *calls], _FINISHES.get(finish, finish), usage)

    def _message(self, content: list[JsonObject], stop_reason: str | None, usage: Usage) -> JsonObject:
        return {
            "id": self._head.reply_id,
            "type": "message",
            "role": "assistant",
            "model": self._head.model,
            "content": content,
            "stop_reason": stop_reason,
            "stop_sequence": None,
            "usage": _counts(usage),
        }

    def _call_piece(self, part: JsonObject) -> bytes:
        if "id" in part:
            return self._begin(**_call_block(part), input={})
        return self._add("input_json_delta", partial_json=part["function"]["arguments"])

    def _begin(self, type: str, **block: object) -> bytes:  # noqa: A002 - the API's name
        ended = self._end()
        self._index += 1
        self._open = type
        return ended + _event("content_block_start", index=self._index, content_block={"type": type, **block})

    def _add(self, kind: str, **text: str) -> bytes:
        return _event("content_block_delta", index=self._index, delta={"type": kind, **text})

    def _end(self) -> bytes:
        return _event("content_block_stop", index=self._index) if self._open else b""


def _call_block(call: JsonObject) -> JsonObject:
    return {"type": "tool_use", "id": call["id"], "name": call["function"]["name"]}


def _given(arguments: str) -> object:
    """Return arguments as the object that this API wants; a plan may hold what is none."""
    try:
        return json.loads(arguments or "{}")
    except ValueError:
        return arguments


def _counts(usage: Usage) -> JsonObject:
    return {
        "input_tokens": usage.prompt_tokens - usage.cached_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cached_tokens,
        "output_tokens": usage.completion_tokens,
    }


def _event(name: str, **members: object) -> bytes:
    return b"event: " + name.encode() + b"\n" + wire.event({"type": name, **members})


def error_body(status: int, message: str, code: str = "") -> JsonObject:
    """Return the body of an error; this API knows no codes, so one goes before the message."""
    kind = _KINDS.get(status, "api_error" if status >= _SERVER_SIDE else "invalid_request_error")
    return {"type": "error", "error": {"type": kind, "message": f"{code}: {message}" if code else message}}


MESSAGES = Dialect(parse, MessagesForm, error_body)
