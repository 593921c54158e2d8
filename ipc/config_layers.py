"""The levels that give settings, each checked: flag over session over environment over file over default."""

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from fanjoin.ipc.config_file import Config
from fanjoin.ipc.config_kinds import UnexpectedValueError, expectation
from fanjoin.ipc.config_schema import KEYS, Key
from fanjoin.ipc.errors import UserError
from fanjoin.ipc.settings import TurnSettings

_OPTIONS = {"cwd": "-C"}
"""Flags whose option is not two dashes and the flag's name."""


class Flags(Struct, frozen=True, kw_only=True):
    """What the command line of one turn says; None is what it does not say. Times in seconds."""

    model: str | None = None
    base_url: str | None = None
    api_key_env: str | None = None
    provider: str | None = None
    toolsets: tuple[str, ...] | None = None
    max_turns: int | None = None
    reasoning: str | None = None
    deadline: float | None = None
    timeout: float | None = None
    concurrency: int | None = None
    max_failures: int | None = None
    max_tokens_total: int | None = None
    ignore_rules: bool | None = None
    cwd: str | None = None
    allow: tuple[str, ...] | None = None


class Setting(Struct, frozen=True, kw_only=True):
    """A checked value, the level that gave it, and how a message names the place."""

    value: Any
    level: str
    where: str

    def __repr__(self) -> str:
        """Show everything but the value, which may be a key."""
        return f"Setting(from {self.where!r})"


Layer = dict[str, Setting]
"""The settings that one level gives, by dotted name."""


def layers(
    config: Config, environ: Mapping[str, str], flags: Flags, session: Mapping[str, Any] | None
) -> dict[str, Layer]:
    """Return what each level gives, from the nearest to the farthest.

    Raises:
        UserError: a flag, the session or the environment holds a value that cannot be.
    """
    return {
        "flag": dict(_from_flags(flags)),
        "session": dict(_from_session(session or {})),
        "environment": dict(_from_environment(environ)),
        "file": dict(_from_file(config)),
        "default": {name: Setting(value=key.default, level="default", where="default") for name, key in KEYS.items()},
    }


def merged(stack: Mapping[str, Layer]) -> Layer:
    """Return each setting as the nearest level gives it."""
    result: Layer = {}
    for layer in reversed(list(stack.values())):
        result.update(layer)
    return result


def checked_flags(flags: Flags) -> dict[str, Any]:
    """Return the members of ``TurnSettings`` that flags alone give.

    Raises:
        UserError: one of them holds a value that cannot be.
    """
    given = ((KEYS[name], setting.value) for name, setting in _from_flags(flags))
    return {key.field: value for key, value in given if key.target is TurnSettings}


def _from_flags(flags: Flags) -> Iterator[tuple[str, Setting]]:
    for name, key in KEYS.items():
        value = getattr(flags, key.flag, None)
        if value is not None:
            option = _OPTIONS.get(key.flag, "--" + key.flag.replace("_", "-"))
            yield name, _checked(key, value, "flag", option)


def _from_session(session: Mapping[str, Any]) -> Iterator[tuple[str, Setting]]:
    for name, key in KEYS.items():
        value = session.get(key.flag)
        if key.flag and value is not None and value != "":
            yield name, _checked(key, value, "session", f"the session's {key.flag}")


def _from_environment(environ: Mapping[str, str]) -> Iterator[tuple[str, Setting]]:
    for name, key in KEYS.items():
        value = environ.get(key.variable, "") if key.variable else ""
        if value.strip():
            yield name, _checked(key, value, "environment", key.variable)


def _from_file(config: Config) -> Iterator[tuple[str, Setting]]:
    for name, located in config.values.items():
        yield name, Setting(value=located.value, level="file", where=config.place(located.line))


def _checked(key: Key, value: object, level: str, where: str) -> Setting:
    try:
        return Setting(value=key.kind(value), level=level, where=where)
    except UnexpectedValueError as error:
        raise UserError(
            f"{where}: {expectation(error, value, secret=key.secret)}.\nNothing was started. Correct it and try again."
        ) from error
