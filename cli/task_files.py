"""Where tasks come from: goals on the command line, a file of them, standard input, or a template over files."""

import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import yaml

from fanjoin.client.tasks import Source, read_task
from fanjoin.ipc.errors import UserError
from fanjoin.ipc.text import clean

_YAML = (".yaml", ".yml")
_PLACEHOLDERS = ("{path}", "{name}", "{text}")
_MAX_TEXT_BYTES = 32 << 20


def read_sources(goals: tuple[str, ...], template: str | None, files: tuple[str, ...]) -> list[Source]:
    """Return the tasks that a command line names.

    Raises:
        UserError: they are named in two ways or in none, or one of them is wrong.
    """
    if template is not None:
        if goals:
            raise UserError("--map and -g were given. Nothing was run. Give one of the two.")
        return mapped(template, files)
    if goals and files:
        raise UserError("-g and a task file were given. Nothing was run. Give one of the two.")
    if len(files) > 1:
        raise UserError("More than one task file was given; only --map takes several files. Nothing was run.")
    if files:
        return from_file(files[0])
    if not goals:
        raise UserError(
            "There is no task. Give -g GOAL, a file of tasks, - for standard input, or --map TEMPLATE FILES."
        )
    return [read_task(clean(goal), f"-g number {number}", str(number)) for number, goal in enumerate(goals, start=1)]


def from_file(name: str) -> list[Source]:
    """Return the tasks of a file, - for standard input: lines that are goals or JSON objects, or a list in YAML."""
    data = _read_stdin() if name == "-" else _read(Path(name), "The task file")
    where = "standard input" if name == "-" else clean(name)
    text = data.decode("utf-8-sig", "replace")
    return list(_from_list(text, where) if _is_list(Path(name).suffix.lower(), text) else _from_lines(text, where))


def _is_list(suffix: str, text: str) -> bool:
    """Say whether a file is one document: YAML, of which a list in JSON is a part."""
    return suffix in _YAML or (suffix == ".json" and text.lstrip().startswith("["))


def _from_lines(text: str, where: str) -> Iterator[Source]:
    only_json = where.endswith((".jsonl", ".ndjson", ".json"))
    for number, line in enumerate(text.split("\n"), start=1):
        stripped = line.strip()
        if not stripped:
            continue
        place = f"{where}:{number}"
        is_json = only_json or stripped.startswith("{")
        yield read_task(_json(stripped, place) if is_json else stripped, place, str(number))


def _json(line: str, place: str) -> object:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{place}: this line is not JSON ({error}). Nothing was run.") from error


def _from_list(text: str, where: str) -> Iterator[Source]:
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        if isinstance(root, yaml.MappingNode):
            named = {key.value: node for key, node in root.value}
            root = named["tasks"] if list(named) == ["tasks"] else root
        if not isinstance(root, yaml.SequenceNode):
            raise UserError(f"{where}: this must be a list of tasks, or `tasks:` with one. Nothing was run.")
        on_line: Counter[int] = Counter()
        for node in root.value:
            line = node.start_mark.line + 1
            on_line[line] += 1
            number = f"{line}" if on_line[line] == 1 else f"{line}.{on_line[line]}"
            yield read_task(_value(node), f"{where}:{line}", number)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f"{where}:{mark.line + 1}" if mark else where
        problem = getattr(error, "problem", None) or getattr(error, "reason", "it cannot be understood")
        raise UserError(f"{place}: this is not valid YAML: {problem}. Nothing was run.") from error
    except RecursionError as error:
        raise UserError(f"{where}: it is nested too deeply. Nothing was run.") from error


def _value(node: yaml.Node) -> object:
    loader = yaml.SafeLoader("")
    try:
        return loader.construct_object(node, deep=True)
    finally:
        loader.dispose()


def mapped(template: str, files: tuple[str, ...]) -> list[Source]:
    """Return one task per file: the template with its path, name and text filled in; its path is its id."""
    if not any(placeholder in template for placeholder in _PLACEHOLDERS):
        raise UserError(
            f"The template {template!r} names nothing of a file: use {', '.join(_PLACEHOLDERS)}. Nothing was run."
        )
    if not files:
        raise UserError("--map was given without a file. Nothing was run. Name the files after the template.")
    return [read_task({"id": clean(name), "goal": _filled(template, name)}, clean(name), name) for name in files]


def _filled(template: str, name: str) -> str:
    path = Path(name)
    data = _read(path, "The file") if "{text}" in template else b""
    if not path.is_file():
        raise UserError(f"The file {clean(name)} is not there. Nothing was run.")
    values = {"{path}": clean(name), "{name}": clean(path.name), "{text}": data.decode("utf-8", "replace")}
    pieces = _split(template)
    return "".join(values.get(piece, piece) for piece in pieces)


def _split(template: str) -> list[str]:
    """Return a template's pieces: what is filled in is not looked through again."""
    pieces = [template]
    for placeholder in _PLACEHOLDERS:
        pieces = [part for piece in pieces for part in _around(piece, placeholder)]
    return pieces


def _around(piece: str, placeholder: str) -> list[str]:
    if piece in _PLACEHOLDERS:
        return [piece]
    parts = piece.split(placeholder)
    return [word for part in parts for word in (placeholder, part)][1:]


def _read(path: Path, what: str) -> bytes:
    try:
        if path.stat().st_size > _MAX_TEXT_BYTES:
            raise UserError(f"{what} {clean(str(path))} is larger than {_MAX_TEXT_BYTES >> 20} MiB. Nothing was run.")
        return path.read_bytes()
    except OSError as error:
        raise UserError(f"{what} {clean(str(path))} cannot be read: {error.strerror}. Nothing was run.") from error


def _read_stdin() -> bytes:
    stream = getattr(sys.stdin, "buffer", None)
    try:
        data: bytes = stream.read() if stream is not None else b""
    except OSError as error:
        raise UserError(f"Standard input cannot be read: {error.strerror}. Nothing was run.") from error
    return data
