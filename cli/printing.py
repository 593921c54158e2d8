"""What the listing commands print: text as it is, JSON in a form that no encoding can harm."""

import json
import sys
from typing import Any

import click

from fanjoin.cli.streams import write_line
from fanjoin.ipc.text import clean

format_option = click.option(
    "--format", "form", type=click.Choice(["text", "json"]), default="text", help="How to print it."
)
"""``--format text|json``, as every listing has it."""


def print_text(text: str) -> None:
    """Write the text and a newline to standard output; a reader that left is no error."""
    write_line(clean(text))


def print_json(value: Any) -> None:
    """Write a JSON value, readable for people; letters are escaped where standard output is not UTF-8."""
    encoding = (sys.stdout.encoding if sys.stdout else "") or "utf-8"
    plain = encoding.lower().replace("-", "") == "utf8"
    print_text(json.dumps(value, indent=2, ensure_ascii=not plain))
