"""True figures of a text: what a provider without a model can honestly say about it."""

import re
import textwrap

from msgspec import Struct

_DOCUMENT = re.compile(r"^--- beginning of ([^\n]+) ---\n(.*)^--- end of \1 ---$", re.DOTALL | re.MULTILINE)
_HEADING = re.compile(r"^#{1,6}\s+(.+?)\s*#*\s*$")


class Figures(Struct, frozen=True):
    """Counts of one text; lengths are characters."""

    characters: int
    words: int
    lines: int
    headings: tuple[str, ...]
    code_blocks: int
    links: int
    longest_line: int
    longest_line_number: int


def figures_of(text: str) -> Figures:
    """Count a text. Headings are those of Markdown outside of fenced code."""
    lines = text.splitlines()
    fences = [index for index, line in enumerate(lines) if line.lstrip().startswith("```")]
    longest = max(range(len(lines)), key=lambda index: len(lines[index]), default=None)
    return Figures(
        characters=len(text),
        words=len(text.split()),
        lines=len(lines),
        headings=tuple(_headings(lines)),
        code_blocks=len(fences) // 2,
        links=len(re.findall(r"\[[^\]\n]+\]\([^)\s]+\)", text)),
        longest_line=0 if longest is None else len(lines[longest]),
        longest_line_number=0 if longest is None else longest + 1,
    )


def _headings(lines: list[str]) -> list[str]:
    """Return the titles of the headings, in order."""
    found: list[str] = []
    fenced = False
    for line in lines:
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced and (match := _HEADING.match(line)):
            found.append(match[1])
    return found


def document_in(text: str) -> str:
    """Return what ``quoted`` put into a text, or the whole text."""
    found = _DOCUMENT.search(text)
    return found[2] if found else text


def quoted(name: str, text: str) -> str:
    """Return a document between two lines that name it, so that its figures can be told from the rest."""
    return f"--- beginning of {name} ---\n{text}\n--- end of {name} ---"


def describe(text: str, shown: int = 6) -> str:
    """Return a short summary in figures of a text, or of the document in it, naming ``shown`` headings at most."""
    found = figures_of(document_in(text))
    if not found.words:
        return "An empty text."
    parts = [
        f"{count(found.words, 'word')} in {count(found.lines, 'line')}, {count(found.characters, 'character')}.",
        f"The longest line is line {found.longest_line_number}, with {count(found.longest_line, 'character')}.",
        _heading_sentence(found.headings, shown),
    ]
    extras = [count(found.code_blocks, "code block")] * bool(found.code_blocks)
    extras += [count(found.links, "link")] * bool(found.links)
    if extras:
        parts.append(f"It holds {' and '.join(extras)}.")
    return " ".join(part for part in parts if part)


def _heading_sentence(headings: tuple[str, ...], shown: int) -> str:
    if not headings:
        return "It has no headings."
    names = "; ".join(textwrap.shorten(name, 60, placeholder="…") for name in headings[:shown])
    more = f"; and {len(headings) - shown} more" if len(headings) > shown else ""
    return f"{count(len(headings), 'heading')}: {names}{more}."


def count(number: int, noun: str) -> str:
    """Return a number with its noun, in the plural where it belongs."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
