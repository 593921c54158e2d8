"""Programs as delegates: a command line made into an argument list, and the ones that are known by name.

A preset holds the documented flags of a program for one task without a terminal, read from standard input. None of
them is required to be installed, and none of them is given a permission that its user has not configured.
"""

import fnmatch
import os
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence

from msgspec import Struct

from fanjoin.ipc.errors import UserError
from fanjoin.ipc.settings import Worker
from fanjoin.ipc.text import clean

OUTPUTS = ("text", "json", "last-line-json")
PRESETS = {
    "claude": Worker(command=("claude", "-p", "--output-format", "json"), output="json", context_first=True),
    "codex": Worker(command=("codex", "exec", "-"), context_first=True),
    "gemini": Worker(
        command=("gemini", "--output-format", "json"), output="json", result_key="response", context_first=True
    ),
    "hermes": Worker(command=("hermes", "chat", "-Q", "--query-file", "-"), context_first=True),
    "opencode": Worker(command=("opencode", "run"), context_first=True),
    "pi": Worker(command=("pi", "--print"), context_first=True),
}


class WorkerChoice(Struct, frozen=True, kw_only=True):
    """What a user says about the program that does the work, by the names of the flags; None is what is not said.

    ``worker`` is its command line, which is split like a shell does but never given to one, or its argument list;
    ``worker_preset`` the name of a known program instead. ``worker_output`` says how its standard output is read
    (``OUTPUTS``) and ``result_key`` which member of its JSON is the result; None for the preset's own, or text.
    ``worker_env`` are names or globs of variables that it sees besides the usual ones.
    """

    worker: str | tuple[str, ...] | None = None
    worker_preset: str | None = None
    worker_output: str | None = None
    result_key: str | None = None
    worker_env: tuple[str, ...] = ()


def make_worker(choice: WorkerChoice, environ: Mapping[str, str] = os.environ) -> Worker | None:
    """Return the program that does the work, with its variables from ``environ``; None when none is asked for.

    Raises:
        UserError: both or an unknown one are given, something is said of none, or the program is not there.
    """
    known = _known(choice)
    if known is None:
        return None
    output = choice.worker_output or known.output
    if output not in OUTPUTS:
        raise UserError(f"The worker output {output!r} is not known: {', '.join(OUTPUTS)}. Nothing was run.")
    if choice.result_key and output == "text":
        raise UserError("A result key names a member of JSON, and the worker output is text. Nothing was run.")
    return Worker(
        command=(_program(known.command[0], environ), *known.command[1:]),
        env={name: value for name, value in environ.items() if _matches(name, choice.worker_env)},
        output=output,
        result_key=choice.result_key or known.result_key,
        context_first=known.context_first,
    )


def _known(choice: WorkerChoice) -> Worker | None:
    """Return the program without what depends on this machine."""
    if choice.worker is not None and choice.worker_preset is not None:
        raise UserError("A worker and a worker preset were given. Nothing was run. Give one of the two.")
    if choice.worker is not None:
        return Worker(command=split(choice.worker))
    if choice.worker_preset is not None:
        if choice.worker_preset not in PRESETS:
            known = ", ".join(PRESETS)
            raise UserError(f"The preset {choice.worker_preset!r} is not known: {known}. Nothing was run.")
        return PRESETS[choice.worker_preset]
    if choice != WorkerChoice():
        raise UserError("A worker's output, result key or variables were given, but no worker. Nothing was run.")
    return None


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def split(command: str | Sequence[str]) -> tuple[str, ...]:
    """Return the argument list of a command line. On Windows a backslash is a letter of a path.

    Raises:
        UserError: a quote is open, or there is nothing.
    """
    if not isinstance(command, str):
        words = list(command)
    elif sys.platform == "win32":
        words = [word.strip("\"'") for word in shlex.split(command, posix=False)]
    else:
        try:
            words = shlex.split(command)
        except ValueError as error:
            raise UserError(f"The worker {command!r} is no command line: {error}. Nothing was run.") from error
    if not words or not words[0]:
        raise UserError("The worker's command line is empty. Nothing was run.")
    return tuple(words)


def _program(name: str, environ: Mapping[str, str]) -> str:
    """Return the absolute path of a program, so that it does not depend on where a task runs."""
    found = shutil.which(name, path=environ.get("PATH"))
    if found is None:
        raise UserError(
            f"The worker {clean(name)} was not found, or may not be executed. Nothing was run.\n"
            "Give the path of a program, or one that is on PATH."
        )
    return os.path.abspath(found)
