"""What viewers want of sessions besides turns, and what a session does by itself: tell the results that wait."""

from fanjoin.ipc import ids
from fanjoin.ipc.approval_messages import DecideApproval
from fanjoin.ipc.errors import UserError
from fanjoin.ipc.messages import Done, Outcome
from fanjoin.ipc.session_messages import (
    CreateSession,
    DeleteSession,
    Gap,
    ResolveUnknown,
    Subscribe,
    Unsubscribe,
)
from fanjoin.supervisor.core import approvals, detached, entries, turns
from fanjoin.supervisor.core.effects import Snapshot
from fanjoin.supervisor.core.ending import finish
from fanjoin.supervisor.core.model import Asker, Session
from fanjoin.supervisor.core.sessions import open_session, refuse
from fanjoin.supervisor.core.state import Committed, State
from fanjoin.supervisor.questions import Answer, FindReceipts, OpenSession, StoredTurn, submission_of
from fanjoin.supervisor.records import AdmissionEnded, SessionDeleted

Request = CreateSession | Subscribe | Unsubscribe | ResolveUnknown | DeleteSession | DecideApproval
DECIDED = "Another request has decided about this turn just now."
DISCARDED = "Its supervisor died before its end was recorded, and it was given up."


def handle(state: State, viewer: str, request: Request) -> None:
    """Do what a viewer wants of a session, or say why not."""
    match request:
        case CreateSession():
            _create(state, viewer, request)
        case Subscribe():
            _subscribe(state, viewer, request)
        case Unsubscribe():
            _unsubscribe(state, viewer, request)
        case ResolveUnknown():
            _resolve(state, viewer, request)
        case DeleteSession():
            _delete(state, viewer, request)
        case DecideApproval():
            approvals.decide(state, request)


def _create(state: State, viewer: str, request: CreateSession) -> None:
    def opened(session: Session, created: bool) -> None:
        _follow(state, viewer, request.request_id, session, created=created)

    wanted = OpenSession(create=request, compare=True)
    open_session(state, Asker(viewer, request.request_id), wanted, opened)


def _subscribe(state: State, viewer: str, request: Subscribe) -> None:
    def opened(session: Session, _created: bool) -> None:
        session.settings = request.settings or session.settings
        _follow(state, viewer, request.request_id, session)
        last = state.log.last(session.session_id)
        if request.instance_id == state.instance_id:
            for told in state.log.since(session.session_id, request.since):
                state.tell(viewer, told)
        elif request.instance_id:
            state.tell(viewer, Gap(session_id=session.session_id, first=0, last=last))

    open_session(state, Asker(viewer, request.request_id), OpenSession(session_id=request.session_id), opened)


def _follow(state: State, viewer: str, request_id: str, session: Session, *, created: bool = False) -> None:
    session.followers.add(viewer)
    snapshot = Snapshot(
        viewer=viewer,
        request_id=request_id,
        session_id=session.session_id,
        sequence=state.log.last(session.session_id),
        created=created,
    )
    state.do(snapshot)


def _unsubscribe(state: State, viewer: str, request: Unsubscribe) -> None:
    session = state.sessions.get(request.session_id)
    if session is not None:
        session.followers.discard(viewer)
        state.touched.add(session.session_id)
    state.tell(viewer, Done(request_id=request.request_id))


def viewer_left(state: State, viewer: str) -> None:
    """Tell a viewer nothing more, and ask it nothing; its turns go on."""
    approvals.viewer_left(state, viewer)
    for session in state.sessions.values():
        if viewer in session.followers:
            session.followers.remove(viewer)
            state.touched.add(session.session_id)
    for turn in state.turns.values():
        turn.watchers.discard(viewer)
        turn.viewer = "" if turn.viewer == viewer else turn.viewer


# --- turns whose owner died ----------------------------------------------------------------------------------------


def _resolve(state: State, viewer: str, request: ResolveUnknown) -> None:
    def opened(session: Session, _created: bool) -> None:
        wanted = [one for one in session.unknown if request.admission_id in ("", one.admission_id)]
        if not wanted:
            message = f"Session {session.session_id} has no turn to decide about: none lost its supervisor."
            refuse(state, Asker(viewer, request.request_id), "not_found", message)
        elif not request.retry:
            _discard(state, viewer, request, session, wanted[0])
        else:
            _retry(state, viewer, request, session, wanted[0])

    open_session(state, Asker(viewer, request.request_id), OpenSession(session_id=request.session_id), opened)


def _discard(state: State, viewer: str, request: ResolveUnknown, session: Session, stored: StoredTurn) -> None:
    def committed(error: str | None, _: dict[str, int]) -> None:
        if error is not None:
            refuse(state, Asker(viewer, request.request_id), "storage_unavailable", error)
            return
        if stored in session.unknown:
            session.unknown.remove(stored)
            state.touched.add(session.session_id)
        state.tell(viewer, Done(request_id=request.request_id))

    outcome = {"status": "lost", "reason": "owner_lost", "message": DISCARDED, "answer": ""}
    state.persist([AdmissionEnded(admission_id=stored.admission_id, outcome=outcome, at=state.wall)], committed)


def _retry(state: State, viewer: str, request: ResolveUnknown, session: Session, stored: StoredTurn) -> None:
    problem = stored.problem
    try:
        submission = submission_of(stored, request.settings) if request.settings else stored.submit
    except UserError as error:
        submission, problem = None, str(error)
    if submission is None:
        refuse(state, Asker(viewer, request.request_id), "invalid_params", problem)
        return

    def found(answer: Answer, error: str | None) -> None:
        state.opening -= 1
        if error is not None or stored not in session.unknown:
            reason = "storage_unavailable" if error is not None else "not_found"
            refuse(state, Asker(viewer, request.request_id), reason, error or DECIDED)
            return
        session.unknown.remove(stored)
        turn = turns.new_turn(state, viewer, submission, stored.session_id, stored.admission_id)
        turn.again, turn.attempts, turn.sequence = True, stored.attempts, stored.sequence
        turn.earlier = list(answer) if isinstance(answer, list) else []
        turns.enqueue(state, turn, first=True)
        state.tell(viewer, turns.accepted(turn, request.request_id))
        if stored.answer is not None:
            finish(state, turn, Outcome(status="completed", text=stored.answer))

    state.opening += 1
    state.ask(FindReceipts(admission_id=stored.admission_id), found)


def _delete(state: State, viewer: str, request: DeleteSession) -> None:
    def opened(session: Session, _created: bool) -> None:
        if session.session_id in state.queues or session.running or session.unknown or session.lookups:
            message = f"Session {session.session_id} has turns or delegates that have not ended. Nothing was deleted."
            refuse(state, Asker(viewer, request.request_id), "session_busy", message)
            return
        state.persist([SessionDeleted(session_id=session.session_id, at=state.wall)], _deleted(state, viewer, request))
        del state.sessions[session.session_id]  # what comes now finds it deleted

    open_session(state, Asker(viewer, request.request_id), OpenSession(session_id=request.session_id), opened)


def _deleted(state: State, viewer: str, request: DeleteSession) -> Committed:
    def committed(error: str | None, _: dict[str, int]) -> None:
        if error is not None:
            refuse(state, Asker(viewer, request.request_id), "storage_unavailable", error)
        else:
            state.tell(viewer, Done(request_id=request.request_id))

    return committed


# --- what sessions do by themselves --------------------------------------------------------------------------------


def take_over(state: State, session_ids: list[str]) -> None:
    """Open the sessions that dead daemons left: what waits in them goes on."""
    for session_id in session_ids:
        open_session(state, Asker("", ""), OpenSession(session_id=session_id), lambda _session, _created: None)


def deliver(state: State) -> None:
    """Tell the results that wait in sessions where nothing runs, each as a user turn of its own."""
    if state.draining or state.closing:
        return
    for session in [state.sessions[name] for name in sorted(state.touched) if name in state.sessions]:
        if not session.ready or session.unknown or session.lookups or session.session_id in state.queues:
            continue
        call = session.ready[0]
        text = entries.told_later(call)
        submission = detached.own_submission(session, text, f"delivery-{state.new_id(ids.REQUEST)}")
        if submission is not None:
            turn = turns.admit(state, "", submission, session.session_id)
            state.persist(detached.claim(state, turn, call))
