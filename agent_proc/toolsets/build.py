"""Which tools an agent has: those of its toolsets, with the workspace and the approvals of its task."""

import os

from msgspec.structs import replace

from fanjoin.agent_proc.reporter import Reporter
from fanjoin.agent_proc.tools import Tool, Toolbox
from fanjoin.agent_proc.toolsets.approvals import Approvals, Ask
from fanjoin.agent_proc.toolsets.background import Background
from fanjoin.agent_proc.toolsets.commands import Commands
from fanjoin.agent_proc.toolsets.reading import ListFiles, ReadFile, SearchFiles
from fanjoin.agent_proc.toolsets.terminal import CheckCommand, RunCommand, Shell
from fanjoin.agent_proc.toolsets.versions import Versions
from fanjoin.agent_proc.toolsets.workspace import Workspace
from fanjoin.agent_proc.toolsets.writing import EditFile, WriteFile
from fanjoin.ipc.messages import AgentTask


def toolbox(task: AgentTask, commands: Commands, reporter: Reporter, ask: Ask) -> Toolbox:
    """Return the tools of an agent; ``ask`` is for one whose task says that somebody is there."""
    approvals = Approvals(task.approvals, ask if task.asks else None)
    background = Background(task.terminal.completion_wait, reporter.sign, reporter.notice)
    tools: list[Tool] = []
    if task.cwd and "files" in task.toolsets:
        tools += _files(Workspace(task.cwd, os.environ.get("FANJOIN_HOME", "")), approvals)
    if task.cwd and "terminal" in task.toolsets:
        terminal = replace(task.terminal, environment=task.terminal.environment | task.env)
        shell = Shell(task.cwd, terminal, commands, background, reporter.sign)
        tools += [RunCommand(shell, approvals), CheckCommand(shell)]
    if "web" in task.toolsets:
        from fanjoin.agent_proc.toolsets.web import FetchUrl

        tools.append(FetchUrl(approvals, task.approvals.private_hosts))
    return Toolbox(tools, background, reporter.notice)


def _files(workspace: Workspace, approvals: Approvals) -> list[Tool]:
    versions = Versions()
    return [
        ReadFile(workspace, approvals, versions),
        ListFiles(workspace),
        SearchFiles(workspace, approvals),
        WriteFile(workspace, approvals, versions),
        EditFile(workspace, approvals, versions),
    ]
