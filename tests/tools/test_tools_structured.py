"""Answers that have to fit a schema: what counts as one, and schemas that mean harm."""

import socket
import subprocess
import sys
import time

import pytest

from fanjoin.agent_proc.structured import judge
from fanjoin.ipc.json_schema import schema_problem

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"n": 1}', ""),
        ('  {"n": 1}\n', ""),
        ('```json\n{"n": 1}\n```', ""),
        ('Here it is:\n\n```\n{"n": 1}\n```\nThat is all.', ""),
        ('{"n": 1} and more', "not JSON"),
        ('```\n{"n": 1}\n```\n```\n{"n": 2}\n```', "not JSON"),
        ("", "not JSON"),
        ('{"n": NaN}', "not JSON"),
        ("[1]", "not an object"),
        ('{"n": "x"}', 'At n: "x" is not of type "integer".'),
        ("{}", '"n" is a required property.'),
        ('{"n": 1, "m": 2}', "'m'"),
        ('{"n": 1.5, "m": 2}', "At n:"),
    ],
)
def test_an_answer_is_judged(text: str, problem: str) -> None:
    """One object, bare or in the one fence of the text; what is wrong is said with its place."""
    judged = judge(text, SCHEMA)
    assert problem in judged.problem
    assert judged.output == (None if problem else {"n": 1})


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ({}, ""),
        (SCHEMA, ""),
        ({"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"}, ""),
        ({"$defs": {"a": {"type": "string"}}, "properties": {"x": {"$ref": "#/$defs/a"}}}, ""),
        ({"type": "nonsense"}, "nonsense"),
        ({"properties": {"a": {"pattern": "("}}}, "regex"),
        ({"properties": {"a": {"$ref": "#/nowhere"}}}, "/nowhere"),
    ],
)
def test_a_schema_is_checked_before_a_child_is_started(schema: dict[str, object], problem: str) -> None:
    """What is no schema, or refers to what is not there, is named."""
    found = schema_problem(schema)
    assert problem in found
    assert bool(problem) == bool(found)


def test_nothing_that_a_schema_refers_to_is_fetched() -> None:
    """No connection is made, no file is read."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}/schema.json"
        assert "not fetched" in schema_problem({"$ref": url})
        server.settimeout(0.05)
        with pytest.raises(TimeoutError):
            server.accept()
    assert "not fetched" in schema_problem({"$ref": "file:///etc/passwd"})


@pytest.mark.parametrize(
    ("schema", "answer"),
    [
        ({"properties": {"s": {"pattern": "^(a+)+$"}}}, '{"s": "' + "a" * 5000 + '!"}'),
        ({"properties": {"s": {"pattern": r"^(a|aa)+(?=!)\1b$"}}}, '{"s": "' + "a" * 200 + '!"}'),
        ({"allOf": [{"$ref": "#"}]}, "{}"),
        ({"properties": {"a": {"$ref": "#"}}}, '{"a":' * 200 + "1" + "}" * 200),
    ],
    ids=["nested repeats", "backtracking", "endless reference", "deep answer"],
)
def test_no_schema_keeps_an_agent_busy(schema: dict[str, object], answer: str) -> None:
    """Patterns that explode and references that never end are judged at once."""
    began = time.monotonic()
    judge(answer, schema)
    assert time.monotonic() - began < 2


def test_the_validator_is_loaded_only_for_a_schema() -> None:
    """An agent without a schema does not pay for it."""
    code = "import sys, fanjoin.agent_proc.main; sys.exit('jsonschema_rs' in sys.modules)"
    assert subprocess.run([sys.executable, "-P", "-c", code], check=False).returncode == 0
