"""AGENTS.md: found upwards to the top of the project, bounded, and only what the user wrote."""

import os
import sys
from pathlib import Path

import pytest

from fanjoin.agent_proc.rules import MAX_BYTES, read_rules


def make(path: Path, text: str) -> Path:
    """Write a file with its folders."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_the_nearest_rules_come_last(tmp_path: Path) -> None:
    """From the top of the repository down to the working directory; what lies above the repository is not read."""
    make(tmp_path / "AGENTS.md", "TOO FAR")
    top = make(tmp_path / "repo" / "AGENTS.md", "of the top")
    (tmp_path / "repo" / ".git").mkdir()
    near = make(tmp_path / "repo" / "a" / "b" / "AGENTS.md", "of b\n")
    rules = read_rules(str(near.parent), "/nowhere")
    assert rules.text == f"Rules of {top}:\nof the top\n\nRules of {near}:\nof b"
    assert rules.notice == f"project rules: {near}, {top}"


def test_the_home_directory_is_the_last_one(tmp_path: Path) -> None:
    """Without a repository the walk ends at the user's home."""
    make(tmp_path / "AGENTS.md", "TOO FAR")
    make(tmp_path / "home" / "AGENTS.md", "mine")
    (tmp_path / "home" / "x").mkdir()
    assert read_rules(str(tmp_path / "home" / "x"), str(tmp_path / "home")).text.endswith("mine")
    (tmp_path / "home" / "AGENTS.md").unlink()
    assert read_rules(str(tmp_path / "home" / "x"), str(tmp_path / "home")).text == ""


def test_long_rules_are_cut_and_it_is_said(tmp_path: Path) -> None:
    """The nearest ones come first when there are more than fit."""
    make(tmp_path / "AGENTS.md", "far " * 10_000)
    make(tmp_path / "near" / "AGENTS.md", "n" * 1000)
    rules = read_rules(str(tmp_path / "near"), str(tmp_path))
    assert "n" * 1000 in rules.text
    assert MAX_BYTES - 2000 < len(rules.text) < MAX_BYTES + 500
    assert "cut, all rules together" in rules.notice.partition(str(tmp_path / "AGENTS.md"))[2]


@pytest.mark.skipif(sys.platform == "win32", reason="files have no such owners and no pipes there")
def test_what_is_not_the_users_own_file_is_left_alone(tmp_path: Path) -> None:
    """A pipe does not block, another user's file rules nobody, and the user hears of both."""
    (tmp_path / "a").mkdir()
    os.mkfifo(tmp_path / "a" / "AGENTS.md")
    strange = make(tmp_path / "AGENTS.md", "obey")
    if os.geteuid() == 0:
        os.chown(strange, 12345, 12345)
    else:
        strange.chmod(0)
    rules = read_rules(str(tmp_path / "a"), str(tmp_path))
    assert rules.text == ""
    assert rules.notice.count("not read") == 2


@pytest.mark.skipif(sys.platform == "win32", reason="links need a privilege there")
def test_a_link_out_of_its_folder_is_left_alone(tmp_path: Path) -> None:
    """A project from elsewhere shows no model what lies in your home; a link within its folder is read."""
    make(tmp_path / "home" / "id_key", "SECRET")
    make(tmp_path / "home" / "project" / "docs" / "RULES.md", "obey")
    project = tmp_path / "home" / "project"
    (project / "AGENTS.md").symlink_to("docs/RULES.md")
    (project / "docs" / "AGENTS.md").symlink_to("../../id_key")
    rules = read_rules(str(project / "docs"), str(tmp_path / "home"))
    assert "obey" in rules.text
    assert "SECRET" not in rules.text
    assert f"it is a link out of its folder, to {tmp_path / 'home' / 'id_key'}" in rules.notice


def test_no_rules_are_no_news(tmp_path: Path) -> None:
    """Nothing is said when there are none, and of an empty file only that it was read."""
    assert read_rules(str(tmp_path), str(tmp_path)) == type(read_rules(str(tmp_path), str(tmp_path)))()
    make(tmp_path / "AGENTS.md", " \n")
    assert read_rules(str(tmp_path), str(tmp_path)).text == ""
