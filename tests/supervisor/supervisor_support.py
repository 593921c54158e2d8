"""What the supervisor's own tests share: a loop that is run until something is so, and a list of what was reported."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from fanjoin.ipc.bootstrap import AGENT_LIMIT, AgentBootstrap, pack_frame
from fanjoin.ipc.endpoints import Endpoints
from fanjoin.ipc.settings import Endpoint
from fanjoin.supervisor.exit_cause import Exit
from fanjoin.supervisor.launch.base import Order
from fanjoin.supervisor.loop import Loop

CHILDREN = Path(__file__).parents[1] / "children"
DEADLINE = 20.0
RUN = "i_run"

Value = TypeVar("Value")


def until(loop: Loop, probe: Callable[[], Value], what: str = "what was waited for") -> Value:
    """Run the loop until the probe is true, and return what it is."""
    deadline = time.monotonic() + DEADLINE
    while not (value := probe()):
        assert time.monotonic() < deadline, f"{what} did not come within {DEADLINE} s"
        loop.run_once(0.01)
    return value


class Reports:
    """Takes what a launcher tells the driver."""

    def __init__(self) -> None:
        self.pids: dict[str, int] = {}
        self.failures: dict[str, str] = {}
        self.ends: dict[str, Exit] = {}

    def launched(self, attempt_id: str, pid: int) -> None:
        """Note a process."""
        assert attempt_id not in self.pids, "a process is reported once"
        self.pids[attempt_id] = pid

    def failed(self, attempt_id: str, message: str) -> None:
        """Note that there is none."""
        self.failures[attempt_id] = message

    def exited(self, attempt_id: str, end: Exit) -> None:
        """Note an end."""
        assert attempt_id not in self.ends, "an end is reported once"
        self.ends[attempt_id] = end


def order(folder: Path, entry: str, attempt_id: str = "d_one.1", *, backstop: int = -1) -> Order:
    """Return the order of one process that runs an entry of ``tests/children/launched.py``."""
    bootstrap = AgentBootstrap(
        run_id=RUN,
        attempt_id=attempt_id,
        nonce="n",
        entry=f"{CHILDREN / 'launched.py'}:{entry}",
        depth=1,
        endpoints=Endpoints(),
        endpoint=Endpoint(base_url="http://127.0.0.1:9/v1", model="m"),
        backstop=backstop,
    )
    return Order(attempt_id=attempt_id, bootstrap=pack_frame(bootstrap, AGENT_LIMIT), log=folder / f"{attempt_id}.log")
