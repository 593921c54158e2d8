"""Calls whose delegates outlive their turn: dispatched at once, their joined result told to the session once.

A result is claimed by the one turn that tells it, in the transaction that admits or begins this turn, and counts as
delivered with the transaction that puts it into the conversation: whatever dies in between, it is told exactly once.
"""

from collections.abc import Callable

from fanjoin.ipc.messages import JsonObject, Submit
from fanjoin.ipc.payload import TurnFlags, payload_json
from fanjoin.supervisor.core import attempts, entries
from fanjoin.supervisor.core.admission import error_json
from fanjoin.supervisor.core.ending import resume
from fanjoin.supervisor.core.model import Call, Intent, Join, Session, Turn
from fanjoin.supervisor.core.state import Committed, State
from fanjoin.supervisor.records import (
    CallClaimed,
    CallCompleted,
    CallDelivered,
    CallDispatched,
    CallReleased,
    MessagesAdded,
    Record,
)


def dispatch(state: State, turn: Turn, call: Call, join: Join) -> None:
    """Record that a call runs in the background; its parent goes on once that is committed."""
    record = CallDispatched(
        delegation_id=call.delegation_id,
        session_id=turn.session_id,
        admission_id=turn.admission_id,
        tool_call_id=call.tool_call_id,
        at=state.wall,
    )
    state.sessions[turn.session_id].running[call.delegation_id] = call
    join.open += 1
    state.persist([record], _dispatched(state, turn, call, join))


def _dispatched(state: State, turn: Turn, call: Call, join: Join) -> Committed:
    def committed(error: str | None, _: dict[str, int]) -> None:
        call.dispatched = True
        join.open -= 1
        if error is not None:
            call.refusal = error_json("storage_unavailable", error)
            intent = Intent(status="cancelled", reason="cancelled", message="Its call could not be recorded.")
            for delegate in call.delegates:
                attempts.cancel(state, delegate, intent)
        if join.complete:
            resume(join)
        _complete(state, turn, call)

    return committed


def complete_calls(state: State) -> None:
    """Record the joined results of dispatched calls whose last delegate is recorded."""
    over, state.calls_over = state.calls_over, []
    for call in over:
        _complete(state, call.delegates[0].turn, call)


def _complete(state: State, turn: Turn, call: Call) -> None:
    if not (call.detached and call.dispatched and call.over) or call.result:
        return
    call.result = entries.joined(call, state.now)
    record = CallCompleted(delegation_id=call.delegation_id, result=call.result, at=state.wall)
    state.persist([record], _completed(state, turn, call))


def _completed(state: State, turn: Turn, call: Call) -> Committed:
    def committed(error: str | None, _: dict[str, int]) -> None:
        call.settled = True
        session = state.sessions[turn.session_id]
        session.running.pop(call.delegation_id, None)
        state.touched.add(turn.session_id)
        if error is None:
            session.ready.append(call)
            session.settings = session.settings or turn.submit.settings
            state.announce(turn, "delegation.joined", delegation_id=call.delegation_id)
        for waiting in state.queues.get(turn.session_id, ()):
            tell_late(state, waiting)

    return committed


def own_submission(session: Session, text: str, request_id: str) -> Submit | None:
    """Return a submission that the session makes by itself, when there are settings for it."""
    if session.settings is None:
        return None
    return Submit(
        request_id=request_id,
        session_id=session.session_id,
        text=text,
        finite=False,
        payload_json=payload_json(text, TurnFlags(), finite=False),
        settings=session.settings,
        source="delegation",
    )


def claim(state: State, turn: Turn, call: Call) -> list[Record]:
    """Let one turn, and no other, tell the result of a call."""
    state.sessions[turn.session_id].ready.remove(call)
    turn.deliveries.append(call)
    return [CallClaimed(delegation_id=call.delegation_id, admission_id=turn.admission_id, at=state.wall)]


def delivered(state: State, turn: Turn) -> list[Record]:
    """Return what marks the results that a turn has claimed as told."""
    told, turn.deliveries = turn.deliveries, []
    return [
        CallDelivered(delegation_id=call.delegation_id, admission_id=turn.admission_id, at=state.wall) for call in told
    ]


def give_back(state: State, turn: Turn) -> None:
    """Let other turns tell the results that a turn had claimed which ended before it began."""
    if turn.outcome is None or turn.begun or not turn.deliveries:
        return
    released, turn.deliveries = turn.deliveries, []

    def committed(error: str | None, _: dict[str, int]) -> None:
        if error is None:
            state.sessions[turn.session_id].ready.extendleft(reversed(released))

    state.persist(
        [
            CallReleased(delegation_id=call.delegation_id, admission_id=turn.admission_id, at=state.wall)
            for call in released
        ],
        committed,
    )


def fold_in(state: State, turn: Turn) -> tuple[list[Record], list[JsonObject]]:
    """Claim for a turn that begins all results that wait, and return their user messages with it."""
    records: list[Record] = []
    messages: list[JsonObject] = []
    for call in list(state.sessions[turn.session_id].ready):
        records += claim(state, turn, call)
        messages.append({"role": "user", "content": entries.told_later(call)})
    return records, messages


def join_late(state: State, turn: Turn, join: Join) -> None:
    """Let a finite turn wait for all that earlier turns of its session dispatched."""
    session = state.sessions[turn.session_id]
    join.late = True
    join.calls = [*session.ready, *session.running.values()]
    tell_late(state, turn)


def tell_late(state: State, turn: Turn) -> None:
    """Put the results that a finite turn waited for into the conversation, and then let it go on."""
    join = turn.join
    if join is None or not join.late or join.told or not join.complete or turn.outcome is not None:
        return
    join.told = True
    session = state.sessions[turn.session_id]
    join.calls = [call for call in join.calls if call in session.ready]
    records: list[Record] = []
    messages: list[JsonObject] = []
    for call in join.calls:
        records += claim(state, turn, call)
        messages.append({"role": "user", "content": entries.told_later(call)})
    session.history += messages
    added = MessagesAdded(session_id=turn.session_id, admission_id=turn.admission_id, messages=messages, at=state.wall)
    state.persist([*records, added, *delivered(state, turn)], _told(turn, join))


def _told(turn: Turn, join: Join) -> Callable[[str | None, dict[str, int]], None]:
    def committed(error: str | None, _: dict[str, int]) -> None:
        turn.unrecorded = turn.unrecorded or error or ""
        resume(join)

    return committed
