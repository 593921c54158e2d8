"""The command from outside: where tasks come from, what each stream gets, which exit code tells what."""

import json
import os
import sys
from pathlib import Path

import pytest
from delegate_support import WORKER, delegated, fates, goals, lines, result, start, task_file
from run_support import Home, wait_until


def test_our_own_agent_is_the_worker_when_none_is_named(home: Home) -> None:
    """Each task is one delegate of depth 1 with its own context; there is no root and no message of one."""
    tasks = [
        {"id": "a", "goal": "[[answer first]]"},
        {"id": "b", "goal": "[[status 401]]"},
        {"goal": "[[answer third]]"},
    ]
    value = result(home, task_file(home.path.parent / "tasks.jsonl", *tasks), worker=None)
    assert [one["summary"] for one in value["results"]] == ["first", None, "third"]
    assert fates(value)[1] == ("failed", "auth")
    assert [one["id"] for one in value["results"]] == ["a", "b", "3"]
    assert value["exit_code"] == 4
    assert home.rows("SELECT COUNT(*) FROM messages") == [(0,)]
    assert home.rows("SELECT DISTINCT depth, parent_id = admission_id FROM delegations") == [(1, 1)]
    assert home.rows("SELECT source, status FROM sessions, session_admissions") == [("delegate", "terminal")]
    assert {request["messages"] for request in home.provider.requests()} <= {1, 2}


def test_tasks_come_from_standard_input(home: Home) -> None:
    """``-`` reads lines: goals and objects."""
    done = delegated(home, "-", "--format", "jsonl", "-Q", text_in='first one\n{"goal": "second", "id": "s"}\n')
    *entries, totals = map(json.loads, done.stdout.splitlines())
    assert {entry["id"]: entry["summary"] for entry in entries} == {"1": "done first one", "s": "done second"}
    assert (totals["type"], totals["ok"], totals["exit_code"], done.returncode) == ("totals", True, 0, 0)


def test_a_template_over_files(home: Home) -> None:
    """One task per file, with its path as the id."""
    for name in ("a.md", "b.md"):
        (home.path.parent / name).write_text(f"text of {name}", encoding="utf-8")
    command = home.command(
        "delegate", "--map", "{name} says {text}", "a.md", "b.md", "--format", "json", "--worker", WORKER
    )
    value = json.loads(home.run(command, cwd=home.path.parent).stdout)
    assert [(one["id"], one["summary"]) for one in value["results"]] == [
        ("a.md", "done a.md says text of a.md"),
        ("b.md", "done b.md says text of b.md"),
    ]


def test_people_get_a_table_and_the_counts(home: Home) -> None:
    """The table on standard output; a line per task and the counts on standard error."""
    done = delegated(home, *goals("plain", "exit3"))
    assert done.returncode == 4
    head, *rows = done.stdout.decode().splitlines()
    assert head.split() == ["ID", "STATUS", "SECONDS", "RESULT"]
    assert [row.split()[:2] for row in rows] == [["1", "completed"], ["2", "crashed"]]
    said = done.stderr.decode().splitlines()
    assert said[0].startswith("session: s_")
    assert sorted(line.split()[:2] for line in said[1:3]) == [["1", "completed"], ["2", "crashed"]]
    assert said[3] == "1 of 2 tasks completed; 1 crashed"
    assert delegated(home, *goals("plain"), "-Q").stderr.decode() == "1 of 1 tasks completed\n"


def test_the_table_has_the_order_of_the_tasks(home: Home) -> None:
    """Whichever ended first; an id that is too long for a column is cut."""
    tasks = [{"id": "a" * 80, "goal": "close"}, {"id": "b", "goal": "plain"}]
    done = delegated(home, task_file(home.path.parent / "tasks.jsonl", *tasks))
    assert [line.split()[0] for line in done.stderr.decode().splitlines()[1:3]] == ["b", "a" * 59 + "…"]
    assert [line.split()[0] for line in done.stdout.decode().splitlines()] == ["ID", "a" * 59 + "…", "b"]


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo terminals on Windows")
def test_a_terminal_gets_a_line_that_lives(home: Home) -> None:
    """It counts, and is taken away before anything else is written."""
    leader, follower = os.openpty()
    process = start(home, *goals("plain", "close"), stderr=follower)
    os.close(follower)
    process.communicate(timeout=30)
    seen = os.read(leader, 65_536).decode()
    os.close(leader)
    assert "1 of 2 ended, 1 running" in seen
    assert "\r" in seen.partition("1 of 2 ended")[2]
    assert seen.rstrip().endswith("2 of 2 tasks completed")


def test_usage_errors_are_two_and_run_nothing(home: Home) -> None:
    """A message, the totals where a machine format was asked for, no traceback, no receipt."""
    wrong = (["--timeout", "nan"], ["--timeout", "inf"], ["--deadline", "-1"], ["-j", "9999999999"])
    for arguments in (["nowhere.jsonl"], ["-g", "a", "-o", "/no/such"], *(["-g", "a", *flags] for flags in wrong)):
        done = delegated(home, *arguments)
        assert done.returncode == 2, arguments
        assert b"Traceback" not in done.stderr
    assert delegated(home, "-g", "a", "--worker", "", worker=None).returncode == 2  # no worker, but one was meant
    files = task_file(home.path.parent / "tasks.jsonl", {"goal": "a"})
    done = delegated(home, files, "-o", files, "--format", "json")
    assert json.loads(done.stdout)["error"]["reason"] == "usage"
    assert lines(Path(files)) == [{"goal": "a"}]
    assert home.run(home.command("delegate", "-g", "a")).returncode == 2


def test_a_dry_run_starts_nothing(home: Home) -> None:
    """The plan, exit 0, and no home is filled."""
    done = delegated(home, *goals("one", "two\nlines"), "--dry-run")
    assert [row.split() for row in done.stdout.decode().splitlines()[1:]] == [
        ["1", "run", "one"],
        ["2", "run", "two", "lines"],
    ]
    assert not (home.path / "state.db").exists()


@pytest.mark.skipif(sys.platform == "win32", reason="a reader that left shows elsewhere on Windows")
def test_a_reader_that_left_ends_the_run(home: Home) -> None:
    """Standard output is closed after the first line: when the next is written the rest is cancelled, with receipts."""
    home.config("delegation: {cancel_grace_seconds: 0.2}")
    with start(home, *goals("plain", "hang", "wait 3"), "--format", "jsonl", "-j", "3") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        wait_until((home.path / "mark-hang").exists, "a task that hangs")
        process.stdout.close()
        (home.path / "go").touch()
        said = process.stderr.read()
        assert process.wait(20) == 4
    assert b"Traceback" not in said
    home.check_nothing_left()
    assert home.statuses() == [("completed", ""), ("cancelled", "viewer_lost"), ("completed", "")]


def test_results_that_cannot_be_written_are_kept_and_can_be_had_again(home: Home) -> None:
    """A full device under ``-o``: said once, exit 1, every receipt is there."""
    if not Path("/dev/full").exists():
        pytest.skip("this system has no device that is always full")
    done = delegated(home, *goals("one", "two"), "-o", "/dev/full")
    assert done.returncode == 1
    assert done.stderr.count(b"cannot be written any further") == 1
    assert home.statuses() == [("completed", "")] * 2


@pytest.mark.parametrize("form", ["text", "json", "jsonl"])
def test_a_standard_output_that_cannot_be_written_is_said_once(home: Home, form: str) -> None:
    """A full device: exit 1, each task has its receipt, and the counts are those of the receipts."""
    if not Path("/dev/full").exists():
        pytest.skip("this system has no device that is always full")
    with Path("/dev/full").open("wb") as full:
        process = start(home, *goals("one", "two", "three"), "-j", "1", "--format", form, stdout=full)
        _, said = process.communicate(timeout=30)
    assert process.returncode == 1
    assert said.count(b"cannot be written") == said.count(b"tasks completed") == 1
    assert b"without a receipt" not in said
    statuses = home.statuses()
    assert len(statuses) == 3
    assert f"{statuses.count(('completed', ''))} of 3 tasks completed" in said.decode()
