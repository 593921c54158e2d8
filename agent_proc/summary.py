"""What is handed on of a long answer: its head and its tail, and a file with the whole."""

import contextlib
import os
import sys

from msgspec.structs import replace

from fanjoin.ipc import platform
from fanjoin.ipc.messages import AgentTask, Outcome
from fanjoin.ipc.text import head_and_tail


def shortened(outcome: Outcome, task: AgentTask) -> Outcome:
    """Return a delegate's outcome with a text of at most about ``max_summary_chars``; the root's is left whole.

    The whole of a text that is longer than its share goes to a file: it may be cut further on its way to the parent.
    """
    limit = task.limits.max_summary_chars
    share = min(limit, task.share_chars or limit)
    if task.depth == 0 or outcome.text is None or len(outcome.text) <= share:
        return outcome
    path = _written(task.summary_path, outcome.text)
    if len(outcome.text) <= limit:
        return replace(outcome, summary_path=path)
    return replace(outcome, text=head_and_tail(outcome.text, limit), summary_truncated=True, summary_path=path)


def _written(path: str, text: str) -> str:
    """Write the whole text, so that the file is there complete or not at all; returns its path, or nothing."""
    part = f"{path}.part"
    try:
        with open(part, "w", encoding="utf-8", newline="\n", opener=_private) as file:
            file.write(text)
        platform.replace(part, path)
    except OSError as error:
        with contextlib.suppress(OSError):  # standard error is a file on the same disk
            sys.stderr.write(f"The whole answer could not be kept: {error}\n")
        return ""
    return path


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
