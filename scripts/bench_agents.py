"""Agent entries for the benchmarks: the real agent, with the time of what matters written to a file.

CLOCK_MONOTONIC is one clock for all processes of a machine, so times of two processes can be subtracted.
"""

import os
import signal
import time
from pathlib import Path
from typing import NoReturn

from fanjoin.agent_proc import link, loop, main
from fanjoin.ipc.bootstrap import AgentBootstrap
from fanjoin.ipc.messages import CallRequest, Outcome


def _note(what: str) -> None:
    path = Path(os.environ["FANJOIN_HOME"]) / "times"
    with path.open("a", encoding="utf-8") as file:
        file.write(f"{what} {time.monotonic()}\n")


def run(bootstrap: AgentBootstrap, lifeline: int) -> None:
    """Run an agent that notes when a child ends and when its parent gets the joined result."""
    finish, join, work = link.Link.finish, link.Link.join, loop.Agent.run

    def timed_finish(self: link.Link, outcome: Outcome) -> NoReturn:
        if bootstrap.depth:
            _note("ended")
        finish(self, outcome)

    def timed_join(self: link.Link, calls: list[CallRequest]) -> dict[str, str]:
        answers = join(self, calls)
        _note("joined")
        return answers

    def maybe_die(self: loop.Agent) -> Outcome:
        if bootstrap.depth and self._task.text.startswith("die"):
            _note("ended")
            os.kill(os.getpid(), signal.SIGKILL)
        return work(self)

    link.Link.finish = timed_finish  # type: ignore[method-assign]
    link.Link.join = timed_join  # type: ignore[method-assign]
    loop.Agent.run = maybe_die  # type: ignore[method-assign]
    main.run(bootstrap, lifeline)
