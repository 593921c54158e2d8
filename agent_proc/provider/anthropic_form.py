"""A conversation in the form of the chat-completions API, rewritten for the Messages API of Anthropic. Pure."""

import re

from fanjoin.agent_proc import jsontext
from fanjoin.agent_proc.provider.reply import object_of, objects_of, text_of
from fanjoin.ipc.messages import JsonObject

_CACHED: JsonObject = {"cache_control": {"type": "ephemeral"}}
_NO_ID = re.compile(r"[^a-zA-Z0-9_-]")
_THOUGHTS = ("thinking", "redacted_thinking")
_DATA_URL = re.compile(r"data:([^;,]+);base64,(.*)", re.DOTALL)


def as_system(messages: list[JsonObject], shared: str) -> list[JsonObject]:
    """Return the system prompt as blocks; the first one, which siblings share, is marked for the server's cache."""
    texts = [text_of(message.get("content")) for message in messages if message.get("role") == "system"]
    whole = "\n\n".join(text for text in texts if text.strip())
    if not whole:
        return []
    shared = shared if shared and whole.startswith(shared) else whole
    own = whole[len(shared) :].strip()
    return [{**_text(shared), **_CACHED}, *([_text(own)] if own else [])]


def as_tools(tools: list[JsonObject]) -> list[JsonObject]:
    """Return the entries of ``tools``."""
    functions = [object_of(tool.get("function")) for tool in tools]
    return [
        {
            "name": function.get("name"),
            "description": text_of(function.get("description")),
            "input_schema": function.get("parameters") or {"type": "object"},
        }
        for function in functions
    ]


def as_conversation(messages: list[JsonObject]) -> list[JsonObject]:
    """Return the entries of ``messages``: user and assistant take turns, answers of tools are the user's.

    While tools are at work each step repeats the ones before: what has been read by then is marked for the cache.
    """
    turns: list[JsonObject] = []
    for message in messages:
        role = "assistant" if message.get("role") == "assistant" else "user"
        blocks = [] if message.get("role") == "system" else _blocks(message)
        if blocks and turns and turns[-1]["role"] == role:
            turns[-1]["content"] += blocks
        elif blocks:
            turns.append({"role": role, "content": blocks})
    if turns and turns[-1]["content"][-1]["type"] == "tool_result":
        turns[-1]["content"][-1] |= _CACHED
    return turns


def _blocks(message: JsonObject) -> list[JsonObject]:
    """Return the content blocks of one entry. Blank texts are refused by the server and say nothing."""
    content = message.get("content")
    if message.get("role") == "tool":
        answer = {"type": "tool_result", "tool_use_id": _call_id(message.get("tool_call_id")), "content": content or ""}
        return [answer]
    thoughts = [thought for thought in objects_of(message.get("thoughts")) if thought.get("type") in _THOUGHTS]
    parts = [_text(content)] if isinstance(content, str) else [_part(part) for part in objects_of(content)]
    said = [part for part in parts if part["type"] != "text" or part["text"].strip()]
    return [*thoughts, *said, *(_tool_use(call) for call in objects_of(message.get("tool_calls")))]


def _part(part: JsonObject) -> JsonObject:
    if part.get("type") != "image_url":
        return _text(text_of(part.get("text")))
    url = text_of(object_of(part.get("image_url")).get("url"))
    found = _DATA_URL.fullmatch(url)
    if found is None:
        return {"type": "image", "source": {"type": "url", "url": url}}
    return {"type": "image", "source": {"type": "base64", "media_type": found[1], "data": found[2]}}


def _tool_use(call: JsonObject) -> JsonObject:
    function = object_of(call.get("function"))
    given = object_of(jsontext.read(text_of(function.get("arguments")) or "{}"))
    return {"type": "tool_use", "id": _call_id(call.get("id")), "name": function.get("name"), "input": given}


def _call_id(value: object) -> str:
    """Return an id in the letters that this API allows; a session may have begun with another server."""
    return _NO_ID.sub("_", text_of(value)) or "call"


def _text(text: str) -> JsonObject:
    return {"type": "text", "text": text}
