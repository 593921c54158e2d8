"""Sends fan-outs through one supervisor when they are due, and notes when each was joined."""

import queue
import random
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path

from fanjoin.client.load_scenario import Scenario
from fanjoin.client.load_stats import FanOut
from fanjoin.client.tasks import Task
from fanjoin.ipc.messages import TurnDone

Start = Callable[[FanOut], "Future[TurnDone]"]
_PART = "The harbour keeps {number} lamps, and each of them is lit by hand at dusk.\n"
_PREFIX = "A load test asks the same of many delegates; this text is a part of every prompt. "
_CHARACTERS_PER_TOKEN = 4
_BEAT_SECONDS = 0.5
"""A wait is never longer: on Windows a signal does not end it."""


def sizes(delegations: int, fanout: int) -> list[int]:
    """Return how many delegates each fan-out has; the last one gets the rest."""
    whole, rest = divmod(delegations, fanout)
    return [fanout] * whole + [rest] * bool(rest)


def tasks_of(fan_out: FanOut, scenario: Scenario) -> list[Task]:
    """Return the tasks of a fan-out; each goal begins with the mark by which its requests are known."""
    size = scenario.shared_prefix * _CHARACTERS_PER_TOKEN
    context = (_PREFIX * (size // len(_PREFIX) + 1))[:size]
    names = " ".join(part_names(scenario))
    read = f"Read these files one after the other, each with one call of read_file: {names}. " if names else ""
    words = f"Then answer with about {scenario.output} words on what you know."
    marks = [f"load-{fan_out.number}-{index}." for index in range(fan_out.size)]
    return [Task(id=mark, goal=f"{mark} {read}{words}", context=context) for mark in marks]


def part_names(scenario: Scenario) -> list[str]:
    """Return the files that a delegate reads: one for each step but the last."""
    return [f"part-{number}.txt" for number in range(1, scenario.steps)]


def write_parts(folder: Path, scenario: Scenario) -> None:
    """Write these files."""
    for number, name in enumerate(part_names(scenario), start=1):
        (folder / name).write_text(_PART.format(number=number), encoding="utf-8", newline="\n")


def plan_for(scenario: Scenario) -> list[dict[str, object]]:
    """Return the plan by which the synthetic provider plays the same delegate: its steps, then its words."""
    reads = [{"calls": [{"name": "read_file", "arguments": {"path": name}}]} for name in part_names(scenario)]
    return [{"replies": [*reads, {"text": " ".join(["word"] * scenario.output)}]}]


def fates(marks: Iterator[str], rates: dict[str, float], source: random.Random) -> dict[str, str]:
    """Return which delegates crash or hang."""
    found: dict[str, str] = {}
    for mark in marks:
        for fate in ("crash", "hang"):
            if source.random() < rates.get(fate, 0.0):
                found.setdefault(mark, fate)
    return found


def drive(fan_outs: list[FanOut], dues: list[float], slots: int, start: Start) -> None:
    """Start every fan-out and wait until all are joined.

    Args:
        fan_outs: what to start, in order; when each was due, joined or lost is noted in it.
        dues: seconds from now at which each is due; empty: as soon as one of the slots is free.
        slots: how many may be on their way without dues.
        start: begins one.

    A fan-out that starts late because the load test was late is still measured from when it was due.
    """
    began = time.time()
    ended: queue.SimpleQueue[FanOut] = queue.SimpleQueue()
    waiting, on_their_way = list(reversed(fan_outs)), 0
    while waiting or on_their_way:
        fan_out = waiting[-1] if waiting else None
        due = began + dues[len(fan_outs) - len(waiting)] if dues and fan_out else time.time()
        if fan_out and (due <= time.time() if dues else on_their_way < slots):
            waiting.pop()
            fan_out.due = due
            start(fan_out).add_done_callback(_noting(fan_out, ended))
            on_their_way += 1
            continue
        try:
            ended.get(timeout=min(_BEAT_SECONDS, max(0.0, due - time.time())) if dues and fan_out else _BEAT_SECONDS)
            on_their_way -= 1
        except queue.Empty:
            continue


def _noting(fan_out: FanOut, ended: "queue.SimpleQueue[FanOut]") -> "Callable[[Future[TurnDone]], None]":
    def note(future: "Future[TurnDone]") -> None:
        error = future.exception()
        if error is None:
            fan_out.joined = time.time()
        else:
            fan_out.error = str(error)
        ended.put(fan_out)

    return note
