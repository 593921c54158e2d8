"""``delegate`` and ``adelegate``: the fan-out as a call, for scripts, notebooks and programs with their own loops."""

import asyncio
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import TimeoutError as NotYet
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self, TypedDict, Unpack, overload

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from fanjoin.client.core_process import CoreProcess
from fanjoin.client.depth import refuse_below_an_agent
from fanjoin.client.earlier import Earlier, look_back
from fanjoin.client.fan_out import Collector, Failure, Result, result_of, settings_for, submission
from fanjoin.client.hub import Call, Hub
from fanjoin.client.tasks import Task, make_ready, read_tasks
from fanjoin.client.workers import WorkerChoice, make_worker
from fanjoin.ipc.config import Flags, checked_flags, with_local_server
from fanjoin.ipc.errors import UserError
from fanjoin.ipc.messages import DirectTask, JsonObject, TurnDone
from fanjoin.ipc.paths import home_from, prepare_home
from fanjoin.ipc.settings import TurnSettings

Tasks = Iterable[str | Task | Mapping[str, Any]]
_LOOK_SECONDS = 1.0
"""How often a wait gives the interpreter a chance to notice Ctrl-C, where a wait cannot be interrupted."""


class Options(TypedDict, total=False):
    """What all calls of a ``Delegator`` have in common; the names are those of the command line. Times in seconds."""

    home: str | Path
    model: str
    base_url: str
    provider: str
    api_key_env: str
    toolsets: tuple[str, ...]
    reasoning: str
    max_tokens_total: int
    ignore_rules: bool
    cwd: str
    worker: str | tuple[str, ...]
    worker_preset: str
    worker_output: str
    result_key: str
    worker_env: tuple[str, ...]
    concurrency: int
    timeout: float


class CallOptions(TypedDict, total=False):
    """What one call may say. ``on_result`` is called from another thread as each task ends; what it raises ends all."""

    deadline: float
    max_failures: int
    resume: bool
    on_result: Callable[[Result], None]


class AllOptions(Options, CallOptions, total=False):
    """What ``delegate`` and ``adelegate`` take."""


class Results(Struct, frozen=True, kw_only=True):
    """The results of one call, in the order of its tasks; it can be looped over and indexed like a list.

    ``error`` says why the whole ended early: ``budget`` at a deadline or after too many failures, ``cancelled``.
    """

    results: list[Result] = field(default_factory=list)
    error: Failure | None = None
    session_id: str = ""

    @property
    def ok(self) -> bool:
        """Say whether every task completed."""
        return self.error is None and all(result.ok for result in self.results)

    def __iter__(self) -> Iterator[Result]:
        return iter(self.results)

    def __len__(self) -> int:
        return len(self.results)

    @overload
    def __getitem__(self, index: int) -> Result: ...
    @overload
    def __getitem__(self, index: slice) -> list[Result]: ...
    def __getitem__(self, index: int | slice) -> Result | list[Result]:
        return self.results[index]


def delegate(tasks: Tasks, **options: Unpack[AllOptions]) -> Results:
    """Run tasks at once, each as a process of its own, and return how each ended.

    Args:
        tasks: goals, ``Task`` or mappings with the same keys.
        options: see ``Options`` and ``CallOptions``.

    Raises:
        UserError: a task or an option is wrong; nothing was run.
        RunError: the run was lost.
    """
    common, call = _parted(options)
    with Delegator(**common) as delegator:
        return delegator.delegate(tasks, **call)


async def adelegate(tasks: Tasks, **options: Unpack[AllOptions]) -> Results:
    """Do what ``delegate`` does without blocking the event loop; cancelling the task ends what runs."""
    common, call = _parted(options)
    async with Delegator(**common) as delegator:
        return await delegator.adelegate(tasks, **call)


class Delegator:
    """A supervisor for many calls, from any thread. Leaving its block ends everything that still runs."""

    def __init__(self, **options: Unpack[Options]) -> None:
        _refuse_unknown(options, Options)
        self._options = options
        self._stack = ExitStack()
        self._home = Path()
        self._settings: TurnSettings
        self._hub: Hub | None = None

    def __enter__(self) -> Self:
        self._open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self._open)
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.close)

    def close(self) -> None:
        """End what runs, and the supervisor."""
        self._stack.close()

    def _open(self) -> None:
        options, environ = self._options, os.environ
        named = options.get("home")
        self._home = prepare_home(Path(named).absolute() if named else home_from(environ))
        worker = make_worker(_worker_choice(options), environ)
        resolved = settings_for(self._home, environ, _flags(options), worker)
        refuse_below_an_agent(resolved.turn, environ)
        self._settings = resolved.turn
        with ExitStack() as stack:
            if resolved.needs_local_server:
                from fanjoin.client.local_model import start_local_model

                server = stack.enter_context(start_local_model(resolved.turn.limits.max_concurrent_children))
                self._settings = with_local_server(resolved.turn, server.url)
            self._hub = Hub(CoreProcess(self._home), resolved.supervisor)
            stack.callback(self._hub.close)
            self._stack = stack.pop_all()

    def delegate(self, tasks: Tasks, **options: Unpack[CallOptions]) -> Results:
        """Run tasks and wait for all of them; whatever interrupts the wait ends them."""
        running = self._begin(tasks, options)
        try:
            return running.wait()
        except BaseException:
            running.cancel()
            raise

    async def adelegate(self, tasks: Tasks, **options: Unpack[CallOptions]) -> Results:
        """Do the same without blocking the event loop."""
        running = await asyncio.to_thread(self._begin, tasks, options)
        try:
            return await running.awaited()
        except BaseException:
            running.cancel()
            raise

    def _begin(self, tasks: Tasks, options: CallOptions) -> "_Running":
        _refuse_unknown(options, CallOptions)
        if self._hub is None:
            raise RuntimeError("A Delegator is used inside its block: with Delegator() as delegator: ...")
        settings = replace(self._settings, **checked_flags(_flags(options)))
        ready = make_ready(read_tasks(tasks), settings)
        earlier = look_back(self._home, ready) if options.get("resume") else Earlier()
        return _Running(self._hub, self._home, settings, ready, earlier, options.get("on_result"))


class _Running:
    """One call on its way."""

    def __init__(  # noqa: PLR0913, PLR0917 - it is the call's whole surroundings
        self,
        hub: Hub,
        home: Path,
        settings: TurnSettings,
        tasks: list[DirectTask],
        earlier: Earlier,
        on_result: Callable[[Result], None] | None,
    ) -> None:
        self._hub = hub
        self._home = home
        self._order = [task.task_id for task in tasks]
        self._on_result = on_result
        self._results: dict[str, Result] = {}
        todo = [task for task in tasks if task.task_id not in earlier.completed]
        for entry in earlier.completed.values():
            self._arrived({**entry, "resumed": True})
        self._collector = Collector((task.task_id for task in todo), self._arrived)
        self._call: Call | None = None
        if todo:
            self._call = hub.submit(submission(todo, settings, {}), self._collector.told)

    def _arrived(self, entry: JsonObject) -> None:
        result = self._results[entry["id"]] = result_of(entry)
        if self._on_result is not None:
            self._on_result(result)

    def cancel(self) -> None:
        """End what runs."""
        if self._call is not None:
            self._hub.cancel(self._call)

    def wait(self) -> Results:
        """Wait for the end."""
        while self._call is not None:
            try:
                return self._ended(self._call.future.result(_LOOK_SECONDS))
            except NotYet:
                if self._call.future.done():
                    raise
        return self._whole(None, "")

    async def awaited(self) -> Results:
        """Wait for the end beside an event loop."""
        if self._call is None:
            return self._whole(None, "")
        done = await asyncio.wrap_future(self._call.future)
        return await asyncio.to_thread(self._ended, done)

    def _ended(self, done: TurnDone) -> Results:
        self._collector.fill(self._home, done.admission_id)
        early = None if done.status == "completed" else Failure(reason=done.reason, message=done.message)
        return self._whole(early, done.session_id)

    def _whole(self, early: Failure | None, session_id: str) -> Results:
        results = [self._results[task_id] for task_id in self._order if task_id in self._results]
        return Results(results=results, error=early, session_id=session_id)


def _parted(options: AllOptions) -> tuple[Options, CallOptions]:
    _refuse_unknown(options, AllOptions)
    common = {name: value for name, value in options.items() if name in Options.__optional_keys__}
    call = {name: value for name, value in options.items() if name in CallOptions.__optional_keys__}
    return Options(**common), CallOptions(**call)  # type: ignore[typeddict-item]  # parted by name just now


def _refuse_unknown(options: Mapping[str, Any], known: type) -> None:
    names: frozenset[str] = known.__optional_keys__  # type: ignore[attr-defined]  # it is a TypedDict, none required
    for name in options:
        if name not in names:
            raise TypeError(f"{name!r} is no option; there are: {', '.join(sorted(names))}")


def _flags(options: Options | CallOptions) -> Flags:
    return Flags(**_of(Flags, options))


def _worker_choice(options: Options) -> WorkerChoice:
    try:
        return msgspec.convert(_of(WorkerChoice, options), WorkerChoice)
    except msgspec.ValidationError as error:
        raise UserError(f"What is said of the worker cannot be: {error}. Nothing was run.") from error


def _of(kind: type[Struct], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that are members of a struct."""
    return {name: value for name, value in options.items() if name in kind.__struct_fields__}
