"""The entry of an agent process, and what a process does that agents will be forked from."""

import contextlib
import os
import traceback
from collections.abc import Iterator

from msgspec.structs import replace

from fanjoin.agent_proc.account import Account
from fanjoin.agent_proc.http import tls_context
from fanjoin.agent_proc.link import Link, exit_now
from fanjoin.agent_proc.loop import Agent
from fanjoin.agent_proc.provider.failure import ProviderError
from fanjoin.agent_proc.provider.modes import open_client
from fanjoin.agent_proc.reporter import Reporter
from fanjoin.agent_proc.rules import read_rules
from fanjoin.agent_proc.summary import shortened
from fanjoin.agent_proc.toolsets.build import toolbox
from fanjoin.agent_proc.toolsets.commands import Commands
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
        commands = Commands()
        link = Link(bootstrap, account, commands)
        link.start(lifeline)
        with contextlib.suppress(MemoryError):
            link.finish(_Work(bootstrap.endpoint, link, account, commands).do(link.welcome()))
        link.finish(account.out_of_memory())  # what took the memory went with the error
    except BaseException:  # noqa: BLE001 - this process must not return into its launcher
        traceback.print_exc()
        exit_now(1)


class _Work:
    """The work of this process, from the task to how it ended."""

    def __init__(self, endpoint: Endpoint, link: Link, account: Account, commands: Commands) -> None:
        self._endpoint = endpoint
        self._link = link
        self._account = account
        self._commands = commands

    def do(self, task: AgentTask) -> Outcome:
        """Do the task and return how it ended; then none of its commands runs any more."""
        self._account.partial_limit = task.limits.max_summary_chars
        self._account.refused = frozenset(task.refused)
        transcript = Transcript(task.transcript_path, self._endpoint.api_key)
        outcome = shortened(self._converse(task, transcript), task)
        self._commands.end()
        transcript.add("end", status=outcome.status, reason=outcome.reason, message=outcome.message)
        transcript.close()
        return outcome

    def _converse(self, task: AgentTask, transcript: Transcript) -> Outcome:
        link, account = self._link, self._account
        reporter = Reporter(link.send, account, transcript, keeps_messages=task.depth == 0)
        task = _with_rules(task, reporter)
        try:
            client = open_client(self._endpoint, task)
        except ProviderError as error:
            return account.ended("failed", error.reason, str(error))
        tools = toolbox(task, self._commands, reporter, link.ask)
        agent = Agent(task, client, link.join, reporter, tools)
        link.send(Started)
        return agent.run()


def _with_rules(task: AgentTask, reporter: Reporter) -> AgentTask:
    """Return the task with the rules of its project; the root says which files they are from."""
    if task.ignore_rules or not task.cwd:
        return task
    rules = read_rules(task.cwd, os.path.expanduser("~"))
    if rules.notice and not task.depth:
        reporter.notice(rules.notice)
    return replace(task, rules=rules.text)
