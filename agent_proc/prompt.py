"""The messages that an agent's conversation begins with."""

from fanjoin.agent_proc.structured import instruction
from fanjoin.ipc.messages import AgentTask, JsonObject

_ROOT = (
    "You are fanjoin, an agent on the user's command line. Do what the user asks and answer with the result itself."
    " Say plainly what failed or is missing; never make a result up."
)
_DELEGATE = (
    "You are a delegate: you do one task for another agent and cannot ask anything back. Your last message is handed on"
    " as your result, so put everything that matters into it. Say plainly what failed or is missing."
)

_ABOUT_RULES = "The project that you work in has these rules. The nearest to your working directory comes last."
_ON_FILES = frozenset({"files", "terminal"})


def opening(task: AgentTask) -> list[JsonObject]:
    """Return the system prompt, the earlier messages and the user's message, where there is a new one."""
    system = "\n\n".join([shared_prefix(task), *_own_parts(task)])
    new = [{"role": "user", "content": _user_content(task)}] if task.text or task.images else []
    return [{"role": "system", "content": system}, *task.history, *new]


def shared_prefix(task: AgentTask) -> str:
    """Return what the system prompt begins with: the same bytes for an agent and its siblings.

    A server with a prefix cache then reads it once.
    """
    parts = [_DELEGATE if task.depth else _ROOT]
    if task.cwd and _ON_FILES.intersection(task.toolsets):
        parts.append(f"Your working directory is {task.cwd}.")
    if task.rules:
        parts.append(f"{_ABOUT_RULES}\n{task.rules}")
    if task.shared_context:
        parts.append(f"Context of all delegates:\n{task.shared_context}")
    return "\n\n".join(parts)


def _own_parts(task: AgentTask) -> list[str]:
    """Return what a delegate alone is told."""
    context = [f"Context of your task:\n{task.context}"] if task.context else []
    return context + ([] if task.output_schema is None else [instruction(task.output_schema)])


def _user_content(task: AgentTask) -> str | list[JsonObject]:
    if not task.images:
        return task.text
    text = [{"type": "text", "text": task.text}] if task.text else []
    return [*text, *(_image_part(image) for image in task.images)]


def _image_part(image: JsonObject) -> JsonObject:
    url = f"data:{image['media_type']};base64,{image['data']}"
    return {"type": "image_url", "image_url": {"url": url}}
