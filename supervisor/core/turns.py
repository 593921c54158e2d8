"""Turns and calls: how a submission is admitted, and how a call becomes delegates."""

import hashlib
from collections import deque
from collections.abc import Callable, Sequence

import msgspec
from msgspec.structs import replace

from fanjoin.ipc import ids
from fanjoin.ipc.images import image_part
from fanjoin.ipc.messages import Accepted, CallRequest, DirectTask, JsonObject, Outcome, Refused, Submit, TaskSpec
from fanjoin.ipc.messages import Delegate as DelegateMessage
from fanjoin.ipc.settings import Endpoint
from fanjoin.supervisor.core import attempts, detached
from fanjoin.supervisor.core.admission import refusal
from fanjoin.supervisor.core.entries import transcript_path
from fanjoin.supervisor.core.model import Attempt, Call, Delegate, Intent, Join, Turn, Work
from fanjoin.supervisor.core.state import State
from fanjoin.supervisor.questions import EarlierReceipt
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


def admit(state: State, viewer: str, submission: Submit, session_id: str) -> Turn:
    """Admit a turn: record it and tell the viewer; it runs when its session and a process are free."""
    turn = new_turn(state, viewer, submission, session_id, state.new_id(ids.TURN))
    enqueue(state, turn)
    records: list[Record] = [] if submission.session_id else [_session_record(turn, state.wall)]
    records.append(_admission_record(turn, state.wall))
    state.persist(records, _admitted(state, turn))
    return turn


def enqueue(state: State, turn: Turn, *, first: bool = False) -> None:
    """Let a turn wait in its session, behind all others or before them."""
    state.turns[turn.admission_id] = turn
    queue = state.queues.setdefault(turn.session_id, deque())
    if first:
        queue.appendleft(turn)
    else:
        queue.append(turn)


def new_turn(state: State, viewer: str, submission: Submit, session_id: str, admission_id: str) -> Turn:
    """Return a turn that has not begun."""
    return Turn(
        work_id=admission_id,
        depth=0,
        endpoint=submission.settings.endpoint,
        queued_at=state.now,
        session_id=session_id,
        viewer=viewer,
        submit=submission,
        grace=submission.settings.limits.cancel_grace_seconds,
    )


def _session_record(turn: Turn, wall: float) -> SessionCreated:
    submission = turn.submit
    settings = submission.create.settings if submission.create else {}
    return SessionCreated(
        session_id=turn.session_id,
        principal_id=submission.principal_id,
        request_id=turn.session_id,
        source=submission.source,
        title=submission.title,
        cwd=submission.settings.cwd,
        settings_json=msgspec.json.encode(settings).decode(),
        at=wall,
    )


def _admission_record(turn: Turn, wall: float) -> AdmissionQueued:
    payload = turn.submit.payload_json
    return AdmissionQueued(
        admission_id=turn.admission_id,
        request_id=turn.submit.request_id,
        principal_id=turn.submit.principal_id,
        session_id=turn.session_id,
        payload_json=payload,
        payload_digest=payload_digest(payload),
        keyed=bool(turn.submit.settings.endpoint.api_key),
        at=wall,
    )


def payload_digest(payload: str) -> str:
    """Return what tells a replay of a submission from another one."""
    return hashlib.sha256(payload.encode()).hexdigest()


def _admitted(state: State, turn: Turn) -> Callable[[str | None, dict[str, int]], None]:
    def committed(error: str | None, sequences: dict[str, int]) -> None:
        request_id = turn.submit.request_id
        if error is not None:
            turn.done = turn.closing = True
            for viewer in turn.viewers:
                state.tell(viewer, Refused(request_id=request_id, reason="storage_unavailable", message=error))
            return
        turn.sequence = sequences.get(turn.admission_id, 0)
        for viewer in turn.viewers:
            state.tell(viewer, accepted(turn))

    return committed


def accepted(turn: Turn, request_id: str = "") -> Accepted:
    """Return what is said of a turn that is committed and has not ended."""
    return Accepted(
        request_id=request_id or turn.submit.request_id,
        session_id=turn.session_id,
        admission_id=turn.admission_id,
        sequence=turn.sequence,
        status="started" if turn.begun else "queued",
    )


def may_begin(state: State, turn: Turn) -> bool:
    """Say whether a turn has not begun and is the next one of its session."""
    if turn.begun or turn.outcome is not None or state.draining:
        return False
    queue, session = state.queues.get(turn.session_id), state.sessions[turn.session_id]
    return queue is not None and queue[0] is turn and not session.unknown


def begin(state: State, turn: Turn) -> None:
    """Start a turn's root, or queue the tasks that it was given; processes are launched when that is committed."""
    turn.begun = True
    started = AdmissionStarted(admission_id=turn.admission_id, at=state.wall)
    said = [] if turn.rootless else _said(state, turn)
    state.persist([started, *said], _started(state, turn))
    deadline = turn.submit.settings.deadline_seconds
    if deadline:
        state.timers.set(turn.admission_id, "deadline", state.now + deadline)
    if turn.rootless:
        call = Call(delegation_id=state.new_id(ids.CALL), tool_call_id="", started_at=state.now)
        _enqueue(state, turn, call, turn.submit.tasks)
    else:
        attempts.start(state, turn)


def _said(state: State, turn: Turn) -> list[Record]:
    """Put into the conversation what the root begins with: results that wait to be told, the user's message."""
    session = state.sessions[turn.session_id]
    claims, messages = detached.fold_in(state, turn) if turn.submit.finite else ([], [])
    turn.history = [*session.history, *messages]
    if not turn.again:
        messages.append({"role": "user", "content": user_content(turn.submit)})
    session.history += messages
    added = MessagesAdded(session_id=turn.session_id, admission_id=turn.admission_id, messages=messages, at=state.wall)
    return [*claims, added, *detached.delivered(state, turn)]


def _started(state: State, turn: Turn) -> Callable[[str | None, dict[str, int]], None]:
    def committed(error: str | None, _: dict[str, int]) -> None:
        if error is None:
            state.announce(turn, "turn.started")

    return committed


def user_content(submission: Submit) -> str | list[JsonObject]:
    """Return the content of a submission's message as it is stored: images by their names."""
    if not submission.images:
        return submission.text
    text = [{"type": "text", "text": submission.text}] if submission.text else []
    return [*text, *(image_part(image) for image in submission.images)]


def release(state: State, turn: Turn) -> None:
    """Let the next turn of the session begin, and forget this one once nothing of it runs in the background."""
    state.timers.clear(turn.admission_id, "deadline")
    queue = state.queues.get(turn.session_id)
    if queue is not None and turn in queue:
        state.touched.add(turn.session_id)
        queue.remove(turn)
        if not queue:
            del state.queues[turn.session_id]
    if all(call.settled for call in turn.calls if call.detached):
        state.turns.pop(turn.admission_id, None)
        for work_id in turn.delegates:
            state.delegates.pop(work_id, None)


def delegate(state: State, attempt: Attempt, message: DelegateMessage) -> None:
    """Accept or refuse the calls of one assistant message; the parent waits and holds no slot meanwhile."""
    work = attempt.work
    if attempt.phase != "running" or attempt.intent is not None or work.join is not None:
        return
    work.join = join = Join(join_id=message.join_id, parent=work, calls=[])
    work.turn.holders.discard(attempt.attempt_id)
    state.timers.clear(attempt.attempt_id, "stall")
    if not message.calls and work is work.turn:
        detached.join_late(state, work.turn, join)
        return
    for request in message.calls:
        join.calls.append(_accept(state, work, join, request))
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
        join=None if _detaches(parent) else join,
        detached=_detaches(parent),
        refusal=refusal(turn, parent, request, turn.accepted),
    )
    if not call.refusal:
        call.delegates = _enqueue(state, parent, call, request.tasks)
        turn.calls.append(call)
        if call.detached:
            detached.dispatch(state, turn, call, join)
        state.announce(
            turn,
            "delegation.accepted",
            delegation_id=call.delegation_id,
            count=len(call.delegates),
            delegates=[{"receipt_id": child.work_id, "goal": child.spec.goal[:200]} for child in call.delegates],
        )
    return call


def _detaches(parent: Work) -> bool:
    """Say whether calls of this parent run in the background: those of the root of a turn that is not finite."""
    return parent is parent.turn and parent.turn.detaches


def _enqueue(state: State, parent: Work, call: Call, tasks: Sequence[TaskSpec]) -> list[Delegate]:
    """Make the delegates of a call; they run when it is committed and there is a slot."""
    delegates = [_new_delegate(state, parent, call, index, spec) for index, spec in enumerate(tasks)]
    new = [child for child in delegates if child.outcome is None]
    state.persist([_accepted(child, state.wall) for child in new])
    parent.turn.waiting.extend(new)
    return delegates


def _new_delegate(state: State, parent: Work, call: Call, index: int, spec: TaskSpec) -> Delegate:
    earlier = _take_earlier(parent, spec)
    work_id = earlier.receipt_id if earlier else state.new_id(ids.DELEGATE)
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
    parent.turn.accepted += 1
    if earlier:
        child.outcome, child.durable = Outcome(status="completed"), True
        child.entry = earlier.entry | {"task_index": index}
    else:
        _hold(state, child)
    return child


def _hold(state: State, child: Delegate) -> None:
    """Count a delegate as open wherever somebody waits for it."""
    turn, call = child.turn, child.call
    child.parent.children[child.work_id] = turn.delegates[child.work_id] = state.delegates[child.work_id] = child
    call.open += 1
    if call.join is not None:
        call.join.open += 1


def _take_earlier(parent: Work, spec: TaskSpec) -> EarlierReceipt | None:
    """Return the receipt of the same task from a try of this turn that an earlier owner had begun, each once."""
    earlier = parent.turn.earlier
    task_json = msgspec.json.encode(spec).decode() if earlier else ""
    for receipt in earlier:
        if receipt.task_json == task_json and receipt.depth == parent.depth + 1:
            earlier.remove(receipt)
            return receipt
    return None


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
    """End a turn: its root and, where they do not run in the background, every delegate that has not ended."""
    for work in [*([] if turn.detaches else turn.delegates.values()), turn]:
        attempts.cancel(state, work, intent)
    if now:
        for attempt in [attempt for attempt in state.attempts.values() if attempt.work.turn is turn]:
            attempts.force(state, attempt)


def bound_failures(state: State, turn: Turn) -> None:
    """End a turn of which more failed than its user wants to see."""
    limit = turn.submit.settings.max_failures
    if limit and turn.failures >= limit and not turn.budget and turn.outcome is None:
        text = f"So many tasks did not complete: {turn.failures}; the run ends after {limit} (--max-failures)."
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
        for child in [child for child in parent.children.values() if not child.call.detached]:
            attempts.cancel(state, child, orphaned(parent))


def orphaned(parent: Work) -> Intent:
    """Return why a delegate of an ended parent is ended: for the parent's own reason when that was a cancel."""
    outcome = parent.outcome
    if outcome is not None and outcome.status == "cancelled":
        return Intent(status="cancelled", reason=outcome.reason, message=outcome.message)
    return Intent(status="cancelled", reason="cancelled", message="The parent ended before this delegate did.")
