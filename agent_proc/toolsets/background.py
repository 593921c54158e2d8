"""Commands in the background: how they stand, and what the model is told of their end without having asked."""

import time
from collections.abc import Callable

from msgspec import Struct

from fanjoin.agent_proc.toolsets.commands import Command
from fanjoin.ipc import platform
from fanjoin.ipc.text import clip

SIGN_SECONDS = 5.0
"""How often an agent that waits for a command shows that it is alive: the wait has a limit of its own."""

Sign = Callable[[], None]
Notice = Callable[[str], None]
"""Tells the user something."""


class Job(Struct):
    """A command in the background. ``notify``: its end is still to be told."""

    command: Command
    notify: bool


class Background:
    """The commands in the background, by the names that the model knows them by.

    Args:
        patience: seconds that an agent that has its answer waits for those whose end is to be told.
        sign: shows that the agent is alive.
        notice: tells the user something.
    """

    def __init__(self, patience: float, sign: Sign, notice: Notice) -> None:
        self.jobs: dict[str, Job] = {}
        self._patience = patience
        self._sign = sign
        self._notice = notice

    def add(self, command: Command, *, notify: bool) -> str:
        """Take a command and return its name."""
        name = f"b{len(self.jobs) + 1}"
        self.jobs[name] = Job(command, notify)
        return name

    def running(self) -> int:
        """Return how many have not ended."""
        return sum(not job.command.ended.is_set() for job in self.jobs.values())

    def news(self) -> list[str]:
        """Return what is to be told of those that have ended, once each."""
        ended = {name: job for name, job in self.jobs.items() if job.notify and job.command.ended.is_set()}
        for job in ended.values():
            job.notify = False
        return [f"The background command {name} has ended.\n{told(job.command)}" for name, job in ended.items()]

    def last_news(self) -> list[str]:
        """Wait a while for those whose end is to be told, and return what is to be told."""
        deadline = time.monotonic() + self._patience
        waiting = self._awaited()
        if waiting and self._patience:
            self._notice(f"waiting up to {self._patience:g} s for background commands: {_lines(waiting)}")
            for command in waiting:
                wait(command, deadline - time.monotonic(), self._sign)
        if late := self._awaited():
            self._notice(f"background commands that did not end in time are ended: {_lines(late)}")
        return self.news()

    def _awaited(self) -> list[Command]:
        return [job.command for job in self.jobs.values() if job.notify and not job.command.ended.is_set()]


def wait(command: Command, seconds: float, sign: Sign) -> bool:
    """Wait for a command's end, with a sign of life now and then; False when it has not ended in time."""
    deadline = time.monotonic() + seconds
    while not command.ended.wait(max(0.0, min(deadline - time.monotonic(), SIGN_SECONDS))):
        if time.monotonic() >= deadline:
            return False
        sign()
    return True


def told(command: Command) -> str:
    """Return how a command stands, and its output."""
    return f"{_state(command)}: {clip(command.line, 200)}\n{command.output.text()}"


def _state(command: Command) -> str:
    code = command.exit_code
    if code is None:
        return "still running"
    end = f"ended by {platform.signal_name(-code)}" if code < 0 else f"exit code {code}"
    return f"{end} after {command.seconds:.1f} s"


def _lines(commands: list[Command]) -> str:
    return "; ".join(clip(" ".join(command.line.split()), 80) for command in commands)
