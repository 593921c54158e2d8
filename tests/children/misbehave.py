"""An agent that is the real one, except that a delegate's goal may tell it to misbehave at its first step.

The goal's first word is the deed; everything else runs the real loop.
"""

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from fanjoin.agent_proc import loop, main
from fanjoin.ipc.bootstrap import AgentBootstrap

SLEEP = [sys.executable, "-c", "import time; time.sleep(300)"]


def die_by(number: int) -> None:
    """End this process by a signal, as if it came from outside."""
    os.kill(os.getpid(), number)
    time.sleep(60)


def hold_the_interpreter() -> None:
    """Sleep in C code without giving the interpreter lock back, so that no other thread of ours runs."""
    ctypes.PyDLL(None).sleep(300)


def ignore_everything() -> None:
    """Ignore what can be ignored, and stay."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    hold_the_interpreter()


def leave_a_detached_process() -> None:
    """Start a process in a session of its own, and go."""
    subprocess.Popen(SLEEP, start_new_session=True)
    os._exit(3)


def leave_a_double_forked_process() -> None:
    """Leave a daemon behind: forked twice, its own session, nothing executed."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(300)
        os._exit(0)
    os.wait()
    os._exit(3)


def leave_stubborn_processes() -> None:
    """Leave three processes that ignore SIGTERM, each in a session of its own, one of them forked twice; stay."""
    for forks in (1, 1, 2):
        if os.fork() == 0:
            os.setsid()
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            if forks == 2 and os.fork():
                os._exit(0)
            (Path(os.environ["FANJOIN_HOME"]) / f"left-{os.getpid()}").touch()
            time.sleep(300)
            os._exit(0)


def leave_stubborn_processes_and_hang() -> None:
    """Leave them, and never come to an end."""
    leave_stubborn_processes()
    time.sleep(300)


def print_for_ever() -> None:
    """Print 100 MB a second until it is ended."""
    block = b"x" * (1 << 20)
    while True:
        os.write(1, block)
        time.sleep(0.01)


def flood() -> None:
    """Print far more than anybody wants to keep, then go."""
    block = b"x" * (1 << 20)
    for _ in range(200):
        os.write(1, block)
    os._exit(3)


def eat_memory() -> None:
    """Allocate until it is refused."""
    held = []
    while True:
        held.append(bytearray(16 << 20))


def complain_and_fail() -> None:
    """Say why on standard error, and raise."""
    print("the reason of it all", file=sys.stderr)  # noqa: T201
    raise RuntimeError("broken on purpose")


DEEDS: dict[str, Callable[[], None]] = {
    "sigkill": lambda: die_by(signal.SIGKILL),
    "segfault": lambda: die_by(signal.SIGSEGV),
    "exit3": lambda: os._exit(3),
    "exit0": lambda: os._exit(0),
    "stop": lambda: die_by(signal.SIGSTOP),
    "gil": hold_the_interpreter,
    "stubborn": ignore_everything,
    "detached": leave_a_detached_process,
    "daemon": leave_a_double_forked_process,
    "leave": leave_stubborn_processes,
    "leave-and-hang": leave_stubborn_processes_and_hang,
    "print": print_for_ever,
    "flood": flood,
    "memory": eat_memory,
    "raise": complain_and_fail,
}


def run(bootstrap: AgentBootstrap, lifeline: int) -> None:
    """Run an agent that may misbehave. A file named after the deed in ``$TMPDIR`` says that it was reached."""
    real = loop.Agent.run

    def maybe(self: loop.Agent) -> object:
        deed = self._task.text.split(maxsplit=1)[0] if self._task.depth else ""
        if deed in DEEDS:
            (Path(os.environ["FANJOIN_HOME"]) / f"reached-{deed}").touch()
            DEEDS[deed]()
        return real(self)

    loop.Agent.run = maybe  # type: ignore[method-assign,assignment]
    main.run(bootstrap, lifeline)
