"""The commands, by name: each module is imported when its command is called, for start-up is imports."""

import importlib
import sys
from typing import TYPE_CHECKING

import click
from msgspec import Struct

from fanjoin.cli import streams
from fanjoin.cli.signals import Interrupts
from fanjoin.ipc.errors import FanjoinError
from fanjoin.ipc.version import VERSION

if TYPE_CHECKING:
    from fanjoin.client.core import Core

_COMMANDS = {
    "chat": ("fanjoin.cli.chat:chat_command", "Run one turn and print its answer."),
    "run": ("fanjoin.cli.chat:run_command", "chat --oneshot with the prompt as an argument."),
    "delegate": ("fanjoin.cli.delegate:delegate_command", "Run many tasks at once without a parent model."),
    "demo": ("fanjoin.cli.demo:demo_command", "Fan out over documents without a key or a network."),
    "ps": ("fanjoin.cli.listing:ps_command", "List delegates that are queued or running."),
    "cancel": ("fanjoin.cli.cancel:cancel_command", "End a delegate, a call or a turn."),
    "daemon": ("fanjoin.cli.daemon:daemon_command", "Run, start, stop or look at the daemon of this home."),
    "sessions": ("fanjoin.cli.sessions_command:sessions_command", "List, show, export, delete and resolve sessions."),
    "receipts": ("fanjoin.cli.listing:receipts_command", "List or show how delegates ended."),
    "config": ("fanjoin.cli.config_command:config_command", "Show or check the configuration."),
    "loadtest": ("fanjoin.cli.loadtest:loadtest_command", "Measure fan-outs against an endpoint."),
    "provider": ("fanjoin.cli.provider.command:provider_command", "Serve a synthetic or a small local model."),
}


class Start(Struct):
    """What the first lines of the process hand to a command."""

    core: "Core | None"
    interrupts: Interrupts


class LazyGroup(click.Group):
    """A group that imports a command when it is called, and lists the others by the help text kept here."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the commands in the order of the table."""
        del ctx
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command, imported now; for the group's own help a placeholder is enough."""
        if cmd_name not in _COMMANDS:
            return None
        target, summary = _COMMANDS[cmd_name]
        if ctx.resilient_parsing:
            return click.Command(cmd_name, short_help=summary)
        module, _, name = target.partition(":")
        command: click.Command = getattr(importlib.import_module(module), name)
        command.short_help = summary
        return command


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(VERSION, "-V", "--version", prog_name="fanjoin", message="%(prog)s %(version)s")
def app() -> None:
    """An agent whose delegates are processes: every result is joined, nothing is left behind."""


def run(arguments: list[str], core: "Core | None", interrupts: Interrupts) -> int:
    """Run a command and return its exit code; errors that are somebody's own become one message."""
    try:
        code = app.main(arguments, prog_name="fanjoin", standalone_mode=False, obj=Start(core, interrupts))
    except click.ClickException as error:
        code = error.exit_code
        _refuse(arguments, _usage(error), code, is_run=core is not None)
    except click.Abort:
        code = interrupts.exit_code()
    except FanjoinError as error:
        streams.complain(str(error))
        code = error.exit_code
    except OSError as error:  # such as a help text that cannot be written
        streams.silence(sys.stdout)
        streams.complain(f"The command could not go on: {error}.")
        code = FanjoinError.exit_code
    finally:
        if core is not None:
            core.release()
    return code if isinstance(code, int) else 0


def _refuse(arguments: list[str], message: str, code: int, *, is_run: bool) -> None:
    """Say what is wrong with the arguments; a run has a machine format to keep."""
    if not is_run:
        streams.complain(message)
        return
    from fanjoin.cli.output import end_early

    end_early(arguments, message, code)


def _usage(error: click.ClickException) -> str:
    context = getattr(error, "ctx", None)
    hint = f"\n{context.get_usage()}\nTry '{context.command_path} --help'." if context is not None else ""
    return f"{error.format_message()}{hint}"
