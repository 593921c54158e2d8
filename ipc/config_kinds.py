"""Kinds of values: each takes a value as it was written and returns it as it is used, or says what it expected.

They raise UnexpectedValueError with a phrase that completes "expected ...". YAML, flags and JSON give the same types,
so one check serves all levels. A boolean is never a number, and a number never a text.
"""

import re
from collections.abc import Callable

from fanjoin.ipc.settings import TOOLSETS
from fanjoin.ipc.text import clean, clip

Kind = Callable[[object], object]

MOST = 1_000_000_000
"""The largest number that any setting takes, be it seconds, characters or a count."""

LEAST_MEMORY = 64

_URL = re.compile(r"(https?)://(\[[0-9a-f:.]+\]|[^\s/?#@:\[\]]+)(:\d{1,5})?(/[^\s?#]*)?", re.IGNORECASE)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_REFERENCE = re.compile(r"\$(\w+|\{\w+\})|%\w+%")
_SHOWN = 80


class UnexpectedValueError(ValueError):
    """A value is not of its kind; the message says what was expected."""


def text(value: object) -> str:
    """Accept a text that is not blank."""
    if not isinstance(value, str):
        raise UnexpectedValueError("a text (in quotes, if it looks like a number)")
    stripped = clean(value).strip()
    if not stripped:
        raise UnexpectedValueError("a text that is not blank")
    return stripped


def path(value: object) -> str:
    """Accept a path as it is: it may hold bytes that are no text."""
    if not isinstance(value, str) or not value or "\0" in value:
        raise UnexpectedValueError("the path of a folder")
    return value


def variable(value: object) -> str:
    """Accept the name of an environment variable."""
    name = text(value)
    if not _VARIABLE.fullmatch(name):
        raise UnexpectedValueError("the name of an environment variable: letters, digits and _")
    return name


def secret(value: object) -> str:
    """Accept a key that can travel in a header line."""
    key = text(value)
    if _REFERENCE.fullmatch(key):
        raise UnexpectedValueError("the key itself; to name a variable that holds it, use api_key_env")
    if not key.isascii() or not key.isprintable() or " " in key:
        raise UnexpectedValueError("a key of printable ASCII letters without blanks")
    return key


def url(value: object) -> str:
    """Accept an http or https URL without credentials, query or fragment; the slash at its end goes."""
    given = text(value)
    if "://" not in given:
        raise UnexpectedValueError(f"a URL with its scheme, such as http://{given.lstrip('/')}")
    match = _URL.fullmatch(given)
    if match is None or int((match[3] or ":1")[1:]) not in range(1, 65536):
        raise UnexpectedValueError("an http:// or https:// URL with a host, and no user name, query or blank in it")
    if given.rstrip("/").endswith("/chat/completions"):
        raise UnexpectedValueError("the base URL, which ends before /chat/completions")
    scheme, host, port, rest = match.groups(default="")
    return f"{scheme.lower()}://{host.lower()}{port}{rest.rstrip('/')}"


def truth(value: object) -> bool:
    """Accept true or false."""
    if not isinstance(value, bool):
        raise UnexpectedValueError("true or false")
    return value


def names(value: object) -> tuple[str, ...]:
    """Accept a list of names, or one text that separates them by commas; each is kept once."""
    items = value.split(",") if isinstance(value, str) else value
    if not isinstance(items, list | tuple) or not all(isinstance(item, str) for item in items):
        raise UnexpectedValueError("a list of names")
    return tuple(dict.fromkeys(stripped for item in items if (stripped := clean(item).strip())))


def patterns(value: object) -> tuple[str, ...]:
    """Accept a list of patterns, or one: they may hold commas."""
    return names([value] if isinstance(value, str) else value)


def toolsets(value: object) -> tuple[str, ...]:
    """Accept names of toolsets."""
    given = names(value)
    unknown = [name for name in given if name not in TOOLSETS]
    if unknown:
        raise UnexpectedValueError(f"names of toolsets ({', '.join(TOOLSETS)})")
    return given


def choice(*words: str) -> Kind:
    """Return the kind that accepts one of these words."""

    def check(value: object) -> str:
        if not isinstance(value, str) or value not in words:
            raise UnexpectedValueError(" or ".join(words))
        return value

    return check


def whole(least: int, most: int = MOST) -> Callable[[object], int]:
    """Return the kind that accepts a whole number within these bounds."""

    def check(value: object) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise UnexpectedValueError(f"a whole number from {least} to {most}")
        return value

    return check


def memory(value: object) -> int:
    """Accept MiB, or 0 for no limit: with less than ``LEAST_MEMORY`` an agent could not even say that it starves."""
    given = whole(0)(value)
    if 0 < given < LEAST_MEMORY:
        raise UnexpectedValueError(f"0, which is no limit, or a whole number of MiB from {LEAST_MEMORY}")
    return given


def seconds(*, above_zero: bool = False) -> Kind:
    """Return the kind that accepts a number of seconds, zero included unless it makes no sense there."""
    phrase = f"a number of seconds {'above' if above_zero else 'from'} 0, at most {MOST}"

    def check(value: object) -> float:
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise UnexpectedValueError(phrase)
        if not 0 <= value <= MOST or (above_zero and value == 0):
            raise UnexpectedValueError(phrase)
        return float(value)

    return check


def price(value: object) -> float:
    """Accept what a million tokens cost."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= MOST:
        raise UnexpectedValueError("a price of a million tokens, from 0")
    return float(value)


def expectation(error: UnexpectedValueError, value: object, *, secret: bool = False) -> str:
    """Return the phrase of a refusal: what was expected, and what came instead unless that may hold a secret."""
    shown = clip(clean(repr(value)), _SHOWN)
    return f"expected {error}" + ("" if secret or "@" in shown else f", not {shown}")
