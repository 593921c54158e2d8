"""One load test: its relay, its provider, and level after level of fan-outs through a supervisor of its own."""

import json
import random
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import ExitStack
from itertools import count
from pathlib import Path

from msgspec.structs import replace

from fanjoin.cli.loadtest_relay import Hooks, Relay
from fanjoin.client.core_process import CoreProcess
from fanjoin.client.depth import refuse_below_an_agent
from fanjoin.client.fan_out import settings_for, submission
from fanjoin.client.hub import Hub
from fanjoin.client.load_drive import drive, fates, plan_for, sizes, tasks_of, write_parts
from fanjoin.client.load_record import MARK, check, processes, read_delegations, unfinished
from fanjoin.client.load_scenario import Plan, Scenario, poisson
from fanjoin.client.load_stats import FanOut, Resources, Seen
from fanjoin.client.load_usage import Watch
from fanjoin.client.local_model import EmbeddedProvider, start_provider
from fanjoin.client.records import list_running
from fanjoin.client.tasks import make_ready, read_tasks
from fanjoin.ipc.config import Flags
from fanjoin.ipc.messages import Accepted, Event, TurnDone
from fanjoin.ipc.paths import prepare_home
from fanjoin.ipc.platform import end_process
from fanjoin.ipc.platform.usage import MEMORY_KIND, tree_usage
from fanjoin.ipc.settings import SupervisorSettings, TurnSettings

_SETTLE_SECONDS = 10.0
_LOOK_SECONDS = 0.02


class _Traffic(Hooks):
    """The think time of the scenario, and delegates that hang or are killed while they wait for a reply."""

    def __init__(self, scenario: Scenario, source: random.Random) -> None:
        self.home = Path()
        self.fates: dict[str, str] = {}
        self._scenario = scenario
        self._source = source

    def think(self, mark: str) -> float:
        """Return a delay of the scenario."""
        del mark
        return self._scenario.tool_delay.draw(self._source)

    def held(self, mark: str) -> bool:
        """Hold a request of a delegate that hangs or is about to be killed."""
        fate = self.fates.get(mark)
        if fate == "crash":
            threading.Thread(target=_kill, args=(self.home, mark), daemon=True).start()
        return fate is not None


def _kill(home: Path, mark: str) -> None:
    """End the process of the delegate with this mark, as soon as it is on record."""
    deadline = time.monotonic() + _SETTLE_SECONDS
    while time.monotonic() < deadline:
        for one in list_running(home):
            found = MARK.search(one.goal)
            if one.pid and found and f"{found[1]}-{found[2]}" == mark:
                end_process(one.pid)
                return
        time.sleep(_LOOK_SECONDS)


def run_levels(plan: Plan, environ: Mapping[str, str], ended: Callable[[Seen], None]) -> None:
    """Run every level, and tell what was seen as each one ends.

    Raises:
        UserError, RunError: the endpoint is not configured, or a process could not be started.
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fanjoin-load-")))
        test = _Test(plan, environ, folder, stack)
        for concurrency in plan.levels:
            ended(test.level(concurrency))


class _Test:
    """What all levels share."""

    def __init__(self, plan: Plan, environ: Mapping[str, str], folder: Path, stack: ExitStack) -> None:
        self._plan = plan
        self._environ = environ
        self._folder = folder
        self._work = folder / "work"
        self._work.mkdir()
        write_parts(self._work, plan.scenario)
        self._source = random.Random(plan.seed)  # noqa: S311 - arrivals are no secret
        self._numbers = count(1)
        self._committed: dict[str, float] = {}
        self._provider = None if plan.endpoint else stack.enter_context(self._start_provider())
        self._target = plan.endpoint or (self._provider.url if self._provider else "")
        self._traffic = _Traffic(plan.scenario, random.Random(plan.seed))  # noqa: S311 - nor are delays
        self._relay = stack.enter_context(Relay(self._target, self._traffic))

    def _start_provider(self) -> EmbeddedProvider:
        plan, script = self._plan, self._folder / "plan.json"
        script.write_text(json.dumps(plan_for(plan.scenario)), encoding="utf-8", newline="\n")
        flags = ["--plan", str(script), "--latency", str(plan.latency), "--token-rate", str(plan.token_rate)]
        flags += ["--seed", str(plan.seed)]
        for kind in ("http500", "drop"):
            flags += ["--fault", f"{kind}={plan.faults[kind]}"] if kind in plan.faults else []
        return start_provider(*flags)

    def level(self, concurrency: int) -> Seen:
        """Run all delegations with so many at once, and return what was seen."""
        home = prepare_home(self._folder / f"home-{concurrency}-{next(self._numbers)}")
        settings = self._settings(home, concurrency)
        fan_outs = [
            FanOut(number=next(self._numbers), due=0.0, size=size)
            for size in sizes(self._plan.delegations, self._plan.scenario.fanout)
        ]
        marks = (f"{fan_out.number}-{index}" for fan_out in fan_outs for index in range(fan_out.size))
        self._traffic.home, self._traffic.fates = home, fates(marks, self._plan.faults, self._source)
        self._relay.take()
        core = CoreProcess(home)
        hub = Hub(core, SupervisorSettings(max_processes=concurrency))
        try:
            with Watch(core.pid) as watch:
                before = _Meter(core.pid, self._provider)
                self._drive(hub, settings, fan_outs, concurrency)
                ended = max([fan_out.joined for fan_out in fan_outs] + [before.began])
                _settle(home)
                resources = before.until_now(ended)
        finally:
            hub.close()
        children = processes(home)
        return Seen(
            concurrency=concurrency,
            began=before.began,
            ended=ended,
            fan_outs=fan_outs,
            delegations=read_delegations(home, fan_outs, self._committed),
            calls=self._relay.take(),
            resources=replace(resources, peak_memory=watch.peak or None, child_memory=watch.largest(children)),
            wrong=[*check(home, self._plan.delegations), *(one.error for one in fan_outs if one.error)],
        )

    def _settings(self, home: Path, concurrency: int) -> TurnSettings:
        plan = self._plan
        flags = Flags(
            base_url=self._target,
            model=plan.model or (self._provider.model if self._provider else None),
            api_key_env=plan.api_key_env,
            provider="custom",
            toolsets=("files",),
            ignore_rules=True,
            cwd=str(self._work),
            concurrency=concurrency,
            timeout=plan.timeout,
        )
        environ = self._environ if plan.endpoint else {}
        turn = settings_for(home, environ, flags).turn
        refuse_below_an_agent(turn, self._environ)
        through = replace(turn.delegate_endpoint, base_url=self._relay.url)
        return replace(turn, endpoint=through, delegate_endpoint=through)

    def _told(self, message: Accepted | Event) -> None:
        """Note when a receipt was committed; everything else is read from the records at the end."""
        if isinstance(message, Event) and message.name == "delegation.completed":
            self._committed[message.data["entry"]["receipt_id"]] = message.data["committed_at"]

    def _drive(self, hub: Hub, settings: TurnSettings, fan_outs: list[FanOut], concurrency: int) -> None:
        def start(fan_out: FanOut) -> "Future[TurnDone]":
            tasks = make_ready(read_tasks(tasks_of(fan_out, self._plan.scenario)), settings)
            return hub.submit(submission(tasks, settings, {}), self._told).future

        rate, slots = self._plan.arrival, -(-concurrency // self._plan.scenario.fanout)
        dues = poisson(rate, len(fan_outs), lambda: self._source.expovariate(1.0)) if rate else []
        drive(fan_outs, dues, slots, start)


def _settle(home: Path) -> None:
    """Wait until the end of every process is on record, so that its CPU time is counted."""
    deadline = time.monotonic() + _SETTLE_SECONDS
    while unfinished(home) and time.monotonic() < deadline:
        time.sleep(_LOOK_SECONDS)


class _Meter:
    """Measures the CPU time from its making on."""

    def __init__(self, core: int, provider: EmbeddedProvider | None) -> None:
        self._core = core
        self._provider = provider
        self._own = time.process_time()
        self._agents = tree_usage(core, memory=False).cpu
        self._of_provider = self._provider_cpu()
        self.began = time.time()

    def _provider_cpu(self) -> float:
        return tree_usage(self._provider.pid, memory=False).cpu if self._provider else 0.0

    def until_now(self, ended: float) -> Resources:
        """Return what was used; shares of cores are of the time until ``ended``."""
        took = max(ended - self.began, 1e-9)
        used = tree_usage(self._core, memory=False)
        return Resources(
            cpu_agents=used.cpu - self._agents if used.ended_children else None,
            memory_kind=MEMORY_KIND,
            own_cores=(time.process_time() - self._own) / took,
            provider_cores=(self._provider_cpu() - self._of_provider) / took if self._provider else None,
        )
