"""The tool ``delegate_task``: what the model is told of it, and how its arguments become requests.

Arguments that are wrong in themselves are answered here. Limits over the whole turn and the routes are the
supervisor's to judge; it answers such a call with the same kind of error.
"""

from fanjoin.agent_proc import jsontext
from fanjoin.agent_proc.calls import ToolError, read_arguments
from fanjoin.agent_proc.provider.reply import ToolCall
from fanjoin.ipc.json_schema import schema_problem
from fanjoin.ipc.messages import AgentTask, CallRequest, JsonObject, TaskSpec
from fanjoin.ipc.text import clip

NAME = "delegate_task"
_ROLES = ("leaf", "orchestrator")
_ABOUT_SCHEMA = "A JSON Schema: the delegate then answers with an object that is valid against it, given as output."


def is_offered(task: AgentTask) -> bool:
    """Whether an agent may delegate: the root with the toolset, or an orchestrator, above the deepest level."""
    allowed = task.role == "orchestrator" if task.depth else "delegation" in task.toolsets
    return allowed and task.depth < task.limits.max_spawn_depth


def schema(task: AgentTask) -> JsonObject:
    """Return the tool's entry in a request, with the real limits of this turn."""
    fields = _task_fields(task)
    properties = {
        "tasks": {
            "type": "array",
            "description": "The tasks, one delegate each.",
            "minItems": 1,
            "maxItems": task.limits.max_tasks,
            "items": {"type": "object", "properties": fields, "required": ["goal"]},
        },
        "shared_context": {"type": "string", "description": "What every task's delegate needs to know, once for all."},
        **fields,
    }
    parameters = {"type": "object", "properties": properties}
    return {"type": "function", "function": {"name": NAME, "description": _description(task), "parameters": parameters}}


def read_call(call: ToolCall) -> CallRequest:
    """Return the request of a call.

    Raises:
        ToolError: ``invalid_arguments``, naming the task that is wrong.
    """
    arguments = read_arguments(call.arguments)
    tasks = arguments.get("tasks")
    if tasks is None:
        specs = [_read_task(arguments, "the task")]
    else:
        specs = [_read_task(entry, f"tasks[{index}]") for index, entry in enumerate(_task_list(tasks))]
    shared = _optional_text(arguments, "shared_context", "the call")
    return CallRequest(tool_call_id=call.id, tasks=specs, shared_context=shared)


def _task_list(value: object) -> list[object]:
    if isinstance(value, str):
        try:
            value = jsontext.read(value)
        except ValueError as error:
            raise _invalid(f"tasks is a text that is not valid JSON ({error})") from error
    if not isinstance(value, list):
        raise _invalid(f"tasks must be an array of tasks, not {_shown(value)}")
    if not value:
        raise _invalid("tasks is empty: give at least one task")
    return value


def _read_task(value: object, where: str) -> TaskSpec:
    if not isinstance(value, dict):
        raise _invalid(f"{where} must be an object with a goal, not {_shown(value)}")
    role = value.get("role") or "leaf"
    if role not in _ROLES:
        raise _invalid(f"{where}: role must be leaf or orchestrator, not {_shown(role)}")
    output_schema = value.get("output_schema")
    if output_schema is not None and not isinstance(output_schema, dict):
        raise _invalid(f"{where}: output_schema must be a JSON Schema object, not {_shown(output_schema)}")
    if output_schema is not None and (problem := schema_problem(output_schema)):
        raise _invalid(f"{where}: output_schema is no JSON Schema: {problem}")
    return TaskSpec(
        goal=_goal(value, where),
        context=_optional_text(value, "context", where),
        role=role,
        output_schema=output_schema,
        route=_optional_text(value, "route", where),
    )


def _goal(task: JsonObject, where: str) -> str:
    if "goal" not in task:
        raise _invalid(f"{where}: goal is missing")
    goal = task["goal"]
    if not isinstance(goal, str):
        raise _invalid(f"{where}: goal must be a text, not {_shown(goal)}")
    if not goal.strip():
        raise _invalid(f"{where}: goal is blank")
    return goal


def _optional_text(value: JsonObject, name: str, where: str) -> str:
    text = value.get(name)
    if text is not None and not isinstance(text, str):
        raise _invalid(f"{where}: {name} must be a text, not {_shown(text)}")
    return text or ""


def _invalid(message: str) -> ToolError:
    return ToolError("invalid_arguments", f"{message}. No task was started.")


def _shown(value: object) -> str:
    return clip(jsontext.write(value), 80)


def _task_fields(task: AgentTask) -> JsonObject:
    fields: JsonObject = {
        "goal": {"type": "string", "description": "The whole task: it is the one message that the delegate gets."},
        "context": {"type": "string", "description": "What this delegate needs to know besides."},
        "output_schema": {"type": "object", "description": _ABOUT_SCHEMA},
    }
    if _may_orchestrate(task):
        fields["role"] = {"type": "string", "enum": list(_ROLES), "description": "An orchestrator may delegate itself."}
    if task.route_notes:
        notes = "; ".join(f"{name}: {note}" if note else name for name, note in task.route_notes.items())
        about = f"The model to use. {notes}"
        fields["route"] = {"type": "string", "enum": list(task.route_notes), "description": about}
    return fields


def _may_orchestrate(task: AgentTask) -> bool:
    return task.depth + 1 < task.limits.max_spawn_depth


def _description(task: AgentTask) -> str:
    limits = task.limits
    sentences = [
        "Give tasks to delegates: agents that work side by side, each in a process of its own.",
        "They see nothing of this conversation but what you write into goal, context and shared_context.",
        f"One call takes 1 to {limits.max_tasks} tasks, or one goal without tasks.",
        f"{limits.max_concurrent_children} run at once, the rest wait their turn.",
        f"At most {limits.max_total_children} delegates run in one turn.",
        _when_answered(task),
    ]
    if limits.child_timeout_seconds:
        sentences.append(f"A delegate is stopped after {limits.child_timeout_seconds:g} seconds.")
    if _may_orchestrate(task):
        sentences.append("A task with the role orchestrator may delegate in turn; a leaf, the default, may not.")
    else:
        sentences.append("Delegates cannot delegate.")
    return " ".join(sentences)


def _when_answered(task: AgentTask) -> str:
    entries = "a JSON object with one entry in results per task, in the order of the tasks: status, summary or error"
    if task.finite or task.depth:
        return f"The call returns when all have ended: {entries}."
    return f"The call returns at once; when all have ended you get {entries}, as a later message."
