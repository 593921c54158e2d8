"""Answers that have to be an object of a given JSON Schema: what is asked for, and whether an answer is one."""

import re

from msgspec import Struct

from fanjoin.agent_proc import jsontext
from fanjoin.ipc.json_schema import value_problem
from fanjoin.ipc.messages import JsonObject

_FENCED = re.compile(r"```(?:json)?[ \t]*\n(.*?)\n[ \t]*```", re.DOTALL | re.IGNORECASE)


class Judged(Struct, frozen=True):
    """What an answer is: the object that it holds, or the problem with it."""

    output: JsonObject | None = None
    problem: str = ""


def judge(text: str, schema: JsonObject) -> Judged:
    """Return the object that a text holds, when it is one of the schema."""
    try:
        value = jsontext.read(_bare(text))
    except ValueError as error:
        return Judged(problem=f"The answer is not JSON: {error}.")
    return judge_value(value, schema)


def judge_value(value: object, schema: JsonObject) -> Judged:
    """Return a value, when it is an object of the schema."""
    if not isinstance(value, dict):
        return Judged(problem="The answer is JSON, but not an object.")
    problem = value_problem(value, schema)
    return Judged(problem=problem) if problem else Judged(output=value)


def instruction(schema: JsonObject) -> str:
    """Return what an agent is told of its last message."""
    return (
        "Your last message must be one JSON object and nothing else: no prose, no code fence. It must be valid against"
        f" this JSON Schema:\n{jsontext.write(schema)}"
    )


def correction(problem: str) -> str:
    """Return what an agent is told of an answer that is not valid."""
    return f"{problem}\nAnswer again with nothing but one JSON object that is valid against the schema you were given."


def named(schema: JsonObject) -> JsonObject:
    """Return a schema as the APIs take it that can keep an answer to one."""
    return {"name": "result", "schema": schema}


def _bare(text: str) -> str:
    """Return the one fenced piece of a text, when there is exactly one; else the text."""
    fenced = _FENCED.findall(text)
    return fenced[0] if len(fenced) == 1 else text.strip()
