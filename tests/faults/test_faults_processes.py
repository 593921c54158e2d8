"""Processes: killed, starved, mute, many; and what that does to the supervisor."""

import contextlib
import json
import random
import resource
import signal
import sys
import time

import psutil
import pytest
from faults_support import EARLY, MUTE, core_of, count, fates, living_delegates
from run_support import GONE_SECONDS, MISBEHAVE, Home, delegate_plan, plan, wait_until

from fanjoin.supervisor.core.attempts import HELLO_SECONDS
from fanjoin.supervisor.launch.base import OomWatch

if sys.platform == "win32":
    pytest.skip("these faults are signals and limits of POSIX systems", allow_module_level=True)

LAUNCHERS = ["zygote", "spawn"] if sys.platform == "linux" else ["spawn"]


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_memory_limit_ends_only_the_delegate_that_passes_it(home: Home, launcher: str) -> None:
    """``memory_limit_mb``: out_of_memory for the one that eats, its sibling completes."""
    home.config(f"delegation: {{memory_limit_mb: 200, launcher: {launcher}}}")
    result = home.result(delegate_plan("memory", "count this"), entry=MISBEHAVE)
    assert fates(result) == [("crashed", "out_of_memory"), ("completed", "")]


def test_only_a_kill_during_which_the_kernels_count_rose_is_for_memory() -> None:
    """The count of the cgroup tells a SIGKILL for memory from any other; without it there is no telling."""
    counts: list[int | None] = [3, 3, 4, 4]
    watch = OomWatch(lambda: counts.pop(0))
    assert [watch.moved() for _ in range(3)] == [False, True, False]
    assert not OomWatch(lambda: None).moved()


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_death_before_the_hello_is_seen_at_once(home: Home, launcher: str) -> None:
    """Killed before it ever spoke: crashed (killed), with what it printed; its sibling completes."""
    home.config(f"delegation: {{launcher: {launcher}}}")
    began = time.monotonic()
    result = home.result(delegate_plan("one", "two"), entry=EARLY)
    assert sorted(fates(result)) == [("completed", ""), ("crashed", "killed")]
    assert time.monotonic() - began < HELLO_SECONDS / 2
    crashed = next(entry for entry in result["results"] if not entry["ok"])
    assert "about to die" in crashed["error"]["message"]
    assert crashed["exit"] == {"code": None, "signal": "SIGKILL"}


def test_a_death_before_the_first_step_is_run_again_when_that_is_allowed(home: Home) -> None:
    """``max_attempts: 2``: the delegate completes in its second process; both are on record."""
    home.config("delegation: {max_attempts: 2}")
    result = home.result(delegate_plan("one"), entry=EARLY)
    assert fates(result) == [("completed", "")]
    assert result["results"][0]["attempts"] == 2
    signals = home.rows("SELECT exit_signal FROM attempts WHERE receipt_id <> '' ORDER BY number")
    assert signals == [("SIGKILL",), (None,)]


def test_a_mute_process_can_be_cancelled(home: Home) -> None:
    """SIGINT while a delegate hangs before its hello: it is not waited for."""
    process = home.start(delegate_plan("one"), entry=MUTE)
    wait_until((home.path / "first").exists, "delegate that says no hello")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=GONE_SECONDS)
    assert process.returncode == 130
    home.check_nothing_left()
    assert home.statuses() == [("cancelled", "cancelled")]


def test_an_entry_that_cannot_be_loaded_fails_with_its_reason(home: Home) -> None:
    """No module for the agent: the run fails at once, and the import error is in its message."""
    result = home.result("Hello.", entry="fanjoin.no_such_module:run")
    assert result["exit_code"] == 1
    assert result["error"]["reason"] == "exit_code"
    assert "No module named" in result["error"]["message"]


def test_kills_at_random_hit_nobody_else(home: Home) -> None:
    """Forty delegates, SIGKILL for about half of them at any moment: each is completed or killed, all are joined."""
    home.config("delegation: {max_concurrent_children: 6}")
    goals = [f"[[sleep {0.1 + number % 5 / 10}]] task {number}" for number in range(40)]
    process = home.start(delegate_plan(*goals), "--format", "json")
    dice, killed = random.Random(7), 0
    wait_until(lambda: count(home, "attempts WHERE receipt_id <> '' AND pid > 0"), "first delegate")
    while process.poll() is None and killed < 20:
        victims = living_delegates(home)
        if victims:
            with contextlib.suppress(psutil.NoSuchProcess):
                dice.choice(victims).kill()
                killed += 1
        time.sleep(0.03)  # a rate of kills, nothing that is waited for
    out, _ = process.communicate(timeout=30)
    ends = fates(json.loads(out))
    assert len(ends) == 40
    assert set(ends) == {("completed", ""), ("crashed", "killed")}
    assert 0 < ends.count(("crashed", "killed")) <= killed
    home.check_nothing_left()


def _figures(process: psutil.Process) -> tuple[int, int, int]:
    """Return descriptors, threads and resident MiB."""
    return process.num_fds(), process.num_threads(), process.memory_info().rss >> 20


def test_many_delegates_one_after_the_other_leave_the_supervisor_as_it_was(home: Home) -> None:
    """A hundred sequential processes below ``ulimit -n 128``: descriptors, threads and memory stay flat."""
    home.config("delegation: {max_concurrent_children: 1}")
    goals = [f"[[answer {number}]]" for number in range(50)]

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))

    process = home.start(plan({"delegate": goals}, {"delegate": goals}), "--format", "json", preexec_fn=limit)
    figures = []
    for receipts in (20, 90):
        wait_until(lambda: count(home, "receipts") > receipts, "receipts")  # noqa: B023 - called in this round only
        figures.append(_figures(core_of(home)))
    out, _ = process.communicate(timeout=30)
    assert fates(json.loads(out)) == [("completed", "")] * 100
    (files, threads, memory), (files_later, threads_later, memory_later) = figures
    assert abs(files_later - files) <= 6  # one delegate comes or goes while this is read
    assert threads_later == threads
    assert memory_later - memory <= 6
    home.check_nothing_left()


def test_with_few_descriptors_fewer_run_at_once_and_none_fails(home: Home) -> None:
    """``ulimit -n 90`` and thirty delegates with a cap of thirty: all complete, few at a time."""
    home.config("delegation: {max_concurrent_children: 30}")

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (90, 90))

    result = home.result(delegate_plan(*["[[sleep 0.05]] x"] * 30), preexec_fn=limit)
    assert fates(result) == [("completed", "")] * 30


def test_five_hundred_tasks_are_refused_and_nothing_is_started(home: Home) -> None:
    """The model hears the limit and its key; no process was started for it."""
    result = home.result(delegate_plan(*["x"] * 500))
    assert result["results"] == []
    assert home.rows("SELECT COUNT(*) FROM attempts") == [(1,)]
    told = home.rows("SELECT message FROM messages WHERE role = 'tool'")[0][0]
    assert "too_many_tasks" in told
    assert "delegation.max_tasks" in told


def test_after_a_cancel_and_its_grace_no_request_is_sent(home: Home) -> None:
    """Delegates that hang in HTTP, and that wait before their next try: after the exit the provider hears nothing."""
    home.config("delegation: {cancel_grace_seconds: 0.5}")
    process = home.start(delegate_plan("[[hang]] a", "[[status 429 retry_after=1]] b", "[[status 503]] c"))
    wait_until(lambda: len(home.provider.requests()) >= 4, "requests of all")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=GONE_SECONDS)
    heard = len(home.provider.requests())
    time.sleep(1.5)  # longer than the wait that a delegate was in
    assert len(home.provider.requests()) == heard
    assert process.returncode == 130
    home.check_nothing_left()


def test_an_interrupt_right_after_the_call_stops_what_is_being_launched(home: Home) -> None:
    """SIGINT when the delegates have just been accepted, some not yet launched: 130, a receipt for each, no process."""
    home.config("delegation: {cancel_grace_seconds: 0.5, max_concurrent_children: 30}")
    process = home.start(delegate_plan(*["[[hang]] x"] * 60))
    wait_until(lambda: count(home, "delegations"), "accepted delegates")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=GONE_SECONDS)
    assert process.returncode == 130
    home.check_nothing_left()
    assert home.statuses() == [("cancelled", "cancelled")] * 60
