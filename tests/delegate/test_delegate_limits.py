"""Limits of a fan-out: how many at once, how long, how many failures; the rest has its receipt, too."""

from delegate_support import delegated, fates, goals, result, times_run
from run_support import Home


def test_fail_fast_cancels_the_rest(home: Home) -> None:
    """The first failure ends the run: what waits is cancelled (budget) and was never started."""
    value = result(home, *goals("plain", "exit3", "later 1", "later 2"), "-j", "1", "--fail-fast")
    assert fates(value) == [
        ("completed", ""),
        ("crashed", "exit_code"),
        ("cancelled", "budget"),
        ("cancelled", "budget"),
    ]
    assert (value["exit_code"], value["status"], value["error"]["reason"]) == (4, "cancelled", "budget")
    assert times_run(home, "later 1") == 0
    assert len(home.statuses()) == 4


def test_max_failures_counts(home: Home) -> None:
    """One failure fewer than the limit changes nothing."""
    tasks = goals("exit3", "plain", "exit3", "plain", "plain")
    value = result(home, *tasks, "-j", "1", "--max-failures", "2")
    assert [status for status, _ in fates(value)] == ["crashed", "completed", "crashed", "cancelled", "cancelled"]


def test_a_deadline_ends_what_runs_and_what_waits(home: Home) -> None:
    """Both are cancelled (budget), with what was said so far."""
    home.config("delegation: {cancel_grace_seconds: 0.5}")
    value = result(home, *goals("hang", "plain"), "-j", "1", "--deadline", "1.5")
    assert fates(value) == [("cancelled", "budget")] * 2
    assert value["results"][0]["partial_text"] == "so far of hang"
    assert "deadline of 1.5 s" in value["error"]["message"]


def test_a_timeout_for_all_and_none_for_silence(home: Home) -> None:
    """--timeout rules tasks without their own; a program that says nothing for long has not stalled."""
    home.config("delegation: {stall_seconds: 0.2, cancel_grace_seconds: 0.2}")
    assert fates(result(home, *goals("hang"), "--timeout", "1")) == [("timeout", "child_timeout")]
    assert fates(result(home, *goals("close"))) == [("completed", "")]


def test_concurrency_is_kept(home: Home) -> None:
    """More tasks than -j wait in the queue; limits of a model's calls do not bind a user's own list."""
    home.config("delegation: {max_tasks: 2, max_total_children: 3}")
    value = result(home, *goals(*[f"plain {number}" for number in range(6)]), "-j", "2")
    assert value["completed"] == 6
    overlapping = home.rows(
        "SELECT MAX((SELECT COUNT(*) FROM attempts AS b WHERE b.intended_at <= a.intended_at "
        "AND b.ended_at > a.intended_at)) FROM attempts AS a"
    )
    assert overlapping[0][0] <= 2


def test_an_agent_may_not_fan_out_beyond_its_depth(home: Home) -> None:
    """The depth limit holds for this command as for chat."""
    done = delegated(home, *goals("plain"), env={"FANJOIN_DEPTH": "1"})
    assert done.returncode == 2
    assert b"may not start a run of its own" in done.stderr
