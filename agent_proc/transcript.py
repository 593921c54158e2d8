"""The live transcript of one agent: JSON lines that a person can follow while it works."""

import contextlib
import os
import sys
import time
from typing import TextIO

from fanjoin.agent_proc import jsontext
from fanjoin.ipc.messages import JsonObject
from fanjoin.ipc.text import mask_in


class Transcript:
    """Writes one line per event and flushes it. A transcript that cannot be written never stops an agent.

    Args:
        path: the file to append to; empty for none.
        secret: never appears in it.
    """

    def __init__(self, path: str, secret: str) -> None:
        self._secret = jsontext.write(secret)[1:-1]
        self._file: TextIO | None = None
        if path:
            try:
                self._file = open(path, "a", encoding="utf-8", newline="\n", opener=_private)  # noqa: SIM115 - stays open
            except OSError as error:
                _complain(error)

    def add(self, kind: str, **fields: object) -> None:
        """Write one event."""
        if self._file is None:
            return
        line = jsontext.write({"at": round(time.time(), 3), "kind": kind, **fields})
        try:
            self._file.write(mask_in(line, self._secret) + "\n")
            self._file.flush()
        except OSError as error:
            self._file = None
            _complain(error)

    def close(self) -> None:
        """Write nothing more."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def add_messages(self, messages: list[JsonObject]) -> None:
        """Write entries of the conversation; of images only that they were there."""
        for message in messages:
            self.add("message", **{**message, "content": _readable(message.get("content"))})


def _readable(content: object) -> object:
    if not isinstance(content, list):
        return content
    return [part if part.get("type") == "text" else {"type": part.get("type")} for part in content]


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _complain(error: OSError) -> None:
    with contextlib.suppress(OSError):  # standard error is a file on the same disk
        sys.stderr.write(f"The transcript is not written any further: {error}\n")
