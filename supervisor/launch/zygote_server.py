"""The zygote: a process without threads, sockets or locks that has imported what agents need and forks them.

It outlives the supervisor by a second: when its control socket ends it kills its children and sweeps the run, so that
an agent that is stuck in C code cannot be left behind.
"""

import contextlib
import gc
import importlib
import os
import select
import signal
import socket
import sys
import time
import traceback
from collections import deque
from collections.abc import Iterator
from typing import NoReturn, Protocol, cast

from msgspec import Struct

from fanjoin.ipc import platform
from fanjoin.ipc.agent_start import begin
from fanjoin.ipc.bootstrap import AGENT_LIMIT, AgentBootstrap, read_frame
from fanjoin.ipc.environment import RUN_TAG
from fanjoin.ipc.platform import linux
from fanjoin.supervisor.launch import wire

if sys.platform != "linux":
    raise ImportError("a fork without exec is for Linux")

GRACE_SECONDS = 1.0
"""How long agents may take to end by themselves when the supervisor is gone."""
_DESCRIPTORS = 2  # per fork request: lifeline, log


class Agents(Protocol):
    """What the module of the agents offers a zygote."""

    def preload(self) -> Iterator[None]:
        """Import and rehearse, a step at a time; the first step is what has to be done before a fork."""

    def tls_context(self) -> object:
        """Parse the certificates that agents share."""


def serve(control: socket.socket, backstop: tuple[int, int], agents: str) -> NoReturn:
    """Import what agents need, then fork them on request until the supervisor says quit or is gone.

    Args:
        control: a SOCK_SEQPACKET socket to the supervisor.
        backstop: both ends of the pipe whose last writer's end kills the agents.
        agents: names the module of ``Agents``.
    """
    platform.reset_signals()
    _keep_only(control.fileno(), *backstop)
    gc.disable()
    linux.libc()
    Zygote(control, backstop, cast(Agents, importlib.import_module(agents))).run()
    os._exit(0)


def _keep_only(*descriptors: int) -> None:
    """Close every other descriptor and put the null device on 0 and 1: both belong to the supervisor's viewer."""
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) not in descriptors:  # noqa: PLR2004 - 0, 1 and 2 are the standard streams
            with contextlib.suppress(OSError):
                os.close(int(name))


class Zygote:
    """Forks agents and reports how they end."""

    def __init__(self, control: socket.socket, backstop: tuple[int, int], agents: Agents) -> None:
        self._control = control
        self._control.setblocking(False)
        self._backstop = backstop
        self._agents = agents
        self._preload = agents.preload()
        self._preloading = True
        self._outbox: deque[bytes] = deque()
        self._living: dict[int, str] = {}
        self._reported: set[int] = set()
        self._wake, self._wake_write = socket.socketpair()
        self._wake.setblocking(False)
        self._wake_write.setblocking(False)
        signal.set_wakeup_fd(self._wake_write.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def run(self) -> None:
        """Serve until quit or the end of the control socket."""
        self._preload_step()
        self._say(wire.Ready(threads=len(os.listdir("/proc/self/task"))))
        poll = select.poll()
        poll.register(self._wake, select.POLLIN)
        while True:
            poll.register(self._control, select.POLLIN | (select.POLLOUT if self._outbox else 0))
            if not poll.poll(0 if self._preloading and self._living else None):
                self._preload_step()
            with contextlib.suppress(BlockingIOError):
                self._wake.recv(4096)
            self._flush()
            if not self._serve_requests():
                return
            self._report_deaths()

    def _preload_step(self) -> None:
        """Do one step of the preload; those after the first wait until there is an agent, whose start comes first."""
        try:
            next(self._preload)
        except StopIteration:
            self._preloading = False
        gc.freeze()

    def _serve_requests(self) -> bool:
        """Serve what is waiting; False when there is nothing more to come."""
        while True:
            try:
                data, descriptors, flags, _ = socket.recv_fds(self._control, wire.MAX_DATAGRAM, _DESCRIPTORS)
            except BlockingIOError:
                return True
            except ConnectionResetError:
                continue  # it closed before it had read all of ours; what it said last is still there
            except OSError:
                data, descriptors, flags = b"", [], 0
            if not data:
                self._supervisor_gone()
                return False
            request = wire.to_zygote.decode(data)
            match request:
                case wire.Fork():
                    self._fork(request, descriptors, flags)
                case wire.Reap(pid=pid):
                    self._reap(pid)
                case wire.Quit():
                    return False

    def _fork(self, request: wire.Fork, descriptors: list[int], flags: int) -> None:
        if flags & socket.MSG_CTRUNC or len(descriptors) != _DESCRIPTORS:
            cut = "its descriptors did not arrive (is the limit of open files reached?)"
            self._say(wire.ForkFailed(request.attempt_id, cut))
        else:
            if request.tls:
                self._agents.tls_context()
                gc.freeze()
            self._fork_agent(request.attempt_id, *descriptors)
        for descriptor in descriptors:
            os.close(descriptor)

    def _fork_agent(self, attempt_id: str, lifeline: int, log: int) -> None:
        try:
            pid = os.fork()
        except OSError as error:
            self._say(wire.ForkFailed(attempt_id, str(error)))
            return
        if pid == 0:
            self._be_agent(lifeline, log)
        self._living[pid] = attempt_id
        self._say(wire.Forked(attempt_id, pid))

    def _be_agent(self, lifeline: int, log: int) -> NoReturn:
        """Be the child: a session of its own, nothing of the zygote's, then the agent's entry."""
        code = 1
        try:
            os.setsid()
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # the others have their default meaning here, too
            for shared in (self._control, self._wake, self._wake_write):
                os.close(shared.detach())
            os.close(self._backstop[1])
            os.dup2(log, 1)
            os.dup2(log, 2)
            os.close(log)
            gc.enable()
            self._start(lifeline)
            code = 0
        except SystemExit as leaving:
            code = leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
        except BaseException:  # noqa: BLE001 - the process ends here; its log keeps the cause
            traceback.print_exc()
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)

    def _start(self, lifeline: int) -> None:
        with open(lifeline, "rb", buffering=0, closefd=False) as stream:
            bootstrap = read_frame(stream, AgentBootstrap, AGENT_LIMIT)
        if bootstrap is not None:
            begin(bootstrap, lifeline)

    def _report_deaths(self) -> None:
        for pid in [pid for pid in self._living if pid not in self._reported]:
            status = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if status is None:
                continue
            exited = status.si_code == os.CLD_EXITED
            code, number = (status.si_status, None) if exited else (None, status.si_status)
            self._reported.add(pid)
            self._say(wire.Exited(self._living[pid], pid, code, number))

    def _reap(self, pid: int) -> None:
        if self._living.pop(pid, None) is not None:
            self._reported.discard(pid)
            os.waitpid(pid, 0)

    def _say(self, message: Struct) -> None:
        self._outbox.append(wire.encode(message))
        self._flush()

    def _flush(self) -> None:
        """Send what there is. Never wait: the supervisor may be waiting for us in the same moment."""
        while self._outbox:
            try:
                self._control.send(self._outbox[0])
            except BlockingIOError:
                return
            except OSError:
                self._outbox.clear()
                return
            self._outbox.popleft()

    def _supervisor_gone(self) -> None:
        """Give the agents a moment, kill those that are left, and sweep what carries the run's tag."""
        deadline = time.monotonic() + GRACE_SECONDS
        while self._living and time.monotonic() < deadline:
            self._collect()
            select.select([self._wake], [], [], 0.05)
        tag = os.environ.get(RUN_TAG, "")
        while time.monotonic() < deadline + GRACE_SECONDS:
            members = [*self._living, *(platform.run_members(tag) if tag else [])]
            if not members:
                return
            for pid in members:
                platform.end_process(pid)
            select.select([], [], [], 0.005)
            self._collect()

    def _collect(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while (pid := os.waitpid(-1, os.WNOHANG)[0]) != 0:
                self._living.pop(pid, None)


def main() -> NoReturn:
    """Begin as a fresh interpreter: a replacement for a zygote that died. Descriptors come as arguments."""
    control, read, write = (int(argument) for argument in sys.argv[1:4])
    serve(socket.socket(fileno=control), (read, write), sys.argv[4])
