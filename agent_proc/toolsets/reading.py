"""The tools that only read: ``read_file``, ``list_files``, ``search_files``. Their answers begin with a head line."""

import re
from collections.abc import Callable, Iterator
from typing import ClassVar

from fanjoin.agent_proc.calls import ToolError
from fanjoin.agent_proc.toolsets import arguments as given
from fanjoin.agent_proc.toolsets.approvals import Approvals
from fanjoin.agent_proc.toolsets.arguments import tool_schema
from fanjoin.agent_proc.toolsets.versions import Versions
from fanjoin.agent_proc.toolsets.walking import LEFT_OUT, Found, Walk
from fanjoin.agent_proc.toolsets.workspace import Workspace, is_binary, on_one_line, opened, read_bytes, split, told
from fanjoin.ipc.messages import JsonObject
from fanjoin.ipc.text import clip

MAX_LINES = 2_000
MAX_CHARACTERS = 40_000
MAX_FILES = 1_000
MAX_MATCHES = 200
_LINE_CHARACTERS = 300
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
"""A line as editors and compilers count them; Python's own way also ends one at form feeds and other separators."""
_NOT_ENTERED = f"Folders such as {', '.join(sorted(LEFT_OUT))} are not entered."
_PATH: JsonObject = {"type": "string", "description": "The folder to begin with; default the working directory."}
_PATTERN: JsonObject = {"type": "string", "description": "A glob over file names or paths, such as *.py or src/*.c."}


class ReadFile:
    """Shows lines of a text file."""

    name = "read_file"
    schema: ClassVar[JsonObject] = tool_schema(
        name,
        f"Read a text file of the working directory, at most {MAX_LINES} lines at once.",
        {"path": "The file."},
        first_line={"type": "integer", "description": "The line to begin with; default 1."},
        lines={"type": "integer", "description": f"How many lines; default and most {MAX_LINES}."},
    )

    def __init__(self, workspace: Workspace, approvals: Approvals, versions: Versions) -> None:
        self._workspace = workspace
        self._approvals = approvals
        self._versions = versions

    def run(self, arguments: JsonObject) -> str:
        """Return the lines below a line that says which they are."""
        first = given.number(arguments, "first_line", 1)
        most = min(given.number(arguments, "lines", MAX_LINES), MAX_LINES)
        place = self._workspace.locate_readable(given.text(arguments, "path"))
        self._approvals.check_reading(place.shown)
        parent, name = split(place)
        with told(place), opened(parent) as folder:
            data = read_bytes(folder, name, place.shown)
        if is_binary(data):
            raise ToolError("binary_file", f"{place.shown} is not text: it has {len(data)} bytes with NUL among them")
        self._versions.note(place, data)
        return _shown(place.shown, data.decode("utf-8", "replace"), first, most)


def _shown(path: str, text: str, first: int, most: int) -> str:
    lines = _LINE.findall(text)
    if lines and first > len(lines):
        raise ToolError("invalid_arguments", f"{path} has only {len(lines)} lines")
    shown = "".join(lines[first - 1 : first - 1 + most])
    last = min(first - 1 + most, len(lines))
    note = ""
    if len(shown) > MAX_CHARACTERS:
        shown = shown[:MAX_CHARACTERS]
        last = first + shown.count("\n")
        note = f", cut after {MAX_CHARACTERS} characters"
    where = f"lines {first}-{last} of {len(lines)}" if lines else "empty"
    return f"{path}: {where}{note}\n{shown}"


class ListFiles:
    """Names what is in a folder, or all files below it."""

    name = "list_files"
    schema: ClassVar[JsonObject] = tool_schema(
        name,
        "List a folder of the working directory; with a pattern, all files below it that match. " + _NOT_ENTERED,
        {},
        path=_PATH,
        pattern=_PATTERN,
    )

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    def run(self, arguments: JsonObject) -> str:
        """Return one name a line; folders end in a slash."""
        place = self._workspace.locate(given.text(arguments, "path", "."))
        pattern = given.text(arguments, "pattern", "")
        with told(place):
            if pattern:
                walk = Walk(self._workspace, place, pattern)
                return _listed(place.shown, (found.place.shown for found in walk.files()), lambda: walk.cut)
            with opened(place) as folder:
                names = sorted(entry.name + "/" * entry.is_dir(follow_symlinks=False) for entry in folder.entries())
        return _listed(place.shown, iter(names), lambda: "")


def _listed(path: str, names: Iterator[str], cut: Callable[[], str]) -> str:
    lines: list[str] = []
    for name in names:
        if len(lines) == MAX_FILES:
            return _headed(f"{path}: the first {MAX_FILES} names", lines)
        lines.append(on_one_line(name))
    why = cut()
    return _headed(f"{path}: {len(lines)} names{f', {why}' if why else ''}", lines)


def _headed(head: str, lines: list[str]) -> str:
    return "\n".join([head, *lines])


class SearchFiles:
    """Finds lines that hold a text."""

    name = "search_files"
    schema: ClassVar[JsonObject] = tool_schema(
        name,
        f"Find lines in the text files of the working directory, at most {MAX_MATCHES}. " + _NOT_ENTERED,
        {"text": "What the lines hold."},
        regex={"type": "boolean", "description": "Whether text is a regular expression (Python's)."},
        path=_PATH,
        pattern=_PATTERN,
    )

    def __init__(self, workspace: Workspace, approvals: Approvals) -> None:
        self._workspace = workspace
        self._approvals = approvals

    def run(self, arguments: JsonObject) -> str:
        """Return ``path:line: text`` of each."""
        expression = _expression(given.text(arguments, "text"), regex=given.flag(arguments, "regex"))
        place = self._workspace.locate(given.text(arguments, "path", "."))
        walk = Walk(self._workspace, place, given.text(arguments, "pattern", ""))
        lines: list[str] = []
        skipped = 0
        with told(place):
            for found in walk.files():
                matches = self._matches(found, expression)
                skipped += matches is None
                lines += matches or []
                if len(lines) >= MAX_MATCHES:
                    return _headed(f"{place.shown}: the first {MAX_MATCHES} lines", lines[:MAX_MATCHES])
        left_out = f"{skipped} files left out: not text, too large or not readable" if skipped else ""
        notes = [f"{place.shown}: {len(lines)} lines", left_out, walk.cut]
        return _headed(", ".join(filter(None, notes)), lines)

    def _matches(self, found: Found, expression: re.Pattern[str]) -> list[str] | None:
        """Return the lines of a file that match, or None when it cannot be searched."""
        shown = found.place.shown
        if not self._approvals.may_read(shown):
            return None
        try:
            data = read_bytes(found.folder, found.name, shown)
        except (OSError, ToolError):
            return None
        if is_binary(data):
            return None
        lines = _LINE.findall(data.decode("utf-8", "replace"))
        return [
            f"{shown}:{number}: {clip(line.strip(), _LINE_CHARACTERS)}"
            for number, line in enumerate(lines, 1)
            if expression.search(line.rstrip("\r\n"))
        ]


def _expression(text: str, *, regex: bool) -> re.Pattern[str]:
    if not text:
        raise ToolError("invalid_arguments", "text is empty")
    try:
        return re.compile(text if regex else re.escape(text))
    except (re.error, OverflowError, RecursionError) as error:
        raise ToolError("invalid_arguments", f"text is no regular expression: {error}") from error
