"""Who runs next: slots of a turn, processes of the supervisor. A delegate that waits in a join holds no slot."""

from fanjoin.ipc.messages import CallAnswer, Joined
from fanjoin.supervisor.core import attempts, turns
from fanjoin.supervisor.core.entries import join_answers
from fanjoin.supervisor.core.model import Attempt, Turn, Work
from fanjoin.supervisor.core.state import State


def schedule(state: State) -> None:
    """Give away what is free: slots to those whose join is complete, then processes to the turn that has fewest."""
    for turn in state.turns.values():
        while turn.resuming and (turn.resuming[0].depth == 0 or _slot_free(turn)):
            _resume(state, turn, turn.resuming.popleft())
    while chosen := _next(state):
        if chosen.begun:
            attempt = attempts.start(state, chosen.waiting.popleft())
            chosen.holders.add(attempt.attempt_id)
        else:
            turns.begin(state, chosen)


def _next(state: State) -> Turn | None:
    """Return the turn that gets the next process: of those that can use one, the one with the fewest slots taken.

    When every process there is waits in a join, one more is let in beyond the limit for one of their delegates: else
    nobody would ever go on.
    """
    ready = [turn for turn in state.turns.values() if _has_work(turn)]
    if len(state.attempts) < state.max_processes:
        ready += [turn for turn in state.turns.values() if turns.may_begin(state, turn)]
    elif not all(_waits(attempt) for attempt in state.attempts.values()):
        return None
    return min(ready, key=lambda turn: len(turn.holders), default=None)


def _has_work(turn: Turn) -> bool:
    """Say whether a delegate could start; who resumes has taken a slot before."""
    while turn.waiting and turn.waiting[0].outcome is not None:
        turn.waiting.popleft()
    return bool(turn.waiting) and _slot_free(turn)


def _waits(attempt: Attempt) -> bool:
    return attempt.phase == "running" and attempt.intent is None and attempt.work.join is not None


def _slot_free(turn: Turn) -> bool:
    return len(turn.holders) < turn.submit.settings.limits.max_concurrent_children


def _resume(state: State, turn: Turn, work: Work) -> None:
    join, attempt = work.join, work.attempt
    if join is None or attempt is None or not _waits(attempt):
        return
    work.join = None
    if work.depth:
        turn.holders.add(attempt.attempt_id)
    attempts.watch_stall(state, attempt)
    answers = [CallAnswer(tool_call_id=call_id, content=content) for call_id, content in join_answers(join, state.now)]
    state.send(attempt, Joined(join_id=join.join_id, answers=answers, budget=turn.budget))
