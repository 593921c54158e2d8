"""Embedded providers as children of whoever needs them: started here, ended with us, whatever ends us.

The provider's module is named by a string and run as a process: nothing of it is imported.
"""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from typing import Self

from fanjoin.ipc.environment import allowed_environment
from fanjoin.ipc.errors import FanjoinError, RunError, UserError
from fanjoin.ipc.platform import detached_flags

MODULE = "fanjoin.cli.provider"
READY_SECONDS = 60.0
_GRACE_SECONDS = 5.0
_SAID_BYTES = 4000
_CANNOT_AS_ASKED = (2, 3)
"""Exit codes of a provider that was given wrong flags, or a model that is not installed."""


class EmbeddedProvider:
    """A provider that runs: its base URL, the name of its model, its process."""

    def __init__(self, process: subprocess.Popen[bytes], url: str, model: str) -> None:
        self._process = process
        self.url = url
        self.model = model
        self.pid = process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the provider and wait for its end: its lifeline first, then by force."""
        _end(self._process)


LocalModel = EmbeddedProvider


def start_local_model(slots: int, model_file: str | None = None) -> LocalModel:
    """Start the local model as a server of our own.

    Args:
        slots: how many requests it answers at once; each costs memory.
        model_file: a GGUF file; without one, the weights of the installed package.

    Raises:
        UserError: the model or its runtime is not there; the message says what to install.
        RunError: it did not start.
    """
    named = ["--model-file", model_file] if model_file else []
    return start_provider("--local", "--slots", str(slots), *named)


def start_provider(
    *flags: str, variables: Mapping[str, str] | None = None, ready_seconds: float = READY_SECONDS
) -> EmbeddedProvider:
    """Start an embedded provider and wait until it answers.

    Args:
        flags: of ``fanjoin provider``.
        variables: what it finds in its environment besides what every process of ours gets.
        ready_seconds: how long it may take.

    Raises:
        UserError: it cannot do what the flags ask for; the message is its own.
        RunError: it ended, or was not ready in time.
    """
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", MODULE, "--lifeline", *flags],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env={**allowed_environment(os.environ, ("FANJOIN_*",)), **(variables or {})},
            **detached_flags(),
        )
        line = _first_line(process, ready_seconds)
        if line:
            ready = json.loads(line)
            return EmbeddedProvider(process, ready["url"], ready["model"])
        _end(process)
        errors.seek(0)
        said = errors.read()[-_SAID_BYTES:].decode("utf-8", "replace").strip()
    raise _failure(process.returncode, said, in_time=line is not None)


def _first_line(process: subprocess.Popen[bytes], seconds: float) -> bytes | None:
    """Return the line that says where it listens: nothing when it ended before, None when it was silent too long."""
    lines: list[bytes] = []

    def read() -> None:
        lines.append(process.stdout.readline() if process.stdout else b"")

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    reader.join(seconds)
    return lines[0] if lines else None


def _failure(code: int, said: str, *, in_time: bool) -> FanjoinError:
    """Return what a provider that is not there said, as an error."""
    if not in_time:
        return RunError(f"The embedded provider was not ready in time and was ended. It said:\n{said or '(nothing)'}")
    if code in _CANNOT_AS_ASKED:
        return UserError(said.partition("Error: ")[2] or said)
    return RunError(f"The embedded provider ended with exit code {code}. It said:\n{said or '(nothing)'}")


def _end(process: subprocess.Popen[bytes]) -> None:
    """Close the lifeline, wait, and end by force what does not obey."""
    if process.stdin:
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
    try:
        process.wait(_GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdout:
        process.stdout.close()
