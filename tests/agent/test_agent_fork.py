"""Forking agents from a process that has rehearsed: nothing is left in it, and nothing more is imported."""

import sys

from agent_support import Supervisor, says, serving, task

REHEARSED = """
import json, sys, threading, psutil
from fanjoin.agent_proc.main import preload
for step in preload():
    pass
me = psutil.Process()
print(json.dumps([threading.active_count(), me.num_threads(), len(me.net_connections())]))
"""

# Forks itself as the zygote does, then behaves as a fresh agent would; tells what was imported on the way.
FORKED = """
import gc, os, sys
gc.disable()
from fanjoin.agent_proc import link, main
from fanjoin.ipc import agent_start
from fanjoin.ipc.platform.linux import libc
libc()
steps = main.preload()
next(steps)
gc.freeze()
if os.fork():
    sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))
gc.enable()
known = set(sys.modules)
leave = link.exit_now
def tell(code):
    print(sorted(set(sys.modules) - known))
    leave(code)
link.exit_now = tell
agent_start.main()
"""


def test_a_rehearsal_leaves_one_thread_and_no_connection() -> None:
    """After the rehearsal the process may be frozen and forked."""
    from test_agent_http import run_python

    assert run_python(REHEARSED).strip() == "[1, 1, 0]"


if sys.platform == "linux":

    def test_a_forked_agent_imports_nothing_more(supervisor: Supervisor) -> None:
        """An agent that is forked after the first step of the preload does all its work with what is there."""
        with serving(says("forked")) as server:
            supervisor.start(server.endpoint, code=FORKED)
            supervisor.welcome(task(transcript_path=str(supervisor.folder / "t.jsonl")))
            assert supervisor.finish().text == "forked"
        assert (supervisor.folder / "out").read_text(encoding="utf-8").strip() == "[]"
