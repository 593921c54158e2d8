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


def opening(task: AgentTask, rules: str = "") -> list[JsonObject]:
    """Return the system prompt, the earlier messages and the user's message. ``rules`` are those of the project."""
    system = _delegate_prompt(task, rules) if task.depth else "\n\n".join([_ROOT, *_surroundings(task, rules)])
    return [{"role": "system", "content": system}, *task.history, {"role": "user", "content": _user_content(task)}]


def _surroundings(task: AgentTask, rules: str) -> list[str]:
    """Return what is said of the place that an agent works in; it is the same for all agents of a turn."""
    where = [f"Your working directory is {task.cwd}."] if task.cwd and _ON_FILES.intersection(task.toolsets) else []
    return [*where, *([f"{_ABOUT_RULES}\n{rules}"] if rules else [])]


def _delegate_prompt(task: AgentTask, rules: str) -> str:
    """Return a delegate's system prompt: what siblings share comes first and is the same bytes for each.

    A server with a prefix cache then reads the shared context once.
    """
    parts = [_DELEGATE, *_surroundings(task, rules)]
    if task.shared_context:
        parts.append(f"Context of all delegates:\n{task.shared_context}")
    if task.context:
        parts.append(f"Context of your task:\n{task.context}")
    if task.output_schema is not None:
        parts.append(instruction(task.output_schema))
    return "\n\n".join(parts)


def _user_content(task: AgentTask) -> str | list[JsonObject]:
    if not task.images:
        return task.text
    text = [{"type": "text", "text": task.text}] if task.text else []
    return [*text, *(_image_part(image) for image in task.images)]


def _image_part(image: JsonObject) -> JsonObject:
    url = f"data:{image['media_type']};base64,{image['data']}"
    return {"type": "image_url", "image_url": {"url": url}}
