"""The tools that run commands: ``run_command``, and ``check_command`` for those in the background."""

import os
from typing import ClassVar

from msgspec import Struct

from fanjoin.agent_proc.calls import ToolError
from fanjoin.agent_proc.toolsets import arguments as given
from fanjoin.agent_proc.toolsets.approvals import RUN, Approvals
from fanjoin.agent_proc.toolsets.arguments import tool_schema
from fanjoin.agent_proc.toolsets.background import Background, Sign, told, wait
from fanjoin.agent_proc.toolsets.commands import Command, Commands
from fanjoin.ipc.environment import MARKS
from fanjoin.ipc.messages import JsonObject
from fanjoin.ipc.settings import TerminalSettings

MAX_BACKGROUND = 16


class Shell(Struct):
    """What the tools of a terminal share; ``sign`` shows that the agent is alive while it waits for a command."""

    folder: str
    settings: TerminalSettings
    commands: Commands
    background: Background
    sign: Sign


class RunCommand:
    """Runs a command line and waits for it, or lets it run on."""

    name = RUN

    def __init__(self, shell: Shell, approvals: Approvals) -> None:
        self._shell = shell
        self._approvals = approvals

    @property
    def schema(self) -> JsonObject:
        """Return the entry with the real limit."""
        return tool_schema(
            self.name,
            "Run a command line in the working directory, without input. You get its exit code and output. Processes"
            " that it leaves in the background end with it, unless the command itself was started with background.",
            {"command": "The command line, for the system's shell."},
            timeout_seconds={
                "type": "integer",
                "description": f"At most {self._shell.settings.timeout:g}, the default.",
            },
            background={"type": "boolean", "description": "Return at once; see check_command. It ends when you end."},
            notify={"type": "boolean", "description": "With background: you are told when it has ended."},
        )

    def run(self, arguments: JsonObject) -> str:
        """Return exit code and output of the command, or the name of one in the background."""
        line = given.text(arguments, "command")
        if not line.strip() or "\0" in line:
            raise ToolError("invalid_arguments", "command is empty, or holds NUL")
        seconds = given.number(arguments, "timeout_seconds", 0, least=0) or self._shell.settings.timeout
        in_background = given.flag(arguments, "background")
        notify = given.flag(arguments, "notify")
        self._approvals.check_command(line)
        if in_background and self._shell.background.running() >= MAX_BACKGROUND:
            raise ToolError("too_many", f"{MAX_BACKGROUND} commands run in the background, the limit")
        command = self._started(line)
        if in_background:
            name = self._shell.background.add(command, notify=notify)
            return f"{name} runs in the background"
        return self._awaited(command, min(float(seconds), self._shell.settings.timeout))

    def _started(self, line: str) -> Command:
        marks = {name: os.environ[name] for name in MARKS if name in os.environ}
        try:
            return self._shell.commands.start(line, self._shell.folder, self._shell.settings.environment | marks)
        except OSError as error:
            raise ToolError("command_error", f"the command could not be started: {error.strerror or error}") from error

    def _awaited(self, command: Command, seconds: float) -> str:
        if not wait(command, seconds, self._shell.sign):
            command.end()
            return f"ended after {seconds:g} s, its time limit; {told(command)}"
        return told(command)


class CheckCommand:
    """Shows how a command in the background is doing, waits for it, or ends it."""

    name = "check_command"
    schema: ClassVar[JsonObject] = tool_schema(
        name,
        "Show the state and output of a command in the background.",
        {"name": "Its name, such as b1."},
        wait_seconds={"type": "integer", "description": "Wait so long at most for its end."},
        stop={"type": "boolean", "description": "End it."},
    )

    def __init__(self, shell: Shell) -> None:
        self._shell = shell

    def run(self, arguments: JsonObject) -> str:
        """Return its state and its output so far."""
        name = given.text(arguments, "name")
        job = self._shell.background.jobs.get(name)
        if job is None:
            known = ", ".join(self._shell.background.jobs) or "none"
            raise ToolError("not_found", f"there is no command {name!r} in the background; there are: {known}")
        seconds = given.number(arguments, "wait_seconds", 0, least=0)
        if given.flag(arguments, "stop"):
            job.command.end()
        elif seconds:
            wait(job.command, min(float(seconds), self._shell.settings.timeout), self._shell.sign)
        if job.command.ended.is_set():
            job.notify = False
        return told(job.command)
