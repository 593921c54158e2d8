"""The demo's input: which files, how much of each, and the words that hand them out."""

import glob
from pathlib import Path

from msgspec import Struct

from fanjoin.cli.provider.figures import quoted
from fanjoin.cli.provider.plan import with_plan
from fanjoin.ipc.errors import UserError
from fanjoin.ipc.text import clean

MARKDOWN = ("*.md", "docs/**/*.md")
OTHERS = ("*.rst", "*.txt", "docs/**/*.rst", "docs/**/*.txt")
FEWEST = 2
"""One delegate is killed, so another has to be left."""

HELD_BACK = "[[hang after=3]] "
"""What makes the provider fall silent in the middle of a reply."""


class Limits(Struct, frozen=True):
    """How many files at most, and how many characters of each."""

    files: int
    characters: int


REAL = Limits(files=4, characters=1000)
"""What the local model reads in some ten seconds: it takes in about 150 tokens a second on one core."""

SYNTHETIC = Limits(files=12, characters=50_000)


class Document(Struct, frozen=True):
    """One file of the demo: its name as shown, and as much of its text as a delegate is given."""

    name: str
    text: str


def select(pattern: str | None, limits: Limits) -> list[Document]:
    """Return the files to hand out, within the limits.

    Raises:
        UserError: there are fewer than two files with text; the message says where they were looked for.
    """
    folder = Path.cwd() if pattern else default_folder()
    paths = sorted(glob.glob(pattern, recursive=True)) if pattern else _documents(folder)
    found: list[Document] = []
    for path in paths:
        text = _text_of(folder / path)
        if text and len(found) < limits.files:
            found.append(Document(_name(folder / path, folder), clip_at_line(text, limits.characters)))
    if len(found) < FEWEST:
        where = f"match {pattern!r}" if pattern else f"lie in {folder} as {', '.join(MARKDOWN + OTHERS)}"
        raise UserError(
            f"The demo needs at least {FEWEST} files with text, and {len(found)} {where}.\n"
            "Name others, as in: fanjoin demo --files 'notes/*.md'"
        )
    return found


def default_folder() -> Path:
    """Return the repository when this runs from a checkout of it, else the current folder."""
    checkout = Path(__file__).resolve().parents[1]
    return checkout if (checkout / "pyproject.toml").is_file() else Path.cwd()


def _documents(folder: Path) -> list[str]:
    """Return the paths of a folder's Markdown files, those at its top first; other texts only where those are few."""
    found = _matching(folder, MARKDOWN)
    return found if len(found) >= FEWEST else found + _matching(folder, OTHERS)


def _matching(folder: Path, patterns: tuple[str, ...]) -> list[str]:
    return [str(path.relative_to(folder)) for pattern in patterns for path in sorted(folder.glob(pattern))]


def _name(path: Path, folder: Path) -> str:
    """Return how a file is called: by its path within the folder, or by its last part when it lies elsewhere."""
    return path.relative_to(folder).as_posix() if path.is_relative_to(folder) else path.name


def _text_of(path: Path) -> str:
    """Return a file's text, nothing for what is no readable file."""
    try:
        return clean(path.read_text(encoding="utf-8", errors="replace")).strip()
    except OSError:
        return ""


def clip_at_line(text: str, characters: int) -> str:
    """Return the beginning of a text, ending with a whole line where there is one."""
    if len(text) <= characters:
        return text
    head = text[:characters]
    return head.rpartition("\n")[0] or head


def goal_for(document: Document) -> str:
    """Return what one delegate is asked, the document in it; a small model needs the question after the text."""
    text = quoted(document.name, document.text)
    return f"Summarize {document.name}\n\n{text}\n\nWhat is this document about? Answer in one short sentence."


def goals_for(documents: list[Document], held_back: int) -> list[str]:
    """Return what the delegates are asked; the reply to one of them is held back by the provider."""
    goals = [goal_for(document) for document in documents]
    goals[held_back] = HELD_BACK + goals[held_back]
    return goals


def query_for(documents: list[Document], goals: list[str]) -> str:
    """Return the user's message: one delegate for each document, with the plan that hands them out."""
    names = ", ".join(document.name for document in documents)
    return with_plan(f"Hand each of these files to a delegate and join what they say: {names}.", [{"delegate": goals}])
