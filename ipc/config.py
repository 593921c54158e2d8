"""What a turn and its supervisor run with, made from flags, session, environment, ``config.yaml`` and defaults.

The parts: ``config_schema`` names the settings, ``config_kinds`` checks values, ``config_file`` and ``config_tree``
read the file, ``config_layers`` puts the levels over one another, ``config_endpoints`` makes the model endpoints by
``endpoint_rules``, which decides the key that goes to a URL.
"""

import os
from collections.abc import Mapping
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from fanjoin.ipc import config_endpoints as endpoints
from fanjoin.ipc.config_endpoints import NotConfiguredError
from fanjoin.ipc.config_file import Config, Located, load_config
from fanjoin.ipc.config_layers import Flags, Layer, Setting, checked_flags, layers, merged
from fanjoin.ipc.config_schema import KEYS
from fanjoin.ipc.endpoint_rules import LOCAL_URL, Choice, api_mode_of
from fanjoin.ipc.environment import tool_environment
from fanjoin.ipc.errors import UserError
from fanjoin.ipc.settings import (
    ApprovalSettings,
    DelegationLimits,
    Endpoint,
    ModelLimits,
    Price,
    SupervisorSettings,
    TerminalSettings,
    TurnSettings,
)
from fanjoin.ipc.text import clean, mask_secret

__all__ = [
    "Config",
    "Flags",
    "NotConfiguredError",
    "Origin",
    "Resolved",
    "checked_flags",
    "load_config",
    "origins_of",
    "resolve",
    "supervisor_settings",
    "with_local_server",
]

Part = TypeVar("Part", bound=Struct)


class Origin(Struct, frozen=True, kw_only=True):
    """A setting as it may be shown: its value (keys masked), the level that gave it and the place there.

    ``level`` is ``flag``, ``session``, ``environment``, ``file`` or ``default``.
    """

    value: Any
    level: str
    where: str


class Resolved(Struct, frozen=True, kw_only=True):
    """The settings of one turn. ``provider`` is ``custom`` or ``local``; a local endpoint has no URL yet.

    ``auth_hint`` is what to say when the provider refuses the key: empty, or why a known key was not sent.
    """

    turn: TurnSettings
    supervisor: SupervisorSettings
    provider: str
    warnings: list[str]
    origins: dict[str, Origin]
    auth_hint: str = ""

    @property
    def needs_local_server(self) -> bool:
        """Whether an endpoint waits for the URL of the local model's server, which ``with_local_server`` fills in."""
        routes = (route.endpoint for route in self.turn.routes.values())
        return LOCAL_URL in (
            endpoint.base_url for endpoint in (self.turn.endpoint, self.turn.delegate_endpoint, *routes)
        )


def resolve(
    config: Config, environ: Mapping[str, str], flags: Flags, session: Mapping[str, Any] | None = None
) -> Resolved:
    """Return what a turn runs with.

    Args:
        config: what the file says.
        environ: the environment of whoever asks for the turn.
        flags: what the command line of the turn says.
        session: the settings that the session was created with, under the names that ``session.create`` uses.

    Raises:
        NotConfiguredError: no endpoint or no model is known.
        UserError: a key cannot be had or may not be sent, or a value cannot be.
    """
    stack = layers(config, environ, flags, session)
    values = merged(stack)
    choice = endpoints.known_endpoint(stack, environ)
    provider = endpoints.provider_of(stack)
    local = provider == "local"
    root = endpoints.local_root(stack) if local else endpoints.custom_root(config, stack, choice, environ)
    delegate = endpoints.delegate_endpoint(root, values, environ)
    routes = {name: endpoints.route(config, name, delegate, environ) for name in config.routes}
    keys = {endpoint.api_key for endpoint in (root, delegate, *(named.endpoint for named in routes.values()))}
    turn = TurnSettings(
        endpoint=root,
        delegate_endpoint=delegate,
        routes=routes,
        delegate_toolsets=_delegate_toolsets(values),
        cwd=_folder(values["cwd"]),
        limits=_part(DelegationLimits, values),
        model_limits=_part(ModelLimits, values),
        terminal=_terminal(config, stack, environ, keys),
        approvals=_part(ApprovalSettings, values),
        prices={name: _price(fields) for name, fields in config.prices.items()},
        **_members(TurnSettings, values),
    )
    return Resolved(
        turn=turn,
        supervisor=_part(SupervisorSettings, values),
        provider=provider,
        warnings=list(config.warnings),
        origins=_shown(values, choice),
        auth_hint="" if local else endpoints.auth_hint(stack, choice, environ),
    )


def supervisor_settings(config: Config, environ: Mapping[str, str]) -> SupervisorSettings:
    """Return what a supervisor runs with that no turn has started, also where no turn could run.

    Raises:
        UserError: a value cannot be.
    """
    return _part(SupervisorSettings, merged(layers(config, environ, Flags(), None)))


def origins_of(
    config: Config, environ: Mapping[str, str], flags: Flags, session: Mapping[str, Any] | None = None
) -> dict[str, Origin]:
    """Return every setting and where it comes from, also where no turn could run with them.

    Raises:
        UserError: a value cannot be.
    """
    stack = layers(config, environ, flags, session)
    return _shown(merged(stack), endpoints.known_endpoint(stack, environ))


def with_local_server(turn: TurnSettings, base_url: str) -> TurnSettings:
    """Return the settings with the URL of the local model's server wherever an endpoint waits for it."""

    def filled(endpoint: Endpoint) -> Endpoint:
        return replace(endpoint, base_url=base_url) if endpoint.base_url == LOCAL_URL else endpoint

    return replace(
        turn,
        endpoint=filled(turn.endpoint),
        delegate_endpoint=filled(turn.delegate_endpoint),
        routes={name: replace(route, endpoint=filled(route.endpoint)) for name, route in turn.routes.items()},
    )


def _part(target: type[Part], values: Layer) -> Part:
    return target(**_members(target, values))


def _members(target: type[Struct], values: Layer) -> dict[str, Any]:
    """Return the members of a struct that settings give."""
    return {key.field: values[name].value for name, key in KEYS.items() if key.target is target}


def _price(fields: Mapping[str, Located]) -> Price:
    given: dict[str, Any] = {name: located.value for name, located in fields.items()}
    return Price(**given)


def _terminal(
    config: Config, stack: Mapping[str, Layer], environ: Mapping[str, str], keys: set[str]
) -> TerminalSettings:
    """Return how commands run, with what they see of the environment: no variable that holds a provider's key."""
    settings = _part(TerminalSettings, merged(stack))
    named = [layer[name].value for layer in stack.values() for name in layer if name.endswith("api_key_env")]
    named += [key.variable for name, key in KEYS.items() if name.endswith("api_key") and key.variable]
    named += [fields["api_key_env"].value for fields in config.routes.values() if "api_key_env" in fields]
    return replace(settings, environment=tool_environment(environ, settings.env_passthrough, filter(None, named), keys))


def _delegate_toolsets(values: Layer) -> tuple[str, ...]:
    """Return the delegates' toolsets: their own, else the root's without the one that makes delegates."""
    own = values["delegation.toolsets"].value
    return own if own is not None else tuple(name for name in values["toolsets"].value if name != "delegation")


def _folder(setting: Setting) -> str:
    """Return the absolute path of the folder that tools run in.

    Raises:
        UserError: it is not a folder, or its name is no text.
    """
    try:
        folder = os.path.abspath(os.path.expanduser(setting.value or os.getcwd()))
    except OSError as error:
        raise UserError(f"The current folder is gone: {error.strerror}. Change to another one, or give -C.") from error
    place = "the current folder" if setting.value is None else setting.where
    if not os.path.isdir(folder):
        raise UserError(f"{clean(folder)}, given by {place}, is not a folder. Tools need one to run in.")
    if clean(folder) != folder:
        raise UserError(
            f"{clean(folder)} ({place}) has a name that is not UTF-8 text. Rename it, or give another by -C."
        )
    return folder


def _shown(values: Layer, choice: Choice | None) -> dict[str, Origin]:
    """Return the settings as they may be shown; URL and key are those that a custom endpoint would use."""
    shown = {
        name: Origin(value=_masked(name, setting.value), level=setting.level, where=setting.where)
        for name, setting in values.items()
    }
    if choice and choice.level == "default":
        shown["model.base_url"] = Origin(value=choice.base_url, level="default", where="default")
    if choice and values["model.api_mode"].value is None:
        shown["model.api_mode"] = Origin(value=api_mode_of(choice.base_url), level="default", where="default")
    if choice:
        key = choice.key
        shown["model.api_key"] = Origin(
            value=mask_secret(key.value) if key.value else None, level=key.level, where=key.where
        )
    return shown


def _masked(name: str, value: Any) -> Any:
    return mask_secret(value) if value and name.endswith(".api_key") else value
