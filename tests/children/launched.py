"""Small agents for the launchers' tests: each is one way to live and to end. ``f`` in ``launched.py:f`` names it."""

import os
import signal
import sys
import time

from fanjoin.ipc.bootstrap import AgentBootstrap


def report(bootstrap: AgentBootstrap, lifeline: int) -> None:
    """Print what a process knows of itself, then live as long as its lifeline."""
    marks = [os.environ[name] for name in ("FANJOIN_ATTEMPT", "FANJOIN_DEPTH")]
    print(bootstrap.attempt_id, *marks, os.getsid(0) == os.getpid(), repr(os.read(0, 1)), flush=True)  # noqa: T201
    os.read(lifeline, 1)


def leave(_bootstrap: AgentBootstrap, _lifeline: int) -> None:
    """Return at once."""


def leave_with_3(_bootstrap: AgentBootstrap, _lifeline: int) -> None:
    """Exit with a code of its own."""
    sys.exit(3)


def segfault(_bootstrap: AgentBootstrap, _lifeline: int) -> None:
    """Die of a signal."""
    os.kill(os.getpid(), signal.SIGSEGV)


def fail(_bootstrap: AgentBootstrap, _lifeline: int) -> None:
    """Raise."""
    raise RuntimeError("broken on purpose")


def hang(_bootstrap: AgentBootstrap, _lifeline: int) -> None:
    """Never end, and ignore the lifeline."""
    print("hanging", flush=True)  # noqa: T201
    time.sleep(120)


def descriptors(_bootstrap: AgentBootstrap, lifeline: int) -> None:
    """Print how many descriptors are open beyond the standard streams and the lifeline."""
    names = {int(name) for name in os.listdir("/proc/self/fd")}
    links = {name: os.readlink(f"/proc/self/fd/{name}") for name in names - {0, 1, 2, lifeline} if _is_open(name)}
    print(sorted(links.values()), flush=True)  # noqa: T201
    os.read(lifeline, 1)


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def orphan(_bootstrap: AgentBootstrap, _lifeline: int) -> None:
    """Leave a process in a session of its own behind, which has ended its parent: nobody's child."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            print(os.getpid(), flush=True)  # noqa: T201
            time.sleep(120)
        os._exit(0)
    os.wait()
    os._exit(3)
