"""What the root of a turn may do only when its user allows it: asked of the viewer that brought the turn."""

from fanjoin.ipc.approval_messages import ApprovalAsked, ApprovalDecided, AskApproval, DecideApproval
from fanjoin.supervisor.core import attempts
from fanjoin.supervisor.core.model import Attempt, Turn
from fanjoin.supervisor.core.state import State


def ask(state: State, attempt: Attempt, message: AskApproval) -> None:
    """Ask the user, however long that takes; without a viewer the answer is no."""
    turn = attempt.work.turn
    if attempt.work is not turn or attempt.phase != "running" or attempt.intent is not None:
        return
    turn.approval_id = message.approval_id
    state.timers.clear(attempt.attempt_id, "stall")
    if not turn.viewer:
        _decide(state, turn, allowed=False, always=False)
        return
    asked = ApprovalAsked(
        admission_id=turn.admission_id,
        approval_id=message.approval_id,
        what=message.what,
        patterns=message.patterns,
    )
    state.tell(turn.viewer, asked)


def decide(state: State, decision: DecideApproval) -> None:
    """Hand the user's answer to the agent that waits for it."""
    turn = state.turns.get(decision.admission_id)
    if turn is not None and turn.approval_id and turn.approval_id == decision.approval_id:
        _decide(state, turn, allowed=decision.allowed, always=decision.always)


def viewer_left(state: State, viewer: str) -> None:
    """Answer no for a viewer that is gone."""
    for turn in state.turns.values():
        if turn.viewer == viewer and turn.approval_id:
            _decide(state, turn, allowed=False, always=False)


def _decide(state: State, turn: Turn, *, allowed: bool, always: bool) -> None:
    approval_id, turn.approval_id = turn.approval_id, ""
    if turn.attempt is not None:
        attempts.watch_stall(state, turn.attempt)
        state.send(turn.attempt, ApprovalDecided(approval_id=approval_id, allowed=allowed, always=always))
