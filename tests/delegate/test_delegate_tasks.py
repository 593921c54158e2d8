"""Tasks as they are written: every way to name them, and a message with the place of each mistake. No process."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fanjoin.cli.task_files import from_file, mapped, read_sources
from fanjoin.client.tasks import Source, Task, digest, make_ready, read_task, read_tasks
from fanjoin.ipc.errors import UserError
from fanjoin.ipc.settings import Endpoint, TurnSettings

ENDPOINT = Endpoint(base_url="http://127.0.0.1:9/v1", model="m")


def settings(folder: Path) -> TurnSettings:
    """Return the settings of a turn in a folder."""
    return TurnSettings(endpoint=ENDPOINT, delegate_endpoint=ENDPOINT, cwd=str(folder))


def written(folder: Path, name: str, text: str) -> str:
    """Write a file and return its name."""
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return str(path)


def named(sources: list[Source]) -> list[tuple[str, str]]:
    """Return the number and the goal of each task."""
    return [(source.number, source.task.goal) for source in sources]


def test_json_lines_have_the_line_as_their_number(tmp_path: Path) -> None:
    """Blank lines count; a text is a goal; a byte order mark is none of it."""
    text = (
        '\ufeff{"goal": "one"}\n\n"two"\n{"id": 7, "goal": "three", "timeout": 5, "env": {"A": "b"}, "context": null}\n'
    )
    sources = from_file(written(tmp_path, "tasks.jsonl", text))
    assert named(sources) == [("1", "one"), ("3", "two"), ("4", "three")]
    assert sources[2].task == Task(goal="three", id="7", timeout=5, env={"A": "b"})


def test_lines_that_are_goals_and_lines_that_are_objects(tmp_path: Path) -> None:
    """In any other file a line is a goal, unless it begins like an object."""
    sources = from_file(written(tmp_path, "tasks.txt", 'say hello\r\n{"goal": "two"}\n[not json]\n'))
    assert named(sources) == [("1", "say hello"), ("2", "two"), ("3", "[not json]")]


def test_a_yaml_list_has_the_line_as_its_number(tmp_path: Path) -> None:
    """A list, or the member ``tasks``; multi-line goals are one goal."""
    text = "tasks:\n  - goal: |\n      one\n      more\n    id: first\n  - two\n"
    sources = from_file(written(tmp_path, "tasks.yaml", text))
    assert named(sources) == [("2", "one\nmore\n"), ("6", "two")]
    assert named(from_file(written(tmp_path, "list.yml", "- a\n- {goal: b}\n"))) == [("1", "a"), ("2", "b")]


def test_a_list_in_json_is_read_like_one_in_yaml(tmp_path: Path) -> None:
    """Whether it stands on one line, whose tasks are then counted, or on many."""
    assert named(from_file(written(tmp_path, "tasks.json", '[{"goal": "a"}, "b",\n {"goal": "c"}]'))) == [
        ("1", "a"),
        ("1.2", "b"),
        ("2", "c"),
    ]
    assert named(from_file(written(tmp_path, "lines.json", '{"goal": "a"}\n{"goal": "b"}'))) == [("1", "a"), ("2", "b")]


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("t.jsonl", '{"goal": "a"}\n{"gaol": "b"}', "t.jsonl:2: unknown key 'gaol' (is it goal?)"),
        ("t.jsonl", "{broken", "t.jsonl:1: this line is not JSON"),
        ("t.jsonl", "[1]", "t.jsonl:1: a task is an object with a goal, not [1]"),
        ("t.jsonl", '{"id": "a"}', "t.jsonl:1: Object missing required field `goal`"),
        ("t.jsonl", '{"goal": " "}', "t.jsonl:1: the goal is blank"),
        ("t.jsonl", '{"goal": 3}', "t.jsonl:1: Expected `str`, got `int` - at `$.goal`"),
        ("t.jsonl", '{"goal": "a", "timeout": -1}', "t.jsonl:1: timeout must be a number of seconds"),
        ("t.jsonl", '{"goal": "a", "env": {"FANJOIN_RUN": "x"}}', "t.jsonl:1: 'FANJOIN_RUN' cannot be set in env"),
        ("t.jsonl", '{"goal": "a", "env": {"A": 1}}', "t.jsonl:1: Expected `str`, got `int`"),
        ("t.jsonl", '{"goal": "a", "id": "a\\nb"}', "t.jsonl:1: the id 'a\\nb' has letters that cannot be printed"),
        ("t.jsonl", '{"goal": "a", "cwd": "nowhere"}', "t.jsonl:1: "),
        ("t.jsonl", '{"goal": "a", "route": "fast"}', "t.jsonl:1: the route 'fast' is not configured (none)"),
        ("t.jsonl", '{"goal": "a", "id": "x"}\n{"goal": "b", "id": "x"}', "t.jsonl:2: the id 'x' is that of "),
        ("t.jsonl", '{"goal": "a", "id": "2"}\n{"goal": "b"}', "t.jsonl:2: the id '2' is that of "),
        (
            "t.jsonl",
            '{"goal": "a", "output_schema": {"type": "none"}}',
            "t.jsonl:1: the output_schema is no JSON Schema: ",
        ),
        ("t.jsonl", '{"goal": "a", "output_schema": {"$ref": "http://x/y"}}', "http://x/y is not fetched"),
        ("t.jsonl", f'{{"goal": "a", "id": "{"x" * 5000}"}}', "t.jsonl:1: the id is longer than 4096 letters"),
        ("t.jsonl", "\n", "There is no task"),
        ("t.yaml", "goal: a", "t.yaml: this must be a list of tasks"),
        ("t.yaml", "- a\n- {goal: b, cntext: c}", "t.yaml:2: unknown key 'cntext' (is it context?)"),
        ("t.yaml", "- a\n- {", "t.yaml:2: this is not valid YAML"),
        ("t.yaml", "- \x01", "t.yaml: this is not valid YAML: special characters are not allowed"),
    ],
)
def test_a_mistake_is_named_with_its_line(tmp_path: Path, name: str, text: str, said: str) -> None:
    """Nothing runs, and the message says where and what."""
    with pytest.raises(UserError) as error:
        make_ready(from_file(written(tmp_path, name, text)), settings(tmp_path))
    assert said in str(error.value)


def test_a_template_makes_a_task_of_each_file(tmp_path: Path) -> None:
    """Path, name and text are filled in once: a file that holds a placeholder is not filled in again."""
    one, two = written(tmp_path, "one.md", "first"), written(tmp_path, "two.md", "{path}")
    sources = mapped("Read {path} ({name}): {text}", (one, two))
    assert [source.task.id for source in sources] == [one, two]
    assert sources[0].task.goal == f"Read {one} (one.md): first"
    assert sources[1].task.goal == f"Read {two} (two.md): {{path}}"


@pytest.mark.parametrize(
    ("goals", "template", "files", "said"),
    [
        ((), None, (), "There is no task"),
        (("a",), None, ("f",), "-g and a task file"),
        ((), None, ("f", "g"), "More than one task file"),
        (("a",), "{path}", ("f",), "--map and -g"),
        ((), "no placeholder", ("f",), "names nothing of a file"),
        ((), "{path}", (), "--map was given without a file"),
        ((), "{path}", ("missing",), "The file missing is not there"),
        ((), "{text}", ("missing",), "The file missing cannot be read"),
        ((), None, ("missing",), "The task file missing cannot be read"),
    ],
)
def test_tasks_are_named_in_one_way(
    goals: tuple[str, ...], template: str | None, files: tuple[str, ...], said: str
) -> None:
    """Two ways, none, or files that are not there: a usage error."""
    with pytest.raises(UserError) as error:
        read_sources(goals, template, files)
    assert said in str(error.value)


def test_what_a_program_hands_in(tmp_path: Path) -> None:
    """Goals, structs and mappings, mixed; one alone is a list of one."""
    ready = make_ready(read_tasks(["a", Task(goal="b", id="x"), {"goal": "c", "cwd": "."}]), settings(tmp_path))
    assert [(task.task_id, task.goal, task.cwd) for task in ready] == [
        ("1", "a", ""),
        ("x", "b", ""),
        ("3", "c", str(tmp_path)),
    ]
    assert named(read_tasks("alone")) == [("1", "alone")]


@given(st.sampled_from(["goal", "context", "cwd", "timeout", "output_schema", "route", "env", "id"]))
def test_the_digest_tells_every_change_but_a_value_of_a_variable(key: str) -> None:
    """The same task has the same digest, whatever the order of its members; a changed one has another."""
    task = Task(goal="g", env={"A": "1", "B": "2"}, output_schema={"a": 1, "b": 2})
    same = Task(goal="g", env={"B": "x", "A": "y"}, output_schema={"b": 2, "a": 1})
    assert digest(task, "1", "/w") == digest(same, "1", "/w")
    changes: dict[str, Any] = {
        "goal": {"goal": "h"},
        "context": {"goal": "g", "context": "c"},
        "timeout": {"goal": "g", "timeout": 1},
        "output_schema": {"goal": "g", "output_schema": {"a": 2}},
        "route": {"goal": "g", "route": "r"},
        "env": {"goal": "g", "env": {"C": "1"}},
        "cwd": {"goal": "g"},
        "id": {"goal": "g"},
    }
    plain = digest(Task(goal="g"), "1", "/w")
    changed = read_task(changes[key], "here", "1").task
    assert digest(changed, "2" if key == "id" else "1", "/x" if key == "cwd" else "/w") != plain
