"""How a process ended, as a value that can be explained; the words are those of the receipts."""

from msgspec import Struct


class Exit(Struct, frozen=True, kw_only=True):
    """A process's end: its exit code, or the name of the signal that ended it.

    Both None means that nobody could read it (another process reaped it). ``out_of_memory`` says that the kernel's
    count of processes ended for memory rose meanwhile.
    """

    code: int | None = None
    signal: str | None = None
    out_of_memory: bool = False


class Cause(Struct, frozen=True, kw_only=True):
    """Why a process that sent no result counts as crashed."""

    reason: str
    message: str


def explain(end: Exit) -> Cause:
    """Return the cause of a death that nobody asked for and that left no result."""
    if end.signal == "SIGKILL":
        if end.out_of_memory:
            return Cause(reason="out_of_memory", message="The system ended the process: no memory was left.")
        return Cause(reason="killed", message="The process was killed from outside: SIGKILL.")
    if end.signal:
        return Cause(reason="signal", message=f"The process died of {end.signal}.")
    if end.code == 0:
        return Cause(reason="no_result", message="The process ended with exit code 0 and sent no result.")
    if end.code is None:
        return Cause(reason="exit_code", message="The process is gone and its exit code could not be read.")
    return Cause(reason="exit_code", message=f"The process ended with exit code {end.code}.")


def describe(end: Exit) -> str:
    """Return a short text for a list or a log line."""
    return end.signal or ("exit code unknown" if end.code is None else f"exit code {end.code}")
