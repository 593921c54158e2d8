"""What gives way when a conversation no longer fits into the model's context: the oldest tool results. Pure."""

from fanjoin.agent_proc import jsontext
from fanjoin.ipc.messages import JsonObject
from fanjoin.ipc.text import head_and_tail

SHORT_CHARACTERS = 1500
"""A tool result of at most so many characters is left as it is; a longer one becomes about so long."""
_MARK = '{"shortened":'
_TEXT_CHARACTERS = 300
"""What stays of each text inside a result that is a JSON object."""


def shorten_oldest(messages: list[JsonObject]) -> int:
    """Shorten the older half of the long tool results, at least one; return how many.

    Repeated, it comes to an end: each time there are fewer long ones, at last none, and 0 is returned. Entries are
    replaced and not changed, since others hold them, too.
    """
    found = [at for at, message in enumerate(messages) if message.get("role") == "tool" and _is_long(message)]
    chosen = found[: (len(found) + 1) // 2]
    for at in chosen:
        messages[at] = {**messages[at], "content": _shortened(str(messages[at]["content"]))}
    return len(chosen)


def _is_long(message: JsonObject) -> bool:
    content = message.get("content")
    return isinstance(content, str) and len(content) > SHORT_CHARACTERS and not content.startswith(_MARK)


def _shortened(content: str) -> str:
    """Return less of a result: a JSON object stays one, with its texts cut where that is enough."""
    try:
        value = jsontext.read(content)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        return head_and_tail(content, SHORT_CHARACTERS - 100)
    short = jsontext.write(_cut_texts(value))
    if len(short) <= SHORT_CHARACTERS:
        return short
    return jsontext.write({"shortened": head_and_tail(content, SHORT_CHARACTERS // 3)})


def _cut_texts(value: object) -> object:
    if isinstance(value, str):
        return head_and_tail(value, _TEXT_CHARACTERS)
    if isinstance(value, list):
        return [_cut_texts(item) for item in value]
    if isinstance(value, dict):
        return {key: _cut_texts(item) for key, item in value.items()}
    return value
