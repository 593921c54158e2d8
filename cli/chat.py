"""``fanjoin chat`` and ``fanjoin run``: the flags of a turn, and its course from the query to the exit code."""

from collections.abc import Callable
from typing import Any

import click

from fanjoin.cli import streams
from fanjoin.cli.app import Start
from fanjoin.cli.query import read_query
from fanjoin.cli.submission import chat_request
from fanjoin.cli.turn import TurnOptions, run_turn

_OPTIONS = (
    click.option("--image", metavar="FILE", multiple=True, help="Send a PNG, JPEG, WebP or GIF (repeatable)."),
    click.option("--resume", metavar="ID|latest", help="Go on with a session, with the settings that it has kept."),
    click.option("--query-file", metavar="FILE", help="Read the query from a file; - is standard input."),
    click.option("-Q", "--quiet", is_flag=True, help="No progress on standard error."),
    click.option("--oneshot", is_flag=True, help="One turn, also on a terminal."),
    click.option("--provider", metavar="NAME", help="custom, or local for the embedded small model."),
    click.option("-m", "--model", metavar="NAME", help="The model, of delegates too unless they have their own."),
    click.option("--base-url", metavar="URL", help="An OpenAI-compatible endpoint, such as http://127.0.0.1:8080/v1."),
    click.option("--api-key-env", metavar="NAME", help="The variable that holds the endpoint's key."),
    click.option("--toolsets", metavar="A,B", help="Toolsets of the root agent."),
    click.option("--allow", metavar="PATTERN", multiple=True, help="Let tools run what matches (repeatable)."),
    click.option("--ignore-rules", is_flag=True, default=None, help="Do not read AGENTS.md."),
    click.option("--reasoning", type=click.Choice(["none", "low", "medium", "high"]), help="Reasoning effort."),
    click.option("--max-turns", type=int, metavar="N", help="Model calls of the root in this turn."),
    click.option("--deadline", type=float, metavar="SECONDS", help="End the whole run after so long."),
    click.option("--max-tokens-total", type=int, metavar="N", help="End an agent that used so many tokens."),
    click.option(
        "--format",
        "output_format",
        type=click.Choice(["text", "json", "stream-json"]),
        default="text",
        help="What standard output gets.",
    ),
    click.option("--fail-on-child-error", is_flag=True, help="Exit 4 when any delegate did not complete."),
    click.option("--idempotency-key", "--input-id", "input_id", metavar="ID", help="The submission's own identity."),
    click.option(
        "--daemon", type=click.Choice(["auto", "never", "require"]), default="auto", help="Attach to a daemon or not."
    ),
    click.option("-C", "cwd", metavar="DIR", help="Where tools run."),
)


def _turn_options(command: Callable[..., int]) -> Callable[..., int]:
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@click.command("chat")
@click.option("-q", "--query", metavar="TEXT", help="The query; else --query-file, else standard input.")
@_turn_options
@click.pass_obj
def chat_command(start: Start, /, query: str | None, query_file: str | None, **flags: Any) -> int:
    """Run one turn: all delegates are joined, standard output gets the answer. On a terminal: hold a conversation."""
    return _run(start, query, query_file, flags)


@click.command("run")
@click.argument("prompt", required=False)
@_turn_options
@click.pass_obj
def run_command(start: Start, /, prompt: str | None, query_file: str | None, **flags: Any) -> int:
    """Run one turn with PROMPT as its query; - or nothing reads standard input."""
    flags["oneshot"] = True
    return _run(start, None if prompt == "-" else prompt, "-" if prompt == "-" else query_file, flags)


def _is_conversation(options: TurnOptions) -> bool:
    """Say whether a person sits at both ends and asked for no single turn."""
    single = options.oneshot or options.quiet or options.output_format != "text"
    return not single and streams.is_terminal(0) and streams.is_terminal(1)


def _run(start: Start, query: str | None, query_file: str | None, flags: dict[str, Any]) -> int:
    options = TurnOptions(**flags)
    if _is_conversation(options):
        from fanjoin.cli.conversation import converse  # late: only a person waits for its imports

        given = query is not None or query_file is not None
        return converse(start, read_query(query, query_file) if given else "", options)
    return run_turn(
        start,
        lambda: read_query(query, query_file, may_be_empty=bool(options.image)),
        options,
        lambda home, text, stack: chat_request(home, text, options, stack),
    )
