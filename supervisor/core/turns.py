"""Turns and calls: how a submission is admitted, and how a call becomes delegates."""

import hashlib
from collections import deque
from collections.abc import Callable, Sequence

import msgspec
from msgspec.structs import replace

from fanjoin.ipc import ids
from fanjoin.ipc.messages import Accepted, CallRequest, DirectTask, JsonObject, Refused, Submit, TaskSpec
from fanjoin.ipc.messages import Delegate as DelegateMessage
from fanjoin.ipc.settings import Endpoint
from fanjoin.supervisor.core import attempts
from fanjoin.supervisor.core.admission import refusal
from fanjoin.supervisor.core.entries import transcript_path
from fanjoin.supervisor.core.model import Attempt, Call, Delegate, Intent, Join, Turn, Work
from fanjoin.supervisor.core.state import State
from fanjoin.supervisor.records import (
    AdmissionQueued,
    AdmissionStarted,
    DelegateAccepted,
    MessagesAdded,
    Record,
    SessionCreated,
)

_JOIN_SECONDS = 5.0
"""How long a run whose budget is used up may take, after the grace of its delegates, to join what is done."""


def submit(state: State, viewer: str, submission: Submit, history: list[JsonObject]) -> None:
    """Admit a turn: record it and tell the viewer; it runs when its session and a process are free."""
    if unknown := {task.route for task in submission.tasks} - {"", *submission.settings.routes}:
        message = f"Tasks ask for routes that are not configured: {', '.join(sorted(unknown))}. Nothing was started."
        state.tell(viewer, Refused(request_id=submission.request_id, reason="invalid_params", message=message))
        return
    turn = _new_turn(state, viewer, submission, history)
    state.turns[turn.admission_id] = turn
    state.queues.setdefault(turn.session_id, deque()).append(turn)
    records: list[Record] = [] if submission.session_id else [_session_record(turn, state.wall)]
    records.append(_admission_record(turn, state.wall))
    state.persist(records, _admitted(state, turn))


def _new_turn(state: State, viewer: str, submission: Submit, history: list[JsonObject]) -> Turn:
    return Turn(
        work_id=state.new_id(ids.TURN),
        depth=0,
        endpoint=submission.settings.endpoint,
        queued_at=state.now,
        session_id=submission.session_id or state.new_id(ids.SESSION),
        viewer=viewer,
        submit=submission,
        history=history,
        grace=submission.settings.limits.cancel_grace_seconds,
    )


def _session_record(turn: Turn, wall: float) -> SessionCreated:
    submission = turn.submit
    return SessionCreated(
        session_id=turn.session_id,
        principal_id=submission.principal_id,
        request_id=turn.session_id,
        source=submission.source,
        title=submission.title,
        cwd=submission.settings.cwd,
        settings_json=_public_settings(submission),
        at=wall,
    )


def _public_settings(submission: Submit) -> str:
    """Return the settings of a session without any key."""
    endpoint = submission.settings.endpoint
    kept = {
        "model": endpoint.model,
        "base_url": endpoint.base_url,
        "api_mode": endpoint.api_mode,
        "toolsets": submission.settings.toolsets,
    }
    return msgspec.json.encode(kept).decode()


def _admission_record(turn: Turn, wall: float) -> AdmissionQueued:
    payload = turn.submit.payload_json
    return AdmissionQueued(
        admission_id=turn.admission_id,
        request_id=turn.submit.request_id,
        principal_id=turn.submit.principal_id,
        session_id=turn.session_id,
        payload_json=payload,
        payload_digest=hashlib.sha256(payload.encode()).hexdigest(),
        at=wall,
    )


def _admitted(state: State, turn: Turn) -> Callable[[str | None, dict[str, int]], None]:
    def committed(error: str | None, sequences: dict[str, int]) -> None:
        request_id = turn.submit.request_id
        if error is not None:
            turn.done = turn.closing = True
            state.tell(turn.viewer, Refused(request_id=request_id, reason="storage_unavailable", message=error))
            return
        accepted = Accepted(
            request_id=request_id,
            session_id=turn.session_id,
            admission_id=turn.admission_id,
            sequence=sequences.get(turn.admission_id, 0),
            status="started" if turn.begun else "queued",
        )
        state.tell(turn.viewer, accepted)

    return committed


def may_begin(state: State, turn: Turn) -> bool:
    """Say whether a turn has not begun and is the next one of its session."""
    return not turn.begun and turn.outcome is None and state.queues[turn.session_id][0] is turn


def begin(state: State, turn: Turn) -> None:
    """Start a turn's root, or queue the tasks that it was given; processes are launched when that is committed."""
    turn.begun = True
    state.persist([AdmissionStarted(admission_id=turn.admission_id, at=state.wall)], _started(state, turn))
    deadline = turn.submit.settings.deadline_seconds
    if deadline:
        state.timers.set(turn.admission_id, "deadline", state.now + deadline)
    if turn.rootless:
        call = Call(delegation_id=state.new_id(ids.CALL), tool_call_id="", started_at=state.now)
        _enqueue(state, turn, call, turn.submit.tasks)
    else:
        user = {"role": "user", "content": turn.submit.text}
        added = MessagesAdded(
            session_id=turn.session_id, admission_id=turn.admission_id, messages=[user], at=state.wall
        )
        state.persist([added])
        attempts.start(state, turn)


def _started(state: State, turn: Turn) -> Callable[[str | None, dict[str, int]], None]:
    def committed(error: str | None, _: dict[str, int]) -> None:
        if error is None:
            state.announce(turn, "turn.started")

    return committed


def release(state: State, turn: Turn) -> None:
    """Forget a turn that is over: the next one of its session may begin."""
    state.timers.clear(turn.admission_id, "deadline")
    state.turns.pop(turn.admission_id, None)
    for work_id in turn.delegates:
        state.delegates.pop(work_id, None)
    queue = state.queues[turn.session_id]
    queue.remove(turn)
    if not queue:
        del state.queues[turn.session_id]


def delegate(state: State, attempt: Attempt, message: DelegateMessage) -> None:
    """Accept or refuse the calls of one assistant message; the parent waits and holds no slot meanwhile."""
    work = attempt.work
    if attempt.phase != "running" or attempt.intent is not None or work.join is not None:
        return
    join = Join(join_id=message.join_id, parent=work, calls=[])
    for request in message.calls:
        join.calls.append(_accept(state, work, join, request))
    work.join = join
    work.turn.holders.discard(attempt.attempt_id)
    state.timers.clear(attempt.attempt_id, "stall")
    if join.complete:
        work.turn.resuming.append(work)


def _accept(state: State, parent: Work, join: Join, request: CallRequest) -> Call:
    turn = parent.turn
    call = Call(
        delegation_id=state.new_id(ids.CALL),
        tool_call_id=request.tool_call_id,
        started_at=state.now,
        shared_context=request.shared_context,
        result_chars=turn.submit.settings.limits.max_result_chars,
        join=join,
        refusal=refusal(turn, parent, request, turn.accepted),
    )
    if not call.refusal:
        call.delegates = _enqueue(state, parent, call, request.tasks)
        turn.calls.append(call)
        state.announce(
            turn,
            "delegation.accepted",
            delegation_id=call.delegation_id,
            count=len(call.delegates),
            delegates=[{"receipt_id": child.work_id, "goal": child.spec.goal[:200]} for child in call.delegates],
        )
    return call


def _enqueue(state: State, parent: Work, call: Call, tasks: Sequence[TaskSpec]) -> list[Delegate]:
    """Make the delegates of a call; they run when it is committed and there is a slot."""
    delegates = [_new_delegate(state, parent, call, index, spec) for index, spec in enumerate(tasks)]
    state.persist([_accepted(child, state.wall) for child in delegates])
    parent.turn.waiting.extend(delegates)
    return delegates


def _new_delegate(state: State, parent: Work, call: Call, index: int, spec: TaskSpec) -> Delegate:
    work_id = state.new_id(ids.DELEGATE)
    child = Delegate(
        work_id=work_id,
        turn=parent.turn,
        parent=parent,
        depth=parent.depth + 1,
        endpoint=_endpoint(parent.turn, spec.route),
        queued_at=state.now,
        call=call,
        index=index,
        spec=spec,
        transcript=transcript_path(state.home, work_id),
    )
    parent.children[work_id] = parent.turn.delegates[work_id] = state.delegates[work_id] = child
    parent.turn.accepted += 1
    if call.join is not None:
        call.join.open += 1
    return child


def _endpoint(turn: Turn, route: str) -> Endpoint:
    settings = turn.submit.settings
    return settings.routes[route].endpoint if route else settings.delegate_endpoint


def _accepted(child: Delegate, wall: float) -> DelegateAccepted:
    return DelegateAccepted(
        receipt_id=child.work_id,
        delegation_id=child.call.delegation_id,
        admission_id=child.turn.admission_id,
        session_id=child.turn.session_id,
        parent_id=child.parent.work_id,
        task_index=child.index,
        depth=child.depth,
        goal=child.spec.goal,
        task_json=msgspec.json.encode(_without_values(child.spec)).decode(),
        model=child.endpoint.model,
        transcript_path=child.transcript,
        at=wall,
    )


def _without_values(spec: TaskSpec) -> TaskSpec:
    """Return a task as it may be written: of its variables only their names."""
    return replace(spec, env=dict.fromkeys(spec.env, "")) if isinstance(spec, DirectTask) and spec.env else spec


def cancel_turn(state: State, turn: Turn, intent: Intent, *, now: bool = False) -> None:
    """End a turn: its root and every delegate that has not ended."""
    for work in [*turn.delegates.values(), turn]:
        attempts.cancel(state, work, intent)
    if now:
        for attempt in [attempt for attempt in state.attempts.values() if attempt.work.turn is turn]:
            attempts.force(state, attempt)


def bound_failures(state: State, turn: Turn) -> None:
    """End a turn of which more failed than its user wants to see."""
    limit = turn.submit.settings.max_failures
    if limit and turn.failures >= limit and not turn.budget and turn.outcome is None:
        text = f"{turn.failures} tasks did not complete, and the run ends after {limit} (--max-failures)."
        end_by_budget(state, turn, text)


def check_tokens(state: State, turn: Turn) -> None:
    """End a turn whose agents have used all of its tokens together."""
    limit = turn.submit.settings.max_tokens_total
    if not limit or turn.budget or turn.outcome is not None:
        return
    if turn.tokens >= limit:
        text = f"The run used {turn.tokens} tokens, and its budget is {limit} (--max-tokens-total)."
        end_by_budget(state, turn, text)


def end_by_budget(state: State, turn: Turn, message: str) -> None:
    """End a turn because a budget is used up: what is done is joined, the rest is cancelled.

    A root that waits in a join gets its results first, and then ends by itself. If it does not, it is ended, too.
    """
    intent = Intent(status="cancelled", reason="budget", message=turn.budget or message)
    waits = turn.join is not None and not turn.budget
    turn.budget = intent.message
    for child in list(turn.delegates.values()):
        attempts.cancel(state, child, intent)
    if waits:
        state.timers.set(turn.admission_id, "deadline", state.now + turn.grace + _JOIN_SECONDS)
    else:
        attempts.cancel(state, turn, intent)


def cancel_orphans(state: State) -> None:
    """End the delegates of parents that have ended themselves: nobody waits for them."""
    while state.orphaning:
        parent = state.orphaning.pop()
        for child in list(parent.children.values()):
            attempts.cancel(state, child, orphaned(parent))


def orphaned(parent: Work) -> Intent:
    """Return why a delegate of an ended parent is ended: for the parent's own reason when that was a cancel."""
    outcome = parent.outcome
    if outcome is not None and outcome.status == "cancelled":
        return Intent(status="cancelled", reason=outcome.reason, message=outcome.message)
    return Intent(status="cancelled", reason="cancelled", message="The parent ended before this delegate did.")
