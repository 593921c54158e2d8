"""Directives: what a text asks a provider to do instead of, or before, a plain answer.

They stand at the very start of the user's message, so that a document quoted further down can never give orders::

    [[sleep 2]]            wait so many seconds before the first byte
    [[hold 2 name=a]]      answer only once so many requests with this name wait at the same time
    [[status 429 retry_after=1 code=x]]   answer with this HTTP status
    [[answer TEXT]]        answer with this text
    [[size 20000]]         answer with so many characters
    [[finish length]]      end with this finish_reason
    [[hang after=3]]       after so many pieces (default 0: before the first byte) send nothing more, for ever
    [[silence]]            the same after the first piece
    [[cut after=3]]        close the connection after so many pieces (default 2)
    [[drop]]               close the connection without a byte
    [[garbage]]            send what is neither JSON nor a server-sent event

Each takes ``times=N``: only the first N arrivals of the identical request are treated so.
"""

import re
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from fanjoin.cli.provider.wire import BadRequestError

_DIRECTIVE = re.compile(r"\s*\[\[(\w+)\s*(.*?)\]\]", re.DOTALL)
_ENDINGS = {"hang": 0, "silence": 1, "cut": 2, "drop": 0, "garbage": 0}
_VERBS = ("sleep", "hold", "status", "answer", "size", "finish", *_ENDINGS)


class Directive(Struct, frozen=True):
    """One directive as it was written: its verb, its value, its options."""

    verb: str
    value: str = ""
    options: tuple[tuple[str, str], ...] = ()

    def option(self, name: str, default: str = "") -> str:
        """Return an option's value."""
        return dict(self.options).get(name, default)


class Behaviour(Struct, frozen=True, kw_only=True):
    """All directives of one reply put together. Times in seconds; ``after`` counts pieces."""

    sleep: float = 0.0
    hold: int = 0
    hold_name: str = ""
    status: int = 0
    retry_after: str = ""
    code: str = ""
    answer: str | None = None
    finish: str = ""
    ending: str = ""
    after: int = 0


def split_directives(text: str) -> tuple[tuple[Directive, ...], str]:
    """Return the directives that a text starts with, and the rest of it. An unknown verb is text."""
    found: list[Directive] = []
    at = 0
    while (match := _DIRECTIVE.match(text, at)) and match[1] in _VERBS:
        found.append(_directive(match[1], match[2]))
        at = match.end()
    return tuple(found), text[at:].lstrip() if found else text


def _directive(verb: str, rest: str) -> Directive:
    """Read one directive; the text of an answer is taken as it is."""
    if verb == "answer":
        return Directive(verb, rest)
    words = rest.split()
    options = tuple((name, value) for name, mark, value in (word.partition("=") for word in words) if mark)
    return Directive(verb, next((word for word in words if "=" not in word), ""), options)


def behaviour_of(directives: tuple[Directive, ...], arrival: int = 1) -> Behaviour:
    """Put directives together for the n-th arrival of a request.

    Raises:
        BadRequestError: a number in one of them is none.
    """
    result = Behaviour()
    for directive in directives:
        try:
            if arrival <= int(directive.option("times", str(arrival))):
                result = _apply(result, directive)
        except ValueError as error:
            raise BadRequestError(f"The directive [[{directive.verb}]] cannot be read: {error}") from error
    return result


def _apply(behaviour: Behaviour, directive: Directive) -> Behaviour:
    value, option = directive.value, directive.option
    changes: dict[str, Any]
    match directive.verb:
        case "sleep":
            changes = {"sleep": float(value)}
        case "hold":
            changes = {"hold": int(value), "hold_name": option("name")}
        case "status":
            changes = {"status": int(value), "retry_after": option("retry_after"), "code": option("code")}
        case "answer":
            changes = {"answer": value}
        case "size":
            changes = {"answer": filler(int(value))}
        case "finish":
            changes = {"finish": value}
        case ending:
            changes = {"ending": ending, "after": int(option("after", str(_ENDINGS[ending])))}
    return replace(behaviour, **changes)


def filler(size: int) -> str:
    """Return a text of exactly ``size`` characters."""
    line = "This sentence is here to fill space. "
    return (line * (size // len(line) + 1))[:size]
