"""What a server of the chat-completions API wants back with its tool calls, and where it goes. Pure.

Without it DeepSeek and Moonshot (``reasoning_content``) and Gemini (``extra_content`` of a call) refuse the next
request; OpenRouter hands it on to whoever wants it (``reasoning_details``). Each server gets only what it sent itself.
"""

from fanjoin.agent_proc.provider.reply import object_of, objects_of
from fanjoin.ipc.messages import JsonObject

KIND = "chat_completions"
_TEXTS = ("text", "summary", "data")
_CALL_FIELD = "extra_content"


def as_thought(reasoning: list[str] | None, details: list[JsonObject], extras: list[JsonObject]) -> JsonObject | None:
    """Return what has to go back, or None.

    Args:
        reasoning: the pieces of ``reasoning_content``; None when the server does not know that name.
        details: the pieces of ``reasoning_details``.
        extras: ``extra_content`` of each call.
    """
    fields: JsonObject = {} if reasoning is None else {"reasoning_content": "".join(reasoning)}
    if details:
        fields["reasoning_details"] = _joined(details)
    if not fields and not any(extras):
        return None
    return {"type": KIND, "fields": fields, "extras": extras}


def as_messages(messages: list[JsonObject]) -> list[JsonObject]:
    """Return the conversation with everything in its place that has to go back."""
    return [_with_thoughts(message) if "thoughts" in message else message for message in messages]


def _with_thoughts(message: JsonObject) -> JsonObject:
    told = {name: value for name, value in message.items() if name != "thoughts"}
    for thought in objects_of(message["thoughts"]):
        if thought.get("type") == KIND:
            told |= object_of(thought.get("fields"))
            extras = zip(told["tool_calls"], thought["extras"], strict=True)
            told["tool_calls"] = [{**call, _CALL_FIELD: extra} if extra else call for call, extra in extras]
    return told


def _joined(pieces: list[JsonObject]) -> list[JsonObject]:
    """Return the details of a stream put together: pieces in a row of one type and index are one."""
    whole: list[JsonObject] = []
    for piece in pieces:
        last = whole[-1] if whole else {}
        if last and all(last.get(name) == piece.get(name) for name in ("type", "index")):
            texts = {name: f"{last.get(name) or ''}{piece[name]}" for name in _TEXTS if piece.get(name)}
            whole[-1] = last | {name: value for name, value in piece.items() if value is not None} | texts
        else:
            whole.append(piece)
    return whole
