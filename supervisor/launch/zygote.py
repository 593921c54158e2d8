"""The launcher that forks: asks the zygote, keeps a pidfd of each agent, and replaces a zygote that died."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
import traceback
from functools import partial

from msgspec import Struct, field

from fanjoin.ipc import platform
from fanjoin.supervisor.exit_cause import Exit
from fanjoin.supervisor.launch import wire
from fanjoin.supervisor.launch.base import OomWatch, Order, Report
from fanjoin.supervisor.loop import Loop

if sys.platform != "linux":
    raise ImportError("a fork without exec is for Linux")

AGENTS = "fanjoin.agent_proc.main"
"""The module with ``preload`` and ``tls_context``; a name, because this package may not import that one."""


STUCK_SECONDS = 5.0
"""A launch takes milliseconds and a death is told at once; a zygote that owes either for so long does not run."""


class ZygoteHandle(Struct, frozen=True):
    """A running zygote: its pid, our end of its control socket, and both ends of the backstop pipe."""

    pid: int
    control: socket.socket
    backstop: tuple[int, int]


def fork_zygote(agents: str = AGENTS) -> ZygoteHandle:
    """Fork the zygote out of this process, which must have one thread and hold no lock, key or socket yet."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    backstop = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            from fanjoin.supervisor.launch.zygote_server import serve

            os.setsid()  # signals of a terminal are not for it
            ours.close()
            serve(theirs, backstop, agents)
        except BaseException:  # noqa: BLE001 - the process ends here; the supervisor's log keeps the cause
            traceback.print_exc()
        finally:
            os._exit(1)
    theirs.close()
    return ZygoteHandle(pid, ours, backstop)


class _Child(Struct):
    order: Order
    lifeline: int
    again: bool = False
    pid: int = 0
    pidfd: int = -1
    ended: bool = False
    asked: float = field(default_factory=time.monotonic)
    dead: float = 0.0

    @property
    def attempt_id(self) -> str:
        return self.order.attempt_id

    def waits_since(self, moment: float) -> bool:
        """Say whether its launch was asked, or its death seen, before a moment, and the zygote has not said so yet."""
        return self.asked < moment if not self.pid else 0 < self.dead < moment and not self.ended


class ZygoteLauncher:
    """Forks agents from a zygote; a dead zygote is replaced before the next launch."""

    def __init__(self, zygote: ZygoteHandle, loop: Loop, report: Report, agents: str = AGENTS) -> None:
        self._zygote: ZygoteHandle | None = zygote
        self._backstop = zygote.backstop
        self.backstop = zygote.backstop[0]  # a zygote inherits it under its number, whether forked or executed
        self._loop = loop
        self._report = report
        self._agents = agents
        self._children: dict[str, _Child] = {}
        self._oom = OomWatch()
        self._adopt(zygote)

    def _adopt(self, zygote: ZygoteHandle) -> None:
        self._zygote = zygote
        zygote.control.setblocking(True)
        self._loop.watch(zygote.control.fileno(), self._read)

    def launch(self, order: Order) -> None:
        """Ask for a fork; the bootstrap waits in the pipe, which holds it whole."""
        self._try_launch(order, again=False)

    def _try_launch(self, order: Order, *, again: bool) -> None:
        try:
            self._launch(order, again=again)
        except ConnectionError:
            if self._zygote is not None:
                self._zygote_died(self._zygote)
        except OSError as error:
            child = self._children.pop(order.attempt_id, None)
            if child is not None:
                os.close(child.lifeline)
            self._report.failed(order.attempt_id, f"The process could not be started: {error}.")

    def _launch(self, order: Order, *, again: bool) -> None:
        self._read()  # a zygote that died just now is noticed here
        if self._zygote is None:
            self._adopt(self._execute_zygote())
        assert self._zygote is not None  # noqa: S101 - _adopt() just set it
        read, write = os.pipe()
        self._children[order.attempt_id] = _Child(order, write, again)
        try:
            log = os.open(order.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            try:
                request = wire.encode(wire.Fork(order.attempt_id, order.tls))
                socket.send_fds(self._zygote.control, [request], [read, log])
            finally:
                os.close(log)
        finally:
            os.close(read)
        os.write(write, order.bootstrap)

    def _execute_zygote(self) -> ZygoteHandle:
        """Start a fresh zygote: forking this process would take its threads' locks along."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        code = "from fanjoin.supervisor.launch.zygote_server import main; main()"
        descriptors = (theirs.fileno(), *self._backstop)
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", code, *map(str, descriptors), self._agents],
            pass_fds=descriptors,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
        theirs.close()
        process.returncode = 0  # reaped here, not by Popen
        return ZygoteHandle(process.pid, ours, self._backstop)

    def _read(self) -> None:
        zygote = self._zygote
        if zygote is None:
            return
        while self._zygote is zygote:
            try:
                data = zygote.control.recv(wire.MAX_DATAGRAM, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                self._zygote_died(zygote)
                return
            self._heard(wire.from_zygote.decode(data), zygote)

    def _heard(self, message: wire.FromZygote, zygote: ZygoteHandle) -> None:
        match message:
            case wire.Forked(attempt_id=attempt_id, pid=pid):
                self._forked(attempt_id, pid)
            case wire.ForkFailed(attempt_id=attempt_id, message=text):
                self.release(attempt_id)
                self._report.failed(attempt_id, f"The process could not be started: {text}.")
            case wire.Exited(attempt_id=attempt_id, pid=pid, code=code, signal=number):
                with contextlib.suppress(OSError):
                    zygote.control.send(wire.encode(wire.Reap(pid)))
                self._ended(attempt_id, code, number)
            case wire.Ready(threads=threads):
                if threads != 1:
                    raise RuntimeError(f"the zygote has {threads} threads; a fork would not be safe")

    def _forked(self, attempt_id: str, pid: int) -> None:
        child = self._children.get(attempt_id)
        if child is not None:
            child.pid = pid
            with contextlib.suppress(OSError):  # the zygote tells of its end as well
                child.pidfd = os.pidfd_open(pid)
            self._loop.watch(child.pidfd, partial(self._seen_dead, child))
            self._report.launched(attempt_id, pid)

    def _seen_dead(self, child: _Child) -> None:
        """Note when a process died; how it did is the zygote's to say."""
        self._loop.unwatch(child.pidfd)
        child.dead = time.monotonic()

    def _ended(self, attempt_id: str, code: int | None, number: int | None) -> None:
        child = self._children.get(attempt_id)
        if child is None or child.ended:
            return
        child.ended = True
        name = platform.signal_name(number) if number is not None else None
        starved = number == signal.SIGKILL and self._oom.moved()
        self._report.exited(attempt_id, Exit(code=code, signal=name, out_of_memory=starved))

    def _zygote_died(self, zygote: ZygoteHandle) -> None:
        """Take over its children: as a subreaper we are their parent now."""
        self._loop.unwatch(zygote.control.fileno())
        zygote.control.close()
        self._zygote = None
        with contextlib.suppress(ChildProcessError):
            os.waitpid(zygote.pid, 0)
        for child in list(self._children.values()):
            if child.pidfd >= 0 and not child.ended:
                self._loop.watch(child.pidfd, partial(self._reap, child))
            elif not child.pid:
                self._launch_again(child)
            elif not child.ended:
                self._ended(child.attempt_id, None, None)

    def _launch_again(self, child: _Child) -> None:
        """Ask the next zygote, once. Should the dead one have forked after all, the end of the lifeline ends that."""
        self.release(child.attempt_id)
        if child.again:
            self._report.failed(child.attempt_id, "The process that forks agents died twice.")
        else:
            self._try_launch(child.order, again=True)

    def _reap(self, child: _Child) -> None:
        self._loop.unwatch(child.pidfd)
        try:
            status = os.waitid(os.P_PIDFD, child.pidfd, os.WEXITED)
        except ChildProcessError:
            self._ended(child.attempt_id, None, None)
            return
        if status is not None and status.si_code == os.CLD_EXITED:
            self._ended(child.attempt_id, status.si_status, None)
        elif status is not None:
            self._ended(child.attempt_id, None, status.si_status)

    def release(self, attempt_id: str) -> None:
        """Close what is held of a process."""
        child = self._children.pop(attempt_id, None)
        if child is None:
            return
        os.close(child.lifeline)
        if child.pidfd >= 0:
            self._loop.unwatch(child.pidfd)
            os.close(child.pidfd)

    def beat(self, now: float) -> None:
        """End a zygote that keeps a launch or an exit to itself, stopped or stuck; another one takes its place."""
        late = now - STUCK_SECONDS
        if self._zygote is not None and any(child.waits_since(late) for child in self._children.values()):
            platform.end_process(self._zygote.pid)

    def pids(self) -> set[int]:
        """Return the zygote and every agent that has not been reported dead."""
        agents = {child.pid for child in self._children.values() if child.pid and not child.ended}
        return agents | ({self._zygote.pid} if self._zygote else set())

    def close(self) -> None:
        """End the zygote."""
        zygote, self._zygote = self._zygote, None
        if zygote is not None:
            self._loop.unwatch(zygote.control.fileno())
            with contextlib.suppress(OSError):
                zygote.control.send(wire.encode(wire.Quit()))
            zygote.control.close()
            with contextlib.suppress(ChildProcessError):
                os.waitpid(zygote.pid, 0)
