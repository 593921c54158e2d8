"""The project's rules: AGENTS.md of the working directory and of the folders above it, up to the project's own."""

import os
import stat
import sys

from msgspec import Struct

from fanjoin.ipc.text import clean

NAME = "AGENTS.md"
MAX_BYTES = 32 << 10
"""Bytes of all rules together; the nearest ones come first when there are more."""
_MAX_LEVELS = 64


class Rules(Struct, frozen=True):
    """The rules' text, outermost folder first; and what the user is told of the files: read, cut or left alone."""

    text: str = ""
    notice: str = ""


def read_rules(folder: str, home: str) -> Rules:
    """Return the rules that hold in a folder.

    Args:
        folder: the working directory, absolute.
        home: the user's home directory, the last one to be looked into.
    """
    left, texts, notes = MAX_BYTES, [], []
    for path in _candidates(folder, home):
        try:
            data = _read(path)
        except FileNotFoundError:
            continue
        except OSError as error:
            notes.append(f"{clean(path)} (not read: {error.strerror or error})")
            continue
        text = data[:left].decode("utf-8", "replace").strip()
        notes.append(clean(path) + (f" (cut, all rules together take at most {MAX_BYTES} bytes)" * (len(data) > left)))
        left -= min(left, len(data))
        if text:
            texts.append(f"Rules of {clean(path)}:\n{text}")
    return Rules("\n\n".join(reversed(texts)), f"project rules: {', '.join(notes)}" if notes else "")


def _candidates(folder: str, home: str) -> list[str]:
    """Return where rules may lie, the nearest first: up to the top of a repository, or the user's home."""
    found = []
    for _ in range(_MAX_LEVELS):
        found.append(os.path.join(folder, NAME))
        above = os.path.dirname(folder)
        if os.path.exists(os.path.join(folder, ".git")) or folder in (home, above):
            break
        folder = above
    return found


def _read(path: str) -> bytes:
    """Return the file's beginning; only what the user or the system's owner wrote can rule an agent.

    A project that came from elsewhere may hold a link to what no model should see.

    Raises:
        OSError: it is not there, no regular file, somebody else's, or a link that leads out of its folder.
    """
    folder, target = os.path.realpath(os.path.dirname(path)), os.path.realpath(path)
    if not target.startswith(os.path.join(folder, "")):
        raise PermissionError(f"it is a link out of its folder, to {clean(target)}")
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    with open(descriptor, "rb") as file:
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode):
            raise OSError("it is not a regular file")
        if sys.platform != "win32" and info.st_uid not in (0, os.geteuid()):
            raise PermissionError(f"it belongs to another user (uid {info.st_uid})")
        return file.read(MAX_BYTES + 1)
