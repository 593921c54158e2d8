"""Results and the truth of statuses: nothing is dropped, nothing is called done that is not, nothing stays open."""

import json
import time

import pytest
from faults_support import MISSPEAK, fates
from run_support import Home, delegate_plan


def test_a_run_waits_for_all_and_leaves_no_open_row(home: Home) -> None:
    """Three delegates answer late: all their results are in the parent's request, and only then is the exit 0."""
    began = time.monotonic()
    result = home.result(delegate_plan(*[f"[[sleep 1.2]][[answer number {i}]]" for i in range(3)]))
    assert time.monotonic() - began > 1.2
    assert [entry["summary"] for entry in result["results"]] == [f"number {i}" for i in range(3)]
    assert home.rows("SELECT DISTINCT status FROM session_admissions") == [("terminal",)]
    told = home.rows("SELECT message FROM messages WHERE role = 'tool'")[0][0]
    assert [entry["status"] for entry in json.loads(json.loads(told)["content"])["results"]] == ["completed"] * 3


def test_a_lost_result_is_no_result(home: Home) -> None:
    """The middle of three ends well after its work and says nothing: crashed (no_result), and the run ends."""
    result = home.result(delegate_plan("one", "lost", "three"), entry=MISSPEAK)
    assert fates(result) == [("completed", ""), ("crashed", "no_result"), ("completed", "")]
    assert result["results"][1]["exit"] == {"code": 0, "signal": None}


@pytest.mark.parametrize("cap", [1, 3])
def test_tasks_above_the_cap_wait_and_are_never_dropped(home: Home, cap: int) -> None:
    """Five tasks under a smaller cap: five results in their places; those that queued say how long."""
    home.config(f"delegation: {{max_concurrent_children: {cap}}}")
    result = home.result(delegate_plan(*[f"[[sleep 0.1]][[answer {i}]]" for i in range(5)]))
    assert [entry["summary"] for entry in result["results"]] == list("01234")
    assert result["results"][4]["queued_seconds"] >= 0.1


def test_a_silent_delegate_times_out_with_its_figures(home: Home) -> None:
    """One never answers, one stops after half an answer: both are timeouts with seconds, steps, what was said."""
    home.config("delegation: {child_timeout_seconds: 1, cancel_grace_seconds: 0.5}")
    result = home.result(delegate_plan("[[hang]]", "[[answer half an answer]][[hang after=2]]", "count this"))
    assert fates(result) == [("timeout", "child_timeout")] * 2 + [("completed", "")]
    for entry in result["results"][:2]:
        assert 1 <= entry["duration_seconds"] < 8
        assert entry["steps"] == 1
        assert "child_timeout_seconds" in entry["error"]["message"]
        assert entry["summary"] is None
    assert result["results"][1]["partial_text"].startswith("half")
    kept = home.rows("SELECT partial_text FROM receipts WHERE status = 'timeout' ORDER BY partial_text")
    assert kept[1][0].startswith("half")


def test_a_hanging_delegate_that_says_nothing_stalls(home: Home) -> None:
    """No progress for ``stall_seconds``: timeout (stalled), with the text that came before the silence."""
    home.config("delegation: {stall_seconds: 0.7, cancel_grace_seconds: 0.3}")
    result = home.result(delegate_plan("[[answer half an answer]][[hang after=2]]"))
    assert fates(result) == [("timeout", "stalled")]
    assert result["results"][0]["partial_text"].startswith("half")
    assert result["exit_code"] == 4


def test_an_empty_answer_fails_alone(home: Home) -> None:
    """A delegate whose model says nothing twice is failed (empty_response); its sibling is untouched."""
    result = home.result(delegate_plan("[[answer ]]", "count this"))
    assert fates(result) == [("failed", "empty_response"), ("completed", "")]


def test_a_committed_result_wins_over_the_death_that_follows(home: Home) -> None:
    """A fault after the acknowledgement, a fault right after sending, a process that stays: all completed."""
    result = home.result(delegate_plan("after-ack", "sent", "count"), entry=MISSPEAK)
    assert fates(result) == [("completed", "")] * 3
    signals = home.rows("SELECT exit_signal FROM attempts WHERE receipt_id <> '' ORDER BY exit_signal")
    assert [name for (name,) in signals] == [None, "SIGSEGV", "SIGSEGV"]
