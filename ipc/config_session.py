"""The settings that a session keeps from its creation on: frozen then, and taken up again by each later turn."""

from collections.abc import Mapping

from fanjoin.ipc.config import Resolved
from fanjoin.ipc.config_endpoints import known_endpoint
from fanjoin.ipc.config_file import Config
from fanjoin.ipc.config_layers import Flags, layers
from fanjoin.ipc.config_schema import KEYS
from fanjoin.ipc.messages import JsonObject

_FROM = "base_url_from"
_OWN_LEVELS = ("environment", "file", "default")


def frozen(resolved: Resolved) -> JsonObject:
    """Return what a session keeps of the settings of its first turn, under the names of flags. No key is in it."""
    turn, endpoint = resolved.turn, resolved.turn.endpoint
    kept: JsonObject = {
        "model": endpoint.model,
        "toolsets": list(turn.toolsets),
        "max_turns": turn.max_turns,
        "ignore_rules": turn.ignore_rules,
        "cwd": turn.cwd,
    }
    if endpoint.reasoning_effort:
        kept["reasoning"] = endpoint.reasoning_effort
    if resolved.provider == "local":
        return kept | {"provider": "local"}
    return kept | {"base_url": endpoint.base_url, _FROM: resolved.origins["model.base_url"].level}


def taken_up(session: JsonObject, config: Config, environ: Mapping[str, str]) -> JsonObject:
    """Return a session's settings as ``resolve`` takes them.

    A URL that came from the environment or the file, and still does, is left to that level: the keys that may go to it
    are those that could before, and not also what may go to a URL that somebody names for a session.
    """
    if session.get(_FROM) not in _OWN_LEVELS:
        return session
    own = known_endpoint(layers(config, environ, Flags(), None), environ)
    if own is None or own.base_url != session.get("base_url"):
        return session
    return {name: value for name, value in session.items() if name != "base_url"}


def environment_for(config: Config, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the part of an environment that settings can come from, keys included: for another process of ours."""
    names = {key.variable for key in KEYS.values() if key.variable}
    located = [*config.values.items(), *(item for route in config.routes.values() for item in route.items())]
    names |= {str(value.value) for name, value in located if name.rpartition(".")[2] == "api_key_env"}
    return {name: environ[name] for name in sorted(names) if name in environ}
