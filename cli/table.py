"""Text for a person: aligned columns that fit the terminal, and times in words."""

import shutil
import time
import unicodedata
from collections.abc import Sequence

_GAP = "  "
_NARROWEST = 20
"""Columns that the last one may take, however narrow the terminal is."""
_MINUTE, _HOUR, _DAY = 60, 3600, 86400


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return the rows below their headings; the last column takes what the terminal's width leaves of a line."""
    lines = [list(headings), *([one_line(cell) for cell in row] for row in rows)]
    widths = [max(width(line[column]) for line in lines) for column in range(len(headings) - 1)]
    room = shutil.get_terminal_size().columns - sum(widths) - len(_GAP) * len(widths)
    return "\n".join(_line(line, widths, max(room, _NARROWEST)) for line in lines)


def _line(cells: Sequence[str], widths: Sequence[int], room: int) -> str:
    padded = [cell + " " * (wide - width(cell)) for cell, wide in zip(cells[:-1], widths, strict=True)]
    return _GAP.join([*padded, fitted(cells[-1], room)]).rstrip()


def one_line(text: str) -> str:
    """Return the text on one line, without anything that a terminal would obey."""
    return " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())


def width(text: str) -> int:
    """Return how many columns of a terminal the text takes."""
    if text.isascii():
        return len(text)
    return sum(_letter_width(letter) for letter in text)


def _letter_width(letter: str) -> int:
    if unicodedata.combining(letter):
        return 0
    return 2 if unicodedata.east_asian_width(letter) in "WF" else 1


def fitted(text: str, room: int) -> str:
    """Return the beginning of the text that fits into so many columns, with an ellipsis where something is missing."""
    if width(text) <= room:
        return text
    kept, used = "", 1
    for letter in text:
        used += _letter_width(letter)
        if used > room:
            break
        kept += letter
    return kept + "…"


def duration(seconds: float) -> str:
    """Return a span of time in its two largest units, such as ``4m10s``."""
    whole = max(0, int(seconds))
    if whole < _MINUTE:
        return f"{whole}s"
    if whole < _HOUR:
        return f"{whole // _MINUTE}m{whole % _MINUTE:02}s"
    if whole < _DAY:
        return f"{whole // _HOUR}h{whole % _HOUR // _MINUTE:02}m"
    return f"{whole // _DAY}d{whole % _DAY // _HOUR:02}h"


def moment(unix_seconds: float) -> str:
    """Return a point in time as the user's clock shows it."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(unix_seconds))
