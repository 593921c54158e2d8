"""``fanjoin config show`` and ``check``."""

import pytest
from click.testing import Result
from listing_support import Home

from fanjoin.cli.config_command import config_command
from fanjoin.ipc.config_schema import KEYS

TEXT = """\
model:
  model: qwen
  base_url: http://127.0.0.1:8000/v1/
  api_key: sk-secret-0123456789
delegation:
  stall_seconds: 4.5
  routes:
    fast: {model: small, api_key_env: FAST_KEY, base_url: "http://r"}
"""


def shown(home: Home, text: str, *arguments: str) -> Result:
    """Run ``config`` with this configuration file."""
    (home.folder / "config.yaml").write_text(text, encoding="utf-8", newline="\n")
    return home.run(config_command, *arguments, columns=200)


def test_each_setting_with_its_place(home: Home) -> None:
    """Every setting is listed with its value and where that comes from; keys are masked."""
    output = shown(home, TEXT, "show").stdout
    rows = {cells[0]: cells[1:] for line in output.splitlines() if len(cells := line.split()) > 1}
    assert output.startswith(str(home.folder / "config.yaml"))
    assert set(KEYS) < set(rows)
    assert rows["model.base_url"] == ["http://127.0.0.1:8000/v1", "config.yaml:3"]
    assert rows["model.api_key"] == ["…6789", "config.yaml:4"]
    assert rows["delegation.stall_seconds"] == ["4.5", "config.yaml:6"]
    assert rows["delegation.max_tasks"] == ["64", "default"]
    assert rows["delegation.routes.fast.model"] == ["small", "config.yaml:8"]
    assert "secret" not in output


def test_settings_as_json(home: Home) -> None:
    """A program gets the same, with values of their own types."""
    (home.folder / "config.yaml").write_text(TEXT + "modle: x\n", encoding="utf-8", newline="\n")
    told = home.json(config_command, "show")
    assert told["settings"]["toolsets"] == {"value": ["delegation", "files"], "level": "default", "where": "default"}
    assert told["settings"]["model.api_key"]["value"] == "…6789"
    assert told["settings"]["model.model"]["where"] == told["file"] + ":2"
    assert "modle is not a setting" in told["warnings"][0]


def test_show_without_a_file(home: Home) -> None:
    """With nothing configured the defaults are shown."""
    assert "delegation.max_tasks" in home.run(config_command, "show").stdout


def test_a_right_configuration(home: Home) -> None:
    """A configuration that a turn can run with is right: exit 0."""
    result = shown(home, TEXT.replace("api_key_env: FAST_KEY, ", ""), "check")
    assert (result.exit_code, result.stdout) == (0, "The configuration is right.\n")


def test_an_unknown_key_is_right_with_a_warning(home: Home) -> None:
    """An unknown key warns and is not wrong; a missing endpoint is told, because flags may give it."""
    result = shown(home, "modle: x\n", "check")
    assert result.exit_code == 0
    assert "warning: " in result.stdout
    assert "No model endpoint is known" in result.stdout


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("delegation: {max_tasks: many}\n", ":1: delegation.max_tasks: expected a whole number"),
        ("delegation: [\n", "this is not valid YAML"),
        (TEXT, "names the variable FAST_KEY, which is not set"),
    ],
)
def test_a_wrong_configuration(home: Home, text: str, problem: str) -> None:
    """What is wrong is printed with its place: exit 2, in both forms."""
    result = shown(home, text, "check")
    assert (result.exit_code, problem in result.stdout) == (2, True)
    told = shown(home, text, "check", "--format", "json")
    assert (told.exit_code, '"ok": false' in told.stdout) == (2, True)
