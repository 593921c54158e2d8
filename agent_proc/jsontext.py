"""JSON as models and servers send it: strict in its grammar, forgiving about broken Unicode."""

import json
from typing import Any, NoReturn

import msgspec

from fanjoin.ipc.text import clean_tree

_encode = msgspec.json.Encoder().encode


def read(data: bytes | str) -> Any:
    """Return the value of a JSON text; lone surrogates and bytes that are no UTF-8 become U+FFFD.

    Raises:
        ValueError: it is not JSON (NaN and Infinity are not), or nested deeper than we read.
    """
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return _read_leniently(data)


def write(value: object) -> str:
    """Return compact JSON text. Texts in it must be free of lone surrogates."""
    return _encode(value).decode()


def _read_leniently(data: bytes | str) -> Any:
    """Read what the fast decoder refuses: it takes a lone surrogate for an error."""
    text = data if isinstance(data, str) else bytes(data).decode("utf-8", "replace")
    try:
        return clean_tree(json.loads(text, parse_constant=_refuse))
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
