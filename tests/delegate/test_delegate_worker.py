"""A program as the worker: how it is fed, what its end means, and what is left of it."""

import json
import sys
import time

import pytest
from delegate_support import WORKER, delegated, fates, goals, lines, result, task_file
from run_support import Home

MIXED: dict[str, tuple[str, str]] = {
    "plain": ("completed", ""),
    "exit3": ("crashed", "exit_code"),
    "segfault": ("crashed", "signal"),
    "hang": ("timeout", "child_timeout"),
    "stubborn": ("timeout", "child_timeout"),
    "detached": ("completed", ""),
    "flood": ("completed", ""),
    "bytes": ("completed", ""),
    "close": ("completed", ""),
    "nothing": ("crashed", "no_result"),
}
if sys.platform == "win32":
    MIXED["segfault"] = ("crashed", "exit_code")


def test_two_hundred_mixed_tasks_each_have_their_one_receipt(home: Home) -> None:
    """Ten kinds of behaviour, twenty of each, sixteen at once: each fate is the right one, and nothing is left."""
    home.config("delegation: {cancel_grace_seconds: 0.2}")
    rare = {"hang": 4, "stubborn": 4, "flood": 3, "detached": 8, "segfault": 8}
    counts = {kind: rare.get(kind, 29) for kind in MIXED}
    tasks = [
        {"id": f"{kind}-{number}", "goal": f"{kind} {number}", "timeout": 1.5 if kind in {"hang", "stubborn"} else 0}
        for kind, count in counts.items()
        for number in range(count)
    ]
    tasks += [{"id": f"more-{number}", "goal": f"plain {number}"} for number in range(200 - len(tasks))]
    value = result(home, task_file(home.path.parent / "tasks.jsonl", *tasks), "-j", "16", "-Q")
    assert value["exit_code"] == 4
    assert [one["id"] for one in value["results"]] == [task["id"] for task in tasks]
    for one in value["results"]:
        expected = MIXED.get(one["id"].split("-")[0], ("completed", ""))
        assert (one["status"], one.get("error", {}).get("reason", "")) == expected, one
    assert len(home.statuses()) == len(tasks) == 200
    assert value["completed"] + value["crashed"] + value["timeout"] == 200


def test_the_goal_is_on_standard_input_and_in_no_argument(home: Home) -> None:
    """Context and ids are variables, the goal is not; the environment is the allow-list and what the task adds."""
    task = {"id": "one", "goal": "show me", "context": "the context", "env": {"MINE": "yes"}, "cwd": "sub"}
    (home.path.parent / "sub").mkdir()
    files = task_file(home.path.parent / "tasks.jsonl", task)
    secrets = {"UNRELATED": "x", "PASSED_ON": "passed"}
    value = result(home, files, "-C", str(home.path.parent), "--worker-env", "PASSED_*", env=secrets)
    arguments, folder, *variables = value["results"][0]["summary"].split("\n")
    found = dict(line.split("=", 1) for line in variables)
    assert arguments == "[]"
    assert folder.endswith("sub")
    assert found["FANJOIN_CONTEXT"] == "the context"
    assert found["FANJOIN_TASK_ID"] == "one"
    assert found["FANJOIN_RECEIPT_ID"] == value["results"][0]["receipt_id"]
    assert found["FANJOIN_SESSION_ID"] == value["session_id"]
    assert found["MINE"] == "yes"
    assert found["PASSED_ON"] == "passed"
    assert "UNRELATED" not in found
    assert "show me" not in str(found)


def test_values_of_variables_are_written_nowhere(home: Home) -> None:
    """Neither a task's variable nor one that is passed on stands in the database or in a transcript."""
    task = {"id": "one", "goal": "exit3", "env": {"TOKEN": "tok-0123456789abcdef"}}
    files = task_file(home.path.parent / "tasks.jsonl", task)
    tells = "import os, sys; sys.stderr.write(os.environ['TOKEN'] + os.environ['PASS']); sys.exit(3)"
    worker = f'{sys.executable} -c "{tells}"'
    value = result(home, files, "--worker-env", "PASS", worker=worker, env={"PASS": "pass-0123456789abcdef"})
    assert "…cdef" in value["results"][0]["error"]["message"]
    written = [path for path in home.path.rglob("*") if path.is_file() and path.suffix != ".db-shm"]
    assert [path for path in written if b"0123456789abcdef" in path.read_bytes()] == []


def test_a_large_context_is_a_file(home: Home) -> None:
    """What no variable holds is a file that a variable names."""
    reads = "import os,sys; sys.stdin.read(); print(len(open(os.environ['FANJOIN_CONTEXT_FILE']).read()))"
    files = task_file(home.path.parent / "tasks.jsonl", {"goal": "count", "context": "c" * 200_000})
    value = result(home, files, worker=f'{sys.executable} -c "{reads}"')
    assert value["results"][0]["summary"] == "200000"


def test_what_a_program_prints_is_bounded_and_kept_in_a_file(home: Home) -> None:
    """50 MB: the beginning and the end are there, the middle is counted, and the file is as bounded as the memory."""
    value = result(home, *goals("flood"))
    (one,) = value["results"]
    assert one["summary"].startswith("begin xxx")
    assert one["summary"].endswith("xxx end")
    assert len(one["summary"]) < 25_000
    assert one["summary_truncated"]
    with open(one["summary_path"], encoding="utf-8") as file:
        whole = file.read()
    assert "bytes left out" in whole
    assert len(whole) < 17 << 20


def test_what_is_not_utf_8_is_replaced(home: Home) -> None:
    """Bytes that are no text become U+FFFD."""
    assert result(home, *goals("bytes"))["results"][0]["summary"] == "caf� �� done"


def test_standard_error_is_kept(home: Home) -> None:
    """It stands in the message, in the transcript and with the attempt."""
    value = result(home, *goals("exit3"))
    (one,) = value["results"]
    assert one["exit"] == {"code": 3, "signal": None}
    assert one["error"]["message"] == "The program ended with exit code 3. It last said: the reason of it all"
    with open(one["transcript"], encoding="utf-8") as file:
        said = [json.loads(line) for line in file]
    assert [line["text"] for line in said if line["kind"] == "stderr"] == ["the reason of it all\n"]
    assert home.rows("SELECT stderr_tail FROM attempts") == [("the reason of it all",)]


def test_a_program_that_closes_its_output_is_waited_for(home: Home) -> None:
    """The result is what it printed; it counts when the program has ended."""
    began = time.monotonic()
    (one,) = result(home, *goals("close"))["results"]
    assert one["summary"] == "early close"
    assert one["duration_seconds"] >= 0.3
    assert time.monotonic() - began < 15


def test_a_process_that_holds_the_output_does_not_hold_the_result(home: Home) -> None:
    """A detached process of the program keeps the pipe open: the result comes at once, the process is ended."""
    (one,) = result(home, *goals("detached"))["results"]
    assert one["summary"] == "left something at detached"
    assert one["duration_seconds"] < 5


def test_a_timeout_asks_first_and_keeps_what_was_said(home: Home) -> None:
    """SIGTERM, then the end; a program that then exits as if all were well has not completed."""
    home.config("delegation: {cancel_grace_seconds: 1}")
    tasks = [{"goal": kind, "timeout": 0.7} for kind in ("hang", "polite", "stubborn")]
    value = result(home, task_file(home.path.parent / "tasks.jsonl", *tasks))
    assert fates(value) == [("timeout", "child_timeout")] * 3
    said = [one["partial_text"] for one in value["results"]]
    assert said[0] == "so far of hang"
    assert said[2] == "so far of stubborn"
    if sys.platform != "win32":
        assert said[1] == "so far of politeinterrupted polite"
    assert "the timeout of its task (0.7)" in value["results"][0]["error"]["message"]


def test_a_fresh_interpreter_supervises_a_program_as_well(home: Home) -> None:
    """Where nothing is forked: results, a timeout with what was said, and nothing left."""
    home.config("delegation: {launcher: spawn, cancel_grace_seconds: 0.5}")
    tasks = [{"goal": "plain"}, {"goal": "stubborn", "timeout": 4}, {"goal": "detached"}]
    value = result(home, task_file(home.path.parent / "tasks.jsonl", *tasks))
    assert fates(value) == [("completed", ""), ("timeout", "child_timeout"), ("completed", "")]
    assert value["results"][1]["partial_text"] == "so far of stubborn"


def test_a_program_that_is_gone_when_its_turn_comes_is_a_failed_start(home: Home) -> None:
    """It was there when the run began: spawn_failed, and the others are not touched."""
    if sys.platform == "win32":
        pytest.skip("a running program cannot be removed on Windows")
    program = home.path.parent / "program"
    program.write_text(f"#!{sys.executable}\nimport os, sys\nprint(sys.stdin.read()); os.remove(sys.argv[0])\n")
    program.chmod(0o755)
    value = result(home, *goals("a", "b"), "-j", "1", worker=str(program))
    assert fates(value) == [("completed", ""), ("failed", "spawn_failed")]


def test_a_worker_that_is_not_there_is_a_usage_error(home: Home) -> None:
    """Exit 2, naming it; nothing was run."""
    done = delegated(home, *goals("a"), worker="no-such-program --flag")
    assert done.returncode == 2
    assert b"The worker no-such-program was not found" in done.stderr
    assert not (home.path / "state.db").exists()


def test_the_result_can_be_a_member_of_json(home: Home) -> None:
    """The last line that is printed, by its key."""
    prints = "import json; print('start'); print(json.dumps({'answer': 'yes'}))"
    flags = ("--worker-output", "last-line-json", "--result-key", "answer")
    (one,) = result(home, *goals("g"), *flags, worker=f'{sys.executable} -c "{prints}"')["results"]
    assert one["summary"] == "yes"


def test_each_entry_is_in_the_file_as_it_ends(home: Home) -> None:
    """``-o`` has a line per task in the order of their ends, and the totals last."""
    path = home.path.parent / "out.jsonl"
    done = delegated(home, *goals("one", "two", "exit3"), "-o", str(path), "-Q")
    assert done.returncode == 4
    *entries, totals = lines(path)
    assert {entry["id"]: entry["status"] for entry in entries} == {"1": "completed", "2": "completed", "3": "crashed"}
    assert (totals["type"], totals["tasks"], totals["completed"], totals["crashed"]) == ("totals", 3, 2, 1)
    assert WORKER.split()[0] in home.rows("SELECT payload_json FROM session_admissions")[0][0]
