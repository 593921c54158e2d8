"""Identifiers: a prefix that names the kind, then letters that are easy to read and to type."""

import secrets
from collections.abc import Callable

_ALPHABET = "abcdefghijkmnpqrstuvwxyz23456789"
_LENGTH = 12

SESSION = "s_"
TURN = "t_"
CALL = "c_"
DELEGATE = "d_"
INSTANCE = "i_"

NewId = Callable[[str], str]
"""Makes a new identifier with the given prefix; the pure core is handed one, so that tests are repeatable."""


def new_id(prefix: str) -> str:
    """Return a new random identifier: the prefix and 12 of 32 letters (60 bits)."""
    return prefix + "".join(secrets.choice(_ALPHABET) for _ in range(_LENGTH))


def new_secret() -> str:
    """Return 128 random bits in hexadecimal, for nonces and tags."""
    return secrets.token_hex(16)


def attempt_id(owner_id: str, number: int) -> str:
    """Return the identifier of one process of a turn or a delegate; ``number`` counts from 1."""
    return f"{owner_id}.{number}"
