"""The synthetic provider: no model at all. It follows plans, counts what it is given and tells what was joined."""

import re
from collections.abc import AsyncGenerator

from fanjoin.cli.provider.directives import split_directives
from fanjoin.cli.provider.figures import describe
from fanjoin.cli.provider.joined import answers_in, headline, tell
from fanjoin.cli.provider.plan import Reply, Script, decide
from fanjoin.cli.provider.wire import ChatRequest, Usage

NOTE = "(From fanjoin's synthetic provider: it counts and reports; no language model read this.)"

MOST_PIECES = 1024
"""A long text goes out in about so many pieces, each of several words."""

_WORD = re.compile(r"\s*\S+\s*")


class SyntheticWriter:
    """Writes without a model."""

    live = False

    def __init__(self, script: Script = ()) -> None:
        self._script = script

    async def decide(self, request: ChatRequest) -> Reply:
        """Return what the plan says."""
        return decide(request, self._script)

    async def write(self, request: ChatRequest, reply: Reply) -> AsyncGenerator[str | Usage]:
        """Yield the text word by word."""
        for piece in pieces(reply_text(request, reply)):
            yield piece


def reply_text(request: ChatRequest, reply: Reply) -> str:
    """Return the text of a reply: the plan's, else what was joined, else figures of the user's text."""
    if reply.text is not None:
        return reply.text
    if reply.calls:
        return ""
    found = answers_in(request)
    if found.joined or found.others:
        parts = [headline(found.joined)] * bool(found.joined) + [*found.others, tell(found.joined), NOTE]
        return "\n\n".join(part for part in parts if part)
    _, text = split_directives(request.user_text)
    return f"{describe(text)} {NOTE}"


def pieces(text: str) -> list[str]:
    """Cut a text into words, or into longer pieces where there are very many."""
    size = len(text) // MOST_PIECES
    if size < 64:  # noqa: PLR2004 - up to 64 KiB, a few thousand words
        return _WORD.findall(text) if text.strip() else [text] * bool(text)
    return [text[at : at + size] for at in range(0, len(text), size)]
