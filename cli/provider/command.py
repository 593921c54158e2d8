"""``fanjoin provider``: a model server on this machine, over each wire format, without a key and without a network."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fanjoin.cli.provider.faults import KINDS, parse_fault

if TYPE_CHECKING:
    from fanjoin.cli.provider.writer import Writer


def _faults(_context: click.Context, _option: click.Parameter, values: tuple[str, ...]) -> list[tuple[str, float]]:
    try:
        return [parse_fault(value) for value in values]
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


@click.command("provider", context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", default=0, type=click.IntRange(0, 65535), help="Port; 0 = the system gives a free one.")
@click.option(
    "--model", default="", help="The name under which it is listed; default: synthetic, or the weights' name."
)
@click.option("--plan", type=click.Path(path_type=Path, exists=True, dir_okay=False), help="Rules, JSON or YAML.")
@click.option("--latency", default=0.0, type=click.FloatRange(0), help="Seconds before the first byte.")
@click.option("--token-rate", default=0.0, type=click.FloatRange(0), help="Words a second; 0 = all at once.")
@click.option(
    "--fault",
    "faults",
    multiple=True,
    metavar="KIND=RATE",
    callback=_faults,
    help=f"A fault at random, as in http500=0.1 (repeatable). Kinds: {', '.join(KINDS)}.",
)
@click.option("--seed", type=int, help="Makes the faults repeatable.")
@click.option("--require-key-env", metavar="NAME", help="Accept only the key that this variable holds.")
@click.option("--log", type=click.Path(path_type=Path, dir_okay=False), help="Append a line of JSON per request.")
@click.option("--lifeline", is_flag=True, help="End when standard input ends.")
@click.option("--local", is_flag=True, help="Serve the small real model instead; it needs xllamacpp and its weights.")
@click.option("--model-file", metavar="GGUF", help="With --local: other weights than the installed ones.")
@click.option(
    "--slots", default=4, show_default=True, type=click.IntRange(1, 64), help="With --local: replies at once."
)
@click.option(
    "--max-tokens", default=256, show_default=True, type=click.IntRange(1), help="With --local: of a reply, at most."
)
def provider_command(**flags: Any) -> None:
    """Serve the synthetic provider: scripted plans, true figures of the text it is given, faults on demand.

    It answers the chat-completions API, the Messages API and the Responses API. The first line on standard output is
    JSON and holds its URL. It follows plans and counts; it is no language model.
    """
    from fanjoin.cli.provider.faults import Dice
    from fanjoin.cli.provider.journal import Journal
    from fanjoin.cli.provider.process import serve
    from fanjoin.cli.provider.service import ChatService
    from fanjoin.cli.provider.writer import Options

    model, writer = _local_writer(**flags) if flags["local"] else _synthetic_writer(**flags)
    key = _required_key(flags["require_key_env"])
    options = Options(model=model, latency=flags["latency"], token_rate=flags["token_rate"], key=key)
    try:
        journal = Journal(flags["log"])
    except OSError as error:
        raise click.UsageError(f"The log {flags['log']} cannot be written: {error.strerror}.") from error
    service = ChatService(writer, options, journal, Dice(flags["faults"], flags["seed"]))
    host, port = flags["host"], flags["port"]
    try:
        serve(service, host, port, lifeline=flags["lifeline"])
    except OSError as error:
        raise click.ClickException(f"{host}:{port} cannot be listened on: {error.strerror or error}.") from error
    if flags["local"]:
        # Threads of the model may still be at work in C++, and an interpreter that ends under them aborts.
        os._exit(0)


def _required_key(variable: str | None) -> str:
    key = os.environ.get(variable, "") if variable else ""
    if variable and not key:
        raise click.UsageError(f"--require-key-env names {variable}, which is empty or not set.")
    return key


def _synthetic_writer(*, model: str, plan: Path | None, **_: Any) -> tuple[str, "Writer"]:
    """Return the synthetic writer and its name."""
    from fanjoin.cli.provider.plan import read_script
    from fanjoin.cli.provider.synthetic import SyntheticWriter

    try:
        return model or "synthetic", SyntheticWriter(read_script(plan) if plan else ())
    except (OSError, ValueError) as error:
        raise click.UsageError(f"The plan {plan} cannot be read: {error}") from error


def _local_writer(*, model: str, model_file: str | None, slots: int, max_tokens: int, **_: Any) -> tuple[str, "Writer"]:
    """Return the writer that asks the local model, and its name."""
    from fanjoin.cli.provider.local import LocalWriter, Model, find_weights
    from fanjoin.ipc.errors import UserError

    try:
        weights = find_weights(model_file)
        return model or weights.stem, LocalWriter(Model(weights, slots), max_tokens)
    except UserError as error:
        raise _NotInstalled(str(error)) from error


class _NotInstalled(click.ClickException):
    """The local model is not there."""

    exit_code = 3
