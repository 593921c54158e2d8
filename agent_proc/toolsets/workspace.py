"""The folder that file tools may touch, and nothing outside it.

A path is resolved first, links included, and has to lie inside. It is then opened step by step from the folder's own
descriptor, where a link is an error: one that is swapped in between leads nowhere.
"""

import contextlib
import os
import stat
from collections.abc import Iterator

from msgspec import Struct

from fanjoin.agent_proc.calls import ToolError
from fanjoin.ipc.platform.folder import Folder
from fanjoin.ipc.text import clean

MAX_FILE_BYTES = 16 << 20
"""Larger files are not read whole into memory."""
_SUMMARY = ".summary.txt"
_LINE_ENDS = str.maketrans({"\n": "\\n", "\r": "\\r"})


class Place(Struct, frozen=True):
    """A path inside a root, resolved: the names that lead to it, none of which was a link."""

    root: str
    parts: tuple[str, ...]

    @property
    def shown(self) -> str:
        """The path as it is told."""
        return on_one_line("/".join(self.parts)) or "."

    @property
    def full(self) -> str:
        """The absolute path."""
        return os.path.join(self.root, *self.parts)


class Workspace:
    """Where the tools of an agent work.

    Args:
        root: the working directory.
        home: our own folder; what lies in it is no business of a model, even where the workspace is around it.
    """

    def __init__(self, root: str, home: str) -> None:
        self.root = os.path.realpath(root)
        self._home = os.path.realpath(home) if home else ""

    def locate(self, path: str) -> Place:
        """Return where a path leads.

        Raises:
            ToolError: outside of the workspace.
        """
        full = self._resolved(path)
        if (self._home and _lies_in(full, self._home)) or not _inside(full, self.root):
            raise ToolError("outside_workspace", f"{path} is not inside the working directory {clean(self.root)}")
        return _place(self.root, full)

    def hides(self, place: Place) -> bool:
        """Whether a place that was found on a walk is none of the model's business."""
        return bool(self._home) and _same(place.full, self._home)

    def locate_readable(self, path: str) -> Place:
        """Return where a path leads that is only read: that may be the whole text of a delegate's long answer, too."""
        folder = os.path.join(self._home, "transcripts")
        full = self._resolved(path)
        if self._home and full.endswith(_SUMMARY) and os.path.dirname(full) == folder:
            return _place(folder, full)
        return self.locate(path)

    def _resolved(self, path: str) -> str:
        if "\0" in path:
            raise ToolError("invalid_arguments", "a path cannot hold NUL")
        return os.path.realpath(os.path.join(self.root, path))


def on_one_line(name: str) -> str:
    """Return a name as it is told: it may hold anything, and must not look like two."""
    return clean(name).translate(_LINE_ENDS)


def _place(root: str, full: str) -> Place:
    relative = os.path.relpath(full, root)
    return Place(root, () if relative == "." else tuple(relative.split(os.sep)))


def _inside(path: str, folder: str) -> bool:
    path, folder = os.path.normcase(path), os.path.normcase(folder)
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)


def _lies_in(path: str, folder: str) -> bool:
    """Say whether a path lies in a folder whatever they are called: a file system may not tell A from a."""
    above = [path]
    while (parent := os.path.dirname(above[-1])) != above[-1]:
        above.append(parent)
    return any(_same(one, folder) for one in above)


def _same(path: str, other: str) -> bool:
    try:
        return path == other or os.path.samefile(path, other)
    except OSError:  # one of them does not exist
        return False


@contextlib.contextmanager
def opened(place: Place, *, make: bool = False) -> Iterator[Folder]:
    """Open a place that is a folder, step by step; ``make`` makes what is missing of it."""
    folder = Folder(place.root)
    try:
        for name in place.parts:
            inner = folder.enter(name, make=make)
            folder.close()
            folder = inner
        yield folder
    finally:
        folder.close()


@contextlib.contextmanager
def told(place: Place) -> Iterator[None]:
    """Turn what the system refuses into an error that the model is told of."""
    try:
        yield
    except FileNotFoundError as error:
        raise ToolError("not_found", f"{place.shown} does not exist") from error
    except OSError as error:
        raise ToolError("file_error", f"{place.shown}: {error.strerror or error}") from error


def split(place: Place) -> tuple[Place, str]:
    """Return the folder of a file and the file's name.

    Raises:
        ToolError: it is the workspace itself.
    """
    if not place.parts:
        raise ToolError("file_error", f"{place.shown} is a folder")
    return Place(place.root, place.parts[:-1]), place.parts[-1]


def read_bytes(folder: Folder, name: str, shown: str, most: int = MAX_FILE_BYTES) -> bytes:
    """Return what a file holds.

    Raises:
        OSError: it cannot be opened.
        ToolError: it is no regular file, or too large.
    """
    descriptor = folder.open_file(name, os.O_RDONLY)
    with open(descriptor, "rb") as file:
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode):
            raise ToolError("not_a_file", f"{shown} is not a regular file")
        if info.st_size <= most and len(data := file.read(most + 1)) <= most:
            return data
    size = max(info.st_size, most + 1)
    raise ToolError("too_large", f"{shown} has {size} bytes; files up to {most} bytes are read")


def is_binary(data: bytes) -> bool:
    """Whether this is no text: a NUL near its beginning says so."""
    return b"\0" in data[:8192]
