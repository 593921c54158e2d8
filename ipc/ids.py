"""Identifiers: a prefix that names the kind, then letters that are easy to read and to type."""

import os
from collections.abc import Callable

_ALPHABET = "abcdefghijkmnpqrstuvwxyz23456789"
_LENGTH = 12

SESSION = "s_"
TURN = "t_"
CALL = "c_"
DELEGATE = "d_"
INSTANCE = "i_"
REQUEST = "r_"

NewId = Callable[[str], str]
"""Makes a new identifier with the given prefix; the pure core is handed one, so that tests are repeatable."""


def new_id(prefix: str) -> str:
    """Return a new random identifier: the prefix and 12 of 32 letters (60 bits)."""
    # os.urandom and not the secrets module, whose imports cost every command 8 ms
    return prefix + "".join(_ALPHABET[byte % len(_ALPHABET)] for byte in os.urandom(_LENGTH))


def new_secret() -> str:
    """Return 128 random bits in hexadecimal, for nonces and tags."""
    return os.urandom(16).hex()


def attempt_id(owner_id: str, number: int) -> str:
    """Return the identifier of one process of a turn or a delegate; ``number`` counts from 1."""
    return f"{owner_id}.{number}"
