"""A walk through a folder and what is below it, link by no link, within bounds of time and number."""

import fnmatch
import time
from collections.abc import Iterator

from msgspec import Struct

from fanjoin.agent_proc.toolsets.workspace import Place, Workspace, opened
from fanjoin.ipc.platform.folder import Folder

MAX_SECONDS = 20.0
MAX_ENTRIES = 200_000
MAX_DEPTH = 40
LEFT_OUT = frozenset({".git", ".hg", ".svn", ".venv", "node_modules", "__pycache__"})
"""Folders that a walk does not enter: what they hold is made by programs for programs."""


class Found(Struct):
    """A file that a walk came to: the open folder that it lies in, its name there, and its place."""

    folder: Folder
    name: str
    place: Place


class Walk:
    """A walk over the files below a place.

    Args:
        workspace: decides what is hidden.
        start: the folder to begin with.
        pattern: a glob over a file's name, or over its path below the start; empty for every file.

    Attributes:
        cut: why the walk ended before it was done; empty when it was.
    """

    def __init__(self, workspace: Workspace, start: Place, pattern: str) -> None:
        self._workspace = workspace
        self._start = start
        self._pattern = pattern
        self._deadline = time.monotonic() + MAX_SECONDS
        self._entries = 0
        self.cut = ""

    def files(self) -> Iterator[Found]:
        """Yield the files, folder by folder, in the order of their names."""
        with opened(self._start) as folder:
            yield from self._below(folder, self._start, MAX_DEPTH)

    def _below(self, folder: Folder, place: Place, depth: int) -> Iterator[Found]:
        inner: list[str] = []
        for entry in sorted(folder.entries(), key=lambda entry: entry.name):
            self._entries += 1
            if self._exhausted():
                return
            if entry.is_dir(follow_symlinks=False):
                inner.append(entry.name)
            elif entry.is_file(follow_symlinks=False):
                here = Place(place.root, (*place.parts, entry.name))
                if self._wanted(here):
                    yield Found(folder, entry.name, here)
        for name in inner:
            there = Place(place.root, (*place.parts, name))
            if depth and name not in LEFT_OUT and not self._workspace.hides(there) and not self.cut:
                yield from self._inner(folder, name, there, depth - 1)

    def _inner(self, folder: Folder, name: str, place: Place, depth: int) -> Iterator[Found]:
        try:
            inner = folder.enter(name)
        except OSError:  # gone, or not ours to read
            return
        with inner:
            yield from self._below(inner, place, depth)

    def _wanted(self, place: Place) -> bool:
        below = "/".join(place.parts[len(self._start.parts) :])
        pattern = self._pattern
        return not pattern or fnmatch.fnmatch(place.parts[-1], pattern) or fnmatch.fnmatch(below, pattern)

    def _exhausted(self) -> bool:
        if self._entries > MAX_ENTRIES:
            self.cut = f"stopped after {MAX_ENTRIES} entries"
        elif time.monotonic() > self._deadline:
            self.cut = f"stopped after {MAX_SECONDS:.0f} s"
        return bool(self.cut)
