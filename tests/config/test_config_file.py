"""The configuration file: what is read from it, what stops, what only warns, and how a message names the place."""

import contextlib
import os
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fanjoin.ipc.config import load_config
from fanjoin.ipc.config_file import SIZE_LIMIT, Located
from fanjoin.ipc.config_schema import KEYS, NOT_BUILT
from fanjoin.ipc.errors import ConfigError


def write(home: Path, text: str | bytes) -> Path:
    """Write the configuration file and return the home folder."""
    data = text.encode() if isinstance(text, str) else text
    (home / "config.yaml").write_bytes(data)
    return home


def refused(home: Path, text: str | bytes) -> str:
    """Return the message with which this file is refused."""
    with pytest.raises(ConfigError) as caught:
        load_config(write(home, text))
    assert caught.value.exit_code == 2
    return str(caught.value)


def test_a_missing_file_holds_nothing(tmp_path: Path) -> None:
    """No file is the same as an empty one, and not an error."""
    config = load_config(tmp_path)
    assert (config.values, config.routes, config.warnings) == ({}, {}, [])


@pytest.mark.parametrize("text", ["", "\n\n", "# nothing\n", "---\n", "null\n", "\ufeff", "model:\n", "model: ~\n"])
def test_nothing_and_null_are_absent(tmp_path: Path, text: str) -> None:
    """An empty file, a null document and a null section give no value and no warning."""
    config = load_config(write(tmp_path, text))
    assert (config.values, config.warnings) == ({}, [])


def test_values_know_their_lines(tmp_path: Path) -> None:
    """Each value comes with the line that it stands on, whatever ends the lines."""
    text = "model:\r\n  model: m\r\n  base_url: http://h/v1/\r\ntoolsets: [files, files, terminal]\r\n"
    config = load_config(write(tmp_path, text))
    assert config.values == {
        "model.model": Located("m", 2),
        "model.base_url": Located("http://h/v1", 3),
        "toolsets": Located(("files", "terminal"), 4),
    }
    assert config.place(3) == f"{tmp_path / 'config.yaml'}:3"


def test_a_null_value_is_absent(tmp_path: Path) -> None:
    """A key without a value, or with a blank one left as a placeholder, counts as one that is not there."""
    text = "model:\n  base_url:\n  api_key: ''\n  model: m\n"
    assert load_config(write(tmp_path, text)).values == {"model.model": Located("m", 4)}


def test_dates_and_versions_stay_text(tmp_path: Path) -> None:
    """A model's name that YAML takes for a date is still the name."""
    assert load_config(write(tmp_path, "model: {model: 2026-01-31}")).values["model.model"].value == "2026-01-31"


def test_other_names_of_a_setting(tmp_path: Path) -> None:
    """``model.default`` and ``terminal.backend`` are accepted; the same value twice is no contradiction."""
    values = load_config(write(tmp_path, "model: {default: m, model: m}\nterminal: {backend: local}")).values
    assert (values["model.model"].value, values["terminal.env"].value) == ("m", "local")


def test_two_names_with_two_values_stop(tmp_path: Path) -> None:
    """Two names of one setting with different values leave open which counts, so that stops."""
    message = refused(tmp_path, "model:\n  default: a\n  model: b\n")
    assert "config.yaml:3: model.model: line 2 gives another value" in message


def test_every_problem_is_named_at_once(tmp_path: Path) -> None:
    """All wrong values are reported together, each with its line and key."""
    text = "delegation:\n  max_tasks: many\n  stall_seconds: -1\nagent: {max_turns: 1.5}\n"
    lines = refused(tmp_path, text).splitlines()
    places = [line.removeprefix(str(tmp_path / "config.yaml")).partition(": expected")[0] for line in lines[:3]]
    assert places == [":2: delegation.max_tasks", ":3: delegation.stall_seconds", ":4: agent.max_turns"]
    assert "Nothing was started" in lines[3]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("max_tasks: true", "a whole number from 1"),
        ("max_tasks: 0", "a whole number from 1"),
        ("max_tasks: -3", "a whole number from 1"),
        ("max_tasks: 64.0", "a whole number from 1"),
        ("max_tasks: '64'", "a whole number from 1"),
        ("max_tasks: 99999999999999999999999", "a whole number from 1"),
        ("max_tasks: " + "9" * 5000, "a whole number from 1"),
        ("memory_limit_mb: 63", "0, which is no limit, or a whole number of MiB from 64"),
        ("max_spawn_depth: 17", "a whole number from 1 to 16"),
        ("child_timeout_seconds: .nan", "a number of seconds"),
        ("child_timeout_seconds: .inf", "a number of seconds"),
        ("child_timeout_seconds: -0.5", "a number of seconds"),
        ("child_timeout_seconds: 30s", "a number of seconds"),
        ("child_timeout_seconds: no", "a number of seconds"),
        ("child_timeout_seconds: " + "9" * 400, "a number of seconds"),
        ("launcher: fork", "auto or zygote or spawn"),
        ("provider: openai", "custom or local"),
        ("api_mode: smoke", "chat_completions or anthropic_messages or responses"),
        ("reasoning_effort: off", "none or low or medium or high"),
        ("model: 4", "a text"),
        ("model: [a]", "a text"),
        ("model: {a: b}", "a text"),
        ("toolsets: 3", "a list of names"),
        ("toolsets: [1, 2]", "a list of names"),
        ("toolsets: [[a]]", "a list of names"),
        ("toolsets: &a [*a]", "a list of names"),
        ("base_url: localhost:8000/v1", "a URL with its scheme, such as http://localhost:8000/v1"),
        ("base_url: ftp://h/v1", "an http:// or https:// URL"),
        ("base_url: http://", "an http:// or https:// URL"),
        ("base_url: http://h:99999/v1", "an http:// or https:// URL"),
        ("base_url: http://h/v1?x=1", "an http:// or https:// URL"),
        ("base_url: 'http://h /v1'", "an http:// or https:// URL"),
        ("base_url: http://h/v1/chat/completions/", "the base URL, which ends before /chat/completions"),
        ("api_key: 'two words'", "a key of printable ASCII"),
        ("api_key: ${MY_KEY}", "the key itself; to name a variable that holds it, use api_key_env"),
        ("api_key_env: $MY_KEY", "the name of an environment variable"),
    ],
)
def test_a_wrong_value_stops(tmp_path: Path, line: str, expected: str) -> None:
    """A value of a wrong kind is refused with what was expected, its line and its key."""
    message = refused(tmp_path, f"delegation:\n  {line}\n")
    assert f"config.yaml:2: delegation.{line.partition(':')[0]}: expected {expected}" in message


@pytest.mark.parametrize(
    ("text", "key", "expected"),
    [
        ("toolsets: [files, x]", "toolsets", "names of toolsets (delegation, files, terminal, web)"),
        ("delegation: {toolsets: [browser]}", "delegation.toolsets", "names of toolsets"),
        ("approvals: {mode: maybe}", "approvals.mode", "ask or allow or deny"),
        ("prices: {m: {input: x}}", "prices.m.input", "a price of a million tokens"),
        ("prices: {m: {output: -1}}", "prices.m.output", "a price of a million tokens"),
    ],
)
def test_wrong_values_of_tools_and_prices(tmp_path: Path, text: str, key: str, expected: str) -> None:
    """Toolsets that are unknown or not built, an unknown mode and a price that is none are refused."""
    assert f"config.yaml:1: {key}: expected {expected}" in refused(tmp_path, text + "\n")


@pytest.mark.parametrize("name", ["supervisor.silence_seconds", "provider.connect_seconds", "terminal.timeout"])
def test_zero_is_refused_where_it_would_stop_everything(tmp_path: Path, name: str) -> None:
    """A wait of zero seconds makes no sense for these."""
    section, _, last = name.partition(".")
    assert "above 0" in refused(tmp_path, f"{section}: {{{last}: 0}}")


@pytest.mark.parametrize(
    "line",
    [
        "api_key: [sk-hidden-value]",
        "api_key: {x: sk-hidden-value}",
        "api_key: 'sk-hidden-value ü'",
        "api_key_env: sk-hidden-value",
        "base_url: http://u:sk-hidden-value@h/v1",
    ],
)
def test_a_refused_key_is_never_shown(tmp_path: Path, line: str) -> None:
    """The message about a wrong value does not repeat what may be a secret."""
    assert "hidden" not in refused(tmp_path, f"model:\n  {line}\n")


def test_broken_yaml_shows_no_line_of_the_file(tmp_path: Path) -> None:
    """The parser's excerpt of the file stays out of the message: the line may hold a key."""
    message = refused(tmp_path, "model:\n  api_key: sk-hidden: [\n")
    assert "config.yaml:2: this is not valid YAML" in message
    assert "hidden" not in message


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("model:\n\tmodel: x\n", 2),
        ("model: {model: x\n\n", 3),
        ("a: 1\n---\nb: 2\n", 2),
        ("model: *nothing\n", 1),
        ("a: b\nmodel: x: y\n", 2),
        ("model:\n  model: a\x00b\n", 2),
        ("x: 1\ny: '\x1b[31m'\n", 2),
    ],
)
def test_broken_yaml_stops_with_its_line(tmp_path: Path, text: str, line: int) -> None:
    """What is not YAML is refused with file and line."""
    assert f"config.yaml:{line}: this is not valid YAML: " in refused(tmp_path, text)


@pytest.mark.parametrize("text", ["[" * 50_000, "a: " * 3 + "[" * 2_000, "- " * 30_000])
def test_deep_nesting_is_a_message(tmp_path: Path, text: str) -> None:
    """Nesting that no parser holds ends in a message, not in a crash."""
    assert "not valid YAML" in refused(tmp_path, text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- a\n- b\n", ":1: the file: expected a section"),
        ("just words\n", ":1: the file: expected a section"),
        ("model: gpt\n", ":1: model: expected a section"),
        ("delegation:\n  routes: [a]\n", ":2: delegation.routes: expected a section"),
        ("delegation:\n  routes:\n    fast: x\n", ":3: delegation.routes.fast: expected a section"),
        ("model: {model: a}\nmodel: {model: b}\n", ":2: model: line 1 gives it already"),
        ("model:\n  model: a\n  model: a\n", ":3: model.model: line 2 gives it already"),
        ("? [a]\n: b\n", ":1: the file: a name has to be a plain text"),
        ("a: &a {b: 1}\nmodel: {<<: *a}\n", ":2: model: a name has to be a plain text"),
    ],
)
def test_a_wrong_shape_stops(tmp_path: Path, text: str, message: str) -> None:
    """A section that is none, a key given twice and a merged section are refused with line and name."""
    assert message in refused(tmp_path, text)


@pytest.mark.parametrize(
    ("text", "line", "name", "nearest"),
    [
        ("model:\n  bas_url: x\n", 2, "model.bas_url", "model.base_url"),
        (
            "delegation: {max_concurent_children: 3}\n",
            1,
            "delegation.max_concurent_children",
            "max_concurrent_children",
        ),
        ("max_tasks: 3\n", 1, "max_tasks", "delegation.max_tasks"),
        ("modle:\n  model: x\n", 2, "modle", "model"),
        ("Toolsets: [files]\n", 1, "Toolsets", "toolsets"),
        ("delegation:\n  routes:\n    r: {modle: x}\n", 3, "delegation.routes.r.modle", "delegation.routes.r.model"),
        ("delegation:\n  routes:\n    r: {api_key: x}\n", 3, "delegation.routes.r.api_key", "r.api_key_env"),
        ("x: &x [*x, {a: *x}]\n", 1, "x", ""),
    ],
)
def test_an_unknown_key_warns_once(tmp_path: Path, text: str, line: int, name: str, nearest: str) -> None:
    """An unknown key has one warning with its line and the nearest known name, and stops nothing."""
    config = load_config(write(tmp_path, text))
    [warning] = config.warnings
    assert f"config.yaml:{line}: {name} is not a setting" in warning
    assert nearest in warning.partition("nearest known name is ")[2]
    assert config.values == {}


@pytest.mark.parametrize("name", NOT_BUILT)
@pytest.mark.parametrize("value", ["true", "false"])
def test_what_is_not_built_warns_only_when_asked_for(tmp_path: Path, name: str, value: str) -> None:
    """Settings of later versions are accepted; only ``true`` warns."""
    text = value
    for part in reversed(name.split(".")):
        text = f"{{{part}: {text}}}"
    config = load_config(write(tmp_path, text))
    assert [f"{name} is true" in warning for warning in config.warnings] == ([True] if value == "true" else [])


def test_named_routes(tmp_path: Path) -> None:
    """Routes keep their names, their order and the line of each field."""
    text = "delegation:\n  routes:\n    zeta: {model: a}\n    alpha:\n      base_url: http://h\n    none:\n"
    config = load_config(write(tmp_path, text))
    assert config.routes == {"zeta": {"model": Located("a", 3)}, "alpha": {"base_url": Located("http://h", 5)}}
    assert list(config.routes) == ["zeta", "alpha"]


def test_lone_surrogates_become_the_replacement_character(tmp_path: Path) -> None:
    """A lone surrogate, escaped or as bytes, is replaced; a pair is joined; neither is an error."""
    escaped = load_config(write(tmp_path, 'model: {model: "a\\ud800b\\ud83d\\ude00"}')).values
    assert escaped["model.model"].value == "a\ufffdb\U0001f600"
    raw = load_config(write(tmp_path, b"model: {model: a\xed\xa0\x80b}")).values
    assert raw["model.model"].value == "a\ufffdb"


def test_a_byte_order_mark_is_ignored(tmp_path: Path) -> None:
    """A file that an editor began with a byte order mark reads the same."""
    assert load_config(write(tmp_path, b"\xef\xbb\xbfmodel: {model: a}")).values["model.model"].value == "a"


@pytest.mark.parametrize("data", [b"model:\n  model: \xff\xfe\n", b"# ok\n\xc3(", "# x\nmodel: ü".encode("utf-16")])
def test_bytes_that_are_not_utf8_are_named_with_their_line(tmp_path: Path, data: bytes) -> None:
    """Another encoding is refused with the line of the first bad byte."""
    message = refused(tmp_path, data)
    assert f"config.yaml:{1 if data[:1] != b'm' and data[:1] != b'#' else 2}: this line is not UTF-8" in message


def test_a_folder_in_its_place(tmp_path: Path) -> None:
    """A folder of that name is refused."""
    (tmp_path / "config.yaml").mkdir()
    with pytest.raises(ConfigError, match="is not a file"):
        load_config(tmp_path)


def test_a_file_that_is_far_too_large(tmp_path: Path) -> None:
    """A huge file is refused before it is parsed."""
    assert "is larger than" in refused(tmp_path, b"#" * (SIZE_LIMIT + 1))


@pytest.mark.skipif(sys.platform == "win32", reason="symbolic links need a privilege there")
def test_a_dangling_link_is_not_an_absent_file(tmp_path: Path) -> None:
    """A link to a file that is gone is a mistake to name, not an empty configuration."""
    (tmp_path / "config.yaml").symlink_to(tmp_path / "gone.yaml")
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        load_config(tmp_path)


@pytest.mark.skipif(sys.platform == "win32", reason="modes do not hide files there")
def test_an_unreadable_file(tmp_path: Path) -> None:
    """A file that may not be read is refused by name (the folder is closed too where root reads everything)."""
    closed = tmp_path / "closed"
    closed.mkdir()
    write(closed, "model: {model: a}")
    (closed / "config.yaml").chmod(0)
    if os.access(closed / "config.yaml", os.R_OK):
        (closed / "config.yaml").unlink()
        (closed / "config.yaml").symlink_to(closed / "config.yaml")
    with pytest.raises(ConfigError, match="cannot be read"):
        load_config(closed)


def test_every_setting_of_the_file_can_be_written(tmp_path: Path) -> None:
    """Each known name takes its default, written down, without a warning."""
    for name, key in KEYS.items():
        if key.in_file and key.default is not None:
            shown = str(list(key.default)) if isinstance(key.default, tuple) else str(key.default).lower()
            text = shown
            for part in reversed(name.split(".")):
                text = f"{{{part}: {text}}}"
            config = load_config(write(tmp_path, text))
            assert (config.values[name].value, config.warnings) == (key.default, [])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=200, deadline=None)
@given(st.one_of(st.binary(max_size=60), st.text(alphabet="model:{}[]&*<>|'\"\\-? \n\tu08d~#!%@`", max_size=60)))
def test_no_file_is_a_traceback(tmp_path: Path, text: bytes | str) -> None:
    """Whatever bytes the file holds, reading it succeeds or raises the error that is meant for the user."""
    with contextlib.suppress(ConfigError):
        load_config(write(tmp_path, text))
