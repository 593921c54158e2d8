"""Which key goes to which URL: the rules that keep a key from a server that it was not given for."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fanjoin.ipc.config import Config, Flags, Resolved, resolve
from fanjoin.ipc.config_file import Located
from fanjoin.ipc.endpoint_rules import LEVELS, PUBLIC_URL, ApiKey, Below, Level, choose, endpoint_below
from fanjoin.ipc.errors import UserError
from fanjoin.ipc.settings import Endpoint

A, B, C, D = (f"http://{letter}/v1" for letter in "abcd")


def config_of(values: Mapping[str, object], routes: Mapping[str, Mapping[str, object]] | None = None) -> Config:
    """Return a configuration file's content, one value a line."""
    located = {name: Located(value, line) for line, (name, value) in enumerate(values.items(), 1)}
    named = {name: {field: Located(v, 9) for field, v in fields.items()} for name, fields in (routes or {}).items()}
    return Config(path=Path("config.yaml"), values=located, routes=named)


def resolved(
    file: Mapping[str, object] | None = None,
    environ: Mapping[str, str] | None = None,
    session: Mapping[str, Any] | None = None,
    routes: Mapping[str, Mapping[str, object]] | None = None,
    **flags: Any,
) -> Resolved:
    """Resolve what these levels say, with a model so that only the endpoint is in question."""
    config = config_of({"model.model": "m", **(file or {})}, routes)
    return resolve(config, environ or {}, Flags(**flags), session)


def sent(result: Resolved) -> tuple[str, str]:
    """Return where the root's requests go, and the key that they carry."""
    return result.turn.endpoint.base_url, result.turn.endpoint.api_key


URL_A = {"model.base_url": A}
FILE_A = {**URL_A, "model.api_key": "kf"}
ENV_B = {"OPENAI_BASE_URL": B, "OPENAI_API_KEY": "ke", "VAR": "kv"}
SESSION_C = {"base_url": C, "api_key": "ks"}


@pytest.mark.parametrize(
    ("levels", "expected"),
    [
        pytest.param({"file": FILE_A}, (A, "kf"), id="the file's key to the file's URL"),
        pytest.param({"file": FILE_A, "environ": ENV_B}, (B, "ke"), id="environment over file, as a pair"),
        pytest.param({"file": FILE_A, "environ": {"OPENAI_BASE_URL": B}}, (B, ""), id="no file key to the env's URL"),
        pytest.param(
            {"file": {"model.base_url": A}, "environ": {"OPENAI_API_KEY": "ke"}}, (A, ""), id="no env key to it"
        ),
        pytest.param({"file": FILE_A, "environ": ENV_B, "session": SESSION_C}, (C, "ks"), id="session over both"),
        pytest.param({"file": FILE_A, "base_url": D}, (D, ""), id="no file key to a flag's URL"),
        pytest.param({"file": FILE_A, "base_url": A}, (A, "kf"), id="a flag that names the file's URL is that place"),
        pytest.param({"file": FILE_A, "base_url": A + "/"}, (A, "kf"), id="also with a slash more"),
        pytest.param({"environ": ENV_B, "base_url": B}, (B, "ke"), id="a flag that names the env's URL"),
        pytest.param({"environ": ENV_B, "base_url": D}, (D, "ke"), id="env's key to a flag's URL: no nearer key"),
        pytest.param({"environ": ENV_B, "session": SESSION_C, "base_url": D}, (D, ""), id="a nearer key: env's stays"),
        pytest.param({"environ": ENV_B, "session": SESSION_C, "base_url": B}, (B, "ke"), id="...but not from its URL"),
        pytest.param({"environ": ENV_B, "session": {"base_url": C}}, (C, "ke"), id="env's key to a session's URL"),
        pytest.param({"environ": ENV_B, "base_url": D, "api_key_env": "VAR"}, (D, "kv"), id="a flag's own pair"),
        pytest.param({"session": SESSION_C, "base_url": C}, (C, "ks"), id="a flag that names the session's URL"),
        pytest.param({"environ": {"OPENAI_API_KEY": "ke"}}, (PUBLIC_URL, "ke"), id="a key alone: the public URL"),
        pytest.param({"file": {"model.api_key": "kf"}}, (PUBLIC_URL, "kf"), id="a key alone in the file"),
        pytest.param(
            {"session": {"api_key": "ks"}, "environ": {"OPENAI_API_KEY": "ke"}}, (PUBLIC_URL, "ks"), id="nearer"
        ),
        pytest.param({"environ": {"VAR": "kv"}, "api_key_env": "VAR"}, (PUBLIC_URL, "kv"), id="a flag's key alone"),
        pytest.param({"environ": {"OPENAI_BASE_URL": B}}, (B, ""), id="a server without a key"),
        pytest.param({"environ": {**ENV_B, "OPENAI_BASE_URL": " "}}, (PUBLIC_URL, "ke"), id="a blank URL is none"),
        pytest.param(
            {"file": {"model.base_url": A, "model.api_key_env": "VAR"}, "environ": ENV_B}, (B, "ke"), id="env"
        ),
    ],
)
def test_the_key_of_the_root(levels: dict[str, Any], expected: tuple[str, str]) -> None:
    """A key goes only to the URL of its own level; the environment's also where no nearer level has one."""
    assert sent(resolved(**levels)) == expected


def test_a_named_variable_comes_before_a_written_key() -> None:
    """``api_key_env`` wins over ``api_key`` when its variable is set, and gives way when it is not."""
    file = {**FILE_A, "model.api_key_env": "VAR"}
    assert sent(resolved(file, {"VAR": " kv\n"})) == (A, "kv")
    assert sent(resolved(file, {"VAR": ""})) == (A, "kf")


@pytest.mark.parametrize(
    ("levels", "place"),
    [
        ({"file": {"model.base_url": A, "model.api_key_env": "GONE"}}, "config.yaml:3"),
        ({"base_url": A, "api_key_env": "GONE"}, "--api-key-env"),
        ({"file": FILE_A, "api_key_env": "GONE"}, "--api-key-env"),
        ({"file": {**FILE_A, "delegation.base_url": B, "delegation.api_key_env": "GONE"}}, "config.yaml:5"),
        ({"file": FILE_A, "routes": {"r": {"base_url": B, "api_key_env": "GONE"}}}, "config.yaml:9"),
    ],
)
def test_a_variable_that_is_not_set(levels: dict[str, Any], place: str) -> None:
    """A key that should come from an unset variable stops the run, naming variable and place."""
    with pytest.raises(UserError, match=f"{place}.* names the variable GONE, which is not set"):
        resolved(**levels)


def test_an_unset_variable_of_an_endpoint_that_is_not_used() -> None:
    """The file's variable does not matter when the URL comes from elsewhere."""
    file = {"model.base_url": A, "model.api_key_env": "GONE"}
    assert sent(resolved(file, base_url=D)) == (D, "")


@pytest.mark.parametrize("held", ["two words", "schlüssel", "a\x00b", "$OTHER"])
def test_a_variable_that_holds_no_key(held: str) -> None:
    """What cannot be a key is refused without showing it."""
    with pytest.raises(UserError, match="The variable VAR: expected") as caught:
        resolved(environ={"VAR": held}, base_url=A, api_key_env="VAR")
    assert held not in str(caught.value)


@pytest.mark.parametrize("levels", [{"file": FILE_A}, {"environ": ENV_B}, {"session": SESSION_C}])
def test_a_flags_key_without_its_url(levels: dict[str, Any]) -> None:
    """``--api-key-env`` alone may not send its key to a URL of another level, and it says so."""
    levels = {**levels, "environ": {**levels.get("environ", {}), "VAR": "kv"}}
    with pytest.raises(UserError, match=r"--api-key-env .* does not come from the command line"):
        resolved(**levels, api_key_env="VAR")


def test_a_flag_may_name_the_key_that_is_used_anyway() -> None:
    """Naming the very key of the URL's own level is no contradiction."""
    assert sent(resolved(environ=ENV_B, api_key_env="OPENAI_API_KEY")) == (B, "ke")


def test_nothing_known_says_what_to_paste() -> None:
    """Without URL and key the error holds the lines to paste and names the demo."""
    with pytest.raises(UserError) as caught:
        resolved()
    message = str(caught.value)
    assert "model:\n  base_url: http" in message
    assert "config.yaml" in message
    assert "fanjoin demo" in message
    assert caught.value.exit_code == 2


def test_there_is_no_default_model() -> None:
    """A URL without a model stops with the ways to name one."""
    with pytest.raises(UserError, match=f"No model is named for {A}, and there is no default model"):
        resolve(config_of(FILE_A), {}, Flags())


def test_a_key_that_was_not_sent_is_explained() -> None:
    """When a known key stays home, there is a hint for the provider's refusal; it does not show the key."""
    hint = resolved({"model.base_url": A}, {"OPENAI_API_KEY": "ke-secret"}).auth_hint
    assert "OPENAI_API_KEY gives a key, but it was not sent to http://a/v1" in hint
    assert "ke-secret" not in hint
    assert resolved(FILE_A, {"OPENAI_API_KEY": "ke"}).auth_hint == ""


# --- delegates and routes ------------------------------------------------------------------------------------------

PARENT = Endpoint(base_url=A, model="m", api_key="kp", reasoning_effort="high")


def below(**fields: Any) -> Endpoint:
    """Return the endpoint that a section with these fields has below the parent."""
    key = ApiKey(value=fields.pop("key", ""), where="config.yaml:7")
    return endpoint_below(PARENT, Below(section="delegation", key=key, **fields))


def test_delegates_inherit_the_whole_endpoint() -> None:
    """With nothing set the delegates' endpoint is the parent's, so that ``-m`` and ``--base-url`` move both."""
    result = resolved(FILE_A, ENV_B, base_url=D, model="other", reasoning="low")
    assert result.turn.delegate_endpoint == result.turn.endpoint
    assert result.turn.endpoint == Endpoint(base_url=D, model="other", api_key="ke", reasoning_effort="low")


def test_delegates_may_have_another_model_there() -> None:
    """A model or effort alone changes just that."""
    assert below(model="small", reasoning_effort="low") == Endpoint(
        base_url=A, model="small", api_key="kp", reasoning_effort="low"
    )


def test_delegates_own_url_never_gets_the_parents_key() -> None:
    """Another URL takes its own key or none, and nothing of the parent's but the model's name."""
    assert below(base_url=B) == Endpoint(base_url=B, model="m")
    assert below(base_url=B, key="kd", model="d") == Endpoint(base_url=B, model="d", api_key="kd")


def test_delegates_own_key_never_goes_to_the_parents_url() -> None:
    """A key without a URL is refused; beside the same URL it is used."""
    with pytest.raises(UserError, match=r"config.yaml:7 gives a key, but delegation.base_url is not set"):
        below(key="kd")
    assert below(base_url=A, key="kd").api_key == "kd"
    assert below(key="kp") == PARENT
    assert below(base_url=A).api_key == "kp"


def test_routes_build_on_the_delegates_endpoint() -> None:
    """A route takes the delegates' endpoint where it has no URL, and its own key where it has one."""
    file = {**FILE_A, "delegation.base_url": B, "delegation.api_key": "kd", "delegation.model": "d"}
    routes = {
        "big": {"model": "big", "description": "for hard ones"},
        "far": {"base_url": C, "api_key_env": "VAR", "reasoning_effort": "low"},
    }
    result = resolved(file, {"VAR": "kv"}, routes=routes).turn.routes
    assert result["big"].endpoint == Endpoint(base_url=B, model="big", api_key="kd")
    assert result["big"].description == "for hard ones"
    assert result["far"].endpoint == Endpoint(base_url=C, model="d", api_key="kv", reasoning_effort="low")


# --- every combination ---------------------------------------------------------------------------------------------

urls = st.sampled_from(["", A, B, C])
maybe = st.booleans()


@given(st.lists(st.tuples(urls, maybe), min_size=4, max_size=4))
def test_no_combination_gives_a_key_away(says: list[tuple[str, bool]]) -> None:
    """For all levels with and without URL and key: a key goes to a URL of its own level, or is the environment's."""
    levels = [
        Level(name=name, base_url=url, key=ApiKey(value=name if has_key else "", level=name))
        for name, (url, has_key) in zip(LEVELS, says, strict=True)
    ]
    choice = choose(levels)
    named = [level for level in levels if level.base_url]
    if not named:
        keys = [level.name for level in levels if level.key]
        assert (choice.key.value, choice.base_url) == (keys[0], PUBLIC_URL) if choice else not keys
        return
    assert choice is not None
    assert (choice.base_url, choice.level) == (named[0].base_url, named[0].name)
    giver = next((level for level in levels if level.name == choice.key.value), None)
    nearer = any(level.key for level in levels[:2])
    if giver is None:
        own = [level for level in levels if level.base_url == choice.base_url and level.key]
        assert not own
        assert nearer or choice.level not in LEVELS[:2] or not levels[2].key
    elif giver.base_url != choice.base_url:
        assert (giver.name, choice.level in LEVELS[:2], nearer) == ("environment", True, False)


@given(
    *(st.tuples(urls, maybe) for _ in range(3)),
    st.sampled_from(["", "local", "custom"]),
)
def test_no_section_mixes_one_key_with_anothers_url(
    parent: tuple[str, bool], delegates: tuple[str, bool], route: tuple[str, bool], provider: str
) -> None:
    """For a parent, its delegates and a route: each URL only ever sees keys that stand beside that URL."""
    endpoint = Endpoint(base_url=parent[0] or D, model="m", api_key="k0" if parent[1] else "")
    beside = {endpoint.base_url: {endpoint.api_key}}
    for number, (url, has_key) in enumerate((delegates, route), 1):
        key = f"k{number}" if has_key else ""
        if url:
            beside.setdefault(url, set()).add(key)
        try:
            own = Below(section="s", base_url=url, key=ApiKey(value=key), provider=provider)
            endpoint = endpoint_below(endpoint, own)
        except UserError:
            assert not url
            return
        assert endpoint.api_key in beside.get(endpoint.base_url, set()) | {""}
