"""Writing to standard output: what its encoding cannot hold is replaced, and a reader that left is no error."""

import errno
import json
import os
import sys
from typing import Any

import click

from fanjoin.ipc.text import clean

format_option = click.option(
    "--format", "form", type=click.Choice(["text", "json"]), default="text", help="How to print it."
)
"""``--format text|json``, as every listing has it."""


def print_text(text: str) -> None:
    """Write the text and a newline to standard output."""
    _write(clean(text) + "\n", sys.stdout.encoding if sys.stdout else "utf-8")


def print_json(value: Any) -> None:
    """Write a JSON value to standard output, readable for people; no encoding can harm it."""
    encoding = sys.stdout.encoding if sys.stdout else "utf-8"
    escaped = encoding.lower().replace("-", "") != "utf8"
    _write(clean(json.dumps(value, indent=2, ensure_ascii=escaped)) + "\n", encoding)


def _write(text: str, encoding: str) -> None:
    if sys.stdout is None:
        return
    try:
        sys.stdout.buffer.write(text.encode(encoding, "replace"))
        sys.stdout.buffer.flush()
    except OSError as error:
        # Windows says EINVAL where others say EPIPE.
        if error.errno not in (errno.EPIPE, errno.EINVAL):
            raise
        forget_stdout()


def forget_stdout() -> None:
    """Point standard output at the null device, so that the interpreter's last flush finds no broken pipe."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)
