"""Answers that have to be an object of a given JSON Schema: what is asked for, and whether an answer is one.

The validator is loaded only when a schema is given. Schemas come from a model: they are data, nothing that they refer
to is fetched, and no pattern of theirs can take for ever.
"""

import re
from typing import Any

from msgspec import Struct

from fanjoin.agent_proc import jsontext
from fanjoin.ipc.messages import JsonObject
from fanjoin.ipc.text import clip

_FENCED = re.compile(r"```(?:json)?[ \t]*\n(.*?)\n[ \t]*```", re.DOTALL | re.IGNORECASE)
_PROBLEMS = 5
_MESSAGE_CHARACTERS = 400
_BACKTRACKS = 100_000


class Judged(Struct, frozen=True):
    """What an answer is: the object that it holds, or the problem with it."""

    output: JsonObject | None = None
    problem: str = ""


def schema_problem(schema: JsonObject) -> str:
    """Return what is wrong with a schema, or nothing."""
    try:
        _validator(schema)
    except ValueError as error:
        return clip(str(error).partition("\n")[0], _MESSAGE_CHARACTERS)
    return ""


def judge(text: str, schema: JsonObject) -> Judged:
    """Return the object that a text holds, when it is one of the schema."""
    try:
        value = jsontext.read(_bare(text))
    except ValueError as error:
        return Judged(problem=f"The answer is not JSON: {error}.")
    if not isinstance(value, dict):
        return Judged(problem="The answer is JSON, but not an object.")
    problems = _problems(value, schema)
    return Judged(problem=" ".join(problems)) if problems else Judged(output=value)


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


def _problems(value: JsonObject, schema: JsonObject) -> list[str]:
    from itertools import islice

    found = []
    for error in islice(_validator(schema).iter_errors(value), _PROBLEMS):
        place = "/".join(str(step) for step in error.instance_path)
        found.append(f"{f'At {place}: ' if place else ''}{clip(error.message, _MESSAGE_CHARACTERS)}.")
    return found


def _validator(schema: JsonObject) -> Any:
    """Return a validator of the schema.

    Raises:
        ValueError: it is not a schema, or refers to something outside of it.
    """
    import jsonschema_rs

    patterns = jsonschema_rs.FancyRegexOptions(backtrack_limit=_BACKTRACKS)
    try:
        return jsonschema_rs.validator_for(schema, retriever=_refuse, pattern_options=patterns)
    except jsonschema_rs.ReferencingError as error:
        raise ValueError(str(error)) from error


def _refuse(uri: str) -> Any:
    raise ValueError(f"{uri} is not fetched: a schema has to hold all that it refers to")
