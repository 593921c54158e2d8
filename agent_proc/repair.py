"""Arguments that are almost JSON: repaired where only one reading is possible, and never guessed at. Pure."""

import re

from fanjoin.agent_proc import jsontext
from fanjoin.ipc.messages import JsonObject

_TRAILING_COMMA = re.compile(r'("(?:[^"\\]|\\.)*")|,(?=\s*[}\]])', re.DOTALL)


def repair(text: str) -> JsonObject | None:
    """Return the one JSON object that a text holds among prose or a code fence, or with trailing commas; else None.

    What was cut off is not completed, and of two objects none is chosen.
    """
    start, end = text.find("{"), text.rfind("}")
    if start < 0 or end < start:
        return None
    around = text[:start] + text[end + 1 :]
    if any(mark in around for mark in "[]{}"):
        return None  # the object is a part of something else
    inner = text[start : end + 1]
    for candidate in (inner, _TRAILING_COMMA.sub(lambda match: match[1] or "", inner)):
        try:
            value = jsontext.read(candidate)
        except ValueError:
            continue
        return value if isinstance(value, dict) else None
    return None
