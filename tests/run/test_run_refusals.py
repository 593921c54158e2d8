"""Mistakes of the caller: one clear message each, the right exit code, no traceback, JSON where asked for."""

import json
import os
import sys
from pathlib import Path

import pytest
from run_support import Home, Provider, plan

CONFIGS = {
    "broken YAML": ("delegation:\n  max_concurrent_children: [1\n", "config.yaml:3", "YAML"),
    "a wrong type": (
        "model: {model: m}\ndelegation:\n  max_concurrent_children: many\n",
        "config.yaml:3",
        "max_concurrent",
    ),
    "a value out of range": ("delegation: {max_spawn_depth: 0}\n", "config.yaml:1", "max_spawn_depth"),
    "a list for a section": ("delegation: [1, 2]\n", "config.yaml:1", "delegation"),
    "a text for the whole": ("just words\n", "config.yaml", ""),
}
FLAGS = {
    "an unknown flag": (["--bogus"], "--bogus"),
    "a word for a number": (["--max-turns", "many"], "--max-turns"),
    "an impossible number": (["-q", "x", "--max-turns", "0"], "max-turns"),
    "a negative deadline": (["-q", "x", "--deadline", "-1"], "deadline"),
    "an unknown format": (["--format", "json", "--format", "xml"], "xml"),
    "a flag without its value": (["--toolsets"], "--toolsets"),
    "an unexpected word": (["stray"], "stray"),
    "an unset key variable": (["-q", "x", "--api-key-env", "NOT_SET_ANYWHERE"], "NOT_SET_ANYWHERE"),
    "a missing query file": (["--query-file", "no-such-file"], "no-such-file"),
    "a folder as query file": (["--query-file", "."], "."),
    "a missing folder": (["-q", "x", "-C", "no-such-folder"], "no-such-folder"),
    "an empty query": (["-q", ""], "empty"),
    "a blank query": (["-q", " \n"], "empty"),
    "a URL that is none": (["-q", "x", "--base-url", "nonsense"], "nonsense"),
    "a daemon that is not there": (["-q", "x", "--daemon", "require"], "--daemon"),
}


def check_refused(
    home: Home, arguments: list[str], *words: str, code: int = 2, env: dict[str, str] | None = None
) -> str:
    """Run ``chat --format json`` and check its refusal; returns what standard error says."""
    command = home.command("chat", "--format", "json", *arguments)
    done = home.run(command, env=env)
    said = done.stderr.decode()
    assert done.returncode == code, said
    assert all(word in said for word in words), said
    assert "Traceback" not in said
    if "xml" not in arguments:
        result = json.loads(done.stdout)
        assert result["exit_code"] == code
        assert result["error"]["message"] in said
    return said


@pytest.mark.parametrize("mistake", FLAGS)
def test_a_wrong_flag_is_named_and_nothing_starts(home: Home, mistake: str) -> None:
    """Exit 2, one message that names the flag or the value, no session, no request."""
    arguments, word = FLAGS[mistake]
    check_refused(home, [*home.model(), *arguments], word)
    assert home.provider.requests() == []
    assert not (home.path / "state.db").exists()


def test_a_wrong_configuration_is_named_by_file_line_and_key(home: Home) -> None:
    """Exit 2 for each kind of broken file; nothing is started or asked."""
    for text, place, key in CONFIGS.values():
        home.config(text)
        check_refused(home, [*home.model(), "-q", "x"], place, key)
    assert home.provider.requests() == []


def test_an_unknown_key_warns_once_and_runs(home: Home) -> None:
    """The warning names the nearest known key; the run goes on."""
    home.config("delegation: {max_concurent_children: 3}\nnull_section:\n")
    done = home.chat(plan({"text": "ok"}))
    assert (done.returncode, done.stdout) == (0, b"ok\n")
    warnings = [line for line in done.stderr.decode().splitlines() if line.startswith("warning:")]
    assert len([line for line in warnings if "max_concurrent_children" in line]) == 1


def test_without_an_endpoint_the_lines_to_paste_are_shown(home: Home) -> None:
    """No URL, no key, no model: exit 2 with what to write where."""
    said = check_refused(home, ["-q", "x"], "config.yaml", "base_url", "model")
    assert "OPENAI" in said or "provider: local" in said


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() != 0, reason="needs a second user")
def test_a_home_of_another_user_is_refused(home: Home) -> None:
    """Its keys and receipts would not be private there."""
    home.path.mkdir()
    os.chown(home.path, 12345, 12345)
    check_refused(home, [*home.model(), "-q", "x"], "another user", str(home.path))


def test_a_home_that_cannot_be_made_is_named(home: Home) -> None:
    """The path is a file, is below a file, or is no text: exit 2, with the variable to set."""
    blocker = home.path.parent / "file"
    blocker.write_text("", encoding="utf-8")
    for path in (blocker, blocker / "below"):
        check_refused(home, [*home.model(), "-q", "x"], str(path), "FANJOIN_HOME", env={"FANJOIN_HOME": str(path)})


@pytest.mark.skipif(sys.platform == "win32", reason="file modes are a POSIX matter")
def test_a_home_with_loose_bits_is_tightened(home: Home) -> None:
    """An existing home of ours that others could read is made private."""
    home.path.mkdir(mode=0o755)
    home.path.chmod(0o755)
    assert home.chat(plan({"text": "ok"})).returncode == 0
    assert (home.path.stat().st_mode & 0o777) == 0o700
    loose = [path for path in home.path.rglob("*") if path.is_dir() and path.stat().st_mode & 0o077]
    assert loose == []


def test_a_damaged_database_is_named_and_left_alone(home: Home, provider: Provider) -> None:
    """A file that is no database: exit 1 with its path, nothing asked, the file as it was, nothing left behind."""
    home.path.mkdir()
    path = home.path / "state.db"
    path.write_bytes(b"this is no database" * 1000)
    done = home.other("chat", *home.model(), "-q", "x", "--format", "json")
    assert (done.returncode, b"Traceback" in done.stderr) == (1, False)
    assert str(path) in done.stderr.decode()
    assert json.loads(done.stdout)["error"]["reason"] == "storage_unavailable"
    assert path.read_bytes() == b"this is no database" * 1000
    home.check_no_process()
    assert list((home.path / "run").iterdir()) == []
    assert provider.requests() == []


def test_a_home_that_is_a_file_is_named_by_every_command(home: Home) -> None:
    """Exit 2 and what is wrong; a listing does not claim that nothing is there."""
    home.path.write_text("not a folder", encoding="utf-8")
    for command in ("ps", "receipts list", "sessions list", "config show", "daemon status", "chat -q x"):
        done = home.other(*command.split())
        assert (done.returncode, done.stdout) == (2, b""), command
        assert b"which is a file" in done.stderr


def test_an_unreachable_provider_is_named(home: Home) -> None:
    """Nothing listens there: exit 1, reason network, the address in the message, after at most three tries."""
    said = check_refused(
        home, ["--base-url", "http://127.0.0.1:1/v1", "-m", "m", "-q", "x"], "127.0.0.1:1", "network", code=1
    )
    assert said.count("\n") <= 3


def test_help_and_version_need_no_home(home: Home, tmp_path: Path) -> None:
    """They print to standard output, exit 0 and leave nothing."""
    home.path = tmp_path / "never-made"
    for arguments in (["--version"], ["--help"], ["chat", "--help"], ["run", "-h"], ["receipts", "--help"]):
        done = home.run(home.command(*arguments), env={"FANJOIN_HOME": str(home.path)})
        assert (done.returncode, done.stderr) == (0, b"")
        assert done.stdout
    assert not home.path.exists()
