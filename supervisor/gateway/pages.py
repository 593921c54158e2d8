"""How much of a conversation goes into one answer (pure)."""

import msgspec

from fanjoin.ipc.messages import JsonObject

PAGE_BYTES = 768 << 10
"""Well below the 1 MiB at which many clients give a connection up; a single larger message still goes whole."""


def newest_page(messages: list[JsonObject], first: int, most: int = PAGE_BYTES) -> tuple[list[JsonObject], int]:
    """Return the newest messages that fit, the last one in any case, and the number of the first of them."""
    size = 0
    for place in range(len(messages) - 1, -1, -1):
        size += len(msgspec.json.encode(messages[place]))
        if size > most and place < len(messages) - 1:
            return messages[place + 1 :], first + place + 1
    return messages, first
