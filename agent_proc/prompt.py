"""The messages that an agent's conversation begins with."""

from fanjoin.ipc.messages import AgentTask, JsonObject

_ROOT = (
    "You are fanjoin, an agent on the user's command line. Do what the user asks and answer with the result itself."
    " Say plainly what failed or is missing; never make a result up."
)
_DELEGATE = (
    "You are a delegate: you do one task for another agent and cannot ask anything back. Your last message is handed on"
    " as your result, so put everything that matters into it. Say plainly what failed or is missing."
)


def opening(task: AgentTask) -> list[JsonObject]:
    """Return the system prompt, the earlier messages and the user's message, where there is a new one."""
    system = _delegate_prompt(task) if task.depth else _ROOT
    new = [{"role": "user", "content": _user_content(task)}] if task.text or task.images else []
    return [{"role": "system", "content": system}, *task.history, *new]


def _delegate_prompt(task: AgentTask) -> str:
    """Return a delegate's system prompt: what siblings share comes first and is the same bytes for each.

    A server with a prefix cache then reads the shared context once.
    """
    own = f"\n\nContext of your task:\n{task.context}" if task.context else ""
    return shared_prefix(task) + own


def shared_prefix(task: AgentTask) -> str:
    """Return what the system prompt begins with and has in common with those of the agent's siblings."""
    if not task.depth:
        return _ROOT
    shared = f"\n\nContext of all delegates:\n{task.shared_context}" if task.shared_context else ""
    return _DELEGATE + shared


def _user_content(task: AgentTask) -> str | list[JsonObject]:
    if not task.images:
        return task.text
    text = [{"type": "text", "text": task.text}] if task.text else []
    return [*text, *(_image_part(image) for image in task.images)]


def _image_part(image: JsonObject) -> JsonObject:
    url = f"data:{image['media_type']};base64,{image['data']}"
    return {"type": "image_url", "image_url": {"url": url}}
