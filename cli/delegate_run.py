"""One fan-out from its flags to its exit code."""

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from msgspec import Struct

from fanjoin.cli import streams
from fanjoin.cli.app import Start
from fanjoin.cli.delegate_output import JsonOutput, LinesOutput, Output, OutputFile, TextOutput, Totals
from fanjoin.cli.exit_codes import COMPLETED, FAILED, NO_DELEGATE_COMPLETED
from fanjoin.cli.standard_output import StandardOutput
from fanjoin.cli.table import table
from fanjoin.cli.task_files import read_sources
from fanjoin.cli.turn import end_of, with_local_model
from fanjoin.client.depth import refuse_below_an_agent
from fanjoin.client.earlier import Earlier, look_back
from fanjoin.client.fan_out import Collector, settings_for, submission
from fanjoin.client.run import Job, Run
from fanjoin.client.tasks import make_ready
from fanjoin.client.workers import WorkerChoice, make_worker
from fanjoin.client.worktrees import Worktrees
from fanjoin.ipc.config import Flags, Resolved
from fanjoin.ipc.errors import FanjoinError, UserError
from fanjoin.ipc.messages import Accepted, CancelTurn, DirectTask, Event, JsonObject, TurnDone
from fanjoin.ipc.paths import home_from, prepare_home


class DelegateOptions(Struct, kw_only=True):
    """The flags of ``delegate``, as given."""

    files: tuple[str, ...]
    goals: tuple[str, ...]
    template: str | None
    worker: str | None
    worker_preset: str | None
    worker_output: str | None
    result_key: str | None
    worker_env: tuple[str, ...]
    concurrency: int | None
    timeout: float | None
    deadline: float | None
    max_failures: int | None
    fail_fast: bool
    resume: bool
    retry_failed: bool
    dry_run: bool
    worktree: bool
    output: str | None
    output_format: str
    quiet: bool
    provider: str | None
    model: str | None
    base_url: str | None
    api_key_env: str | None
    toolsets: str | None
    allow: tuple[str, ...]
    ignore_rules: bool | None
    reasoning: str | None
    max_tokens_total: int | None
    cwd: str | None

    def turn_flags(self) -> Flags:
        """Return the flags that the configuration knows."""
        toolsets = self.toolsets
        return Flags(
            model=self.model,
            base_url=self.base_url,
            api_key_env=self.api_key_env,
            provider=self.provider,
            toolsets=None if toolsets is None else tuple(filter(None, map(str.strip, toolsets.split(",")))),
            reasoning=self.reasoning,
            deadline=self.deadline,
            timeout=self.timeout,
            concurrency=self.concurrency,
            max_failures=1 if self.fail_fast else self.max_failures,
            max_tokens_total=self.max_tokens_total,
            ignore_rules=self.ignore_rules,
            cwd=self.cwd,
            allow=self.allow or None,
        )

    def worker_choice(self) -> WorkerChoice:
        """Return what is said about the program that does the work."""
        return WorkerChoice(
            worker=self.worker,
            worker_preset=self.worker_preset,
            worker_output=self.worker_output,
            result_key=self.result_key,
            worker_env=self.worker_env,
        )

    def kept(self) -> dict[str, Any]:
        """Return the flags that are kept with the turn: those that were given and tell how tasks ran."""
        names = ("worker", "worker_preset", "worker_output", "result_key", "concurrency", "timeout", "deadline")
        more = ("max_failures", "fail_fast", "worktree", "provider", "model", "base_url", "api_key_env", "toolsets")
        given = {name: getattr(self, name) for name in (*names, *more, "reasoning", "max_tokens_total", "cwd")}
        return {name: value for name, value in given.items() if value}


def run_delegate(start: Start, options: DelegateOptions, environ: Mapping[str, str]) -> int:
    """Run a fan-out and return the exit code."""
    return _DelegateRun(start, options, environ).run()


class _DelegateRun:
    """One fan-out of the command line."""

    def __init__(self, start: Start, options: DelegateOptions, environ: Mapping[str, str]) -> None:
        self._core = start.core
        self._interrupts = start.interrupts
        self._options = options
        self._environ = environ
        self._home = self._core.home if self._core else prepare_home(home_from(environ))
        self._order: list[str] = []
        self._output = self._output_for(options.output_format, StandardOutput(self._given_up))
        self._totals = Totals(0)
        self._file: OutputFile | None = None
        self._worktrees: Worktrees | None = None
        self._run: Run | None = None
        self._told_of_broken_output = False

    def _output_for(self, output_format: str, stdout: StandardOutput) -> Output:
        quiet = self._options.quiet
        if output_format == "jsonl":
            return LinesOutput(stdout, quiet=quiet)
        kind = JsonOutput if output_format == "json" else TextOutput
        return kind(stdout, self._order, quiet=quiet)

    def run(self) -> int:
        """Run it; whatever goes wrong is one message, one exit code, and the totals where they were asked for."""
        try:
            return self._carry_out()
        except FanjoinError as error:
            code = self._interrupts.exit_code() if self._interrupts.first is not None else error.exit_code
            status, reason = end_of(error)
            self._end(status, code, {"reason": reason, "message": str(error)})
            return code
        finally:
            if self._file is not None:
                self._file.close()

    def _carry_out(self) -> int:
        options = self._options
        with self._interrupts.raising():
            sources = read_sources(options.goals, options.template, options.files)
        worker = make_worker(options.worker_choice(), self._environ)
        resolved = settings_for(self._home, self._environ, options.turn_flags(), worker)
        for warning in resolved.warnings:
            streams.complain(f"warning: {warning}")
        tasks = make_ready(sources, resolved.turn)
        with self._interrupts.raising():
            earlier = look_back(self._home, tasks) if options.resume or options.retry_failed else Earlier()
        todo = self._chosen(tasks, earlier)
        if options.dry_run:
            return _show_plan(tasks, todo, earlier)
        refuse_below_an_agent(resolved.turn, self._environ)
        with ExitStack() as stack:
            if options.worktree:
                todo = self._with_worktrees(todo, resolved.turn.cwd, stack)
            self._begin_output(tasks, todo, earlier)
            return (
                self._follow(todo, resolved, stack) if todo else self._end("completed", self._code("completed"), None)
            )

    def _chosen(self, tasks: list[DirectTask], earlier: Earlier) -> list[DirectTask]:
        """Return the tasks to run."""
        left = [task for task in tasks if task.task_id not in earlier.completed]
        return [task for task in left if task.task_id in earlier.tried] if self._options.retry_failed else left

    def _begin_output(self, tasks: list[DirectTask], todo: list[DirectTask], earlier: Earlier) -> None:
        """Open the outputs, and put what earlier runs completed into them."""
        if self._options.output is not None:
            self._file = OutputFile(self._options.output, self._options.files)
        self._order.extend(task.task_id for task in tasks)
        self._totals = Totals(len(earlier.completed) + len(todo))
        for entry in earlier.completed.values():
            self._arrived({**entry, "resumed": True})

    def _arrived(self, entry: JsonObject) -> None:
        """Take the entry of a task that ended."""
        if self._worktrees is not None:
            entry = entry | self._worktrees.settle(entry["id"])
        self._totals.add(entry)
        if self._file is not None:
            self._file.add(entry)
        self._output.entry(entry, self._totals)

    def _follow(self, todo: list[DirectTask], resolved: Resolved, stack: ExitStack) -> int:
        if self._core is None:
            raise UserError("A run needs its own process: use the fanjoin command, or python -m fanjoin.cli.")
        collector = Collector((task.task_id for task in todo), self._arrived)
        submit = submission(todo, with_local_model(resolved, stack), self._options.kept())
        job = Job(request=submit, settings=resolved.supervisor)
        self._run = run = Run(self._core, job, _Both(self._output, collector), self._interrupted)
        try:
            done = run.follow(self._interrupts.raising())
        finally:
            run.close()
        collector.fill(self._home, done.admission_id)
        if resolved.auth_hint and self._totals.statuses["failed"]:
            streams.complain(resolved.auth_hint)
        return self._finish(done)

    def _with_worktrees(self, todo: list[DirectTask], cwd: str, stack: ExitStack) -> list[DirectTask]:
        ours = [*self._options.files, *filter(None, [self._options.output])]
        worktrees = Worktrees(cwd, Path(self._home), ours)
        ready = worktrees.make(todo, again=self._options.resume or self._options.retry_failed)
        self._worktrees = worktrees
        stack.callback(worktrees.close)
        return ready

    def _finish(self, done: TurnDone) -> int:
        error = None if done.status == "completed" else {"reason": done.reason, "message": done.message}
        if error is None and not done.recorded:
            error = {"reason": "storage_unavailable", "message": done.storage_error}
        return self._end(done.status, self._code(done.status, recorded=done.recorded), error)

    def _code(self, status: str, *, recorded: bool = True) -> int:
        if self._interrupts.first is not None:
            return self._interrupts.exit_code()
        if not recorded or self._output.stdout.problem or (self._file is not None and self._file.problem):
            return FAILED
        return COMPLETED if status == "completed" and self._totals.all_completed else NO_DELEGATE_COMPLETED

    def _end(self, status: str, code: int, error: JsonObject | None) -> int:
        end = {
            "ok": code == COMPLETED,
            "exit_code": code,
            "status": status,
            "error": error,
            "session_id": self._run.session_id if self._run else "",
            "admission_id": self._run.admission_id if self._run else "",
            **self._totals.object(),
        }
        if self._file is not None:
            self._file.add({"type": "totals", **end})
        self._output.done(end, self._totals)
        return FAILED if self._output.stdout.problem and code == COMPLETED else code

    def _given_up(self) -> bool:
        """Say whether a signal asked for the end, so that a reader that is stuck is not waited for."""
        return self._interrupts.first is not None

    def _interrupted(self) -> CancelTurn | None:
        """Return a cancel for each signal, and one when nobody reads the output any more."""
        now = self._interrupts.take()
        if now is not None:
            return CancelTurn(now=now)
        if self._output.stdout.broken and not self._told_of_broken_output:
            self._told_of_broken_output = True
            return CancelTurn(reason="viewer_lost")
        return None


class _Both:
    """Hands what is told to the output and to the collector."""

    def __init__(self, output: Output, collector: Collector) -> None:
        self._output = output
        self._collector = collector

    def __call__(self, message: Accepted | Event) -> None:
        self._output.told(message)
        self._collector.told(message)


def _show_plan(tasks: list[DirectTask], todo: list[DirectTask], earlier: Earlier) -> int:
    """Print which tasks would run."""
    chosen = {task.task_id for task in todo}
    rows = [(task.task_id, "run" if task.task_id in chosen else _why_not(task, earlier), task.goal) for task in tasks]
    streams.write_line(table(("ID", "PLAN", "GOAL"), rows))
    streams.complain(f"{len(todo)} of {len(tasks)} tasks would run.")
    return COMPLETED


def _why_not(task: DirectTask, earlier: Earlier) -> str:
    return "completed" if task.task_id in earlier.completed else "not begun"
