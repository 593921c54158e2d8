"""One turn from its flags to its exit code."""

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from msgspec import Struct

from fanjoin.cli import streams
from fanjoin.cli.app import Start
from fanjoin.cli.exit_codes import exit_code
from fanjoin.cli.output import JsonOutput, TextOutput, result_object
from fanjoin.cli.signals import InterruptedRunError
from fanjoin.client.core import Core
from fanjoin.client.run import Job, Run
from fanjoin.ipc.config import Resolved, with_local_server
from fanjoin.ipc.errors import FanjoinError, OwnerLostError, UserError
from fanjoin.ipc.messages import CancelTurn, TurnDone
from fanjoin.ipc.settings import TurnSettings


class TurnOptions(Struct, kw_only=True):
    """The flags of ``chat`` and ``run``, as given."""

    quiet: bool = False
    oneshot: bool = False
    image: tuple[str, ...] = ()
    resume: str | None = None
    provider: str | None = None
    model: str | None = None
    base_url: str | None = None
    api_key_env: str | None = None
    toolsets: str | None = None
    allow: tuple[str, ...] = ()
    ignore_rules: bool | None = None
    reasoning: str | None = None
    max_turns: int | None = None
    deadline: float | None = None
    max_tokens_total: int | None = None
    output_format: str = "text"
    fail_on_child_error: bool = False
    input_id: str | None = None
    daemon: str = "auto"
    cwd: str | None = None

    def turn_flags(self) -> dict[str, Any]:
        """Return the flags that were given and rule the turn, under the names that the configuration knows."""
        named = {
            "provider": self.provider,
            "model": self.model,
            "base_url": self.base_url,
            "api_key_env": self.api_key_env,
            "toolsets": self._toolset_names(),
            "allow": self.allow or None,
            "ignore_rules": self.ignore_rules,
            "reasoning": self.reasoning,
            "max_turns": self.max_turns,
            "deadline": self.deadline,
            "max_tokens_total": self.max_tokens_total,
            "cwd": self.cwd,
        }
        return {name: value for name, value in named.items() if value is not None}

    def _toolset_names(self) -> tuple[str, ...] | None:
        """Return the toolsets that were named, or None when none were."""
        if self.toolsets is None:
            return None
        return tuple(name.strip() for name in self.toolsets.split(",") if name.strip())


class Wanted(Struct, frozen=True, kw_only=True):
    """What is asked of a supervisor, and what its settings were made of."""

    job: Job
    resolved: Resolved


Prepare = Callable[[Path, str, ExitStack], Wanted]
"""Makes a request of the home folder and the query; what it starts on the way goes onto the stack."""


def run_turn(start: Start, read_query: Callable[[], str], options: TurnOptions, prepare: Prepare) -> int:
    """Run one turn and return the exit code; machine formats get their object in every case."""
    return _TurnRun(start, options).run(read_query, prepare)


class _TurnRun:
    """One turn of the command line."""

    def __init__(self, start: Start, options: TurnOptions) -> None:
        self._core = start.core
        self._interrupts = start.interrupts
        self._options = options
        self._output: TextOutput | JsonOutput
        if options.output_format == "text":
            self._output = TextOutput(quiet=options.quiet, given_up=self._given_up)
        else:
            self._output = JsonOutput(stream=options.output_format == "stream-json", given_up=self._given_up)
        self._told_of_broken_output = False
        self._run: Run | None = None

    def run(self, read_query: Callable[[], str], prepare: Prepare) -> int:
        """Run it; whatever goes wrong is one message, one JSON object where one was asked for, one exit code."""
        try:
            with self._interrupts.raising():
                text = read_query()
            return self._carry_out(text, prepare)
        except FanjoinError as error:
            code = self._interrupts.exit_code() if self._interrupts.first is not None else error.exit_code
            streams.complain(str(error))
            self._output.failed(result_object(self._failure(error), code))
            return code

    def _failure(self, error: FanjoinError) -> TurnDone:
        """Return the end of a turn that could not tell its own; only a lost one may be worth another try."""
        status, reason = end_of(error)
        return TurnDone(
            session_id=self._run.session_id if self._run else "",
            admission_id=self._run.admission_id if self._run else "",
            status=status,
            reason=reason,
            message=str(error),
            retryable=status == "lost",
        )

    def _carry_out(self, text: str, prepare: Prepare) -> int:
        core = self._core
        if core is None:
            raise UserError("A run needs its own process: use the fanjoin command, or python -m fanjoin.cli.")
        if core.shared:
            streams.complain(f"attached to the daemon (process {core.pid})")
        elif self._options.daemon == "require":
            raise UserError(
                "No daemon serves this home, and --daemon require asks for one. Nothing was run.\n"
                "Start one with `fanjoin daemon start`, or use --daemon auto."
            )
        with ExitStack() as stack:
            with self._interrupts.raising():
                wanted = prepare(core.home, text, stack)
            return self._follow(core, wanted)

    def _follow(self, core: Core, wanted: Wanted) -> int:
        self._run = run = Run(core, wanted.job, self._output.told, self._interrupted)
        try:
            done = run.follow(self._interrupts.raising())
            code = exit_code(done, fail_on_child_error=self._options.fail_on_child_error)
            if self._interrupts.first is not None:
                code = self._interrupts.exit_code()
            if done.reason == "auth" and wanted.resolved.auth_hint:
                streams.complain(wanted.resolved.auth_hint)
            if done.status == "completed" and done.message:
                streams.complain(f"note: {done.message}")
            self._output.done(result_object(done, code))
        finally:
            run.close()
        return self._interrupts.exit_code() if self._output.broken and self._given_up() else code

    def _given_up(self) -> bool:
        """Say whether a signal asked for the end, so that a reader that is stuck is not waited for."""
        return self._interrupts.first is not None

    def _interrupted(self) -> CancelTurn | None:
        """Return a cancel for each signal, and one when nobody reads the events any more."""
        now = self._interrupts.take()
        if now is not None:
            return CancelTurn(now=now)
        if self._output.broken and not self._told_of_broken_output:
            self._told_of_broken_output = True
            return CancelTurn(reason="viewer_lost")
        return None


def end_of(error: FanjoinError) -> tuple[str, str]:
    """Return the status and the reason of a turn that ended by an error of ours."""
    statuses = {OwnerLostError.reason: "lost", InterruptedRunError.reason: "cancelled"}
    return statuses.get(error.reason, "failed"), error.reason


def with_local_model(resolved: Resolved, stack: ExitStack) -> TurnSettings:
    """Return the settings of a turn, with the local model started where they ask for it; the stack ends it."""
    if not resolved.needs_local_server:
        return resolved.turn
    from fanjoin.client.local_model import start_local_model

    streams.complain("starting the local model ...")
    server = stack.enter_context(start_local_model(resolved.turn.limits.max_concurrent_children))
    return with_local_server(resolved.turn, server.url)
