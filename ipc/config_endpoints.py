"""From settings to model endpoints: the root's, the delegates', and the named routes."""

from collections.abc import Mapping

from fanjoin.ipc.config_file import Config
from fanjoin.ipc.config_kinds import UnexpectedValueError, expectation, secret
from fanjoin.ipc.config_layers import Layer, Setting, merged
from fanjoin.ipc.config_schema import ROUTE_FIELDS, ROUTES
from fanjoin.ipc.endpoint_rules import (
    LEVELS,
    LOCAL_MODEL,
    LOCAL_URL,
    NEAR_LEVELS,
    NO_KEY,
    ApiKey,
    Below,
    Choice,
    Level,
    api_mode_of,
    choose,
    endpoint_below,
)
from fanjoin.ipc.errors import UserError
from fanjoin.ipc.settings import Endpoint, Route
from fanjoin.ipc.text import clean

_NO_ENDPOINT = """\
No model endpoint is known, so nothing was started. Put one into {path}:

model:
  base_url: http://127.0.0.1:8000/v1
  model: NAME-OF-THE-MODEL
  api_key_env: NAME-OF-A-VARIABLE   # only if the server wants a key: the variable that holds it

or set OPENAI_BASE_URL and OPENAI_API_KEY and name the model with -m.
To see it work without any endpoint: fanjoin demo"""


class NotConfiguredError(UserError):
    """Nothing is wrong, but what every turn needs is named nowhere: an endpoint, or its model."""


Stack = Mapping[str, Layer]


def known_endpoint(stack: Stack, environ: Mapping[str, str]) -> Choice | None:
    """Return the URL that a custom root would use and the key that may go there; None when nothing is known."""
    return choose(
        [
            Level(name=name, base_url=_text(stack[name], "model.base_url"), key=_key(stack[name], "model", environ))
            for name in LEVELS
        ]
    )


def provider_of(stack: Stack) -> str:
    """Return ``local`` if the nearest level that names a provider says so and no nearer flag or session has a URL."""
    for name in LEVELS:
        provider, other = stack[name].get("model.provider"), stack[name].get("model.base_url")
        if name in NEAR_LEVELS and other:
            if provider and provider.value == "local":
                raise UserError(
                    f"{provider.where} asks for the local model, but {other.where} for another server.\n"
                    "Nothing was started. Give one of the two."
                )
            return "custom"
        if provider:
            return str(provider.value)
    return "custom"


def local_root(stack: Stack) -> Endpoint:
    """Return the local model's endpoint; a model's name counts from the level that asks for it, or a nearer one."""
    model = ""
    for name in LEVELS:
        model = model or _text(stack[name], "model.model")
        if "model.provider" in stack[name]:
            break
    return Endpoint(
        base_url=LOCAL_URL,
        model=model or LOCAL_MODEL,
        reasoning_effort=_text(merged(stack), "model.reasoning_effort"),
    )


def custom_root(config: Config, stack: Stack, choice: Choice | None, environ: Mapping[str, str]) -> Endpoint:
    """Return the root's endpoint behind a URL.

    Raises:
        NotConfiguredError: no URL or no model is known.
        UserError: a key cannot be had, or a flag's key may not be sent.
    """
    if choice is None:
        raise NotConfiguredError(_NO_ENDPOINT.format(path=clean(str(config.path))))
    values = merged(stack)
    flag_key = _key(stack["flag"], "model", environ)
    if flag_key.read() and flag_key.value != choice.key.value:
        raise UserError(
            f"{flag_key.where} gives a key, but the URL {choice.base_url} does not come from the command line. A key "
            "is only ever sent to the URL that was given beside it.\nNothing was started. Add --base-url URL."
        )
    key = choice.key.read()
    model = _text(values, "model.model")
    if not model:
        raise NotConfiguredError(
            f"No model is named for {choice.base_url}, and there is no default model.\n"
            f"Nothing was started. Add -m NAME, or put it into {clean(str(config.path))}:\n\nmodel:\n  model: NAME"
        )
    return Endpoint(
        base_url=choice.base_url,
        model=model,
        api_key=key,
        api_mode=_text(values, "model.api_mode") or api_mode_of(choice.base_url),
        reasoning_effort=_text(values, "model.reasoning_effort"),
    )


def auth_hint(stack: Stack, choice: Choice | None, environ: Mapping[str, str]) -> str:
    """Return why a known key was not sent, for when the provider asks for one; empty when one was sent."""
    keys = [_key(stack[name], "model", environ) for name in LEVELS]
    unsent = [key for key in keys if key.value]
    if choice is None or choice.key or not unsent:
        return ""
    return (
        f"{unsent[0].where} gives a key, but it was not sent to {choice.base_url}, because that URL comes from another "
        "place. Give a key beside the URL; api_key_env names the variable that holds it."
    )


def delegate_endpoint(root: Endpoint, values: Layer, environ: Mapping[str, str]) -> Endpoint:
    """Return the delegates' endpoint.

    Raises:
        UserError: a key without a URL, or one that cannot be had.
    """
    return endpoint_below(root, _below("delegation", values, environ))


def route(config: Config, name: str, parent: Endpoint, environ: Mapping[str, str]) -> Route:
    """Return a named route; what it leaves out is the delegates' endpoint.

    Raises:
        UserError: a key without a URL, or one that cannot be had.
    """
    section = f"{ROUTES}.{name}"
    layer: Layer = {
        f"{section}.{field}": Setting(value=located.value, level="file", where=config.place(located.line))
        for field, located in config.routes[name].items()
        if field in ROUTE_FIELDS
    }
    endpoint = endpoint_below(parent, _below(section, layer, environ))
    return Route(endpoint=endpoint, description=_text(layer, f"{section}.description"))


def _below(section: str, layer: Layer, environ: Mapping[str, str]) -> Below:
    return Below(
        section=section,
        provider=_text(layer, f"{section}.provider"),
        base_url=_text(layer, f"{section}.base_url"),
        model=_text(layer, f"{section}.model"),
        key=_key(layer, section, environ),
        api_mode=_text(layer, f"{section}.api_mode"),
        reasoning_effort=_text(layer, f"{section}.reasoning_effort"),
    )


def _text(layer: Layer, name: str) -> str:
    """Return a text of a layer, empty when the layer does not give it."""
    return str(layer[name].value or "") if name in layer else ""


def _key(layer: Layer, section: str, environ: Mapping[str, str]) -> ApiKey:
    """Return the key that a section gives: out of the variable that it names, else the text that it holds."""
    named, given = layer.get(f"{section}.api_key_env"), layer.get(f"{section}.api_key")
    if named and named.value:
        held = environ.get(named.value, "").strip()
        if held:
            return ApiKey(value=_checked(held, named.value), level=named.level, where=f"{named.where} ({named.value})")
    if given and given.value:
        return ApiKey(value=given.value, level=given.level, where=given.where)
    if named and named.value:
        return ApiKey(unset=named.value, level=named.level, where=named.where)
    return NO_KEY


def _checked(key: str, variable: str) -> str:
    try:
        return secret(key)
    except UnexpectedValueError as error:
        problem = expectation(error, key, secret=True)
        raise UserError(
            f"The variable {variable}: {problem}.\nNothing was started. Correct it and try again."
        ) from error
