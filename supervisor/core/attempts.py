"""The life of one process: intended, spawned, greeted, at work, saved, dead, closed; and how we end it."""

from collections.abc import Callable

from msgspec.structs import replace

from fanjoin.ipc.ids import attempt_id
from fanjoin.ipc.messages import AgentTask, Cancel, DirectTask, Outcome, Welcome
from fanjoin.ipc.paths import summary_file, transcript_file
from fanjoin.ipc.settings import TerminalSettings
from fanjoin.supervisor.core.budget import share
from fanjoin.supervisor.core.effects import Launch
from fanjoin.supervisor.core.ending import finish, from_intent
from fanjoin.supervisor.core.model import Attempt, Delegate, Intent, Turn, Work
from fanjoin.supervisor.core.state import State
from fanjoin.supervisor.exit_cause import Exit, describe, explain
from fanjoin.supervisor.records import AttemptEnded, AttemptIntended, AttemptStarted

HELLO_SECONDS = 30.0
"""How long a process may take from its launch to its first message."""
TERM_SECONDS = 1.0
"""How long SIGTERM is given before SIGKILL."""
RESTART_INTENSITY = 3
RESTART_PERIOD = 60.0
"""So many failed launches within so many seconds fail the whole queue: the machine, not a task, is the cause."""

_DEADLINES = ("hello", "timeout", "stall", "grace", "term", "linger")
_BEFORE_FIRST_STEP = frozenset({"killed", "out_of_memory", "signal", "exit_code", "no_result", "spawn_failed"})


def start(state: State, work: Work) -> Attempt:
    """Record the intent to start a process for some work; it is launched when that is committed."""
    work.attempts += 1
    attempt = Attempt(attempt_id=attempt_id(work.work_id, work.attempts), work=work, number=work.attempts)
    work.attempt = state.attempts[attempt.attempt_id] = attempt
    work.running_since = state.now if work.running_since is None else work.running_since
    intended = AttemptIntended(
        attempt_id=attempt.attempt_id,
        admission_id=work.turn.admission_id,
        receipt_id=work.work_id if isinstance(work, Delegate) else "",
        number=attempt.number,
        tag=attempt.attempt_id,
        at=state.wall,
    )
    state.persist([intended], _intended(state, attempt))
    return attempt


def _intended(state: State, attempt: Attempt) -> Callable[[str | None, dict[str, int]], None]:
    def committed(error: str | None, _: dict[str, int]) -> None:
        if error is not None:
            attempt.work.turn.unrecorded = error
            _close(state, attempt)
            _launch_failed(state, attempt, f"state.db could not record the start: {error}")
        elif attempt.intent is not None:
            _end(state, attempt, "not started")
            finish(state, attempt.work, from_intent(attempt.work, attempt.intent))
        else:
            _launch(state, attempt)

    return committed


def _launch(state: State, attempt: Attempt) -> None:
    attempt.phase = "spawning"
    state.timers.set(attempt.attempt_id, "hello", state.now + HELLO_SECONDS)
    limits = attempt.work.turn.submit.settings.limits
    state.do(
        Launch(
            attempt_id=attempt.attempt_id,
            depth=attempt.work.depth,
            endpoint=attempt.work.endpoint,
            memory_limit_mb=limits.memory_limit_mb if attempt.work.depth else 0,
            worker=bool(attempt.work.depth and attempt.work.turn.submit.settings.worker),
        )
    )
    if isinstance(attempt.work, Delegate):
        work = attempt.work
        state.announce(work.turn, "delegation.started", receipt_id=work.work_id, task_index=work.index)


def launched(state: State, attempt: Attempt, pid: int, process_start: str) -> None:
    """Note a process's pid."""
    attempt.pid = pid
    started = AttemptStarted(attempt_id=attempt.attempt_id, pid=pid, process_start=process_start, at=state.wall)
    state.keep(attempt.work.turn, [started])


def launch_failed(state: State, attempt: Attempt, message: str) -> None:
    """End an attempt that never became a process; too many of these fail all that waits."""
    _end(state, attempt, "not started")
    _launch_failed(state, attempt, message)


def _launch_failed(state: State, attempt: Attempt, message: str) -> None:
    if attempt.intent is not None:
        finish(state, attempt.work, from_intent(attempt.work, attempt.intent))
        return
    failures = state.launch_failures
    failures.append(state.now)
    while failures and failures[0] < state.now - RESTART_PERIOD:
        failures.popleft()
    _decide(state, attempt, Outcome(status="failed", reason="spawn_failed", message=message))
    if len(failures) >= RESTART_INTENSITY:
        for waiting in list(attempt.work.turn.waiting):
            reason = f"{len(failures)} launches failed within {RESTART_PERIOD:.0f} s; the last one: {message}"
            finish(state, waiting, Outcome(status="failed", reason="spawn_failed", message=reason))


def hello(state: State, attempt: Attempt) -> None:
    """Greet a process with its work, or end it when it is not wanted any more."""
    if attempt.phase != "spawning":
        return
    state.timers.clear(attempt.attempt_id, "hello")
    attempt.phase = "running"
    if attempt.intent is not None:
        state.stop(attempt, hard=True)
        return
    seconds, _ = _time_limit(attempt.work)
    if seconds:
        state.timers.set(attempt.attempt_id, "timeout", state.now + seconds)
    watch_stall(state, attempt)
    state.send(attempt, Welcome(task=task_of(state, attempt.work)))


def _time_limit(work: Work) -> tuple[float, str]:
    """Return how many seconds some work may take (0: any), and who says so."""
    if not isinstance(work, Delegate):
        return 0.0, ""
    if isinstance(work.spec, DirectTask) and work.spec.timeout_seconds:
        return work.spec.timeout_seconds, "the timeout of its task"
    return work.turn.submit.settings.limits.child_timeout_seconds, "delegation.child_timeout_seconds"


def watch_stall(state: State, attempt: Attempt) -> None:
    """Start again to wait for a sign of progress, from a process that has reason to show one."""
    stall = attempt.work.turn.submit.settings.limits.stall_seconds
    if stall and attempt.phase == "running" and attempt.intent is None and attempt.work.join is None:
        state.timers.set(attempt.attempt_id, "stall", state.now + stall)


def task_of(state: State, work: Work) -> AgentTask:
    """Return what an agent is told to do."""
    submit = work.turn.submit
    settings = submit.settings
    delegate = work if isinstance(work, Delegate) else None
    direct = delegate.spec if delegate and isinstance(delegate.spec, DirectTask) else DirectTask(goal="", task_id="")
    session = state.sessions.get(work.turn.session_id)
    toolsets = settings.delegate_toolsets if delegate else settings.toolsets
    if delegate and delegate.spec.role == "orchestrator":
        toolsets = (*toolsets, "delegation")
    return AgentTask(
        owner_id=work.work_id,
        session_id=work.turn.session_id,
        text=delegate.spec.goal if delegate else _text(work.turn),
        depth=work.depth,
        finite=submit.finite,
        role=delegate.spec.role if delegate else "root",
        shared_context=delegate.call.shared_context if delegate else "",
        context=delegate.spec.context if delegate else "",
        history=[] if delegate else work.turn.history,
        images=[] if delegate or work.turn.again else submit.images,
        joins_detached=not delegate and submit.finite and bool(session and (session.running or session.ready)),
        output_schema=delegate.spec.output_schema if delegate else None,
        toolsets=toolsets,
        route_notes={name: route.description for name, route in settings.routes.items()},
        max_steps=settings.limits.max_iterations if delegate else settings.max_turns,
        max_tokens_total=settings.max_tokens_total,
        cwd=direct.cwd or settings.cwd,
        ignore_rules=settings.ignore_rules,
        transcript_path=str(transcript_file(state.home, work.work_id)),
        summary_path=str(summary_file(state.home, work.work_id)),
        share_chars=share(settings.limits.max_result_chars, len(delegate.call.delegates)) if delegate else 0,
        approvals=replace(settings.approvals, allow=(*settings.approvals.allow, *settings.allow)),
        terminal=settings.terminal if "terminal" in toolsets else TerminalSettings(),
        limits=settings.limits,
        model_limits=settings.model_limits,
        refused=state.refused.get((work.endpoint.base_url, work.endpoint.model), ()),
        task_id=direct.task_id,
        env=direct.env,
        worker=settings.worker if delegate else None,
        asks=submit.asks and not delegate,
    )


def _text(turn: Turn) -> str:
    return "" if turn.again else turn.submit.text


def saved(state: State, attempt: Attempt, outcome: Outcome) -> None:
    """Take a process's result. What it completed counts even when we were about to end it."""
    if attempt.phase != "running":
        return
    attempt.phase = "saved"
    state.timers.clear(attempt.attempt_id, "hello", "timeout", "stall")
    intent = attempt.intent
    if intent is not None and outcome.status != "completed":
        partial = outcome.partial_text or attempt.work.partial
        attempt.work.use(outcome.usage)
        attempt.work.steps, attempt.work.trace, attempt.work.partial = outcome.steps, outcome.trace, partial
        outcome = from_intent(attempt.work, intent)
    elif outcome.exit_code is not None or outcome.exit_signal is not None:
        attempt.work.end = Exit(code=outcome.exit_code, signal=outcome.exit_signal)
    finish(state, attempt.work, outcome)


def cancel(state: State, work: Work, intent: Intent) -> None:
    """End work: at once when it has no process, else by message, then by signal, then by force."""
    if work.outcome is not None:
        return
    attempt = work.attempt
    if attempt is None or attempt.phase in {"dead", "closed"}:
        finish(state, work, from_intent(work, intent))
    elif attempt.intent is None:
        attempt.intent = intent
        _ask_to_stop(state, attempt)
    elif state.timers.has(attempt.attempt_id, "grace"):
        state.timers.hasten(attempt.attempt_id, "grace", state.now + work.turn.grace)


def _ask_to_stop(state: State, attempt: Attempt) -> None:
    state.timers.clear(attempt.attempt_id, "timeout", "stall")
    if attempt.phase == "running" and attempt.intent is not None:
        grace = attempt.work.turn.grace
        state.send(attempt, Cancel(reason=attempt.intent.reason, grace_seconds=grace))
        state.timers.set(attempt.attempt_id, "grace", state.now + grace)
    elif attempt.phase == "spawning":
        state.stop(attempt, hard=True)


def force(state: State, attempt: Attempt) -> None:
    """End a process and everything below it now."""
    state.timers.clear(attempt.attempt_id, "grace", "term", "linger")
    if attempt.alive:
        state.stop(attempt, hard=True)


def due(state: State, attempt: Attempt, kind: str) -> None:
    """Act on a deadline of a process."""
    limits = attempt.work.turn.submit.settings.limits
    match kind:
        case "hello":
            message = f"The process did not say hello within {HELLO_SECONDS:.0f} s of its start."
            attempt.intent = attempt.intent or Intent(status="failed", reason="spawn_failed", message=message)
            force(state, attempt)
        case "timeout":
            seconds, source = _time_limit(attempt.work)
            message = f"The delegate ran longer than {source} ({seconds:g})."
            cancel(state, attempt.work, Intent(status="timeout", reason="child_timeout", message=message))
        case "stall":
            message = f"No progress at all for delegation.stall_seconds ({limits.stall_seconds:g})."
            cancel(state, attempt.work, Intent(status="timeout", reason="stalled", message=message))
        case "grace":
            state.stop(attempt, hard=False)
            state.timers.set(attempt.attempt_id, "term", state.now + TERM_SECONDS)
        case _:
            force(state, attempt)


def died(state: State, attempt: Attempt, end: Exit, log_tail: str) -> None:
    """Decide what a death means: a result came first, or we wanted it, or it is a crash with a cause."""
    if attempt.phase in {"dead", "closed"}:
        return
    attempt.phase, attempt.end, attempt.log_tail = "dead", end, log_tail
    state.timers.clear(attempt.attempt_id, *_DEADLINES)
    if attempt.work.outcome is not None:
        return
    if attempt.intent is not None:
        attempt.work.end = end
        finish(state, attempt.work, from_intent(attempt.work, attempt.intent))
        return
    cause = explain(end)
    message = f"{cause.message} Its last output: {log_tail[-500:]}" if log_tail else cause.message
    _decide(state, attempt, _crash(attempt.work, cause.reason, message))


def _crash(work: Work, reason: str, message: str) -> Outcome:
    return from_intent(work, Intent(status="crashed", reason=reason, message=message))


def misbehaved(state: State, attempt: Attempt, what: str) -> None:
    """End a process that broke the protocol."""
    if attempt.work.outcome is None:
        broke = Intent(status="crashed", reason="protocol_violation", message=what)
        attempt.intent = attempt.intent or broke
    force(state, attempt)


def _decide(state: State, attempt: Attempt, outcome: Outcome) -> None:
    """Run a delegate again when only the machine failed it and it had not begun; else end it."""
    work = attempt.work
    again = attempt.number < work.turn.submit.settings.limits.max_attempts
    wanted = work.outcome is None and attempt.intent is None and not work.turn.closing
    if again and wanted and not attempt.started and isinstance(work, Delegate) and outcome.reason in _BEFORE_FIRST_STEP:
        work.turn.waiting.appendleft(work)
        return
    if attempt.end is not None and work.outcome is None:
        work.end = attempt.end
    finish(state, work, outcome)


def gone(state: State, attempt: Attempt) -> None:
    """Close an attempt whose tree is empty: its slot is free."""
    if attempt.phase != "closed":
        _end(state, attempt, describe(attempt.end or Exit()))


def _end(state: State, attempt: Attempt, cause: str) -> None:
    _close(state, attempt)
    end = attempt.end or Exit()
    ended = AttemptEnded(
        attempt_id=attempt.attempt_id,
        exit_code=end.code,
        exit_signal=end.signal,
        cause=cause,
        stderr_tail=attempt.log_tail,
        at=state.wall,
    )
    state.keep(attempt.work.turn, [ended])


def _close(state: State, attempt: Attempt) -> None:
    attempt.phase = "closed"
    if attempt.work.attempt is attempt:
        attempt.work.attempt = None  # they would keep each other in memory
    state.timers.clear(attempt.attempt_id, *_DEADLINES)
    attempt.work.turn.holders.discard(attempt.attempt_id)
    state.attempts.pop(attempt.attempt_id, None)
