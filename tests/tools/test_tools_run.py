"""Tools in whole runs: what a run may do, what its commands see, what is left of them, and what a delegate returns."""

import json
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from run_support import Home, plan, wait_until

from fanjoin.cli.provider.plan import with_plan

TERMINAL = "toolsets: [delegation, files, terminal]\n"
DEAF = "trap '' TERM; echo $$ > pid-deaf; while :; do sleep 0.05; done"
posix = pytest.mark.skipif(sys.platform == "win32", reason="these are commands of a POSIX shell")


def call(name: str, **arguments: Any) -> dict[str, Any]:
    """Return a reply that calls one tool."""
    return {"calls": [{"name": name, "arguments": arguments}]}


def child(*replies: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Return a task whose delegate follows a plan."""
    return {"goal": with_plan("Do it.", list(replies)), **more}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a working directory."""
    path = tmp_path / "project"
    path.mkdir()
    return path


def started(folder: Path) -> psutil.Process | None:
    """Return the process whose number a command wrote down, once it has."""
    path = folder / "pid-deaf"
    number = path.read_text(encoding="utf-8").strip() if path.exists() else ""
    return psutil.Process(int(number)) if number else None


# --- approvals -----------------------------------------------------------------------------------------------------


def test_reading_is_free_and_nothing_else_is(home: Home, folder: Path) -> None:
    """By default root and delegates read; what they may not do is denied at once, and the run goes on."""
    (folder / "a.txt").write_text("content of a", encoding="utf-8")
    write = call("write_file", path="b.txt", content="x")
    query = plan({"delegate": [child(call("read_file", path="a.txt")), child(write), child(write)]})
    done = home.chat(query, "-C", str(folder), "--format", "json")
    result = json.loads(done.stdout)
    assert "content of a" in result["results"][0]["summary"]
    assert all("A call was refused (not_allowed)" in entry["summary"] for entry in result["results"][1:])
    assert [entry["tool_trace"][0].get("ok", True) for entry in result["results"]] == [True, False, False]
    assert done.stderr.count(b"--allow write_file") == 1
    assert not (folder / "b.txt").exists()
    assert done.returncode == 0


@posix
def test_the_flag_that_was_named_allows_it(home: Home, folder: Path) -> None:
    """``--allow`` for a file and for a command, of the root and of delegates; everything else stays denied."""
    home.config(TERMINAL)
    calls = [
        {"name": "write_file", "arguments": {"path": "b.txt", "content": "x"}},
        {"name": "run_command", "arguments": {"command": "echo from-$((1+1)) > c.txt"}},
        {"name": "run_command", "arguments": {"command": "touch d.txt"}},
    ]
    query = plan({"calls": calls}, {"delegate": [child({"calls": calls[:1]})]})
    done = home.chat(query, "-C", str(folder), "--allow", "write_file b.*", "--allow", "touch *")
    assert sorted(path.name for path in folder.iterdir()) == ["b.txt", "d.txt"]
    assert done.stderr.count(b"to allow such calls") == 1


def test_a_page_is_fetched_where_it_is_allowed(home: Home, folder: Path) -> None:
    """The toolset ``web`` of a delegate: one page, from a host inside that the configuration names, by a pattern."""
    place = home.provider.url.removeprefix("http://").partition("/")[0]
    home.config(f"approvals: {{private_hosts: ['{place}']}}\ndelegation: {{toolsets: [web]}}\n")
    fetch = call("fetch_url", url=f"{home.provider.url}/models")
    flags = ("-C", str(folder), "--allow", f"fetch_url http://{place}/*", "--format", "json")
    result = json.loads(home.chat(plan({"delegate": [child(fetch)]}), *flags).stdout)
    assert '"owned_by":"fanjoin"' in result["results"][0]["summary"]


@pytest.mark.parametrize(("mode", "written"), [("ask", False), ("deny", False), ("allow", True)])
def test_the_mode_of_the_configuration(home: Home, folder: Path, mode: str, *, written: bool) -> None:
    """``approvals.mode: allow`` lets everything through but what a pattern denies."""
    home.config(f"approvals: {{mode: {mode}, deny: ['write_file *.key']}}\n")
    calls = [{"name": "write_file", "arguments": {"path": name, "content": ""}} for name in ("a.txt", "a.key")]
    home.chat(plan({"calls": calls}), "-C", str(folder))
    assert [path.name for path in folder.iterdir()] == ["a.txt"] * written


def test_a_toolset_that_there_is_not(home: Home) -> None:
    """Exit 2 with the known names, before anything is asked."""
    done = home.chat(plan({"text": "x"}), "--toolsets", "files,smoke")
    assert done.returncode == 2
    assert b"delegation, files, terminal, web" in done.stderr
    assert home.provider.requests() == []


# --- commands ------------------------------------------------------------------------------------------------------


@posix
def test_no_secret_reaches_a_command(home: Home, folder: Path) -> None:
    """A child runs ``env``: it sees the listed names and our marks; no key, even where a glob would match it."""
    home.config(TERMINAL + "approvals: {mode: allow}\nterminal: {env_passthrough: ['FOO_*', '*KEY*', FOO_TOKEN]}\n")
    secrets = {"DATABASE_URL": "no-1", "FOO_SECRET": "no-2", "OPENAI_API_KEY": "no-3", "MY_KEY": "no-4"}
    given = {**secrets, "FOO_BAR": "yes-1", "FOO_TOKEN": "yes-2"}
    query = plan({"delegate": [child(call("run_command", command="env > seen"))]})
    done = home.chat(query, "-C", str(folder), "--api-key-env", "MY_KEY", env=given)
    assert done.returncode == 0, done.stderr
    lines = (folder / "seen").read_text(encoding="utf-8").splitlines()
    seen = dict(line.split("=", 1) for line in lines)
    assert not [line for line in lines if "no-" in line]
    assert {
        "FOO_BAR": "yes-1",
        "FOO_TOKEN": "yes-2",
        "FANJOIN_HOME": str(home.path),
        "FANJOIN_DEPTH": "1",
    }.items() <= seen.items()
    assert seen["FANJOIN_ATTEMPT"].startswith("d_")
    assert seen["FANJOIN_RUN"]
    assert "PYTHONPATH" not in seen


@posix
def test_a_timeout_ends_the_whole_group_of_a_command(home: Home, folder: Path, tmp_path: Path) -> None:
    """B6, B7: a shell with a grandchild that is deaf to SIGTERM: all gone within the grace, and told as a timeout.

    So it is with each way to start agents; their runs share the wait.
    """
    query = plan({"delegate": [child(call("run_command", command=f"({DEAF}) & wait"))]})
    homes = {"spawn": home}
    if sys.platform == "linux":
        homes["zygote"] = Home(tmp_path / "other", home.provider)
    running = {}
    for launcher, one in homes.items():
        limits = f"delegation: {{launcher: {launcher}, child_timeout_seconds: 8, cancel_grace_seconds: 3}}\n"
        one.config(TERMINAL + "approvals: {mode: allow}\n" + limits)
        (folder / launcher).mkdir()
        running[launcher] = one.start(query, "-C", str(folder / launcher), "--format", "json")
    deaf = [wait_until(lambda place=folder / launcher: started(place), "command") for launcher in homes]
    for process in running.values():
        out, _ = process.communicate(timeout=20)
        (entry,) = json.loads(out)["results"]
        assert (entry["status"], entry["error"]["reason"]) == ("timeout", "child_timeout")
        assert 8 <= entry["duration_seconds"] < 12
    assert not any(process.is_running() for process in deaf)
    for one in homes.values():
        one.check_nothing_left()


@posix
def test_a_daemon_of_a_command_ends_with_its_agent(home: Home, folder: Path) -> None:
    """Detached by setsid and a double fork, deaf: it is gone when the run is over."""
    home.config(TERMINAL + "approvals: {mode: allow}\n")
    (folder / "deaf.sh").write_text(DEAF, encoding="utf-8")
    command = "(setsid sh deaf.sh >/dev/null 2>&1 &); until [ -s pid-deaf ]; do sleep 0.01; done"
    home.chat(plan({"delegate": [child(call("run_command", command=command))]}), "-C", str(folder))
    assert (folder / "pid-deaf").exists()
    assert not psutil.pid_exists(int((folder / "pid-deaf").read_text(encoding="utf-8")))


@posix
def test_an_interrupt_ends_a_command_and_the_history_says_so(home: Home, folder: Path) -> None:
    """C16, C17, B16: each call of the stored history has its answer, the open one "interrupted, outcome not known"."""
    home.config(TERMINAL + "approvals: {mode: allow}\n")
    calls = [
        {"name": "list_files", "arguments": {}},
        {"name": "run_command", "arguments": {"command": f"echo x > written; {DEAF}"}},
        {"name": "list_files", "arguments": {}},
    ]
    process = home.start(plan({"calls": calls}), "-C", str(folder))
    deaf = wait_until(lambda: started(folder), "command")
    asked = len(home.provider.requests())
    process.terminate()
    process.communicate(timeout=10)
    assert process.returncode == 143
    assert not deaf.is_running()
    home.check_nothing_left()
    assert len(home.provider.requests()) == asked
    stored = [json.loads(row[0]) for row in home.rows("SELECT message FROM messages ORDER BY seq")]
    assistant = next(message for message in stored if message.get("tool_calls"))
    answers = {message["tool_call_id"]: message["content"] for message in stored if message["role"] == "tool"}
    assert list(answers) == [one["id"] for one in assistant["tool_calls"]]
    first, *others = answers.values()
    assert first.startswith(".: 0 names")
    for content in others:
        error = json.loads(content)["error"]
        assert error["reason"] == "interrupted"
        assert "not known" in error["message"]


@posix
def test_a_finite_run_waits_for_the_end_it_was_promised(home: Home, folder: Path) -> None:
    """A background command with a notice: the run lingers, says so, and the model answers with the outcome."""
    home.config(TERMINAL + "approvals: {mode: allow}\n")
    job = call("run_command", command="sleep 0.3; echo built", background=True, notify=True)
    done = home.chat(plan(job, {"text": "early"}, {"text": "late"}), "-C", str(folder))
    assert done.stdout == b"late\n"
    assert b"waiting up to 10 s for background commands: sleep 0.3; echo built" in done.stderr
    assert "The background command b1 has ended." in home.provider.requests()[-1]["user"]


@posix
def test_the_wait_for_a_background_command_has_its_limit(home: Home, folder: Path) -> None:
    """terminal.oneshot_completion_wait_seconds: past it the answer stands, and the command ends with the run."""
    home.config(TERMINAL + "approvals: {mode: allow}\nterminal: {oneshot_completion_wait_seconds: 0.3}\n")
    job = call("run_command", command=DEAF, background=True, notify=True)
    began = time.monotonic()
    done = home.chat(plan(job, {"text": "answer"}), "-C", str(folder))
    assert (done.returncode, done.stdout) == (0, b"answer\n")
    assert b"did not end in time are ended" in done.stderr
    assert time.monotonic() - began < 8


def test_work_without_an_answer_is_kept_as_a_trace(home: Home, folder: Path) -> None:
    """A13: two tool calls, then nothing, twice: failed (empty_response) with what it ran; its sibling is untouched."""
    look = call("list_files")
    tasks = [child(look, look, {"text": ""}, {"text": " "}), "[[answer fine]]"]
    first, second = home.result(plan({"delegate": tasks}), "-C", str(folder))["results"]
    assert (first["status"], first["error"]["reason"]) == ("failed", "empty_response")
    assert [entry["tool"] for entry in first["tool_trace"]] == ["list_files"] * 2
    assert second["summary"] == "fine"


def test_a_timeout_keeps_what_there_is(home: Home, folder: Path) -> None:
    """A14, A15: a file written, half an answer said, then silence: the entry has seconds, steps, trace and text."""
    home.config("approvals: {mode: allow}\ndelegation: {child_timeout_seconds: 2}\n")
    written = call("write_file", path="artifact.txt", content="done so far")
    half = {"text": "half of the answer and more", "do": "[[hang after=3]]"}
    (entry,) = home.result(plan({"delegate": [child(written, half)]}), "-C", str(folder))["results"]
    assert (entry["status"], entry["error"]["reason"], entry["summary"]) == ("timeout", "child_timeout", None)
    assert "(2)" in entry["error"]["message"]
    assert entry["partial_text"].startswith("half of")
    assert (entry["steps"], [one["tool"] for one in entry["tool_trace"]]) == (2, ["write_file"])
    assert (folder / "artifact.txt").read_text(encoding="utf-8") == "done so far"


# --- rules ---------------------------------------------------------------------------------------------------------


def test_the_projects_rules_reach_every_agent(home: Home, folder: Path) -> None:
    """AGENTS.md is part of the system prompts and named once on standard error; ``--ignore-rules`` leaves it out."""
    (folder / "AGENTS.md").write_text("Always whistle.", encoding="utf-8")
    (folder / ".git").mkdir()
    query = plan({"delegate": ["[[answer a]]", "[[answer b]]"]})
    done = home.chat(query, "-C", str(folder))
    assert done.stderr.count(b"project rules: ") == 1
    transcripts = [path.read_text(encoding="utf-8") for path in (home.path / "transcripts").glob("*.jsonl")]
    assert ["Always whistle." in text for text in transcripts] == [True] * 3
    quiet = home.chat(plan({"text": "x"}), "-C", str(folder), "--ignore-rules")
    assert b"project rules" not in quiet.stderr


# --- what a delegate returns ---------------------------------------------------------------------------------------

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


def test_outputs_are_validated_and_corrected_once(home: Home) -> None:
    """Right at once; right after the validator's message; wrong twice: failed with its text; a sibling without."""
    tasks = [
        {"goal": '[[answer {"n": 1}]]', "output_schema": SCHEMA},
        child({"text": "it is 2"}, {"text": '```json\n{"n": 2}\n```'}, output_schema=SCHEMA),
        child({"text": "nothing"}, {"text": '{"n": "three"}'}, {"text": '{"n": 3}'}, output_schema=SCHEMA),
        "[[answer free text]]",
    ]
    first, second, third, fourth = home.result(plan({"delegate": tasks}))["results"]
    assert (first["output"], first["steps"], first["summary"]) == ({"n": 1}, 1, '{"n": 1}')
    assert (second["output"], second["steps"]) == ({"n": 2}, 2)
    assert (third["status"], third["error"]["reason"], third["steps"]) == ("failed", "schema_invalid", 2)
    assert 'At n: "three" is not of type "integer"' in third["error"]["message"]
    assert (third["summary"], third["partial_text"]) == (None, '{"n": "three"}')
    assert "output" not in fourth
    corrections = [request["user"] for request in home.provider.requests() if "Answer again" in request["user"]]
    assert len(corrections) == 2
    assert any("The answer is not JSON" in text for text in corrections)


def test_a_schema_that_is_none_starts_no_child(home: Home) -> None:
    """The call is answered with the task that is wrong."""
    query = plan({"delegate": ["a", {"goal": "b", "output_schema": {"type": "nonsense"}}]})
    answer = home.chat(query).stdout
    assert b"invalid_arguments" in answer
    assert b"tasks[1]: output_schema is no JSON Schema" in answer
    assert home.statuses() == []


def test_sixty_four_long_answers_do_not_overflow_the_parent(home: Home) -> None:
    """Together they stay within the budget; the whole of each lies in the file that its entry names."""
    home.config("delegation: {max_result_chars: 100000, max_concurrent_children: 16}\n")
    goals = [f"[[size {20_000 if index % 2 else 50}]]" for index in range(64)]
    done = home.chat(plan({"delegate": goals}), "--format", "json")
    result = json.loads(done.stdout)
    assert [len(entry["summary"]) for entry in result["results"]] == [50, 20_000] * 32
    (content,) = [
        message["content"]
        for message in (json.loads(row[0]) for row in home.rows("SELECT message FROM messages"))
        if message["role"] == "tool"
    ]
    entries = json.loads(content)["results"]
    assert sum(len(entry["summary"]) for entry in entries) < 105_000
    assert [entry.get("summary_truncated", False) for entry in entries] == [False, True] * 32
    assert {len(Path(entry["summary_path"]).read_text(encoding="utf-8")) for entry in entries[1::2]} == {20_000}


def test_costs_are_told_where_prices_are_configured(home: Home) -> None:
    """Per delegate, with what is below it, and for the whole run; the receipts keep them; without prices none."""
    home.config("prices: {synthetic: {input: 1000000, output: 2000000, cached: 0}}\n")
    result = home.result(plan({"delegate": ["[[answer a b c]]", "[[answer d]]"]}))
    for entry in result["results"]:
        usage = entry["usage"]
        expected = usage["input_tokens"] - usage["cached_tokens"] + 2 * usage["output_tokens"]
        assert entry["cost"] == entry["cost_total"] == expected > 0
    assert result["cost_total"] == pytest.approx(result["cost"] + sum(entry["cost"] for entry in result["results"]))
    kept = [json.loads(row[0])["cost"] for row in home.rows("SELECT entry FROM receipts")]
    assert sorted(kept) == sorted(entry["cost"] for entry in result["results"])
    home.config("prices: {another: {input: 1}}\n")
    unknown = home.result(plan({"delegate": ["[[answer a]]"]}))
    assert (unknown["cost_total"], unknown["results"][0]["cost"]) == (None, None)
    home.config("")
    assert "cost" not in home.result(plan({"text": "x"}))
