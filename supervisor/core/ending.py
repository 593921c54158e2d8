"""How work ends: once, recorded before anyone is told, and then handed to whoever waits for it."""

from collections.abc import Callable

from fanjoin.ipc.messages import Outcome, ResultAck, Usage
from fanjoin.supervisor.core import entries
from fanjoin.supervisor.core.cost import costs
from fanjoin.supervisor.core.model import Delegate, Intent, Join, Turn, Work
from fanjoin.supervisor.core.state import State
from fanjoin.supervisor.records import AdmissionEnded

LINGER_SECONDS = 5.0
"""How long an acknowledged process may take to exit before it is ended."""


def from_intent(work: Work, intent: Intent) -> Outcome:
    """Return the outcome of work that we ended, with what it had said so far."""
    return Outcome(
        status=intent.status,
        reason=intent.reason,
        message=intent.message,
        partial_text=work.partial,
        steps=work.steps,
        usage=work.usage,
        trace=work.trace,
    )


def finish(state: State, work: Work, outcome: Outcome) -> None:
    """End work. The first outcome counts; whatever comes later is ignored."""
    if work.outcome is not None:
        return
    work.outcome = outcome
    work.ended_at = state.now
    work.use(outcome.usage)
    work.steps = outcome.steps
    if work.children:
        state.orphaning.append(work)
    if isinstance(work, Delegate):
        _finish_delegate(state, work, outcome)


def _finish_delegate(state: State, delegate: Delegate, outcome: Outcome) -> None:
    delegate.turn.failures += outcome.status not in {"completed", "cancelled"}
    delegate.entry = entries.entry(delegate, outcome, state.now)
    state.persist([entries.receipt(delegate, outcome, state.wall)], _receipt_committed(state, delegate))


def _receipt_committed(state: State, delegate: Delegate) -> Callable[[str | None, dict[str, int]], None]:
    def committed(error: str | None, _: dict[str, int]) -> None:
        _note_commit(state, delegate, error)
        state.announce(delegate.turn, "delegation.completed", entry=delegate.entry, committed_at=state.wall)
        _leave(state, delegate)

    return committed


def _leave(state: State, delegate: Delegate) -> None:
    """Forget a delegate that is over, and let its parent go on when it was the last one of a join."""
    call = delegate.call
    state.delegates.pop(delegate.work_id, None)
    delegate.turn.delegates.pop(delegate.work_id, None)
    _fold(delegate)
    call.open -= 1
    if call.detached and call.over:
        state.calls_over.append(call)
    join = call.join
    if join is not None:
        join.open -= 1
        if join.complete:
            resume(join)


def _fold(work: Work) -> None:
    """Count into its parent what a delegate used that is over, once nothing below it can use more."""
    while isinstance(work, Delegate) and work.over and not work.children:
        parent = work.parent
        for model, usage in work.usage_by_model().items():
            parent.below[model] = parent.below.get(model, Usage()) + usage
        del parent.children[work.work_id]
        work = parent


def _note_commit(state: State, work: Work, error: str | None) -> None:
    """Acknowledge a result that is committed; a process whose result is not would wait for that for ever: end it."""
    if error is None:
        work.durable = True
        acknowledge(state, work)
        return
    work.unrecorded = work.turn.unrecorded = error
    if work.attempt is not None and work.attempt.alive:
        state.stop(work.attempt, hard=True)


def acknowledge(state: State, work: Work) -> None:
    """Tell a process that its result is committed, if it is; from the first time on it has a few seconds to exit."""
    attempt = work.attempt
    if work.durable and attempt is not None and attempt.phase == "saved":
        state.send(attempt, ResultAck())
        state.timers.hasten(attempt.attempt_id, "linger", state.now + LINGER_SECONDS)


def resume(join: Join) -> None:
    """Let a parent go on whose join is complete: a turn's root at once, a delegate when it gets a slot."""
    parent = join.parent
    if parent.outcome is None:
        parent.turn.resuming.append(parent)


def settle(state: State, turn: Turn) -> None:
    """End a turn whose root, if any, has ended and whose delegates are all recorded, where they do not outlive it."""
    if turn.closing or (turn.delegates and not turn.detaches):
        return
    if turn.rootless and turn.begun:
        finish(state, turn, Outcome(status="completed"))
    outcome = turn.outcome
    if outcome is None:
        return
    turn.closing = True
    state.timers.clear(turn.admission_id, "deadline")
    state.persist(
        [AdmissionEnded(admission_id=turn.admission_id, outcome=_stored(turn, outcome), at=state.wall)],
        _turn_committed(state, turn, outcome),
    )


def _stored(turn: Turn, outcome: Outcome) -> dict[str, object]:
    """Return the outcome that the admission's row keeps."""
    prices = turn.submit.settings.prices
    return {
        **(costs(turn, prices) if prices else {}),
        "status": outcome.status,
        "reason": outcome.reason,
        "message": outcome.message,
        "answer": outcome.text or "",
        "partial_text": outcome.partial_text,
        "steps": outcome.steps,
        "usage": entries.builtins(turn.usage),
        "usage_total": entries.builtins(turn.usage_total()),
        "delegates": turn.accepted,
    }


def _turn_committed(state: State, turn: Turn, outcome: Outcome) -> Callable[[str | None, dict[str, int]], None]:
    def committed(error: str | None, _: dict[str, int]) -> None:
        if turn.done:
            return  # its admission was refused meanwhile
        turn.done = True
        _note_commit(state, turn, error)
        done = entries.turn_done(turn, outcome)
        state.announce(
            turn, "message.complete", status=done.status, reason=done.reason, message=done.message, answer=done.answer
        )
        for viewer in turn.viewers:
            state.tell(viewer, done)

    return committed
