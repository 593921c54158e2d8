"""``fanjoin delegate``: many tasks at once without a parent model, each a process with a receipt."""

import os
from collections.abc import Callable
from typing import Any

import click

from fanjoin.cli.app import Start
from fanjoin.cli.delegate_run import DelegateOptions, run_delegate
from fanjoin.client.workers import OUTPUTS, PRESETS

_OPTIONS = (
    click.option("-g", "--goal", "goals", metavar="GOAL", multiple=True, help="A task (repeatable)."),
    click.option("--map", "template", metavar="TEMPLATE", help="One task per FILE, with {path}, {name}, {text}."),
    click.option("--worker", metavar="CMD", help="A program that does each task: goal on its stdin, result on stdout."),
    click.option("--worker-preset", type=click.Choice(sorted(PRESETS)), help="A known program as the worker."),
    click.option("--worker-output", type=click.Choice(OUTPUTS), help="How the program's output is read."),
    click.option("--result-key", metavar="KEY", help="The member of its JSON that is the result (default: result)."),
    click.option("--worker-env", metavar="NAME", multiple=True, help="A variable or glob that it sees, too."),
    click.option("-j", "--concurrency", type=click.IntRange(1), metavar="N", help="Tasks that run at once."),
    click.option("--timeout", type=click.FloatRange(0), metavar="SECONDS", help="Of a task without its own; 0 = none."),
    click.option("--deadline", type=float, metavar="SECONDS", help="End the whole run after so long."),
    click.option("--max-failures", type=click.IntRange(1), metavar="N", help="End the run after N tasks that did not."),
    click.option("--fail-fast", is_flag=True, help="--max-failures 1."),
    click.option("--resume", is_flag=True, help="Run only tasks that no earlier run completed."),
    click.option("--retry-failed", is_flag=True, help="Run only tasks that an earlier run began and did not complete."),
    click.option("--dry-run", is_flag=True, help="Print what would run."),
    click.option("--worktree", is_flag=True, help="Give each task its own git worktree and branch."),
    click.option("-o", "--output", metavar="FILE", help="JSON lines: each entry as it ends, then the totals."),
    click.option(
        "--format",
        "output_format",
        type=click.Choice(["text", "json", "jsonl"]),
        default="text",
        help="What standard output gets.",
    ),
    click.option("-Q", "--quiet", is_flag=True, help="No progress on standard error."),
    click.option("--provider", metavar="NAME", help="custom, or local for the embedded small model."),
    click.option("-m", "--model", metavar="NAME", help="The model of the delegates."),
    click.option("--base-url", metavar="URL", help="An OpenAI-compatible endpoint, such as http://127.0.0.1:8080/v1."),
    click.option("--api-key-env", metavar="NAME", help="The variable that holds the endpoint's key."),
    click.option("--toolsets", metavar="A,B", help="Toolsets of the delegates."),
    click.option("--allow", metavar="PATTERN", multiple=True, help="Let tools run what matches (repeatable)."),
    click.option("--ignore-rules", is_flag=True, default=None, help="Do not read AGENTS.md."),
    click.option("--reasoning", type=click.Choice(["none", "low", "medium", "high"]), help="Reasoning effort."),
    click.option("--max-tokens-total", type=int, metavar="N", help="End a delegate that used so many tokens."),
    click.option("-C", "cwd", metavar="DIR", help="Where tasks run (default: the current folder)."),
)


def _options(command: Callable[..., int]) -> Callable[..., int]:
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@click.command("delegate")
@click.argument("files", nargs=-1, metavar="[TASKS | FILE...]")
@_options
@click.pass_obj
def delegate_command(start: Start, /, **flags: Any) -> int:
    """Run many tasks at once, each as a process of its own with a receipt.

    TASKS is a file: JSON lines ({"goal": ..., "id": ..., "context": ..., "cwd": ..., "timeout": ..., "output_schema":
    ..., "route": ..., "env": {...}}), a YAML list of the same, or plain lines that are goals; - is standard input.
    Exit code: 0 all completed, 4 some did not, 2 usage, 1 the run was lost, 130 and 143 after SIGINT and SIGTERM.
    """
    return run_delegate(start, DelegateOptions(**flags), os.environ)
