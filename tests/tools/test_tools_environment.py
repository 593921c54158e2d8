"""What commands may see of the caller's environment: names on a list, and what the user lets through."""

from pathlib import Path

import pytest

from fanjoin.ipc.config import Flags, load_config, resolve
from fanjoin.ipc.environment import tool_environment

CALLER = {
    "PATH": "/bin",
    "LC_ALL": "C",
    "DATABASE_URL": "postgres://u:p@h/db",
    "FOO_SECRET": "s",
    "FOO_BAR": "b",
    "FOO_TOKEN": "t",
    "OPENAI_API_KEY": "key-one",
    "OPENAI_BASE_URL": "http://127.0.0.1:9/v1",
    "COPY": "key-one",
    "MY_CRED": "key-two",
    "FANJOIN_HOME": "/h",
    "FANJOIN_CWD": "/c",
}


def seen(*passthrough: str) -> set[str]:
    """Return the names that pass."""
    return set(tool_environment(CALLER, passthrough, ["OPENAI_API_KEY", "my_cred"], ["key-one", ""]))


@pytest.mark.parametrize(
    ("passthrough", "more"),
    [
        ((), set()),
        (("DATABASE_URL",), {"DATABASE_URL"}),
        (("FOO_*",), {"FOO_BAR"}),
        (("FOO_*", "FOO_TOKEN"), {"FOO_BAR", "FOO_TOKEN"}),
        (("*",), {"FOO_BAR", "DATABASE_URL", "OPENAI_BASE_URL"}),
        (("OPENAI_API_KEY", "MY_CRED", "COPY", "FANJOIN_HOME"), set()),
    ],
)
def test_a_list_decides_and_keys_never_pass(passthrough: tuple[str, ...], more: set[str]) -> None:
    """Globs let through what does not look like a secret, whole names anything but a provider's key and our own."""
    assert seen(*passthrough) == {"PATH", "LC_ALL"} | more


def test_every_variable_that_a_setting_names_for_a_key_is_left_out(tmp_path: Path) -> None:
    """Keys of the model, of delegates and of routes, named in the file or by a flag that rules it out."""
    (tmp_path / "config.yaml").write_text(
        "model: {base_url: http://h/v1, model: m, api_key_env: K_ONE}\n"
        "delegation:\n  base_url: http://d/v1\n  api_key_env: K_TWO\n"
        "  routes: {r: {base_url: http://r/v1, api_key_env: K_3}}\n"
        "terminal: {env_passthrough: ['K_*', K_ONE, K_TWO, K_3, K_FLAG, OPENAI_API_KEY]}\n",
        encoding="utf-8",
    )
    environ = {"K_ONE": "a1", "K_TWO": "a2", "K_3": "a3", "K_FLAG": "a4", "K_FREE": "free", "OPENAI_API_KEY": "a5"}
    flags = Flags(base_url="http://f/v1", api_key_env="K_FLAG")
    for given in (flags, Flags()):
        turn = resolve(load_config(tmp_path), environ, given).turn
        assert turn.terminal.environment == {"K_FREE": "free"} | ({} if given is flags else {"K_FLAG": "a4"})
