"""The first lines of every command. A run's supervisor is started before anything heavy is imported here."""

import os
import sys
from itertools import pairwise
from typing import TYPE_CHECKING

from fanjoin.cli import streams
from fanjoin.cli.signals import Interrupts

if TYPE_CHECKING:
    from fanjoin.client.core import Core

_RUNS = ("chat", "run", "delegate")
_HELP = ("--help", "-h")


def main() -> None:
    """Run the command line of this process and exit."""
    arguments = sys.argv[1:]
    streams.repair()
    if arguments in (["--version"], ["-V"]):
        sys.exit(_print_version())
    interrupts = Interrupts()
    core = None
    if _runs(arguments):
        interrupts.listen()
        core = _early_core(arguments)
    from fanjoin.cli.app import run

    code = run(arguments, core, interrupts)
    if core is not None:
        streams.flush()
        os._exit(code)  # unwinding the interpreter takes a tenth of a short run, and everything is closed by now
    sys.exit(code)


def _print_version() -> int:
    """Print it without the import of all that reads command lines."""
    from fanjoin.ipc.errors import FanjoinError
    from fanjoin.ipc.version import VERSION

    try:
        streams.write_line(f"fanjoin {VERSION}")
    except FanjoinError as error:
        streams.complain(str(error))
        return error.exit_code
    return 0


def _runs(arguments: list[str]) -> bool:
    """Say whether these arguments start processes, as far as that shows without parsing them."""
    if not arguments or arguments[0] not in _RUNS or set(_HELP) & set(arguments):
        return False
    return arguments[0] != "delegate" or "--dry-run" not in arguments


def _wants_its_own(arguments: list[str]) -> bool:
    """Say whether arguments that are not parsed yet mean a supervisor of their own: the last ``--daemon`` says never.

    A fan-out has one always: it ends with its viewer.
    """
    choices = [argument for before, argument in pairwise(["", *arguments]) if before == "--daemon"]
    choices += [argument.partition("=")[2] for argument in arguments if argument.startswith("--daemon=")]
    return choices[-1:] == ["never"] or arguments[0] == "delegate"


def _early_core(arguments: list[str]) -> "Core":
    """Find the daemon, or start a supervisor: it loads while this process reads what it is to do."""
    from fanjoin.client.core import core_for
    from fanjoin.ipc.errors import FanjoinError
    from fanjoin.ipc.paths import home_from, prepare_home

    try:
        return core_for(prepare_home(home_from(os.environ)), attach=not _wants_its_own(arguments))
    except FanjoinError as error:
        message, code = str(error), error.exit_code
    except OSError as error:
        advice = "If this names the home folder, make it writable for you or name another with FANJOIN_HOME."
        message, code = f"The supervisor could not be started: {error}. Nothing was run.\n{advice}", 1
    from fanjoin.cli.output import end_early

    end_early(arguments, message, code)
    sys.exit(code)
