"""Who may open a connection (pure): the token decides, and neither a foreign page nor a foreign name gets to try it."""

import hmac
from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import urlsplit

PROTOCOL = "fanjoin.v1"
"""The subprotocol that is spoken."""
_TOKEN_PREFIX = "fanjoin.token."  # noqa: S105 - where a browser, which cannot set headers, puts the token
_OUR_NAMES = ("127.0.0.1", "localhost")
_BEARER = "bearer "


class Knock(NamedTuple):
    """What a request to open a connection says of itself: each header's values, all of them."""

    hosts: Sequence[str]
    origins: Sequence[str]
    authorizations: Sequence[str]
    subprotocols: Sequence[str]


class Refusal(NamedTuple):
    """The HTTP status and the text that the caller gets."""

    status: int
    text: str


def refusal(knock: Knock, port: int, token: str) -> Refusal | None:
    """Return why a connection is refused, or None when it may be opened."""
    if len(knock.hosts) != 1 or len(knock.origins) > 1:
        return Refusal(400, "A request has one Host header and at most one Origin.\n")
    if knock.hosts[0].lower() not in {f"{name}:{port}" for name in _OUR_NAMES}:
        return Refusal(403, "This Host is not served here.\n")
    if knock.origins and not _is_local(knock.origins[0]):
        return Refusal(403, "Pages of this Origin are not served here.\n")
    if not any(hmac.compare_digest(offered.encode(), token.encode()) for offered in _tokens(knock)):
        return Refusal(401, "The token is missing or wrong. run/daemon.json in the home folder holds it.\n")
    return None


def _tokens(knock: Knock) -> list[str]:
    bearers = [value[len(_BEARER) :] for value in knock.authorizations if value.lower().startswith(_BEARER)]
    offered = [name for value in knock.subprotocols for name in value.replace(" ", "").split(",")]
    return bearers + [name.removeprefix(_TOKEN_PREFIX) for name in offered if name.startswith(_TOKEN_PREFIX)]


def _is_local(origin: str) -> bool:
    """Say whether a page comes from this machine; ``null``, which any sandboxed page sends, does not."""
    try:
        parts = urlsplit(origin)
    except ValueError:
        return False
    return parts.scheme in {"http", "https"} and parts.hostname in _OUR_NAMES
