"""The tools that write: ``write_file`` and ``edit_file``. A file is there whole or as it was, never half.

Between the look at what a file holds and its replacement the folder is locked, so that of two agents that write the
same file one is told that it has changed.
"""

import contextlib
import os
from collections.abc import Callable
from typing import ClassVar

from fanjoin.agent_proc.calls import ToolError
from fanjoin.agent_proc.toolsets import arguments as given
from fanjoin.agent_proc.toolsets.approvals import Approvals
from fanjoin.agent_proc.toolsets.arguments import tool_schema
from fanjoin.agent_proc.toolsets.versions import Versions
from fanjoin.agent_proc.toolsets.workspace import Place, Workspace, opened, read_bytes, split, told
from fanjoin.ipc.ids import new_secret
from fanjoin.ipc.messages import JsonObject
from fanjoin.ipc.platform.folder import Folder

LOCK_SECONDS = 5.0

Change = Callable[[bytes | None], bytes]
"""Returns what a file is to hold, from what it holds; None when there is none."""


class _Writer:
    """What both tools share."""

    name: ClassVar[str]

    def __init__(self, workspace: Workspace, approvals: Approvals, versions: Versions) -> None:
        self._workspace = workspace
        self._approvals = approvals
        self._versions = versions

    def _locate(self, arguments: JsonObject) -> Place:
        place = self._workspace.locate(given.text(arguments, "path"))
        self._approvals.check_use(self.name, place.shown)
        return place

    def _change(self, place: Place, change: Change, *, make: bool) -> bytes:
        """Replace a file by what ``change`` makes of it, and return that."""
        parent, name = split(place)
        with told(place), opened(parent, make=make) as folder, folder.locked(LOCK_SECONDS):
            before = _read(folder, name, place.shown)
            if before is not None:
                self._versions.require_unchanged(place, before)
            after = change(before)
            _replace(folder, name, after)
            self._versions.note(place, after)
        return after


class WriteFile(_Writer):
    """Writes a whole file."""

    name = "write_file"
    schema: ClassVar[JsonObject] = tool_schema(
        name,
        "Write a whole file of the working directory, folders included. A file that exists has to be read first.",
        {"path": "The file.", "content": "Everything that it shall hold."},
    )

    def run(self, arguments: JsonObject) -> str:
        """Return how much was written."""
        content = given.text(arguments, "content").encode("utf-8", "replace")
        place = self._locate(arguments)

        def whole(before: bytes | None) -> bytes:
            if before is not None:
                self._versions.require_seen(place)
            return content

        self._change(place, whole, make=True)
        return f"{place.shown}: {len(content)} bytes written"


class EditFile(_Writer):
    """Replaces a piece of a file."""

    name = "edit_file"
    schema: ClassVar[JsonObject] = tool_schema(
        name,
        "Replace a piece of a text file of the working directory. The old text has to be there exactly once.",
        {"path": "The file.", "old_text": "The text to replace, exactly as it stands.", "new_text": "The new text."},
        replace_all={"type": "boolean", "description": "Replace it wherever it stands."},
    )

    def run(self, arguments: JsonObject) -> str:
        """Return how often the text was replaced."""
        old, new = given.text(arguments, "old_text"), given.text(arguments, "new_text")
        everywhere = given.flag(arguments, "replace_all")
        place = self._locate(arguments)
        count = 0

        def edited(before: bytes | None) -> bytes:
            nonlocal count
            if before is None:
                raise FileNotFoundError
            after, count = _edited(place.shown, before, old, new, everywhere=everywhere)
            return after

        self._change(place, edited, make=False)
        return f"{place.shown}: replaced {count} time{'s' * (count != 1)}"


def _edited(path: str, before: bytes, old: str, new: str, *, everywhere: bool) -> tuple[bytes, int]:
    """Return the edited content and how often it was replaced; line ends stay those of the file."""
    if not old:
        raise ToolError("invalid_arguments", "old_text is empty; to write a whole file use write_file")
    wanted, replacement = old.encode("utf-8", "replace"), new.encode("utf-8", "replace")
    as_it_stands = b"\n" in wanted and wanted in before  # a file may have line ends of both kinds
    if b"\r\n" in before and b"\r" not in wanted and not as_it_stands:
        wanted = wanted.replace(b"\n", b"\r\n")
        replacement = replacement.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")
    count = before.count(wanted)
    if not count:
        raise ToolError("text_not_found", f"{path} does not hold old_text. Read it and give the text exactly.")
    if count > 1 and not everywhere:
        text = f"{path} holds old_text {count} times. Give more of its surroundings, or replace_all."
        raise ToolError("text_not_unique", text)
    return before.replace(wanted, replacement), count


def _read(folder: Folder, name: str, shown: str) -> bytes | None:
    try:
        return read_bytes(folder, name, shown)
    except FileNotFoundError:
        return None


def _replace(folder: Folder, name: str, data: bytes) -> None:
    """Write beside the file, as permitted as it is, and then put that in its place."""
    part = f".{new_secret()[:12]}.part"
    descriptor = folder.open_file(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        with open(descriptor, "wb") as file:
            with contextlib.suppress(FileNotFoundError):
                _copy_mode(folder, name, descriptor)
            file.write(data)
        folder.replace(part, name)
    except BaseException:
        with contextlib.suppress(OSError):
            folder.remove(part)
        raise


def _copy_mode(folder: Folder, name: str, descriptor: int) -> None:
    source = folder.open_file(name, os.O_RDONLY)
    try:
        Folder.copy_mode(source, descriptor)
    finally:
        os.close(source)
