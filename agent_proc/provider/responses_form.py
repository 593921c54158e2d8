"""A conversation in the form of the chat-completions API, rewritten for the Responses API of OpenAI. Pure."""

from fanjoin.agent_proc.provider.reply import object_of, objects_of, text_of
from fanjoin.ipc.messages import JsonObject


def as_instructions(messages: list[JsonObject]) -> str:
    """Return the system prompt."""
    texts = [text_of(message.get("content")) for message in messages if message.get("role") == "system"]
    return "\n\n".join(text for text in texts if text)


def as_tools(tools: list[JsonObject]) -> list[JsonObject]:
    """Return the entries of ``tools``. Without ``strict: false`` this API takes every schema for a strict one."""
    return [{"type": "function", **object_of(tool.get("function")), "strict": False} for tool in tools]


def as_input(messages: list[JsonObject]) -> list[JsonObject]:
    """Return the items of ``input``: messages, calls of tools, and their answers."""
    return [item for message in messages if message.get("role") != "system" for item in _items(message)]


def _items(message: JsonObject) -> list[JsonObject]:
    content = message.get("content")
    match message.get("role"):
        case "tool":
            call_id = text_of(message.get("tool_call_id"))
            return [{"type": "function_call_output", "call_id": call_id, "output": content or ""}]
        case "assistant":
            thoughts = [one for one in objects_of(message.get("thoughts")) if one.get("type") == "reasoning"]
            said = [{"role": "assistant", "content": content}] if content else []
            return [*thoughts, *said, *(_call(call) for call in objects_of(message.get("tool_calls")))]
        case _:
            return [{"role": "user", "content": _content(content)}]


def _call(call: JsonObject) -> JsonObject:
    function = object_of(call.get("function"))
    arguments = text_of(function.get("arguments")) or "{}"
    name = text_of(function.get("name"))
    return {"type": "function_call", "call_id": text_of(call.get("id")), "name": name, "arguments": arguments}


def _content(content: object) -> str | list[JsonObject]:
    return [_part(part) for part in objects_of(content)] if isinstance(content, list) else text_of(content)


def _part(part: JsonObject) -> JsonObject:
    if part.get("type") != "image_url":
        return {"type": "input_text", "text": text_of(part.get("text"))}
    return {"type": "input_image", "image_url": text_of(object_of(part.get("image_url")).get("url"))}
