"""The core: one event in, effects out. Every rule about slots, joins, cancels and deaths is reached from here."""

from pathlib import Path

from fanjoin.ipc.ids import NewId, new_id
from fanjoin.ipc.messages import (
    Bye,
    Delegate,
    Done,
    FromAgent,
    Hello,
    Progress,
    Refused,
    Result,
    Started,
)
from fanjoin.supervisor.core import attempts, detached, requests, sessions, turns
from fanjoin.supervisor.core.effects import Effect
from fanjoin.supervisor.core.ending import acknowledge, settle
from fanjoin.supervisor.core.events import (
    AgentSaid,
    Answered,
    CoreEvent,
    DelegateCancelled,
    Died,
    Draining,
    EndAsked,
    Gone,
    Launched,
    LaunchFailed,
    Misbehaved,
    Recorded,
    SessionAsked,
    SessionsLeft,
    Submitted,
    Tick,
    TurnCancelled,
    ViewerLeft,
    ViewersLost,
)
from fanjoin.supervisor.core.model import PARTIAL_CHARS, TRACE_ENTRIES, Attempt, Intent, Turn
from fanjoin.supervisor.core.scheduling import schedule
from fanjoin.supervisor.core.state import State
from fanjoin.supervisor.records import MessagesAdded

_VIEWERS_LOST = Intent(
    status="cancelled", reason="viewer_lost", message="The program that waited for the answer is gone."
)
_END_ASKED = Intent(status="cancelled", reason="cancelled", message="The supervisor was told to end.")
_HURRY_SECONDS = 1.0
_TOOL_CHARS = 200
_NOTICE_CHARS = 2_000


class Core:
    """Decides. It has no clock: the driver hands it both clocks with every event.

    Args:
        home: the home folder, for the paths that tasks name.
        max_processes: how many agent processes may exist at once.
        make_id: makes identifiers; tests hand in a counter.
        instance_id: names this supervisor to viewers.
    """

    def __init__(self, *, home: Path, max_processes: int, make_id: NewId = new_id, instance_id: str = "") -> None:
        self.state = State(home=home, new_id=make_id, max_processes=max_processes, instance_id=instance_id)

    @property
    def idle(self) -> bool:
        """Say whether no turn is open and no process of ours exists; one that drains lets queued turns be."""
        state = self.state
        waits = [turn for turn in state.turns.values() if not (state.draining and not turn.begun)]
        return not waits and not state.attempts and not state.opening

    def next_deadline(self) -> float | None:
        """Return the monotonic time at which a ``Tick`` is due."""
        return self.state.timers.next()

    def handle(self, event: CoreEvent, now: float, wall: float) -> list[Effect]:
        """Take one event and return what is to be done.

        Args:
            event: what happened.
            now: monotonic seconds.
            wall: Unix seconds, for records only.
        """
        state = self.state
        state.timers.observe(now)
        state.now, state.wall = now, wall
        self._dispatch(event)
        for turn in list(state.turns.values()):
            turns.bound_failures(state, turn)
        turns.cancel_orphans(state)
        for turn in list(state.turns.values()):
            detached.give_back(state, turn)
            settle(state, turn)
            if turn.done:
                turns.release(state, turn)
        detached.complete_calls(state)
        requests.deliver(state)
        schedule(state)
        sessions.forget_idle(state)
        return state.take_effects()

    def _dispatch(self, event: CoreEvent) -> None:
        state = self.state
        match event:
            case AgentSaid(message=message):
                self._agent_said(message)
            case Recorded(ticket=ticket, error=error, sequences=sequences):
                state.recorded(ticket, error, sequences)
            case Submitted(viewer=viewer, submit=submission):
                sessions.submit(state, viewer, submission)
            case Answered(ticket=ticket, answer=answer, error=error):
                state.answered(ticket, answer, error)
            case SessionAsked() | SessionsLeft() | ViewerLeft() | Draining():
                self._session_event(event)
            case TurnCancelled() | DelegateCancelled() | ViewersLost() | EndAsked():
                self._cancel_event(event)
            case Tick():
                self._tick()
            case _:
                self._process_event(event)

    def _session_event(self, event: SessionAsked | SessionsLeft | ViewerLeft | Draining) -> None:
        match event:
            case SessionAsked(viewer=viewer, request=request):
                requests.handle(self.state, viewer, request)
            case SessionsLeft(session_ids=session_ids):
                requests.take_over(self.state, session_ids)
            case ViewerLeft(viewer=viewer):
                requests.viewer_left(self.state, viewer)
            case Draining():
                self.state.draining = True

    def _cancel_event(self, event: TurnCancelled | DelegateCancelled | ViewersLost | EndAsked) -> None:
        match event:
            case TurnCancelled():
                self._cancel_turns(event)
            case DelegateCancelled():
                self._cancel_delegates(event)
            case ViewersLost():
                self._end_all(_VIEWERS_LOST)
            case EndAsked():
                self._end_all(_END_ASKED)

    def _process_event(self, event: Launched | LaunchFailed | Died | Gone | Misbehaved) -> None:
        attempt = self.state.attempts.get(event.attempt_id)
        if attempt is None:
            return
        match event:
            case Launched(pid=pid, process_start=process_start):
                attempts.launched(self.state, attempt, pid, process_start)
            case LaunchFailed(message=message):
                attempts.launch_failed(self.state, attempt, message)
            case Died(end=end, log_tail=log_tail):
                attempts.died(self.state, attempt, end, log_tail)
            case Gone():
                attempts.gone(self.state, attempt)
            case Misbehaved(what=what):
                attempts.misbehaved(self.state, attempt, what)

    def _agent_said(self, message: FromAgent) -> None:
        attempt = self.state.attempts.get(message.attempt_id)
        if attempt is None:
            return
        match message:
            case Hello():
                attempts.hello(self.state, attempt)
            case Started():
                attempt.started = True
            case Progress():
                self._progress(attempt, message)
                turns.check_tokens(self.state, attempt.work.turn)
            case Delegate():
                turns.delegate(self.state, attempt, message)
            case Result(outcome=outcome):
                attempts.saved(self.state, attempt, outcome)
                turns.check_tokens(self.state, attempt.work.turn)
                acknowledge(self.state, attempt.work)
            case Bye(childless=childless):
                attempt.childless = childless

    def _progress(self, attempt: Attempt, message: Progress) -> None:
        work = attempt.work
        if attempt.phase != "running":
            return
        attempts.watch_stall(self.state, attempt)
        work.steps = message.step
        work.use(message.usage or work.usage)
        if message.refused:
            self.state.refused[work.endpoint.base_url, work.endpoint.model] = message.refused
        work.trace = [*work.trace, *message.trace][-TRACE_ENTRIES:]
        work.partial = (work.partial + message.delta)[-PARTIAL_CHARS:]
        if message.messages and not work.depth:
            self._keep_messages(work.turn, message)
        if message.delta and not work.depth:
            self.state.announce(work.turn, "message.delta", text=message.delta)
        if message.notice:
            notice = message.notice[:_NOTICE_CHARS]
            self.state.announce(work.turn, "notice", owner_id=work.work_id, text=notice)
        if message.tool_started:
            tool = message.tool_started[:_TOOL_CHARS]
            self.state.announce(work.turn, "tool.started", owner_id=work.work_id, tool=tool)

    def _keep_messages(self, turn: Turn, message: Progress) -> None:
        added = MessagesAdded(
            session_id=turn.session_id,
            admission_id=turn.admission_id,
            messages=message.messages,
            at=self.state.wall,
        )
        self.state.keep(turn, [added])
        self.state.sessions[turn.session_id].history += message.messages

    def _cancel_turns(self, event: TurnCancelled) -> None:
        intent = Intent(status="cancelled", reason=event.reason, message="The run was cancelled.")
        if not event.admission_id:
            self._cancel_submitting(intent, event.viewer)
        for turn in self._open_turns():
            named = event.admission_id == turn.admission_id
            if named or (not event.admission_id and turn.viewer == event.viewer):
                turns.cancel_turn(self.state, turn, intent, now=event.now)

    def _cancel_submitting(self, intent: Intent, viewer: str | None = None) -> None:
        """Note that turns are not wanted that are only about to be admitted."""
        for asker in self.state.submitting:
            if viewer is None or asker.viewer == viewer:
                self.state.submitting[asker] = intent

    def _end_all(self, intent: Intent) -> None:
        self.state.closing = True
        self._cancel_submitting(intent)
        for turn in list(self.state.turns.values()):
            if self.state.draining and not turn.begun:
                continue  # it stays queued for the next owner
            turn.grace = min(turn.grace, _HURRY_SECONDS)
            if not turn.done:
                turns.cancel_turn(self.state, turn, intent)
            for delegate in list(turn.delegates.values()):
                attempts.cancel(self.state, delegate, intent)

    def _cancel_delegates(self, event: DelegateCancelled) -> None:
        intent = Intent(status="cancelled", reason="cancelled", message="The delegate was cancelled by the user.")
        targets = [
            delegate
            for delegate in self.state.delegates.values()
            if event.target_id in {delegate.work_id, delegate.call.delegation_id} and delegate.outcome is None
        ]
        for delegate in targets:
            attempts.cancel(self.state, delegate, intent)
        if targets:
            self.state.tell(event.viewer, Done(request_id=event.request_id))
        else:
            message = f"No delegate or call {event.target_id} is open here."
            self.state.tell(event.viewer, Refused(request_id=event.request_id, reason="not_found", message=message))

    def _open_turns(self) -> list[Turn]:
        return [turn for turn in self.state.turns.values() if not turn.done]

    def _tick(self) -> None:
        for owner, kind in self.state.timers.due(self.state.now):
            attempt = self.state.attempts.get(owner)
            turn = self.state.turns.get(owner)
            if attempt is not None:
                attempts.due(self.state, attempt, kind)
            elif turn is not None:
                seconds = turn.submit.settings.deadline_seconds
                turns.end_by_budget(self.state, turn, f"The run reached its deadline of {seconds:g} s (--deadline).")
