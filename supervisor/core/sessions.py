"""Sessions: opened when somebody wants something of them, forgotten when nothing of them is open.

Whoever owns a session holds all that matters of it here, so that two submissions of the same identity meet, however
they arrive: the one that comes first is admitted, the other is its replay or its conflict.
"""

from collections import deque
from collections.abc import Callable

from msgspec.structs import replace

from fanjoin.ipc import ids
from fanjoin.ipc.messages import Accepted, Refused, Submit
from fanjoin.supervisor.core import entries, turns
from fanjoin.supervisor.core.history import repaired
from fanjoin.supervisor.core.model import Asker, Call, Session, Turn
from fanjoin.supervisor.core.state import State
from fanjoin.supervisor.questions import (
    Answer,
    FindTurn,
    OpenSession,
    SessionOpened,
    SessionRefused,
    StoredCall,
    StoredTurn,
)
from fanjoin.supervisor.records import AdmissionEnded, CallReleased

Opened = Callable[[Session, bool], None]
"""Called with the open session, and whether it was made just now."""


def open_session(state: State, asker: Asker, wanted: OpenSession, then: Opened) -> None:
    """Own a session, then go on; whoever asked is told when that cannot be."""
    known = state.sessions.get(wanted.session_id)
    if known is not None:
        state.touched.add(known.session_id)
        then(known, False)
        return

    def answered(answer: Answer, error: str | None) -> None:
        state.opening -= 1
        if error is not None:
            refuse(state, asker, "storage_unavailable", error)
        elif isinstance(answer, SessionRefused):
            refuse(state, asker, answer.reason, answer.message)
        elif isinstance(answer, SessionOpened):
            then(_take_over(state, answer), answer.created)

    state.opening += 1
    state.ask(replace(wanted, session_id=wanted.session_id or state.new_id(ids.SESSION), at=state.wall), answered)


def refuse(state: State, asker: Asker, reason: str, message: str) -> None:
    """Tell a viewer that its request was not carried out."""
    state.submitting.pop(asker, None)
    state.tell(asker.viewer, Refused(request_id=asker.request_id, reason=reason, message=message))


def _take_over(state: State, opened: SessionOpened) -> Session:
    """Return the session with what was read of it, unless it was opened meanwhile: then that is newer."""
    known = state.sessions.get(opened.session_id)
    if known is not None:
        return known
    session = Session(
        session_id=opened.session_id,
        history=repaired(opened.history),
        ready=deque(_ready_call(call) for call in opened.ready),
        unknown=list(opened.unknown),
        settings=opened.turn_settings,
    )
    state.add_session(session)
    for stored in opened.queued:
        _adopt(state, stored)
    return session


def _ready_call(stored: StoredCall) -> Call:
    return Call(
        delegation_id=stored.delegation_id,
        tool_call_id="",
        started_at=0.0,
        detached=True,
        dispatched=True,
        settled=True,
        result=stored.result,
    )


def _adopt(state: State, stored: StoredTurn) -> None:
    """Queue a turn that a dead owner had not begun; without settings it ends, and what it was to tell waits again."""
    deliveries = [_ready_call(call) for call in stored.deliveries]
    if stored.submit is not None:
        turn = turns.new_turn(state, "", stored.submit, stored.session_id, stored.admission_id)
        turn.sequence, turn.attempts, turn.deliveries = stored.sequence, stored.attempts, deliveries
        turns.enqueue(state, turn)
        return
    outcome = {"status": "failed", "reason": "auth", "message": stored.problem, "answer": ""}
    released = [
        CallReleased(delegation_id=call.delegation_id, admission_id=stored.admission_id, at=state.wall)
        for call in deliveries
    ]
    state.persist([AdmissionEnded(admission_id=stored.admission_id, outcome=outcome, at=state.wall), *released])
    state.sessions[stored.session_id].ready.extendleft(reversed(deliveries))


# --- submissions ---------------------------------------------------------------------------------------------------


def submit(state: State, viewer: str, submission: Submit) -> None:
    """Take a submission: admit it, or answer what became of the same one before."""
    create, asker = submission.create, Asker(viewer, submission.request_id)
    if unknown := {task.route for task in submission.tasks} - {"", *submission.settings.routes}:
        message = f"Tasks ask for routes that are not configured: {', '.join(sorted(unknown))}. Nothing was started."
        refuse(state, asker, "invalid_params", message)
    elif not submission.session_id and (create is None or not create.request_id):
        session = Session(session_id=state.new_id(ids.SESSION))
        state.add_session(session)
        _admit(state, asker, submission, session)
    else:
        state.submitting[asker] = None
        wanted = OpenSession(session_id=submission.session_id, create=None if submission.session_id else create)
        open_session(state, asker, wanted, lambda session, _: _look_up(state, asker, submission, session))


def _look_up(state: State, asker: Asker, submission: Submit, session: Session) -> None:
    """Ask whether the same identity was submitted before; the session stays open meanwhile."""
    named = replace(submission, session_id=session.session_id)
    question = FindTurn(principal_id=named.principal_id, session_id=session.session_id, request_id=named.request_id)
    state.opening += 1
    session.lookups += 1
    state.ask(question, lambda answer, error: _found(state, asker, named, answer, error))


def _found(state: State, asker: Asker, submission: Submit, answer: Answer, error: str | None) -> None:
    state.opening -= 1
    session = state.sessions[submission.session_id]
    session.lookups -= 1
    live = _live(state, submission)
    if error is not None:
        refuse(state, asker, "storage_unavailable", error)
    elif live is not None:
        _replay_live(state, asker, submission, live)
    elif isinstance(answer, StoredTurn):
        _replay_stored(state, asker, submission, answer)
    elif session.unknown and not submission.wait_if_held:
        refuse(state, asker, "session_busy", held(session.unknown[0]))
    else:
        _admit(state, asker, submission, session)
    state.submitting.pop(asker, None)


def _admit(state: State, asker: Asker, submission: Submit, session: Session) -> None:
    """Begin what nobody submitted before; a cancel that came first counts."""
    if state.draining:
        refuse(state, asker, "draining", "The supervisor ends and begins no turn.")
        return
    if not submission.finite:
        session.settings = submission.settings
    turn = turns.admit(state, asker.viewer, submission, session.session_id)
    intent = state.submitting.pop(asker, None)
    if intent is not None:
        turns.cancel_turn(state, turn, intent)


def _live(state: State, submission: Submit) -> Turn | None:
    """Return the open turn that has the same identity."""
    for turn in state.queues.get(submission.session_id, ()):
        same = (turn.submit.principal_id, turn.submit.request_id) == (submission.principal_id, submission.request_id)
        if same and not turn.done:
            return turn
    return None


def _replay_live(state: State, asker: Asker, submission: Submit, turn: Turn) -> None:
    if turns.payload_digest(turn.submit.payload_json) != turns.payload_digest(submission.payload_json):
        _conflict(state, asker, submission)
        return
    turn.watchers.add(asker.viewer)
    if turn.sequence:
        state.tell(asker.viewer, turns.accepted(turn))


def _replay_stored(state: State, asker: Asker, submission: Submit, stored: StoredTurn) -> None:
    if stored.payload_digest != turns.payload_digest(submission.payload_json):
        _conflict(state, asker, submission)
    elif stored.status == "unknown" and not submission.wait_if_held:
        refuse(state, asker, "session_busy", held(stored))
    else:
        accepted = Accepted(
            request_id=submission.request_id,
            session_id=stored.session_id,
            admission_id=stored.admission_id,
            sequence=stored.sequence,
            status=stored.status,
            outcome=stored.outcome,
        )
        state.tell(asker.viewer, accepted)
        if stored.outcome is not None:
            state.tell(asker.viewer, entries.stored_turn_done(stored, stored.outcome))


def _conflict(state: State, asker: Asker, submission: Submit) -> None:
    refuse(
        state,
        asker,
        "admission_conflict",
        f"The session {submission.session_id} has a turn {submission.request_id!r} with another text or other flags. "
        "Nothing was run. Send it unchanged to see what became of it, or give a new turn another identity.",
    )


def held(stored: StoredTurn) -> str:
    """Return why nothing runs in a session with a turn whose owner died, and what to do."""
    return (
        f"The supervisor that ran turn {stored.admission_id} died before its end was recorded; whether it took effect "
        f"is not known, and it holds the queue of its session. Decide about it with\n"
        f"  fanjoin sessions resolve {stored.session_id} --retry    (run it again)\n"
        f"  fanjoin sessions resolve {stored.session_id} --discard  (give it up)"
    )


# --- the end -------------------------------------------------------------------------------------------------------


def forget_idle(state: State) -> None:
    """Forget sessions of which nothing is open; not while one is being opened: what was read of it must stay true."""
    if state.opening:
        return
    for session_id in [session_id for session_id in state.touched if session_id in state.sessions]:
        session = state.sessions[session_id]
        if session_id not in state.queues and not (session.followers or session.running or session.ready):
            del state.sessions[session_id]
    state.touched.clear()
