"""Tool calls as entries of the conversation: each has an id of its own and gets exactly one answer."""

from collections.abc import Iterable
from typing import Any

from fanjoin.agent_proc import jsontext
from fanjoin.agent_proc.provider.reply import ToolCall
from fanjoin.agent_proc.repair import repair
from fanjoin.ipc.messages import JsonObject
from fanjoin.ipc.text import clip

PREVIEW_CHARACTERS = 200


class ToolError(Exception):
    """A tool call that failed in a way that the model is told of.

    Attributes:
        reason: one word, such as ``invalid_arguments``.
        notice: what the user has to know of it, or nothing.
    """

    def __init__(self, reason: str, message: str, notice: str = "") -> None:
        super().__init__(message)
        self.reason = reason
        self.notice = notice

    def content(self) -> str:
        """Return the text of the tool message: always a JSON object."""
        return jsontext.write({"error": {"reason": self.reason, "message": str(self)}})


def read_arguments(text: str) -> JsonObject:
    """Return the arguments of a call; none at all count as an empty object.

    Raises:
        ToolError: they are not a JSON object, and not plainly meant as a certain one.
    """
    try:
        value = jsontext.read(text) if text.strip() else {}
    except ValueError as error:
        repaired = repair(text)
        if repaired is not None:
            return repaired
        hint = "" if text.rstrip().endswith("}") else ". They end too early: when they were cut, say less in one call"
        told = f"the arguments are not valid JSON ({error}): {_preview(text)}{hint}"
        raise ToolError("invalid_arguments", told) from error
    if not isinstance(value, dict):
        raise ToolError("invalid_arguments", f"the arguments must be a JSON object, not {_preview(text)}")
    return value


def with_unique_ids(calls: list[ToolCall], used: set[str]) -> list[ToolCall]:
    """Return the calls, each with an id that the conversation has not used yet, and note those ids as used."""
    for call in calls:
        call.id, call.name = _unused(call.id, used), call.name or "unknown"
    return calls


def ids_in(messages: Iterable[JsonObject]) -> set[str]:
    """Return the ids of the tool calls in a conversation."""
    return {str(call.get("id")) for message in messages for call in message.get("tool_calls") or []}


def assistant_message(text: str, calls: list[ToolCall]) -> JsonObject:
    """Return the entry of a reply that calls tools."""
    return {"role": "assistant", "content": text or None, "tool_calls": [_entry(call) for call in calls]}


def tool_message(call_id: str, content: str) -> JsonObject:
    """Return the entry that answers a call."""
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def is_error(content: str) -> bool:
    """Whether an answer is an error, and no result with an error in one of its entries."""
    try:
        value: Any = jsontext.read(content)
    except ValueError:
        return False
    return isinstance(value, dict) and "error" in value and "results" not in value


def _entry(call: ToolCall) -> JsonObject:
    """Return a call for the conversation. Servers parse its arguments again: what is no JSON object must not return."""
    try:
        given = read_arguments(call.arguments)
        arguments = call.arguments.strip() or "{}"
        if not _is_json(arguments):
            arguments = jsontext.write(given)
    except ToolError:
        arguments = "{}"
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}


def _is_json(text: str) -> bool:
    try:
        jsontext.read(text)
    except ValueError:
        return False
    return True


def _unused(call_id: str, used: set[str]) -> str:
    base, number = call_id or "call", 1
    candidate = call_id or "call_1"
    while candidate in used:
        number += 1
        candidate = f"{base}_{number}"
    used.add(candidate)
    return candidate


def _preview(text: str) -> str:
    return clip(text, PREVIEW_CHARACTERS)
