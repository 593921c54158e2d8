"""Who runs next: slots of a turn, processes of the supervisor. A delegate that waits in a join holds no slot."""

from fanjoin.ipc.messages import CallAnswer, Joined
from fanjoin.supervisor.core import attempts
from fanjoin.supervisor.core.entries import join_answers
from fanjoin.supervisor.core.model import Turn, Work
from fanjoin.supervisor.core.state import State


def pump(state: State, turn: Turn) -> None:
    """Give free slots away: first to orchestrators whose join is complete, then to the queue, in order."""
    while turn.resuming and (turn.resuming[0].depth == 0 or _slot_free(turn)):
        _resume(state, turn, turn.resuming.popleft())
    while turn.waiting and not turn.resuming and _slot_free(turn) and _process_free(state):
        delegate = turn.waiting.popleft()
        if delegate.outcome is None:
            attempts.start(state, delegate)
            assert delegate.attempt is not None  # noqa: S101 - start() just made it
            turn.holders.add(delegate.attempt.attempt_id)


def _slot_free(turn: Turn) -> bool:
    return len(turn.holders) < turn.submit.settings.limits.max_concurrent_children


def _process_free(state: State) -> bool:
    """Say whether one more process may exist.

    When every process there is waits in a join, one more is let in beyond the limit: else nobody would ever go on.
    """
    if len(state.attempts) < state.max_processes:
        return True
    return all(attempt.work.join is not None for attempt in state.attempts.values())


def _resume(state: State, turn: Turn, work: Work) -> None:
    join, attempt = work.join, work.attempt
    if work.outcome is not None or join is None or attempt is None or attempt.phase != "running":
        return
    work.join = None
    if work.depth:
        turn.holders.add(attempt.attempt_id)
    attempts.watch_stall(state, attempt)
    answers = [CallAnswer(tool_call_id=call_id, content=content) for call_id, content in join_answers(join, state.now)]
    state.send(attempt, Joined(join_id=join.join_id, answers=answers))
