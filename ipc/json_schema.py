"""JSON Schema: whether a schema is one, and what is wrong with a value by it.

The validator is loaded only when a schema is given. Schemas may come from a model: they are data, nothing that they
refer to is fetched, and no pattern of theirs can take for ever.
"""

from typing import Any

from fanjoin.ipc.messages import JsonObject
from fanjoin.ipc.text import clip

_PROBLEMS = 5
_MESSAGE_CHARACTERS = 400
_BACKTRACKS = 100_000


def schema_problem(schema: JsonObject) -> str:
    """Return what is wrong with a schema, or nothing."""
    try:
        _validator(schema)
    except ValueError as error:
        return clip(str(error).partition("\n")[0], _MESSAGE_CHARACTERS)
    return ""


def value_problem(value: JsonObject, schema: JsonObject) -> str:
    """Return what is wrong with a value by a schema that has been found to be one, or nothing."""
    from itertools import islice

    found = []
    for error in islice(_validator(schema).iter_errors(value), _PROBLEMS):
        place = "/".join(str(step) for step in error.instance_path)
        found.append(f"{f'At {place}: ' if place else ''}{clip(error.message, _MESSAGE_CHARACTERS)}.")
    return " ".join(found)


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
