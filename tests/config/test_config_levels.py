"""Where values come from: flag over session over environment over file over default, and what they become."""

import os
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fanjoin.ipc.config import Flags, load_config, origins_of, resolve, with_local_server
from fanjoin.ipc.config_file import Config
from fanjoin.ipc.config_schema import API_MODES, KEYS
from fanjoin.ipc.errors import UserError
from fanjoin.ipc.settings import (
    ApprovalSettings,
    DelegationLimits,
    ModelLimits,
    Price,
    SupervisorSettings,
    TerminalSettings,
    TurnSettings,
)

ENVIRON = {"OPENAI_BASE_URL": "http://env/v1", "OPENAI_API_KEY": "key-from-the-environment"}


def from_text(home: Path, text: str) -> Config:
    """Return the configuration that this text makes."""
    (home / "config.yaml").write_text(text, encoding="utf-8", newline="\n")
    return load_config(home)


def turn_of(config: Config, session: dict[str, Any] | None = None, **flags: Any) -> TurnSettings:
    """Return the settings of a turn with a model and an endpoint from the environment."""
    flags.setdefault("model", "m")
    return resolve(config, ENVIRON, Flags(**flags), session).turn


@pytest.fixture
def empty(tmp_path: Path) -> Config:
    """Return the configuration of a home without a file."""
    return load_config(tmp_path)


def test_defaults_are_those_of_the_structs(empty: Config) -> None:
    """With nothing said, each part is what its struct says."""
    result = resolve(empty, ENVIRON, Flags(model="m"))
    turn = result.turn
    assert (turn.limits, turn.model_limits, turn.terminal) == (DelegationLimits(), ModelLimits(), TerminalSettings())
    assert result.supervisor == SupervisorSettings()
    assert (turn.max_turns, turn.toolsets, turn.delegate_toolsets) == (90, ("delegation", "files"), ("files",))
    assert (turn.cwd, result.provider, result.warnings) == (str(Path.cwd()), "custom", [])


def test_each_level_over_the_next(tmp_path: Path) -> None:
    """The nearest level that says something counts, and origins tell which one it was."""
    config = from_text(tmp_path, "model: {model: file, base_url: http://file}\nagent: {max_turns: 4}\n")
    session = {"model": "session", "max_turns": 3}
    told = [
        resolve(config, ENVIRON, Flags(model="flag", max_turns=2), session),
        resolve(config, ENVIRON, Flags(), session),
        resolve(config, ENVIRON, Flags()),
        resolve(config, {}, Flags()),
    ]
    assert [r.turn.endpoint.model for r in told] == ["flag", "session", "file", "file"]
    assert [r.turn.max_turns for r in told] == [2, 3, 4, 4]
    assert [r.turn.endpoint.base_url for r in told] == ["http://env/v1"] * 3 + ["http://file"]
    assert [r.origins["agent.max_turns"].level for r in told] == ["flag", "session", "file", "file"]
    assert told[0].origins["agent.max_turns"].where == "--max-turns"
    assert told[3].origins["agent.max_turns"].where == f"{tmp_path / 'config.yaml'}:2"


def test_every_setting_of_the_file_reaches_its_place(tmp_path: Path) -> None:
    """Each limit that the file sets is the one that the turn or the supervisor runs with."""
    text = """
toolsets: [delegation, terminal, files]
agent: {max_turns: 7}
delegation: {max_concurrent_children: 2, max_tasks: 3, stall_seconds: 1.5, child_timeout_seconds: 9, launcher: spawn}
supervisor: {max_processes: 5, silence_seconds: 2, transport: tcp}
daemon: {drain_seconds: 1}
provider:
  {connect_seconds: 1, first_byte_seconds: 2, between_bytes_seconds: 3, whole_call_seconds: 4, max_output_tokens: 5}
approvals: {mode: deny, allow: "ls *", deny: ["rm *", "a, b"]}
prices: {m: {input: 1, output: 2.5}, org/m-2.1: {cached: 0}}
terminal: {timeout: 6, env_passthrough: [GIT_*], oneshot_completion_wait_seconds: 8}
"""
    result = resolve(from_text(tmp_path, text), ENVIRON, Flags(model="m"))
    turn = result.turn
    assert turn.limits == DelegationLimits(
        max_concurrent_children=2, max_tasks=3, stall_seconds=1.5, child_timeout_seconds=9.0
    )
    assert turn.model_limits == ModelLimits(
        connect=1.0, first_byte=2.0, between_bytes=3.0, whole_call=4.0, max_output_tokens=5
    )
    assert turn.terminal == TerminalSettings(timeout=6.0, env_passthrough=("GIT_*",), completion_wait=8.0)
    terminal = TerminalSettings(
        timeout=6.0, env_passthrough=("GIT_*",), completion_wait=8.0, environment=turn.terminal.environment
    )
    assert turn.terminal == terminal
    assert turn.approvals == ApprovalSettings(mode="deny", allow=("ls *",), deny=("rm *", "a, b"))
    assert turn.prices == {"m": Price(input=1.0, output=2.5), "org/m-2.1": Price(cached=0.0)}
    assert (turn.toolsets, turn.delegate_toolsets) == (("delegation", "terminal", "files"), ("terminal", "files"))
    assert result.supervisor == SupervisorSettings(
        max_processes=5, launcher="spawn", transport="tcp", silence_seconds=2.0, drain_seconds=1.0
    )


def test_every_member_of_the_settings_has_a_setting(empty: Config) -> None:
    """No member of the structs is out of the user's reach, except those that are computed."""
    computed = {"endpoint", "delegate_endpoint", "routes", "delegate_toolsets", "cwd", "limits", "model_limits"}
    computed |= {"terminal", "environment", "approvals", "prices"}
    computed |= {"worker", "max_failures"}  # of `fanjoin delegate` alone, by its flags
    reachable = {(key.target, key.field) for key in KEYS.values()}
    for target in (ApprovalSettings, DelegationLimits, ModelLimits, SupervisorSettings, TerminalSettings, TurnSettings):
        for name in target.__struct_fields__:
            assert (target, name) in reachable or name in computed
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(turn_of(empty)), type=TurnSettings) == turn_of(empty)


def test_the_flags_of_one_turn(empty: Config, tmp_path: Path) -> None:
    """Flags that have no key in the file reach the turn."""
    turn = turn_of(
        empty,
        deadline=30,
        max_tokens_total=1000,
        ignore_rules=True,
        allow=("git *", "ls"),
        cwd=str(tmp_path),
        toolsets=("files",),
        reasoning="none",
    )
    assert (turn.deadline_seconds, turn.max_tokens_total, turn.ignore_rules) == (30.0, 1000, True)
    assert (turn.allow, turn.cwd, turn.toolsets) == (("git *", "ls"), str(tmp_path), ("files",))
    assert turn.endpoint.reasoning_effort == "none"


def test_no_toolsets_at_all(empty: Config) -> None:
    """A session may be created without tools; a flag of that kind is the same."""
    assert turn_of(empty, {"toolsets": []}).toolsets == ()
    assert turn_of(empty, {"toolsets": "files, delegation"}).toolsets == ("files", "delegation")


def test_delegates_with_toolsets_of_their_own(tmp_path: Path) -> None:
    """``delegation.toolsets`` is taken as it is."""
    turn = turn_of(from_text(tmp_path, "delegation: {toolsets: []}"))
    assert (turn.toolsets, turn.delegate_toolsets) == (("delegation", "files"), ())


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"max_turns": 0}, "--max-turns: expected a whole number from 1"),
        ({"max_turns": True}, "--max-turns: expected a whole number from 1"),
        ({"deadline": float("nan")}, "--deadline: expected a number of seconds"),
        ({"deadline": -1.0}, "--deadline: expected a number of seconds"),
        ({"max_tokens_total": -1}, "--max-tokens-total: expected a whole number"),
        ({"model": " "}, "--model: expected a text that is not blank"),
        ({"base_url": "h:1"}, "--base-url: expected a URL with its scheme, such as http://h:1"),
        ({"reasoning": "much"}, "--reasoning: expected none or low or medium or high, not 'much'"),
        ({"provider": "openai"}, "--provider: expected custom or local"),
        ({"api_key_env": "sk-1234"}, "--api-key-env: expected the name of an environment variable"),
    ],
)
def test_a_wrong_flag(empty: Config, flags: dict[str, Any], message: str) -> None:
    """A flag's value is checked like the file's, and the message names the option."""
    with pytest.raises(UserError) as caught:
        turn_of(empty, **flags)
    assert message in str(caught.value)
    assert "sk-1234" not in str(caught.value)


def test_a_wrong_session_and_environment(empty: Config) -> None:
    """The other levels are checked and named too; what a session leaves blank is not given."""
    with pytest.raises(UserError, match="the session's max_turns: expected a whole number"):
        turn_of(empty, {"max_turns": "3"})
    with pytest.raises(UserError, match="OPENAI_BASE_URL: expected a URL with its scheme"):
        resolve(empty, {"OPENAI_BASE_URL": "host"}, Flags(model="m"))
    assert turn_of(empty, {"max_turns": None, "model": "", "title": "x", "": 1}).max_turns == 90


def test_lone_surrogates_in_flags_are_replaced(empty: Config) -> None:
    """A model's name that came as bytes which are no text is still sent."""
    assert turn_of(empty, model="a\udcff").endpoint.model == "a\ufffd"


# --- the folder that tools run in ----------------------------------------------------------------------------------


def test_the_folder_of_the_tools(tmp_path: Path, empty: Config) -> None:
    """-C over the session's over FANJOIN_CWD over the current folder, always as an absolute path."""
    folders = [tmp_path / name for name in ("flag", "session", "environ ü")]
    for folder in folders:
        folder.mkdir()
    environ = {**ENVIRON, "FANJOIN_CWD": str(folders[2])}
    session = {"cwd": str(folders[1])}
    flags = Flags(model="m", cwd=os.path.relpath(folders[0]))
    assert resolve(empty, environ, flags, session).turn.cwd == str(folders[0])
    assert resolve(empty, environ, Flags(model="m"), session).turn.cwd == str(folders[1])
    assert resolve(empty, environ, Flags(model="m")).turn.cwd == str(folders[2])


def test_a_folder_that_is_none(tmp_path: Path, empty: Config) -> None:
    """A folder that is not there is refused, naming who gave it."""
    with pytest.raises(UserError, match="given by -C, is not a folder"):
        turn_of(empty, cwd=str(tmp_path / "gone"))
    with pytest.raises(UserError, match="given by FANJOIN_CWD, is not a folder"):
        resolve(empty, {**ENVIRON, "FANJOIN_CWD": str(tmp_path / "gone")}, Flags(model="m"))


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not allow such names")
def test_a_folder_whose_name_is_no_text(tmp_path: Path, empty: Config) -> None:
    """Bytes that are no UTF-8 cannot travel in a message; that is said before anything starts."""
    folder = tmp_path / "bad\udcff"
    folder.mkdir()
    with pytest.raises(UserError, match="has a name that is not UTF-8"):
        turn_of(empty, cwd=str(folder))


@pytest.mark.skipif(sys.platform == "win32", reason="a folder in use cannot be removed there")
def test_a_current_folder_that_is_gone(tmp_path: Path, empty: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    """A removed current folder is a message, not a traceback."""
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    with pytest.raises(UserError, match="The current folder is gone"):
        turn_of(empty)


# --- the local model -----------------------------------------------------------------------------------------------


def test_the_local_model_waits_for_its_server(tmp_path: Path) -> None:
    """``provider: local`` leaves the URL open for root and delegates, takes no key, and is filled in later."""
    config = from_text(tmp_path, "model: {provider: local}\ndelegation: {routes: {r: {description: x}}}\n")
    result = resolve(config, ENVIRON, Flags())
    assert (result.provider, result.needs_local_server) == ("local", True)
    turn = with_local_server(result.turn, "http://127.0.0.1:5/v1")
    for endpoint in (turn.endpoint, turn.delegate_endpoint, turn.routes["r"].endpoint):
        assert (endpoint.base_url, endpoint.model, endpoint.api_key) == ("http://127.0.0.1:5/v1", "local", "")


def test_a_named_model_is_not_the_local_one(tmp_path: Path) -> None:
    """The file's model belongs to the file's server; a name beside the local provider counts."""
    config = from_text(tmp_path, "model: {model: gpt, base_url: http://h}\n")
    assert resolve(config, {}, Flags(provider="local")).turn.endpoint.model == "local"
    assert resolve(config, {}, Flags(provider="local", model="tiny")).turn.endpoint.model == "tiny"


def test_a_url_nearer_than_the_local_provider(tmp_path: Path) -> None:
    """A flag's URL moves a run away from the local model; the environment's does not; both at once is a question."""
    config = from_text(tmp_path, "model: {provider: local, model: m}\n")
    assert resolve(config, {}, Flags(base_url="http://h")).provider == "custom"
    assert resolve(config, ENVIRON, Flags()).provider == "local"
    with pytest.raises(UserError, match="--provider asks for the local model, but --base-url"):
        resolve(config, {}, Flags(base_url="http://h", provider="local"))


def test_only_delegates_on_the_local_model(tmp_path: Path) -> None:
    """``delegation.provider: local`` moves the delegates alone."""
    result = resolve(from_text(tmp_path, "delegation: {provider: local}\n"), ENVIRON, Flags(model="m"))
    assert (result.provider, result.needs_local_server) == ("custom", True)
    assert result.turn.delegate_endpoint.api_key == ""


def test_custom_delegates_of_a_local_root_need_a_url(tmp_path: Path) -> None:
    """``delegation.provider: custom`` without a URL cannot mean the local server."""
    config = from_text(tmp_path, "model: {provider: local}\ndelegation: {provider: custom}\n")
    with pytest.raises(UserError, match=r"delegation.provider is custom, but delegation.base_url is not set"):
        resolve(config, {}, Flags())


# --- what may be shown ---------------------------------------------------------------------------------------------


def test_origins_show_no_key(tmp_path: Path) -> None:
    """Every setting is listed with its place; keys are masked, also in what Python prints of the structs."""
    text = "model: {api_key: sk-file-0123456789abcdef}\ndelegation: {api_key: sk-own-0123456789abcdef, base_url: http://d}\n"
    config = from_text(tmp_path, text)
    result = resolve(config, ENVIRON, Flags(model="m"))
    assert list(result.origins) == list(KEYS)
    assert result.origins["model.api_key"].value == "…ment"
    assert result.origins["model.api_key"].where == "OPENAI_API_KEY"
    assert result.origins["delegation.api_key"].value == "…cdef"
    shown = repr((result.turn, result.origins))
    assert all(secret not in shown for secret in ("key-from-the-environment", "sk-file", "sk-own"))


def test_origins_without_an_endpoint(empty: Config) -> None:
    """What is set can be shown where no turn could run; a key alone shows the public URL."""
    assert origins_of(empty, {}, Flags())["model.base_url"].value is None
    assert origins_of(empty, {"OPENAI_API_KEY": "k"}, Flags())["model.base_url"].value == "https://api.openai.com/v1"


def test_warnings_of_the_file_are_handed_on(tmp_path: Path) -> None:
    """An unknown key stops no turn; its warning comes with the result."""
    config = from_text(tmp_path, "modle: x\n")
    assert resolve(config, ENVIRON, Flags(model="m")).warnings == config.warnings
    assert len(config.warnings) == 1


@pytest.mark.parametrize(
    ("url", "mode"),
    [
        ("http://h:8000/v1", "chat_completions"),
        ("https://api.openai.com/v1", "chat_completions"),
        ("https://api.openai.com/v1/responses", "responses"),
        ("https://api.anthropic.com", "anthropic_messages"),
        ("https://api.anthropic.com/v1", "anthropic_messages"),
        ("https://gateway.example/api/anthropic", "anthropic_messages"),
        ("https://gateway.example/anthropic/v1/", "anthropic_messages"),
        ("https://gateway.example/v1/messages", "anthropic_messages"),
        ("https://gateway.example/anthropic-like/v1", "chat_completions"),
    ],
)
def test_the_url_shows_the_wire_format_unless_one_is_set(tmp_path: Path, url: str, mode: str) -> None:
    """Root, delegates and routes take the format that their own URL shows; a format that is set counts."""
    base = f"base_url: '{url}', model: m"
    config = from_text(
        tmp_path, f"model: {{{base}}}\ndelegation: {{base_url: http://d/v1, routes: {{r: {{{base}}}}}}}\n"
    )
    turn = resolve(config, {}, Flags()).turn
    assert (turn.endpoint.api_mode, turn.routes["r"].endpoint.api_mode) == (mode, mode)
    assert turn.delegate_endpoint.api_mode == "chat_completions"
    shown = origins_of(config, {}, Flags())["model.api_mode"]
    assert (shown.value, shown.level) == (mode, "default")
    for name in API_MODES:
        config = from_text(tmp_path, f"model: {{{base}, api_mode: {name}}}\n")
        turn = resolve(config, {}, Flags()).turn
        assert (turn.endpoint.api_mode, turn.delegate_endpoint.api_mode) == (name, name)
