"""``fanjoin ps`` and ``fanjoin receipts``: what runs under a home, and what came of it. They only read."""

import os
import time
from typing import Any

import click
from msgspec import to_builtins

from fanjoin.cli.printing import format_option, print_json, print_text
from fanjoin.cli.table import duration, moment, one_line, table
from fanjoin.client.records import Receipt, ReceiptLine, RunningDelegate, find_receipt, list_receipts, list_running
from fanjoin.ipc.paths import home_from

DEFAULT_LIMIT = 20
MOST = 1_000_000
_RUNNING = ("DELEGATE", "CALL", "PID", "STATUS", "FOR", "GOAL")
_ENDED = ("DELEGATE", "ENDED", "STATUS", "GOAL")


class ListFirst(click.Group):
    """A group whose ``list`` runs when no subcommand is named."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put ``list`` before options that stand alone."""
        helps = self.get_help_option_names(ctx)
        if not args or (args[0].startswith("-") and args[0] not in helps):
            args = ["list", *args]
        return super().parse_args(ctx, args)


@click.command("ps")
@format_option
def ps_command(form: str) -> None:
    """List the delegates that are queued or running under this home."""
    delegates = list_running(home_from(os.environ))
    if form == "json":
        print_json(to_builtins(delegates))
    elif delegates:
        print_text(table(_RUNNING, [_running_row(one) for one in delegates]))
    else:
        print_text("No delegate is queued or running.")


def _running_row(delegate: RunningDelegate) -> tuple[str, ...]:
    since = "-" if delegate.started_at is None else duration(time.time() - delegate.started_at)
    pid = "-" if delegate.pid is None else str(delegate.pid)
    return delegate.receipt_id, delegate.delegation_id, pid, delegate.status, since, delegate.goal


@click.group("receipts", cls=ListFirst)
def receipts_command() -> None:
    """List and show the receipts of delegates that ended."""


@receipts_command.command("list")
@click.option("--limit", type=click.IntRange(1, MOST), default=DEFAULT_LIMIT, show_default=True, help="How many.")
@format_option
def list_command(limit: int, form: str) -> None:
    """List the newest receipts, the newest first."""
    receipts = list_receipts(home_from(os.environ), limit)
    if form == "json":
        print_json(to_builtins(receipts))
    elif receipts:
        print_text(table(_ENDED, [_receipt_row(one) for one in receipts]))
    else:
        print_text("No delegate has ended under this home yet.")


def _receipt_row(receipt: ReceiptLine) -> tuple[str, ...]:
    return receipt.receipt_id, moment(receipt.written_at), _status(receipt), receipt.goal


@receipts_command.command("show")
@click.argument("receipt_id", metavar="ID")
@format_option
def show_command(receipt_id: str, form: str) -> None:
    """Show one receipt whole; any unique beginning of its ID will do."""
    receipt = find_receipt(home_from(os.environ), receipt_id)
    if form == "json":
        print_json(to_builtins(receipt))
    else:
        print_text(_whole(receipt))


def _whole(receipt: Receipt) -> str:
    """Return a receipt as lines of names and values, then its texts."""
    lines = [f"{name:<12}{value}" for name, value in _facts(receipt).items() if value]
    texts = {"goal": receipt.goal, "summary": receipt.summary, "partial text": receipt.partial_text}
    blocks = [f"{name}:\n{_indented(text)}" for name, text in texts.items() if text]
    return "\n\n".join(["\n".join(lines), *blocks])


def _facts(receipt: Receipt) -> dict[str, Any]:
    seconds = receipt.written_at - receipt.accepted_at
    return {
        "delegate": receipt.receipt_id,
        "call": f"{receipt.delegation_id}, task {receipt.task_index}",
        "turn": f"{receipt.admission_id} of session {receipt.session_id}",
        "status": _status(receipt),
        "message": one_line(receipt.message),
        "model": one_line(receipt.model),
        "steps": f"{receipt.steps} in {receipt.attempts} {'attempt' if receipt.attempts == 1 else 'attempts'}",
        "ended": f"{moment(receipt.written_at)}, {duration(seconds)} after it was accepted",
        "transcript": receipt.entry.get("transcript", ""),
    }


def _status(receipt: ReceiptLine) -> str:
    return f"{receipt.status} ({receipt.reason})" if receipt.reason else receipt.status


def _indented(text: str) -> str:
    """Return a text line by line, each without anything that a terminal would obey."""
    shown = ("".join(letter if letter.isprintable() else " " for letter in line) for line in text.splitlines())
    return "\n".join(f"  {line}".rstrip() for line in shown)
