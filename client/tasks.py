"""Tasks as a user writes them, checked and made ready: unique ids, folders that exist, routes that are known."""

import difflib
import hashlib
import os
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec import Struct, field
from msgspec.structs import asdict

from fanjoin.ipc.errors import UserError
from fanjoin.ipc.json_schema import schema_problem
from fanjoin.ipc.messages import DirectTask, JsonObject
from fanjoin.ipc.settings import TurnSettings
from fanjoin.ipc.text import clean, clean_tree, clip

OUR_VARIABLES = "FANJOIN_"
_ID_LETTERS = 4096
"""As many as a path has at most."""


class Task(Struct, kw_only=True, omit_defaults=True):
    """One task. ``goal`` is the one message that its delegate gets; the rest is optional.

    ``id`` names it in results; without one it has its number. ``timeout`` is in seconds from its start, 0 = the
    configured one. ``cwd`` is where it runs, ``env`` what its tools or its program see in addition.
    """

    goal: str
    id: str = ""
    context: str = ""
    cwd: str = ""
    timeout: float = 0.0
    output_schema: JsonObject | None = None
    route: str = ""
    env: dict[str, str] = field(default_factory=dict)


class Source(Struct, frozen=True):
    """A task and where it was written, for messages; ``number`` is its id when it has none of its own."""

    task: Task
    where: str
    number: str


_KEYS = tuple(Task.__struct_fields__)


def read_task(value: object, where: str, number: str) -> Source:
    """Return the task that a JSON or YAML value says: an object, or a text that is its goal.

    Raises:
        UserError: a key is unknown, a value has a wrong type, or the goal is missing; the message names the place.
    """
    given = clean_tree({"goal": value} if isinstance(value, str) else value)
    if not isinstance(given, dict):
        raise UserError(f"{where}: a task is an object with a goal, not {_shown(given)}. Nothing was run.")
    for key in given:
        if key not in _KEYS:
            raise UserError(
                f"{where}: unknown key {key!r}{_hint(key)}. A task has: {', '.join(_KEYS)}. Nothing was run."
            )
    known: dict[str, Any] = {key: one for key, one in given.items() if one is not None}
    if isinstance(known.get("id"), int) and not isinstance(known["id"], bool):
        known["id"] = str(known["id"])
    try:
        task = msgspec.convert(known, Task)
    except msgspec.ValidationError as error:
        raise UserError(f"{where}: {error}. Nothing was run.") from error
    return _checked(Source(task, where, number))


def read_tasks(values: Iterable[str | Task | Mapping[str, Any]]) -> list[Source]:
    """Return the tasks that a program hands in: goals, ``Task`` or mappings with the same keys.

    Raises:
        UserError: one of them is wrong.
    """
    if isinstance(values, str | Mapping | Task):
        values = [values]
    return [read_task(_plain(value), f"task {number}", str(number)) for number, value in enumerate(values, start=1)]


def _plain(value: object) -> object:
    """Return a task as JSON would have it: a struct's members have not been checked by anybody."""
    if isinstance(value, Task):
        return asdict(value)
    return dict(value) if isinstance(value, Mapping) else value


def _checked(source: Source) -> Source:
    task, where = source.task, source.where
    if not task.goal.strip():
        raise UserError(f"{where}: the goal is blank. Nothing was run.")
    if not 0 <= task.timeout < float("inf"):
        raise UserError(f"{where}: timeout must be a number of seconds, 0 or more. Nothing was run.")
    if len(task.id) > _ID_LETTERS:
        raise UserError(f"{where}: the id is longer than {_ID_LETTERS} letters. Nothing was run.")
    if task.id and not task.id.isprintable():
        raise UserError(f"{where}: the id {task.id!r} has letters that cannot be printed. Nothing was run.")
    if task.output_schema is not None and (problem := schema_problem(task.output_schema)):
        raise UserError(f"{where}: the output_schema is no JSON Schema: {problem}. Nothing was run.")
    for name in task.env:
        if not name or "=" in name or "\0" in name + task.env[name] or name.upper().startswith(OUR_VARIABLES):
            raise UserError(f"{where}: {name!r} cannot be set in env. Nothing was run.")
    return source


def make_ready(sources: list[Source], settings: TurnSettings) -> list[DirectTask]:
    """Return the tasks as they are submitted.

    Raises:
        UserError: there is none, two have one id, a folder is not there, or a route is not configured.
    """
    if not sources:
        raise UserError("There is no task, so there is nothing to do.")
    seen: dict[str, str] = {}
    for source in sources:
        task_id = source.task.id or source.number
        if task_id in seen:
            raise UserError(f"{source.where}: the id {task_id!r} is that of {seen[task_id]}, too. Nothing was run.")
        seen[task_id] = source.where
    return [_ready(source, settings) for source in sources]


def _ready(source: Source, settings: TurnSettings) -> DirectTask:
    task = source.task
    if task.route and task.route not in settings.routes:
        known = ", ".join(sorted(settings.routes)) or "none"
        raise UserError(f"{source.where}: the route {task.route!r} is not configured ({known}). Nothing was run.")
    cwd = os.path.abspath(os.path.join(settings.cwd, os.path.expanduser(task.cwd))) if task.cwd else ""
    if cwd and not os.path.isdir(cwd):
        raise UserError(f"{source.where}: {clean(cwd)} is not a folder. Nothing was run.")
    task_id = task.id or source.number
    return DirectTask(
        task_id=task_id,
        digest=digest(task, task_id, cwd or settings.cwd),
        goal=task.goal,
        context=task.context,
        output_schema=task.output_schema,
        route=task.route,
        cwd=cwd,
        timeout_seconds=task.timeout,
        env=task.env,
    )


def digest(task: Task, task_id: str, cwd: str) -> str:
    """Return what tells the same task again. Of its variables only the names count: their values may be keys."""
    parts = [task_id, task.goal, task.context, cwd, task.timeout, task.output_schema, task.route, sorted(task.env)]
    return hashlib.sha256(msgspec.json.encode(parts, order="sorted")).hexdigest()[:32]


def _hint(key: str) -> str:
    near = difflib.get_close_matches(key, _KEYS, n=1)
    return f" (is it {near[0]}?)" if near else ""


def _shown(value: object) -> str:
    return clip(repr(value), 80)
