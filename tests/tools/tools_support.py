"""What the tests of tools share: the tools of one agent in a folder, called as the loop calls them."""

import json
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from fanjoin.agent_proc.account import Account
from fanjoin.agent_proc.provider.reply import ToolCall
from fanjoin.agent_proc.reporter import Reporter
from fanjoin.agent_proc.toolsets.build import toolbox
from fanjoin.agent_proc.toolsets.commands import Commands
from fanjoin.agent_proc.transcript import Transcript
from fanjoin.ipc.approval_messages import ApprovalDecided
from fanjoin.ipc.messages import AgentTask, Progress
from fanjoin.ipc.settings import ApprovalSettings, TerminalSettings

EVERYTHING = ApprovalSettings(mode="allow")
PATH = {"PATH": "/usr/bin:/bin"}


class Tools:
    """The tools of one agent that works in a folder; several of these are siblings."""

    def __init__(
        self, folder: Path, approvals: ApprovalSettings = EVERYTHING, toolset: str = "files", **terminal: Any
    ) -> None:
        self.sent: list[Struct] = []
        self.commands = Commands()
        settings = TerminalSettings(environment=PATH, **terminal)
        task = AgentTask(
            owner_id="d_one",
            session_id="s_one",
            text="",
            toolsets=(toolset,),
            cwd=str(folder),
            approvals=approvals,
            terminal=settings,
        )
        reporter = Reporter(self._send, Account(), Transcript("", ""), keeps_messages=False)
        self.box = toolbox(task, self.commands, reporter, _nobody)

    def _send(self, kind: type[msgspec.Struct], **fields: object) -> None:
        self.sent.append(kind(run_id="r", attempt_id="a", **fields))

    def call(self, name: str, /, **arguments: Any) -> str:
        """Return the answer to a call."""
        return self.box.run(ToolCall(id="c", name=name, arguments=json.dumps(arguments)))

    def refusal(self, name: str, /, **arguments: Any) -> str:
        """Return the reason word of a call that has to be an error."""
        reason: str = json.loads(self.call(name, **arguments))["error"]["reason"]
        return reason

    @property
    def notices(self) -> list[str]:
        """What the user was told."""
        return [message.notice for message in self.sent if isinstance(message, Progress) and message.notice]


def _nobody(what: str, _patterns: list[str]) -> ApprovalDecided:
    raise AssertionError(f"nobody is to be asked about {what}")
