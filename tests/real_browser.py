"""A real browser, where the machine has one: it opens a page without a window and tells what it made of it."""

import os
import shutil
import struct
import subprocess
import sys
import zlib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "msedge", "microsoft-edge")
_MAC = ("Google Chrome", "Chromium", "Microsoft Edge")
_WINDOWS = ("Google/Chrome/Application/chrome.exe", "Microsoft/Edge/Application/msedge.exe")
_QUIET = ("--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-quic")
_FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--hide-scrollbars", *_QUIET)
_SECONDS = 60
_DARK, _LIGHT = 0, 1


def find_browser() -> str | None:
    """Return the program of a browser of the Chromium family, by its name or at its usual place."""
    on_path = (shutil.which(name) for name in NAMES)
    if sys.platform == "darwin":
        places = [Path(f"/Applications/{name}.app/Contents/MacOS/{name}") for name in _MAC]
    else:
        roots = (os.environ.get(name) for name in ("PROGRAMFILES", "PROGRAMFILES(X86)", "LOCALAPPDATA"))
        places = [Path(root) / name for root in roots if root for name in _WINDOWS]
    return next(filter(None, on_path), None) or next((str(place) for place in places if place.is_file()), None)


@dataclass(frozen=True)
class Opened:
    """What a browser made of a page: its document as HTML, its pixels, and lines of its console."""

    document: str
    picture: Path
    console: list[str]

    def colours(self) -> Counter[tuple[int, int, int]]:
        """Return how many pixels of the picture have each colour."""
        return _colours(self.picture.read_bytes())


def open_page(page: Path, size: tuple[int, int], *, dark: bool) -> Opened:
    """Open a page in a window of this size, with a profile of its own and nothing from the network."""
    browser, folder = find_browser(), page.parent
    assert browser is not None
    picture = folder / "picture.png"
    wanted = (
        *("--enable-logging=stderr", "--dump-dom", f"--screenshot={picture}", "--force-device-scale-factor=1"),
        f"--blink-settings=preferredColorScheme={_DARK if dark else _LIGHT}",
        *(f"--user-data-dir={folder / 'profile'}", f"--window-size={size[0]},{size[1]}", page.as_uri()),
    )
    done = subprocess.run([browser, *_FLAGS, *wanted], capture_output=True, timeout=_SECONDS, check=True)
    said = done.stderr.decode("utf-8", "replace").splitlines()
    return Opened(done.stdout.decode("utf-8"), picture, [line for line in said if "CONSOLE" in line])


def _colours(data: bytes) -> Counter[tuple[int, int, int]]:
    """Count the colours of a PNG with 8 bits a channel that is not interlaced, which is what browsers write."""
    header, packed, at = b"", b"", 8
    while at < len(data):
        (length,), kind = struct.unpack(">I", data[at : at + 4]), data[at + 4 : at + 8]
        body = data[at + 8 : at + 8 + length]
        header = body if kind == b"IHDR" else header
        packed += body if kind == b"IDAT" else b""
        at += 12 + length
    width, height, depth, form = struct.unpack(">IIBB", header[:10])
    channels = {2: 3, 6: 4}[form]
    assert depth == 8
    raw, stride = zlib.decompress(packed), width * channels
    row, counts, colours = bytearray(stride), Counter[tuple[int, int, int]](), Counter[tuple[int, int, int]]()
    for number in range(height):
        begin = number * (stride + 1)
        changes = raw[begin + 1 : begin + 1 + stride]
        if raw[begin] != _UP or any(changes):  # else it is the row above once more, as most rows are
            row = _UNFILTERED[raw[begin]](bytearray(changes), row, channels)
            colours = Counter(zip(row[0::channels], row[1::channels], row[2::channels], strict=True))
        counts.update(colours)
    return counts


def _left(row: bytearray, _: bytearray, step: int) -> bytearray:
    for index in range(step, len(row)):
        row[index] = (row[index] + row[index - step]) & 0xFF
    return row


def _above(row: bytearray, above: bytearray, _: int) -> bytearray:
    return bytearray((one + up) & 0xFF for one, up in zip(row, above, strict=True))


def _mean(row: bytearray, above: bytearray, step: int) -> bytearray:
    for index, up in enumerate(above):
        left = row[index - step] if index >= step else 0
        row[index] = (row[index] + (left + up) // 2) & 0xFF
    return row


def _nearest(row: bytearray, above: bytearray, step: int) -> bytearray:
    """Undo the guess by whichever of left, above and the corner between them is nearest to left + above - corner."""
    for index, up in enumerate(above):
        left, corner = (row[index - step], above[index - step]) if index >= step else (0, 0)
        by_left, by_up, by_corner = abs(up - corner), abs(left - corner), abs(left + up - 2 * corner)
        guess = left if by_left <= by_up and by_left <= by_corner else up if by_up <= by_corner else corner
        row[index] = (row[index] + guess) & 0xFF
    return row


_UP = 2
_UNFILTERED = (lambda row, _above, _step: row, _left, _above, _mean, _nearest)
"""What undoes each of PNG's five filters of a row, given the row above and the bytes of a pixel."""
