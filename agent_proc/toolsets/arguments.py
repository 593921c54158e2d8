"""Arguments of a tool call, checked; and the schema that says what they are."""

from collections.abc import Mapping

from fanjoin.agent_proc.calls import ToolError
from fanjoin.ipc.messages import JsonObject
from fanjoin.ipc.text import clip


def tool_schema(name: str, description: str, required: Mapping[str, str], **optional: JsonObject) -> JsonObject:
    """Return a tool's entry in a request; ``required`` are texts, by name, with what is said of them."""
    properties = {**{key: {"type": "string", "description": about} for key, about in required.items()}, **optional}
    parameters = {"type": "object", "properties": properties, "required": list(required)}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


def text(arguments: JsonObject, name: str, default: str | None = None) -> str:
    """Return an argument that is a text; without a default it has to be there."""
    value = arguments.get(name, default)
    if value is None:
        value = default
    if not isinstance(value, str):
        raise _wrong(name, "a text", value)
    return value


def number(arguments: JsonObject, name: str, default: int, least: int = 1) -> int:
    """Return an argument that is a whole number."""
    value = arguments.get(name)
    if value is None:
        return default
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise _wrong(name, f"a whole number from {least}", value)
    return value


def flag(arguments: JsonObject, name: str) -> bool:
    """Return an argument that is true or false, false when it is missing."""
    value = arguments.get(name)
    if value is not None and not isinstance(value, bool):
        raise _wrong(name, "true or false", value)
    return bool(value)


def _wrong(name: str, expected: str, value: object) -> ToolError:
    found = "missing" if value is None else clip(repr(value), 80)
    return ToolError("invalid_arguments", f"{name} must be {expected}; it is {found}")
