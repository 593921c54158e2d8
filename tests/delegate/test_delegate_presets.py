"""Known programs as workers: each against a stand-in that takes the documented flags and nothing else."""

import json
import os
import sys
from pathlib import Path

import pytest
from delegate_support import goals, result, task_file
from run_support import Home

from fanjoin.client.workers import PRESETS, WorkerChoice, make_worker, split
from fanjoin.ipc.errors import UserError

ANSWERS = {
    "claude": (
        ["-p", "--output-format", "json"],
        json.dumps({"type": "result", "is_error": False, "result": "ANSWER"}),
    ),
    "codex": (["exec", "-"], "ANSWER"),
    "gemini": (["--output-format", "json"], json.dumps({"response": "ANSWER", "stats": {}})),
    "hermes": (["chat", "-Q", "--query-file", "-"], "ANSWER"),
    "opencode": (["run"], "ANSWER"),
    "pi": (["--print"], "ANSWER"),
}
"""For each: the arguments that its documentation gives for one task from standard input, and what it then prints."""

STAND_IN = """#!{python}
import sys
assert sys.argv[1:] == {arguments!r}, sys.argv
assert not sys.stdin.isatty()
sys.stdout.write({answer!r}.replace("ANSWER", sys.stdin.read().replace(chr(10), "|")))
"""


def test_every_preset_has_a_stand_in() -> None:
    """None is offered untested."""
    assert set(PRESETS) == set(ANSWERS)


@pytest.mark.skipif(sys.platform == "win32", reason="stand-ins are scripts with an interpreter line")
@pytest.mark.parametrize("name", sorted(ANSWERS))
def test_a_preset_gives_the_documented_flags_and_reads_the_result(home: Home, name: str) -> None:
    """The context goes before the goal, both on standard input; the result is the program's answer alone."""
    arguments, answer = ANSWERS[name]
    folder = home.path.parent / "bin"
    folder.mkdir()
    program = folder / name
    text = STAND_IN.format(python=sys.executable, arguments=arguments, answer=answer)
    program.write_text(text, encoding="utf-8")
    program.chmod(0o755)
    files = task_file(home.path.parent / "tasks.jsonl", {"goal": "the goal", "context": "the context"})
    path = f"{folder}{os.pathsep}{home.env['PATH']}"
    value = result(home, files, "--worker-preset", name, worker="", env={"PATH": path})
    assert [one["summary"] for one in value["results"]] == ["the context||the goal"]
    assert value["results"][0]["model"] == name


def test_a_preset_that_is_not_installed_is_a_usage_error() -> None:
    """It is named."""
    with pytest.raises(UserError, match="The worker claude was not found"):
        make_worker(WorkerChoice(worker_preset="claude"), {"PATH": "/nowhere"})


def test_a_command_line_is_split_and_never_given_to_a_shell(home: Home) -> None:
    """Quotes group, nothing expands."""
    assert split("a 'b c' \"$HOME\" *.md") == ("a", "b c", "$HOME", "*.md") or sys.platform == "win32"
    shows = f"{sys.executable} -c 'import sys; print(sys.argv[1:])' '$HOME' '*' ';' '>x'"
    (one,) = result(home, *goals("g"), worker=shows)["results"]
    assert one["summary"] == "['$HOME', '*', ';', '>x']"


@pytest.mark.parametrize(
    ("choice", "said"),
    [
        (WorkerChoice(worker="a", worker_preset="pi"), "Give one of the two"),
        (WorkerChoice(worker_preset="unknown"), "is not known: claude"),
        (WorkerChoice(worker="sh", worker_output="xml"), "is not known: text"),
        (WorkerChoice(worker="'open"), "is no command line"),
        (WorkerChoice(worker=""), "is empty"),
        (WorkerChoice(worker="  "), "is empty"),
        (WorkerChoice(worker=("",)), "is empty"),
        (WorkerChoice(worker_output="json"), "but no worker"),
        (WorkerChoice(worker_env=("HOME",)), "but no worker"),
        (WorkerChoice(worker="sh", result_key="answer"), "the worker output is text"),
    ],
)
def test_a_wrong_choice_is_a_usage_error(choice: WorkerChoice, said: str) -> None:
    """Before anything runs."""
    with pytest.raises(UserError, match=said):
        make_worker(choice)


def test_a_program_is_found_once_and_by_its_whole_path(tmp_path: Path) -> None:
    """A relative path is that of the caller's folder, not of a task's."""
    worker = make_worker(
        WorkerChoice(worker=os.path.relpath(sys.executable), worker_env=("A*",)), {"AB": "1", "BA": "2"}
    )
    assert worker is not None
    assert os.path.samefile(worker.command[0], sys.executable)
    assert os.path.isabs(worker.command[0])
    assert worker.env == {"AB": "1"}
    assert make_worker(WorkerChoice()) is None
    assert str(tmp_path) not in worker.command[0]
