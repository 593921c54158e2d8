"""Kills in the middle, and what ``--resume`` makes of it: each task completed exactly once, nothing lost."""

import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from delegate_support import delegated, fates, goals, lines, result, start, task_file, times_run
from run_support import GONE_SECONDS, Home, wait_until

if sys.platform == "win32":
    pytest.skip("these tests send signals", allow_module_level=True)

COUNT = 12
TASKS = [{"id": f"t{number}", "goal": f"{'wait' if number in {4, 5} else 'plain'} {number}"} for number in range(COUNT)]


def core_of(home: Home) -> psutil.Process:
    """Return the supervisor's process."""
    return next(process for process in home.processes() if "supervisor.main" in " ".join(process.cmdline()))


def start_and_reach_the_middle(home: Home, files: str, out: Path) -> "subprocess.Popen[bytes]":
    """Start a run two of whose tasks wait for a word, and return when others have completed."""
    process = start(home, files, "-o", str(out), "-j", "3")
    wait_until(lambda: times_run(home, "wait 4") and len(lines(out)) >= 4, "four entries and a task that waits")
    return process


def check_resumed(home: Home, files: str, out: Path) -> None:
    """Resume, and check that every task completed once, and that those which had completed were not run again."""
    before = dict(home.rows("SELECT task_json, status FROM receipts JOIN delegations USING (receipt_id)"))
    (home.path / "go").touch()
    value = result(home, files, "--resume", "-o", str(out))
    assert value["exit_code"] == 0
    assert [one["id"] for one in value["results"]] == [task["id"] for task in TASKS]
    assert value["resumed"] >= 4
    assert value["resumed"] == sum(status == "completed" for status in before.values())
    completed = home.rows(
        "SELECT task_json FROM receipts JOIN delegations USING (receipt_id) WHERE status = 'completed'"
    )
    assert len(completed) == len(set(completed)) == COUNT
    for one in value["results"]:
        if one.get("resumed"):
            assert times_run(home, f"plain {one['id'][1:]}") == 1
    *entries, totals = lines(out)
    assert sorted(entry["id"] for entry in entries) == sorted(task["id"] for task in TASKS)
    assert totals["completed"] == COUNT


@pytest.mark.parametrize("victim", ["command", "supervisor"])
def test_a_kill_and_a_resume_complete_each_task_exactly_once(home: Home, victim: str) -> None:
    """SIGKILL of the command, or of its supervisor: the same command with --resume runs only what is left."""
    files = task_file(home.path.parent / "tasks.jsonl", *TASKS)
    out = home.path.parent / "out.jsonl"
    process = start_and_reach_the_middle(home, files, out)
    if victim == "command":
        process.kill()
    else:
        core_of(home).kill()
    _, err = process.communicate(timeout=GONE_SECONDS * 2)
    if victim == "supervisor":
        assert process.returncode == 1
        assert b"without a receipt" in err
        assert b"the same command with --resume" in err
        assert b"Traceback" not in err
    home.check_no_process()  # a supervisor whose command was killed still writes receipts
    check_resumed(home, files, out)


def test_a_killed_worker_is_one_crash_and_is_run_again(home: Home) -> None:
    """SIGKILL of the process that supervises a program: crashed (killed), the program ended; resume runs it again."""
    files = task_file(home.path.parent / "tasks.jsonl", {"goal": "kill-agent"}, {"goal": "plain"})
    first = result(home, files)
    assert fates(first) == [("crashed", "killed"), ("completed", "")]
    again = result(home, files, "--resume")
    assert fates(again) == [("completed", "")] * 2
    assert [one.get("resumed", False) for one in again["results"]] == [False, True]
    assert times_run(home, "plain") == 1


def test_retry_failed_runs_what_was_begun_and_did_not_complete(home: Home) -> None:
    """Neither what completed nor what was never begun; a task that was changed is another one."""
    path = home.path.parent / "tasks.jsonl"
    tasks = [{"id": "a", "goal": "plain"}, {"id": "b", "goal": "exit3"}, {"id": "c", "goal": "exit3"}]
    assert result(home, task_file(path, *tasks))["exit_code"] == 4
    tasks[2]["goal"] = "plain again"
    value = result(home, task_file(path, *tasks, {"id": "d", "goal": "plain"}), "--retry-failed")
    assert [(one["id"], one["status"]) for one in value["results"]] == [("a", "completed"), ("b", "crashed")]
    plan = delegated(home, str(path), "--resume", "--dry-run")
    assert plan.returncode == 0
    rows = [line.split()[:2] for line in plan.stdout.decode().splitlines()]
    assert rows == [["ID", "PLAN"], ["a", "completed"], ["b", "run"], ["c", "run"], ["d", "run"]]
    assert plan.stderr.decode() == "3 of 4 tasks would run.\n"
    assert len(home.statuses()) == 4


def test_nothing_left_to_run_is_a_success(home: Home) -> None:
    """Everything completed earlier: exit 0, the entries again, and no delegate."""
    assert result(home, *goals("one", "two"))["exit_code"] == 0
    value = result(home, *goals("one", "two"), "--resume")
    assert (value["exit_code"], value["completed"], value["resumed"], value["session_id"]) == (0, 2, 2, "")
    assert len(home.statuses()) == 2


def test_tasks_that_run_right_now_are_not_run_twice(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """A resume beside the living run is refused; nothing is started."""
    from fanjoin.client import earlier, fan_out, tasks
    from fanjoin.ipc.config import Flags
    from fanjoin.ipc.errors import UserError

    process = start(home, *goals("wait 1"), "-C", str(home.path.parent))
    wait_until(lambda: times_run(home, "wait 1"), "a task that waits")
    flags = Flags(base_url="http://127.0.0.1:9/v1", model="m", cwd=str(home.path.parent))
    resolved = fan_out.settings_for(home.path, {}, flags)
    ready = tasks.make_ready(tasks.read_tasks(["wait 1"]), resolved.turn)
    monkeypatch.setattr(earlier, "PATIENCE_SECONDS", 0.2)
    with pytest.raises(UserError, match="1 of these tasks run right now in another run"):
        earlier.look_back(home.path, ready)
    (home.path / "go").touch()
    process.communicate(timeout=20)
    assert process.returncode == 0
    assert list(earlier.look_back(home.path, ready).completed) == ["1"]


def test_an_interrupt_writes_receipts_and_the_totals(home: Home) -> None:
    """SIGINT: 130, what ran and what waited is cancelled, and the last line still has the totals."""
    home.config("delegation: {cancel_grace_seconds: 0.5}")
    process = start(home, *goals("hang", "hang", "hang"), "-j", "2", "--format", "jsonl")
    wait_until(lambda: times_run(home, "hang") == 2, "two tasks that hang")
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=GONE_SECONDS)
    assert process.returncode == 130
    assert '"exit_code":130' in out.decode().splitlines()[-1]
    assert home.statuses() == [("cancelled", "cancelled")] * 3
    home.check_nothing_left()
