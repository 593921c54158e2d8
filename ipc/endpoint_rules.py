"""Which model endpoint is used and which key it gets: pure rules, because a mistake here gives a key away.

A key goes only to the URL of its own level. The environment's key goes also to the URL of a flag or a session when
no nearer level has a key. Two levels that name the same URL are one place, so a key of either may go there.
"""

from collections.abc import Sequence
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import replace

from fanjoin.ipc.config_schema import API_MODES
from fanjoin.ipc.errors import UserError
from fanjoin.ipc.settings import Endpoint
from fanjoin.ipc.text import clip

PUBLIC_URL = "https://api.openai.com/v1"
"""Used when a key is known and no level names a URL."""
LOCAL_MODEL = "local"
"""The model's name behind ``provider: local``, whose server is started by whoever needs it."""
LOCAL_URL = ""
"""Stands for the URL of that server until it runs."""
LEVELS = ("flag", "session", "environment", "file")
"""From the nearest to the farthest."""
NEAR_LEVELS = ("flag", "session")
"""Their URLs may also get the environment's key."""
_NAME_SHOWN = 40


def api_mode_of(base_url: str) -> str:
    """Return the wire format that a URL shows, for when none is configured; most servers speak the first one."""
    parts = urlsplit(base_url)
    path = parts.path.rstrip("/")
    if (parts.hostname or "").endswith("anthropic.com") or path.endswith(("/messages", "/anthropic", "/anthropic/v1")):
        return "anthropic_messages"
    return "responses" if path.endswith("/responses") else API_MODES[0]


class ApiKey(Struct, frozen=True, kw_only=True):
    """A key, or the name of the variable that should hold it and is not set. ``where`` says who gave it."""

    value: str = ""
    unset: str = ""
    level: str = "default"
    where: str = "default"

    def __bool__(self) -> bool:
        """Whether somebody gave a key here, even one that cannot be had."""
        return bool(self.value or self.unset)

    def read(self) -> str:
        """Return the key, empty when none was given.

        Raises:
            UserError: the variable that should hold it is not set.
        """
        if self.unset:
            raise UserError(
                f"{self.where} names the variable {clip(self.unset, _NAME_SHOWN)}, which is not set or empty, so there "
                "is no key.\nNothing was started. Set that variable, or name the one that holds the key."
            )
        return self.value

    def __repr__(self) -> str:
        """Show no key."""
        return f"ApiKey(from {self.where!r})"


NO_KEY = ApiKey()


class Level(Struct, frozen=True, kw_only=True):
    """What one level says about the root's endpoint."""

    name: str
    base_url: str = ""
    key: ApiKey = NO_KEY


class Choice(Struct, frozen=True, kw_only=True):
    """The endpoint's URL, the level that named it (``default`` for the public one), and its key."""

    base_url: str
    level: str
    key: ApiKey


def choose(levels: Sequence[Level]) -> Choice | None:
    """Return the URL of the nearest level that names one, with the key that may go there.

    Args:
        levels: from the nearest to the farthest.

    Returns:
        None when no level knows a URL or a key.
    """
    for level in levels:
        if level.base_url:
            return Choice(base_url=level.base_url, level=level.name, key=_key_for(level, levels))
    keys = [level.key for level in levels if level.key]
    return Choice(base_url=PUBLIC_URL, level="default", key=keys[0]) if keys else None


def _key_for(chosen: Level, levels: Sequence[Level]) -> ApiKey:
    """Return the key that may go to the URL of the chosen level; no nearer level has a URL."""
    for level in levels:
        if level.key and level.base_url == chosen.base_url:
            return level.key
    nearer = [level.key for level in levels if level.name in NEAR_LEVELS and level.key]
    if chosen.name in NEAR_LEVELS and not nearer:
        return next((level.key for level in levels if level.name == "environment"), NO_KEY)
    return NO_KEY


class Below(Struct, frozen=True, kw_only=True):
    """What the configuration says about an endpoint below the root's: the delegates', or a named route."""

    section: str
    provider: str = ""
    base_url: str = ""
    model: str = ""
    key: ApiKey = NO_KEY
    api_mode: str = ""
    reasoning_effort: str = ""


def endpoint_below(parent: Endpoint, own: Below) -> Endpoint:
    """Return the endpoint of a section: its own, or the parent's whole one where it names no URL.

    Raises:
        UserError: a key without a URL (the parent's may never get it), or a variable that is not set.
    """
    if own.provider == "local":
        return Endpoint(base_url=LOCAL_URL, model=own.model or LOCAL_MODEL)
    if own.base_url and own.base_url != parent.base_url:
        return _own_endpoint(parent, own)
    key = own.key.read()
    if key and key != parent.api_key and not own.base_url:
        raise UserError(
            f"{own.key.where} gives a key, but {own.section}.base_url is not set. A key is only ever sent to the URL "
            f"that stands beside it.\nNothing was started. Add {own.section}.base_url, or remove the key to use the "
            "parent's endpoint with the parent's key."
        )
    if own.provider == "custom" and parent.base_url == LOCAL_URL:
        raise UserError(
            f"{own.section}.provider is custom, but {own.section}.base_url is not set.\n"
            "Nothing was started. Add the URL, or remove the provider to use the parent's endpoint."
        )
    return replace(
        parent,
        model=own.model or parent.model,
        api_key=key or parent.api_key,
        api_mode=own.api_mode or parent.api_mode,
        reasoning_effort=own.reasoning_effort or parent.reasoning_effort,
    )


def _own_endpoint(parent: Endpoint, own: Below) -> Endpoint:
    """Return an endpoint that takes nothing of the parent's but the model's name, where it has none."""
    return Endpoint(
        base_url=own.base_url,
        model=own.model or parent.model,
        api_key=own.key.read(),
        api_mode=own.api_mode or api_mode_of(own.base_url),
        reasoning_effort=own.reasoning_effort,
    )
