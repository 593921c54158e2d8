"""What other commands say while a run goes on, and afterwards."""

import json
import signal
import sys
import time
from typing import Any

import psutil
import pytest
from run_support import Home, delegate_plan, wait_until

LONG_GOAL = "[[hang]] " + "a goal with \u00fc and a \n line break; " * 50


def listed(home: Home, *arguments: str) -> Any:
    """Return the JSON that a listing prints."""
    done = home.other(*arguments, "--format", "json")
    assert (done.returncode, done.stderr) == (0, b"")
    return json.loads(done.stdout)


@pytest.mark.skipif(sys.platform == "win32", reason="there are no signals between processes on Windows")
def test_ps_shows_what_runs_and_receipts_what_came_of_it(home: Home) -> None:
    """While two of four run and two wait: pids, whole goals, statuses; after an interrupt: a receipt for each."""
    home.config("delegation: {max_concurrent_children: 2, cancel_grace_seconds: 1}")
    assert (listed(home, "ps"), listed(home, "receipts", "list")) == ([], [])
    process = home.start(delegate_plan("[[answer a]]", LONG_GOAL, "[[hang]] c", "[[hang]] d"), "--format", "json")
    wait_until(lambda: len(home.provider.requests()) == 4, "requests of the hanging delegates")
    running = listed(home, "ps")
    assert [one["status"] for one in running] == ["running", "running", "queued"]
    assert [one["goal"] for one in running] == [LONG_GOAL, "[[hang]] c", "[[hang]] d"]
    assert {one["pid"] for one in running[:2]} <= {alive.pid for alive in psutil.process_iter()}
    assert running[2]["pid"] is None
    assert len({one["delegation_id"] for one in running}) == 1
    shown = home.other("ps").stdout.decode()
    assert all(one["receipt_id"] in shown for one in running)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=20)
    home.check_nothing_left()
    _check_receipts(home, json.loads(out))


def _check_receipts(home: Home, result: dict[str, Any]) -> None:
    assert (result["exit_code"], result["status"]) == (130, "cancelled")
    assert listed(home, "ps") == []
    receipts = listed(home, "receipts", "list")
    entries = {entry["receipt_id"]: entry for entry in result["results"]}
    assert sorted(one["status"] for one in receipts) == ["cancelled"] * 3 + ["completed"]
    assert {one["receipt_id"] for one in receipts} == set(entries)
    for one in receipts:
        assert listed(home, "receipts", "show", one["receipt_id"][:7])["entry"] == entries[one["receipt_id"]]


def test_a_receipt_is_there_as_soon_as_its_delegate_is_told_of(home: Home) -> None:
    """Every ``delegation.completed`` of a stream: its receipt can be read by another process at that moment."""
    process = home.start(delegate_plan("[[answer a]]", "[[sleep 1]] b"), "--format", "stream-json")
    assert process.stdout is not None
    for line in process.stdout:
        event = json.loads(line)
        if event["type"] == "delegation.completed":
            receipt_id = event["entry"]["receipt_id"]
            assert listed(home, "receipts", "show", receipt_id)["entry"] == event["entry"]
            ((decided,),) = home.rows(f"SELECT written_at FROM receipts WHERE receipt_id = '{receipt_id}'")  # noqa: S608
            assert decided <= event["committed_at"] <= time.time()
    process.communicate(timeout=20)
    home.check_nothing_left()
    assert home.statuses() == [("completed", ""), ("completed", "")]


def test_an_unknown_receipt_is_a_clear_error(home: Home) -> None:
    """Exit 2, naming what was asked for."""
    done = home.other("receipts", "show", "d_nothing")
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"d_nothing" in done.stderr
