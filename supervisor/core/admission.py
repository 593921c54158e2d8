"""Whether a ``delegate_task`` call may run: the limits of the turn, checked before anything is started."""

import json

from fanjoin.ipc.messages import CallRequest, TaskSpec
from fanjoin.ipc.settings import DelegationLimits
from fanjoin.supervisor.core.model import Turn, Work


def refusal(turn: Turn, parent: Work, request: CallRequest, already: int) -> str:
    """Return the JSON answer of a call that may not run, or nothing when it may.

    Args:
        turn: the turn, with its limits.
        parent: who asks.
        request: the call.
        already: delegates that the turn has accepted so far, calls of the same message included.
    """
    limits = turn.submit.settings.limits
    if parent.depth + 1 > limits.max_spawn_depth:
        return error_json(
            "depth_exceeded",
            f"Delegates at depth {parent.depth} cannot delegate: delegation.max_spawn_depth is "
            f"{limits.max_spawn_depth}. Do the work yourself.",
        )
    count = len(request.tasks)
    if count > limits.max_tasks:
        return error_json(
            "too_many_tasks",
            f"The call has {count} tasks and the limit is {limits.max_tasks} (delegation.max_tasks). "
            "Nothing was started. Use several calls or fewer tasks.",
        )
    if already + count > limits.max_total_children:
        return error_json(
            "total_exceeded",
            f"This turn has {already} delegates and the call asks for {count} more; the limit is "
            f"{limits.max_total_children} (delegation.max_total_children). Nothing was started.",
        )
    return _task_refusal(turn, parent, request.tasks, limits)


def _task_refusal(turn: Turn, parent: Work, tasks: list[TaskSpec], limits: DelegationLimits) -> str:
    for number, task in enumerate(tasks):
        if task.role == "orchestrator" and parent.depth + 2 > limits.max_spawn_depth:
            return error_json(
                "depth_exceeded",
                f"Task {number} asks for role orchestrator, which would delegate at depth {parent.depth + 2}; "
                f"delegation.max_spawn_depth is {limits.max_spawn_depth}. Nothing was started. Use role leaf.",
            )
        if task.route and task.route not in turn.submit.settings.routes:
            known = ", ".join(sorted(turn.submit.settings.routes)) or "none"
            return error_json(
                "unknown_route",
                f"Task {number} asks for route {task.route!r}; configured routes: {known}. Nothing was started.",
            )
    return ""


def error_json(reason: str, message: str) -> str:
    """Return the answer to the model for a call that failed as a whole."""
    return json.dumps({"error": {"reason": reason, "message": message}}, ensure_ascii=False)
