"""The request log: one line of JSON for each request that arrived, for tests that count and compare.

A key never stands in it, only its SHA-256.
"""

import hashlib
import json
import time
from pathlib import Path

from fanjoin.cli.provider.wire import ChatRequest
from fanjoin.ipc.text import clip

SHOWN_CHARACTERS = 200


def key_of(headers: dict[str, str]) -> str:
    """Return the key that a request carries, empty when it carries none."""
    scheme, _, key = headers.get("authorization", "").partition(" ")
    return key.strip() if scheme.lower() == "bearer" else headers.get("x-api-key", "")


class Journal:
    """Appends to a file, or to nothing."""

    def __init__(self, path: Path | None = None) -> None:
        self._file = path.open("a", encoding="utf-8", newline="\n") if path else None

    def record(self, path: str, key: str, in_flight: int, request: ChatRequest | None = None) -> None:
        """Write one request down. ``in_flight`` counts the requests being answered, this one included."""
        if not self._file:
            return
        entry = {
            "time": time.time(),
            "path": path,
            "key_sha256": hashlib.sha256(key.encode()).hexdigest() if key else None,
            "in_flight": in_flight,
        }
        self._file.write(json.dumps({**entry, **(_details(request) if request else {})}) + "\n")
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        if self._file:
            self._file.close()


def _details(request: ChatRequest) -> dict[str, object]:
    return {
        "model": request.model,
        "stream": bool(request.stream),
        "messages": len(request.messages),
        "tools": request.tool_names,
        "user": clip(request.user_text, SHOWN_CHARACTERS),
    }
