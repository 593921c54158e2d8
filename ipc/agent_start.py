"""How an agent process begins, forked or fresh: its tree contained, its marks set, then its entry function.

An entry is a string, ``module:function`` or ``/path/to/file.py:function``, so that no package imports another one
statically. The function gets the bootstrap and the descriptor of the lifeline.
"""

import importlib
import importlib.util
import os
import sys
from collections.abc import Callable
from typing import NoReturn

from fanjoin.ipc import platform
from fanjoin.ipc.bootstrap import AGENT_LIMIT, AgentBootstrap, read_frame
from fanjoin.ipc.environment import ATTEMPT_TAG, DEPTH

Entry = Callable[[AgentBootstrap, int], None]


def load_entry(name: str) -> Entry:
    """Return the function that an entry string names.

    Raises:
        ImportError, AttributeError: there is no such module or function.
    """
    module_name, _, function = name.rpartition(":")
    if module_name.endswith(".py"):
        spec = importlib.util.spec_from_file_location("agent_entry", module_name)
        if spec is None or spec.loader is None:
            raise ImportError(f"{module_name} cannot be loaded")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    else:
        # In a forked process it is there, and running the import system costs 0.1 ms.
        module = sys.modules.get(module_name) or importlib.import_module(module_name)
    entry: Entry = getattr(module, function)
    return entry


def begin(bootstrap: AgentBootstrap, lifeline: int) -> None:
    """Contain this process and run its entry. Descriptor 0 is the null device by now."""
    platform.become_subreaper()
    if bootstrap.backstop >= 0:
        platform.arm_backstop(bootstrap.backstop)
    if bootstrap.memory_limit_mb:
        platform.limit_memory(bootstrap.memory_limit_mb)
    os.environ[ATTEMPT_TAG] = bootstrap.attempt_id
    os.environ[DEPTH] = str(bootstrap.depth)
    load_entry(bootstrap.entry)(bootstrap, lifeline)


def main() -> NoReturn:
    """Begin as a fresh interpreter: the first frame on standard input is the bootstrap; then it is the lifeline."""
    platform.reset_signals()
    lifeline = os.dup(0)
    null = os.open(os.devnull, os.O_RDONLY)
    with open(lifeline, "rb", buffering=0, closefd=False) as stream:
        bootstrap = read_frame(stream, AgentBootstrap, AGENT_LIMIT)
    os.dup2(null, 0)
    os.close(null)
    if bootstrap is None:
        sys.exit(0)
    begin(bootstrap, lifeline)
    sys.exit(0)
