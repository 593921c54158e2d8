"""What an agent knows of the files that it read: it may only overwrite what it has seen."""

import hashlib

from fanjoin.agent_proc.calls import ToolError
from fanjoin.agent_proc.toolsets.workspace import Place


class Versions:
    """The contents that files had when this agent last read or wrote them."""

    def __init__(self) -> None:
        self._known: dict[str, bytes] = {}

    def note(self, place: Place, data: bytes) -> None:
        """Remember what a file holds now."""
        self._known[place.full] = _digest(data)

    def require_seen(self, place: Place) -> None:
        """Refuse to overwrite a file that this agent never read.

        Raises:
            ToolError: ``not_read``.
        """
        if place.full not in self._known:
            raise ToolError("not_read", f"{place.shown} exists, and you have not read it. Read it first.")

    def require_unchanged(self, place: Place, data: bytes) -> None:
        """Refuse to write over what somebody else has written since this agent read it.

        Raises:
            ToolError: ``changed``.
        """
        known = self._known.get(place.full)
        if known is not None and known != _digest(data):
            text = f"{place.shown} has changed since you read it. Nothing was written. Read it again."
            raise ToolError("changed", text)


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()
