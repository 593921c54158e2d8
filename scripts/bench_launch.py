"""Launches: from the request to the agent's first message, by zygote, by fresh interpreter, and by a bare fork.

The bare fork is a prototype of what is possible: a frozen process with the same imports forks, and the child connects
and sends one message.
"""

import gc
import os
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import psutil
import zmq
from bench_support import row

from fanjoin.ipc.bootstrap import AGENT_LIMIT, AgentBootstrap, pack_frame
from fanjoin.ipc.settings import Endpoint
from fanjoin.supervisor.exit_cause import Exit
from fanjoin.supervisor.launch.base import Launcher, Order
from fanjoin.supervisor.launch.spawn import SpawnLauncher
from fanjoin.supervisor.launch.zygote import ZygoteLauncher, fork_zygote
from fanjoin.supervisor.loop import Loop
from fanjoin.supervisor.sockets import Sockets

ENTRY = "fanjoin.agent_proc.main:run"


class Waiting:
    """A report that keeps the last pid, and stops at a failure."""

    pid = 0

    def launched(self, attempt_id: str, pid: int) -> None:
        """Keep the pid."""
        del attempt_id
        self.pid = pid

    def failed(self, attempt_id: str, message: str) -> None:
        """Stop: there is nothing to measure."""
        sys.exit(f"{attempt_id}: {message}")

    def exited(self, attempt_id: str, end: Exit) -> None:
        """Take no note."""


class Bench:
    """Launches agents one by one and times their hello."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.zygote = fork_zygote()  # before there is any thread
        self.bare = BareFork(folder)
        self.loop = Loop()
        self.sockets = Sockets(folder, "ipc", self.loop)
        self.report = Waiting()
        self.count = 0

    def order(self) -> Order:
        """Return a new agent to start."""
        self.count += 1
        name = f"a{self.count}"
        bootstrap = AgentBootstrap(
            run_id="bench",
            attempt_id=name,
            nonce=name,
            entry=ENTRY,
            depth=1,
            endpoints=self.sockets.endpoints,
            endpoint=Endpoint(base_url="http://127.0.0.1:9/v1", model="none"),
        )
        return Order(attempt_id=name, bootstrap=pack_frame(bootstrap, AGENT_LIMIT), log=self.folder / f"{name}.log")

    def time(self, launcher: Launcher) -> float:
        """Return the seconds from a launch to its hello; the agent ends when its lifeline is released."""
        order = self.order()
        heard: list[float] = []

        def hello() -> None:
            self.sockets.back.recv_multipart()
            heard.append(time.perf_counter())

        self.loop.watch(self.sockets.back, hello)
        began = time.perf_counter()
        launcher.launch(order)
        while not heard:
            self.loop.run_once(1)
        launcher.release(order.attempt_id)
        while psutil.pid_exists(self.report.pid):  # its end must not fall into the next measurement
            self.loop.run_once(0.01)
        return heard[0] - began

    def time_bare(self) -> float:
        """Return the seconds from asking the bare fork to its child's message."""
        began = time.perf_counter()
        self.bare.ask()
        self.sockets.back.recv_multipart()
        return time.perf_counter() - began


class BareFork:
    """A frozen process with an agent's imports that forks when it is told to."""

    def __init__(self, folder: Path) -> None:
        read, self._write = os.pipe()
        if os.fork() == 0:
            os.close(self._write)
            serve_bare(read, f"ipc://{folder / 'b'}")

    def ask(self) -> None:
        """Ask for one fork."""
        os.write(self._write, b"x")


def serve_bare(read: int, address: str) -> None:
    """Fork for every byte; the child sends one message and ends."""
    import fanjoin.agent_proc.main

    gc.disable()
    for _ in fanjoin.agent_proc.main.preload():
        pass
    gc.freeze()
    while os.read(read, 1):
        pid = os.fork()
        if pid == 0:
            context = zmq.Context()
            dealer = context.socket(zmq.DEALER)
            dealer.connect(address)
            dealer.send(b"hello")
            dealer.close()
            context.term()  # waits until the message is out
            os._exit(0)
        os.waitpid(pid, 0)
    os._exit(0)


def main() -> None:
    """Measure in turn and print."""
    rounds = int(sys.argv[1]) * 3
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "i"
        folder.mkdir(mode=0o700)
        bench = Bench(folder)
        forked = ZygoteLauncher(bench.zygote, bench.loop, bench.report)
        fresh = SpawnLauncher(bench.loop, bench.report, folder, 0, None)
        times: dict[str, list[float]] = {"zygote": [], "bare": [], "fresh": []}
        for number in range(rounds + 2):
            measured = {"zygote": bench.time(forked), "bare": bench.time_bare(), "fresh": bench.time(fresh)}
            for way, seconds in measured.items():
                if number > 1:
                    times[way].append(seconds)
        forked.close()
    p50 = {way: median(values) * 1000 for way, values in times.items()}
    over = median(one / other for one, other in zip(times["zygote"], times["bare"], strict=True))
    faster = median(one / other for one, other in zip(times["fresh"], times["zygote"], strict=True))
    row("launch to first message, zygote, p50", f"{p50['zygote']:.1f} ms", "")
    row("against a bare fork with the same imports", f"{over:.2f} times ({p50['bare']:.1f} ms)", "≤ 1.3")
    row("a fresh interpreter against the zygote", f"{faster:.0f} times ({p50['fresh']:.0f} ms)", "≥ 50")
    os._exit(0)  # the helpers end with their pipes


if __name__ == "__main__":
    main()
