"""What a small model is really asked: requests with tools become one that a model of 135 million parameters can answer.

Such a model cannot choose a tool, but it fills a JSON schema reliably. So a request that must call a tool becomes one
request for JSON under that tool's schema, every string and array of it bounded, and the JSON becomes the call. Which
tool, and whether at all, is never the model's choice. Pure: no model is needed to test this.
"""

import json
from typing import Any

from fanjoin.cli.provider.directives import split_directives
from fanjoin.cli.provider.joined import Joined
from fanjoin.cli.provider.plan import DELEGATE_TOOL, asks_for_delegates
from fanjoin.cli.provider.wire import BadRequestError, ChatRequest, JsonObject, Message, ToolCall, Usage

STRING_CHARACTERS = 200
ARRAY_ITEMS = 4
"""How much room a schema gives the model: past this it wanders."""

CLOSING_CHARACTERS = 240
"""How much of each summary the model reads before it writes the closing words."""

_PROSE = {"temperature": 0.0, "repeat_penalty": 1.1}
_EXACT = {"temperature": 0.0}
"""Without a penalty for repetition it goes round in circles, with one it cannot copy what it is to fill in."""
_GOALS: JsonObject = {"type": "object", "properties": {"goal": {"type": "string"}}, "required": ["goal"]}
_TASKS: JsonObject = {
    "type": "object",
    "properties": {"tasks": {"type": "array", "minItems": 1, "items": _GOALS}},
    "required": ["tasks"],
}


def tool_to_call(request: ChatRequest) -> JsonObject | None:
    """Return the tool that has to be called: the client insists on it, or the user asks for delegates."""
    tools = {str(tool.get("function", {}).get("name", "")): tool for tool in request.tools or []}
    choice = request.tool_choice
    if isinstance(choice, dict):
        return tools.get(str(choice.get("function", {}).get("name", "")))
    if choice == "required" and len(tools) == 1:
        return next(iter(tools.values()))
    return tools.get(DELEGATE_TOOL) if asks_for_delegates(request) and choice != "none" else None


def arguments_request(request: ChatRequest, tool: JsonObject, max_tokens: int) -> JsonObject:
    """Return the request whose answer is the arguments of a call, as JSON under one schema."""
    function = tool["function"]
    schema = _TASKS if function["name"] == DELEGATE_TOOL else function.get("parameters") or {"type": "object"}
    form = {"type": "json_schema", "json_schema": {"name": function["name"], "schema": bounded(schema)}}
    ask = f"Fill in the arguments of the tool {function['name']} for this request:\n{_user_text(request)}"
    return {
        **_EXACT,
        "messages": [{"role": "user", "content": ask}],
        "response_format": form,
        "max_tokens": max_tokens,
    }


def bounded(schema: Any) -> Any:
    """Return a schema with only the properties that are required, if any is, and with bounds on strings and arrays."""
    if isinstance(schema, list):
        return [bounded(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    properties, required = schema.get("properties"), schema.get("required")
    result = {key: bounded(value) for key, value in schema.items() if key != "properties"}
    if isinstance(properties, dict):
        kept = {name: part for name, part in properties.items() if not required or name in required}
        result["properties"] = {name: bounded(part) for name, part in kept.items()}
    if schema.get("type") == "string" and "enum" not in schema:
        result["maxLength"] = min(schema.get("maxLength", STRING_CHARACTERS), STRING_CHARACTERS)
    if schema.get("type") == "array":
        result["maxItems"] = min(schema.get("maxItems", ARRAY_ITEMS), ARRAY_ITEMS)
    return result


def call_from(tool: JsonObject, written: str) -> ToolCall:
    """Turn the model's JSON into the call.

    Raises:
        BadRequestError: it is no JSON object, because the model ran out of room.
    """
    try:
        arguments = json.loads(written)
    except ValueError:
        arguments = None
    if not isinstance(arguments, dict):
        raise BadRequestError(f"The local model did not finish the arguments of {tool['function']['name']}.")
    return ToolCall(tool["function"]["name"], json.dumps(arguments))


def text_request(request: ChatRequest, max_tokens: int) -> JsonObject:
    """Return the request for plain text: no tools, what tools answered told as the user's words."""
    limit = request.max_completion_tokens or request.max_tokens or max_tokens
    messages = [_plain(message) for message in request.messages]
    asked = {"response_format": request.response_format} if request.response_format else {}
    return {**_PROSE, **asked, "messages": [message for message in messages if message], "max_tokens": limit}


def _plain(message: Message) -> JsonObject | None:
    """Return a message as a model without tools understands it, or None where nothing is left."""
    _, text = split_directives(message.text) if message.role == "user" else ((), message.text)
    role = message.role if message.role in ("system", "assistant") else "user"
    return {"role": role, "content": text} if text.strip() else None


def _user_text(request: ChatRequest) -> str:
    return split_directives(request.user_text)[1]


def closing_request(joined: list[Joined], max_tokens: int) -> JsonObject | None:
    """Return the request for closing words over the summaries that there are; None when there are none."""
    said = [f"- {item.label}: {item.summary[:CLOSING_CHARACTERS]}" for item in joined if item.summary]
    if not said:
        return None
    ask = "Here are summaries of some documents:\n" + "\n".join(said) + "\n\nIn two sentences, what are they about?"
    return {**_PROSE, "messages": [{"role": "user", "content": ask}], "max_tokens": max_tokens}


def usage_from(chunk: JsonObject) -> Usage | None:
    """Return the token counts of a chunk that holds them."""
    counts = chunk.get("usage")
    if not isinstance(counts, dict):
        return None
    cached = (counts.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
    return Usage(int(counts.get("prompt_tokens") or 0), int(counts.get("completion_tokens") or 0), int(cached))


def text_from(chunk: JsonObject) -> str:
    """Return the text that a chunk adds, with an ellipsis where the model was stopped for length.

    Raises:
        BadRequestError: the chunk is an error, such as a text that is longer than the model can read.
    """
    if "error" in chunk:
        raise _error_from(chunk["error"])
    choice = (chunk.get("choices") or [{}])[0]
    text = str((choice.get("delta") or {}).get("content") or "")
    return f"{text}…" if choice.get("finish_reason") == "length" else text


def _error_from(error: Any) -> BadRequestError:
    if not isinstance(error, dict):
        return BadRequestError(str(error))
    too_long = error.get("type") == "exceed_context_size_error"
    return BadRequestError(str(error.get("message", error)), "context_length_exceeded" if too_long else "")
