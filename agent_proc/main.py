"""The entry of an agent process, and what a process does that agents will be forked from."""

import contextlib
import traceback
from collections.abc import Iterator

from fanjoin.agent_proc.account import Account
from fanjoin.agent_proc.http import tls_context
from fanjoin.agent_proc.link import Link, exit_now
from fanjoin.agent_proc.loop import Agent
from fanjoin.agent_proc.provider.failure import ProviderError
from fanjoin.agent_proc.provider.modes import open_client
from fanjoin.agent_proc.reporter import Reporter
from fanjoin.agent_proc.summary import shortened
from fanjoin.agent_proc.tools import Toolbox
from fanjoin.agent_proc.transcript import Transcript
from fanjoin.ipc.bootstrap import AgentBootstrap
from fanjoin.ipc.messages import AgentTask, Outcome, Started
from fanjoin.ipc.settings import Endpoint

__all__ = ["preload", "run", "tls_context"]


def preload() -> Iterator[None]:
    """Load all that an agent needs, so that a process forked from this one imports nothing more.

    It leaves no thread and no connection. After the first step that is done; each further step, for which there is
    time whenever nothing else is to do, saves agents some work and memory.
    """
    from fanjoin.agent_proc.warmup import rehearse

    with contextlib.suppress(OSError, ProviderError):  # without a loopback network, agents load the rest themselves
        yield from rehearse()


def run(bootstrap: AgentBootstrap, lifeline: int) -> None:
    """Run one agent to its end, which is the end of this process.

    Args:
        bootstrap: who this process is and whom it talks to.
        lifeline: the readable end of a pipe; the process ends at once when the other end is closed.
    """
    try:
        account = Account()
        link = Link(bootstrap, account)
        link.start(lifeline)
        with contextlib.suppress(MemoryError):
            link.finish(_work(bootstrap.endpoint, link.welcome(), link, account))
        link.finish(account.out_of_memory())  # what took the memory went with the error
    except BaseException:  # noqa: BLE001 - this process must not return into its launcher
        traceback.print_exc()
        exit_now(1)


def _work(endpoint: Endpoint, task: AgentTask, link: Link, account: Account) -> Outcome:
    """Do the task and return how it ended."""
    account.partial_limit = task.limits.max_summary_chars
    account.refused = frozenset(task.refused)
    transcript = Transcript(task.transcript_path, endpoint.api_key)
    outcome = shortened(_converse(endpoint, task, link, account, transcript), task)
    transcript.add("end", status=outcome.status, reason=outcome.reason, message=outcome.message)
    transcript.close()
    return outcome


def _converse(endpoint: Endpoint, task: AgentTask, link: Link, account: Account, transcript: Transcript) -> Outcome:
    reporter = Reporter(link.send, account, transcript, keeps_messages=task.depth == 0)
    try:
        client = open_client(endpoint, task)
    except ProviderError as error:
        return account.ended("failed", error.reason, str(error))
    agent = Agent(task, client, link.join, reporter, Toolbox([]))
    link.send(Started)
    return agent.run()
