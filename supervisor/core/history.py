"""A stored conversation as a model may be given it: every tool call has its one answer."""

import json

from fanjoin.ipc.messages import JsonObject

_INTERRUPTED = json.dumps(
    {"error": {"reason": "interrupted", "message": "interrupted before it ended; whether it took effect is not known"}}
)


def repaired(messages: list[JsonObject]) -> list[JsonObject]:
    """Return the messages with an answer for each tool call that has none, and without answers to no call."""
    result: list[JsonObject] = []
    open_calls: list[str] = []
    for message in messages:
        if message.get("role") == "tool":
            call_id = str(message.get("tool_call_id"))
            if call_id not in open_calls:
                continue
            open_calls.remove(call_id)
        else:
            result += _answers(open_calls)
            open_calls = [str(call.get("id")) for call in message.get("tool_calls") or []]
        result.append(message)
    return result + _answers(open_calls)


def _answers(call_ids: list[str]) -> list[JsonObject]:
    return [{"role": "tool", "tool_call_id": call_id, "content": _INTERRUPTED} for call_id in call_ids]
