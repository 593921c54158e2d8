"""The launcher that starts fresh interpreters, with a few warm ones in reserve: for systems without a safe fork."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections import deque
from pathlib import Path

from msgspec import Struct

from fanjoin.ipc import platform
from fanjoin.supervisor.exit_cause import Exit
from fanjoin.supervisor.launch.base import OomWatch, Order, Report
from fanjoin.supervisor.loop import Loop

_CODE = "from fanjoin.ipc.agent_start import main; main()"
_WARM_CODE = "import fanjoin.agent_proc.main; " + _CODE
if sys.platform == "win32":
    _SIGKILL = 0
else:
    _SIGKILL = signal.SIGKILL


class _Child(Struct, eq=False):
    process: "subprocess.Popen[bytes]"
    log: Path
    attempt_id: str = ""


class SpawnLauncher:
    """Starts interpreters. A spare has imported everything and waits for its bootstrap on standard input.

    Args:
        spares: how many to keep in reserve.
        logs: the folder for what spares print before and after they are claimed.
    """

    def __init__(self, loop: Loop, report: Report, logs: Path, spares: int, backstop: tuple[int, int] | None) -> None:
        self.backstop = -1 if backstop is None else backstop[0]
        self._loop = loop
        self._report = report
        self._logs = logs
        self._wanted_spares = spares
        self._spares: deque[_Child] = deque()
        self._children: dict[str, _Child] = {}
        self._oom = OomWatch()
        self._count = 0
        self._fill()

    def launch(self, order: Order) -> None:
        """Hand the bootstrap to a spare or to a new interpreter."""
        try:
            child = self._claim(order)
        except OSError as error:
            self._report.failed(order.attempt_id, f"The process could not be started: {error}.")
            return
        self._children[order.attempt_id] = child
        child.attempt_id = order.attempt_id
        threading.Thread(target=self._wait, args=(child, order.bootstrap), daemon=True).start()
        self._report.launched(order.attempt_id, child.process.pid)
        self._fill()

    def _claim(self, order: Order) -> _Child:
        while self._spares:
            spare = self._spares.popleft()
            if spare.process.poll() is None:
                with contextlib.suppress(OSError):
                    os.replace(spare.log, order.log)
                return spare
            _close_lifeline(spare)
        return self._start(order.log)

    def _fill(self) -> None:
        """Start spares; without them everything works, only later."""
        with contextlib.suppress(OSError):
            while len(self._spares) < self._wanted_spares:
                self._count += 1
                self._spares.append(self._start(self._logs / f"spare-{self._count}.log"))

    def _start(self, log: Path) -> _Child:
        inherited = () if self.backstop < 0 else (self.backstop,)
        with open(platform.open_log(log), "ab") as output:
            process = subprocess.Popen(
                [sys.executable, "-P", "-c", _WARM_CODE],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                pass_fds=inherited,
                **platform.detached_flags(),
            )
        return _Child(process, log)

    def _wait(self, child: _Child, bootstrap: bytes) -> None:
        """Wait on a thread of its own: there is no portable way to wait for many processes at once.

        The bootstrap goes out here, too: a pipe may hold only 4 KiB of it, and a child may never read.
        """
        with contextlib.suppress(OSError):  # then it is dead, which tells more
            _write(child, bootstrap)
        code = child.process.wait()
        self._loop.post(lambda: self._ended(child.attempt_id, code))

    def _ended(self, attempt_id: str, code: int) -> None:
        if code < 0 and _SIGKILL:
            starved = -code == _SIGKILL and self._oom.moved()
            end = Exit(signal=platform.signal_name(-code), out_of_memory=starved)
        else:
            end = Exit(code=code)
        self._report.exited(attempt_id, end)

    def release(self, attempt_id: str) -> None:
        """Close what is held of a process."""
        child = self._children.pop(attempt_id, None)
        if child is not None:
            _close_lifeline(child)

    def beat(self, now: float) -> None:
        """Do nothing: a launch is done when ``launch`` returns, and nobody stands between us and an exit."""

    def pids(self) -> set[int]:
        """Return every interpreter that was started here and may live."""
        children = [*self._children.values(), *self._spares]
        return {child.process.pid for child in children if child.process.returncode is None}

    def close(self) -> None:
        """End the spares: each exits when its standard input ends."""
        for spare in self._spares:
            _close_lifeline(spare)
        for spare in self._spares:
            try:
                spare.process.wait(timeout=2)
            except subprocess.TimeoutExpired:
                spare.process.kill()
                spare.process.wait()
        self._spares.clear()


def _write(child: _Child, bootstrap: bytes) -> None:
    assert child.process.stdin is not None  # noqa: S101 - started with a pipe
    child.process.stdin.write(bootstrap)
    child.process.stdin.flush()


def _close_lifeline(child: _Child) -> None:
    if child.process.stdin is not None:
        with contextlib.suppress(OSError):  # what it had not read is lost with it
            child.process.stdin.close()
