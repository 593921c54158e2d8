"""The Responses API of OpenAI, as a provider reads and writes it."""

import json

import msgspec
from msgspec import Struct

from fanjoin.cli.provider import wire
from fanjoin.cli.provider.dialect import Dialect
from fanjoin.cli.provider.wire import BadRequestError, ChatRequest, Head, JsonObject, Usage

_CUTS = {"length": "max_output_tokens", "content_filter": "content_filter"}


class _Request(Struct, kw_only=True):
    input: str | list[JsonObject]
    model: str = ""
    instructions: str | None = None
    tools: list[JsonObject] = []
    text: JsonObject = {}
    stream: bool = False
    max_output_tokens: int | None = None


def parse(body: bytes) -> ChatRequest:
    """Read a request.

    Raises:
        BadRequestError: it is none of this API.
    """
    try:
        asked = msgspec.convert(json.loads(body), _Request)
        tools = [wire.tool(tool["name"], tool.get("description"), tool.get("parameters")) for tool in asked.tools]
        chat = {
            "model": asked.model,
            "messages": _messages(asked),
            "tools": tools or None,
            "stream": asked.stream,
            "max_tokens": asked.max_output_tokens,
            "response_format": _response_format(asked.text.get("format")),
        }
        return msgspec.convert(chat, ChatRequest)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise BadRequestError(f"The body is not a request of the Responses API: {error}") from error


def _messages(asked: _Request) -> list[JsonObject]:
    """Return the conversation; calls in a row are those of one message."""
    messages: list[JsonObject] = [{"role": "system", "content": asked.instructions}] if asked.instructions else []
    items = [{"role": "user", "content": asked.input}] if isinstance(asked.input, str) else asked.input
    for item in items:
        match item.get("type", "message"):
            case "message":
                messages.append({"role": item["role"], "content": _text(item["content"])})
            case "function_call":
                if messages[-1]["role"] != "assistant":
                    messages.append({"role": "assistant", "content": None})
                messages[-1].setdefault("tool_calls", []).append(_call(item))
            case "function_call_output":
                messages.append({"role": "tool", "tool_call_id": item["call_id"], "content": _text(item["output"])})
    return messages


def _call(item: JsonObject) -> JsonObject:
    function = {"name": item["name"], "arguments": item["arguments"]}
    return {"id": item["call_id"], "type": "function", "function": function}


def _text(content: str | list[JsonObject]) -> str:
    return content if isinstance(content, str) else "".join(str(part.get("text", "")) for part in content)


def _response_format(wanted: JsonObject | None) -> JsonObject | None:
    if not wanted or wanted.get("type") != "json_schema":
        return None
    return {"type": "json_schema", "json_schema": {name: wanted.get(name) for name in ("name", "schema")}}


class ResponsesForm:
    """A reply of the Responses API: output items, each added, filled and done, and all of them again at its end."""

    def __init__(self, head: Head, _request: ChatRequest) -> None:
        self._head = head
        self._items: list[JsonObject] = []

    def opening(self) -> list[bytes]:
        """Return the response without any output."""
        return [_event("created", response=self._response("in_progress", [], None))]

    def piece(self, delta: JsonObject) -> bytes:
        """Return the events of one delta; an item is added where its kind changes."""
        if delta.get("content"):
            begun = b"" if self._last_type == "message" else self._begin(_message_item(self._head, ""))
            self._items[-1]["content"][0]["text"] += delta["content"]
            return begun + self._add("output_text.delta", delta["content"])
        return b"".join(self._call_piece(part) for part in delta.get("tool_calls", ()))

    def closing(self, finish: str, usage: Usage) -> list[bytes]:
        """Return the end of the last item, and of the response."""
        response = self._ended(self._items, finish, usage)
        return [self._done(), _event(response["status"], response=response)]

    def whole(self, message: JsonObject, finish: str, usage: Usage) -> JsonObject:
        """Return the response."""
        text = [_message_item(self._head, message["content"])] if message["content"] else []
        calls = [_call_item(call) for call in message.get("tool_calls", ())]
        return self._ended([*text, *calls], finish, usage)

    @property
    def _last_type(self) -> str:
        return str(self._items[-1]["type"]) if self._items else ""

    def _call_piece(self, part: JsonObject) -> bytes:
        if "id" in part:
            return self._begin(_call_item(part))
        piece = part["function"]["arguments"]
        self._items[-1]["arguments"] += piece
        return self._add("function_call_arguments.delta", piece)

    def _begin(self, item: JsonObject) -> bytes:
        ended = self._done()
        self._items.append(item)
        return ended + _event("output_item.added", output_index=len(self._items) - 1, item=item)

    def _add(self, name: str, piece: str) -> bytes:
        return _event(name, item_id=self._items[-1]["id"], output_index=len(self._items) - 1, delta=piece)

    def _done(self) -> bytes:
        if not self._items:
            return b""
        return _event("output_item.done", output_index=len(self._items) - 1, item=self._items[-1])

    def _ended(self, items: list[JsonObject], finish: str, usage: Usage) -> JsonObject:
        cut = _CUTS.get(finish)
        response = self._response("incomplete" if cut else "completed", items, usage)
        return {**response, "incomplete_details": {"reason": cut} if cut else None}

    def _response(self, status: str, output: list[JsonObject], usage: Usage | None) -> JsonObject:
        return {
            "id": self._head.reply_id,
            "object": "response",
            "created_at": self._head.created,
            "model": self._head.model,
            "status": status,
            "error": None,
            "output": output,
            "usage": _counts(usage) if usage else None,
        }


def _message_item(head: Head, text: str) -> JsonObject:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    return {"type": "message", "id": f"msg_{head.reply_id}", "role": "assistant", "content": content}


def _call_item(call: JsonObject) -> JsonObject:
    named = {"type": "function_call", "id": f"fc_{call['id']}", "call_id": call["id"]}
    return {**named, **call["function"]}


def _counts(usage: Usage) -> JsonObject:
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens},
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    }


def _event(name: str, **members: object) -> bytes:
    kind = f"response.{name}"
    return b"event: " + kind.encode() + b"\n" + wire.event({"type": kind, **members})


RESPONSES = Dialect(parse, ResponsesForm)
