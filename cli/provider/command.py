"""``fanjoin provider``: an OpenAI-compatible server on this machine, without a key and without a network."""

import os
from pathlib import Path

import click

from fanjoin.cli.provider.faults import KINDS, parse_fault


def _faults(_context: click.Context, _option: click.Parameter, values: tuple[str, ...]) -> list[tuple[str, float]]:
    try:
        return [parse_fault(value) for value in values]
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


@click.command("provider", context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", default=0, type=click.IntRange(0, 65535), help="Port; 0 = the system gives a free one.")
@click.option("--model", default="synthetic", show_default=True, help="The name under which it is listed.")
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
def provider_command(  # noqa: PLR0913 - one parameter a flag
    *,
    host: str,
    port: int,
    model: str,
    plan: Path | None,
    latency: float,
    token_rate: float,
    faults: list[tuple[str, float]],
    seed: int | None,
    require_key_env: str | None,
    log: Path | None,
    lifeline: bool,
) -> None:
    """Serve the synthetic provider: scripted plans, true figures of the text it is given, faults on demand.

    The first line on standard output is JSON and holds its URL. It follows plans and counts; it is no language model.
    """
    from fanjoin.cli.provider.faults import Dice
    from fanjoin.cli.provider.journal import Journal
    from fanjoin.cli.provider.plan import read_script
    from fanjoin.cli.provider.process import serve
    from fanjoin.cli.provider.service import ChatService
    from fanjoin.cli.provider.synthetic import SyntheticWriter
    from fanjoin.cli.provider.writer import Options

    key = os.environ.get(require_key_env, "") if require_key_env else ""
    if require_key_env and not key:
        raise click.UsageError(f"--require-key-env names {require_key_env}, which is empty or not set.")
    try:
        script = read_script(plan) if plan else ()
    except (OSError, ValueError) as error:
        raise click.UsageError(f"The plan {plan} cannot be read: {error}") from error
    options = Options(model=model, latency=latency, token_rate=token_rate, key=key)
    service = ChatService(SyntheticWriter(script), options, Journal(log), Dice(faults, seed))
    try:
        serve(service, host, port, lifeline=lifeline)
    except OSError as error:
        raise click.ClickException(f"{host}:{port} cannot be listened on: {error.strerror or error}.") from error
