"""``fanjoin ps`` and ``fanjoin receipts``, as a person and as a program read them."""

import json

import pytest
from listing_support import GOAL, Home

from fanjoin.cli.listing import ps_command, receipts_command
from fanjoin.cli.table import width
from fanjoin.ipc.errors import UserError


def test_ps_lists_what_runs(used_home: Home) -> None:
    """Queued and running delegates are listed; those with a receipt are not."""
    lines = used_home.run(ps_command).stdout.splitlines()
    assert lines[0].split() == ["DELEGATE", "CALL", "PID", "STATUS", "FOR", "GOAL"]
    assert [line.split()[:4] for line in lines[1:]] == [
        ["d_queued", "c_1", "-", "queued"],
        ["d_running", "c_1", "4711", "running"],
    ]


def test_ps_as_json_is_whole(used_home: Home) -> None:
    """A program gets every field, and the goal to its last letter."""
    queued, running = used_home.json(ps_command)
    assert queued == {
        "receipt_id": "d_queued",
        "delegation_id": "c_1",
        "pid": None,
        "goal": GOAL,
        "status": "queued",
        "started_at": None,
    }
    assert (running["pid"], running["started_at"], running["goal"]) == (4711, 6.0, GOAL)


@pytest.mark.parametrize("columns", [80, 120, 1000])
def test_text_fits_the_terminal(used_home: Home, columns: int) -> None:
    """No line is wider than the terminal, a goal is one line, and nothing in it moves the cursor."""
    for command in (ps_command, receipts_command):
        output = used_home.run(command, columns=columns).stdout
        lines = output.splitlines()
        assert len(lines) == 3
        assert max(width(line) for line in lines) <= columns
        assert all(letter.isprintable() for line in lines for letter in line)
        assert ("…" in lines[1]) == (columns < 500)


def test_nothing_recorded_yet(home: Home) -> None:
    """An unused home lists nothing, in both forms, and reading makes no database there."""
    assert home.run(ps_command).stdout == "No delegate is queued or running.\n"
    assert home.run(receipts_command).stdout == "No delegate has ended under this home yet.\n"
    assert (home.json(ps_command), home.json(receipts_command, "list")) == ([], [])
    assert list(home.folder.iterdir()) == []


def test_receipts_without_a_subcommand_are_listed(used_home: Home) -> None:
    """``receipts``, ``receipts list`` and options without a subcommand are the same listing, newest first."""
    listed = used_home.run(receipts_command, "list").stdout
    assert [line.split()[0] for line in listed.splitlines()] == ["DELEGATE", "d_ended_2", "d_ended_1"]
    assert "crashed (killed)" in listed
    assert used_home.run(receipts_command).stdout == listed
    [newest] = used_home.json(receipts_command, "--limit", "1")
    assert (newest["receipt_id"], newest["status"], newest["reason"]) == ("d_ended_2", "crashed", "killed")
    assert newest["goal"] == GOAL
    assert "list" in used_home.run(receipts_command, "--help").stdout


def test_one_receipt_whole(used_home: Home) -> None:
    """``show`` prints every fact and the whole texts, with nothing that a terminal would obey."""
    shown = used_home.run(receipts_command, "show", "d_ended_2").stdout
    for part in ("crashed (killed)", "SIGKILL ended it", "c_1, task 0", "t_1 of session s_1", "/t/d_ended_2.jsonl"):
        assert part in shown
    assert "partial text:\n  half  an answer" in shown
    assert "summary:" not in shown
    assert all(letter.isprintable() or letter == "\n" for letter in shown)
    assert "summary:\n  All 17 words.\n  Done.\n" in used_home.run(receipts_command, "show", "d_ended_1").stdout
    assert used_home.json(receipts_command, "show", "d_ended_2")["partial_text"] == "half\x07 an answer"


def test_a_prefix_must_name_one(used_home: Home) -> None:
    """A beginning that fits two receipts, or none, is the user's mistake."""
    with pytest.raises(UserError, match="d_ended_1, d_ended_2"):
        used_home.run(receipts_command, "show", "d_ended")
    with pytest.raises(UserError, match="No delegate is called"):
        used_home.run(receipts_command, "show", "d_none")


@pytest.mark.parametrize("limit", ["0", "-1", "many"])
def test_a_limit_that_is_none(used_home: Home, limit: str) -> None:
    """A senseless limit is a usage error."""
    assert used_home.run(receipts_command, "--limit", limit).exit_code == 2


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "utf-8", "utf-16"])
def test_no_encoding_breaks_a_listing(used_home: Home, encoding: str) -> None:
    """What the terminal's encoding cannot hold is replaced in text, and escaped in JSON."""
    target = "fanjoin.cli.listing:ps_command"
    text, problems = used_home.process(target, PYTHONIOENCODING=encoding, COLUMNS="200").communicate(timeout=20)
    assert problems == b""
    assert "größe" in text.decode(encoding) or encoding == "ascii"
    whole, _ = used_home.process(target, "--format", "json", PYTHONIOENCODING=encoding).communicate(timeout=20)
    assert json.loads(whole.decode(encoding))[0]["goal"] == GOAL


def test_a_reader_that_left_is_no_error(used_home: Home) -> None:
    """When standard output is closed early, the command ends quietly."""
    process = used_home.process("fanjoin.cli.listing:receipts_command", "--format", "json")
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert (process.wait(timeout=20), process.stderr.read()) == (0, b"")
    process.stderr.close()
