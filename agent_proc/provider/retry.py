"""When a failed model call is tried again: the policy alone, with no clock and no sleep of its own."""

import re
from collections.abc import Callable
from email.utils import parsedate_to_datetime

TRIES = 3
"""Model calls per step, the first one included; each sends the identical messages."""
LONGEST_WAIT = 60.0
"""Seconds. A server that asks for more is told of at once instead."""

_FIRST_WAIT = 0.5
_SPREAD = 1.0
_SECONDS = re.compile(r"\d+(\.\d+)?")


def asked_wait(header: str | None, now: float) -> float | None:
    """Return how many seconds a Retry-After header asks for, or None when it says nothing that makes sense.

    Args:
        header: its value: seconds, or a date of HTTP (RFC 9110, section 10.2.3).
        now: the time of day, in Unix seconds.
    """
    text = (header or "").strip()
    if _SECONDS.fullmatch(text):
        return float(text)
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - now)
    except (ValueError, OverflowError):
        return None


def wait_before(next_try: int, asked: float | None, random: Callable[[], float]) -> float:
    """Return the seconds to wait before a try, which is 2 or more.

    Never sooner than the server asked; and spread, so that many agents do not come back at the same moment.
    """
    backoff = _FIRST_WAIT * 2.0 ** (next_try - 2) * (1.0 + random())
    return backoff if asked is None else max(backoff, asked + _SPREAD * random())
