"""Where a turn's text comes from: a flag, a file or standard input, in that order; never a wait that nobody wants."""

import sys
from pathlib import Path
from typing import BinaryIO

from fanjoin.cli import streams
from fanjoin.ipc.errors import UserError
from fanjoin.ipc.text import clean

_NEXT_STEP = "Give a query with chat -q TEXT, run TEXT, --query-file FILE, or on standard input."


def read_query(query: str | None, query_file: str | None, *, may_be_empty: bool = False) -> str:
    """Return the text of the turn, which may be empty when something else is asked about.

    Raises:
        UserError: there is none, or its file cannot be read.
    """
    if query is not None:
        text, source = query, "The query"
    elif query_file not in {None, "-"}:
        text, source = _from_file(Path(str(query_file))), f"The query file {query_file}"
    elif query_file == "-" or not streams.is_terminal(0):
        text, source = _from_stdin(), "Standard input"
    elif may_be_empty:
        text, source = "", ""
    else:
        raise UserError(f"There is no query. {_NEXT_STEP}")
    if not text.strip() and not may_be_empty:
        raise UserError(f"{source} is empty, so there is nothing to do. {_NEXT_STEP}")
    return clean(text)


def _from_file(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8-sig", "replace")
    except OSError as error:
        raise UserError(f"The query file {path} cannot be read: {error.strerror}. Nothing was run.") from error


def _from_stdin() -> str:
    stream: BinaryIO | None = getattr(sys.stdin, "buffer", None)
    try:
        data = stream.read() if stream is not None else b""
    except OSError as error:
        raise UserError(f"Standard input cannot be read: {error.strerror}. Nothing was run.") from error
    return data.decode("utf-8-sig", "replace")
