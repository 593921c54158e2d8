"""``fanjoin loadtest``: what agent traffic does to a model server, and what this machine does under it."""

import ipaddress
import math
import os
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

import click
import msgspec
from msgspec import Struct

from fanjoin.cli import streams
from fanjoin.cli.app import Start
from fanjoin.cli.exit_codes import COMPLETED, FAILED, NO_DELEGATE_COMPLETED
from fanjoin.cli.loadtest_text import level_text
from fanjoin.cli.signals import InterruptedRunError, Interrupts
from fanjoin.cli.standard_output import StandardOutput
from fanjoin.client import load_scenario as read
from fanjoin.client.load_scenario import Plan
from fanjoin.client.load_stats import FIGURES, Level, Seen, figures, missed
from fanjoin.ipc.config_kinds import UnexpectedValueError, expectation, url
from fanjoin.ipc.errors import UserError


@click.command("loadtest")
@click.option("--endpoint", metavar="URL", help="The endpoint to test, such as http://127.0.0.1:8080/v1.")
@click.option("--synthetic", is_flag=True, help="Test against the synthetic provider instead; it costs nothing.")
@click.option("-m", "--model", default="", metavar="NAME", help="The endpoint's model.")
@click.option("--api-key-env", metavar="NAME", help="The variable that holds the endpoint's key.")
@click.option("--yes", is_flag=True, help="Do not ask before an endpoint that is not on this machine.")
@click.option("--delegations", default=64, show_default=True, type=click.IntRange(1, 100_000), help="At each level.")
@click.option("--concurrency", default="8", show_default=True, metavar="N,N,...", help="Levels: delegates at once.")
@click.option("--arrival", default="closed", show_default=True, help="closed, or poisson:RATE in fan-outs a second.")
@click.option(
    "--scenario", default="", metavar="NAME=VALUE,...", help="fanout, steps, shared_prefix, tool_delay, output."
)
@click.option("--latency", default="0", metavar="DURATION", help="With --synthetic: before the first byte.")
@click.option("--token-rate", default=0.0, type=click.FloatRange(0), help="With --synthetic: words a second.")
@click.option(
    "--fault", "faults", default="", metavar="KIND=SHARE,...", help="With --synthetic: crash, hang, http500, drop."
)
@click.option("--timeout", default="120s", show_default=True, metavar="DURATION", help="Of one delegate.")
@click.option("--seed", default=1, show_default=True, type=int, help="Of arrivals, delays and faults.")
@click.option("--slo", default="", metavar="FIGURE=LIMIT,...", help="Exit 1 when missed: ttft_p99=500ms,failed=1%.")
@click.option("--json", "json_file", type=click.Path(path_type=Path, dir_okay=False), help="Write all figures there.")
@click.option("--report", type=click.Path(path_type=Path, dir_okay=False), help="Write a page with plots there.")
@click.pass_obj
def loadtest_command(  # noqa: PLR0913 - its flags
    start: Start,
    /,
    *,
    endpoint: str | None,
    synthetic: bool,
    model: str,
    api_key_env: str | None,
    yes: bool,
    delegations: int,
    concurrency: str,
    arrival: str,
    scenario: str,
    latency: str,
    token_rate: float,
    faults: str,
    timeout: str,
    seed: int,
    slo: str,
    json_file: Path | None,
    report: Path | None,
) -> int:
    """Drive fan-outs of real delegates against an endpoint and measure every part of their way.

    Exit code: 0 done, 1 a goal of --slo was missed or the check at the end found something, 2 usage, 4 no delegate
    completed, 130 and 143 after SIGINT and SIGTERM.
    """
    for_synthetic = bool(faults or token_rate or read.seconds(latency))
    endpoint = _checked_endpoint(endpoint or "", model, synthetic=synthetic, for_synthetic=for_synthetic)
    goals = read.parse_goals(slo, FIGURES)
    plan = Plan(
        endpoint=endpoint,
        model=model,
        api_key_env=api_key_env,
        delegations=delegations,
        levels=read.parse_levels(concurrency),
        arrival=read.parse_arrival(arrival),
        scenario=read.parse_scenario(scenario),
        latency=read.seconds(latency),
        token_rate=_finite(token_rate),
        faults=read.parse_faults(faults),
        timeout=read.seconds(timeout),
        seed=seed,
    )
    for file in filter(None, (json_file, report)):
        _require_writable(file)
    if endpoint and not yes and not is_loopback(endpoint):
        _ask(endpoint, delegations * len(plan.levels))
    return _carry_out(start.interrupts, plan, goals, Files(json_file, report))


class Files(Struct, frozen=True):
    """Where figures go besides standard output."""

    figures: Path | None
    report: Path | None

    def write(self, plan: Plan, seen: list[Seen], levels: list[Level], misses: list[str]) -> bool:
        """Write them, and say whether that could be done."""
        told = {"plan": msgspec.to_builtins(plan), "levels": msgspec.to_builtins(levels), "missed": misses}
        done = [True]
        if self.figures:
            done.append(_written(self.figures, msgspec.json.format(msgspec.json.encode(told)) + b"\n"))
        if self.report:
            from fanjoin.cli.loadtest_report import page

            done.append(_written(self.report, page(told["plan"], seen, levels, misses).encode()))
        return all(done)


def _carry_out(interrupts: Interrupts, plan: Plan, goals: Sequence[read.Goal], files: Files) -> int:
    """Run every level, tell its figures when it ends, and return the exit code."""
    from fanjoin.cli.loadtest_run import run_levels

    stdout = StandardOutput(lambda: interrupts.first is not None)
    seen: list[Seen] = []
    levels: list[Level] = []

    def ended(one: Seen) -> None:
        seen.append(one)
        levels.append(figures(one))
        stdout.write(level_text(levels[-1]) + "\n")

    interrupts.listen()
    try:
        with interrupts.raising():
            run_levels(plan, os.environ, ended)
    except InterruptedRunError:
        streams.complain("interrupted; everything that ran was ended, and there are no figures of it")
        return interrupts.exit_code()
    misses = [f"concurrency {level.concurrency}: {text}" for level in levels for text in missed(level, goals)]
    for text in misses:
        stdout.write(f"missed: {text}")
    written = files.write(plan, seen, levels, misses)
    return _code(levels, misses) if written and not stdout.problem else FAILED


def _code(levels: list[Level], misses: list[str]) -> int:
    if misses or any(level.wrong for level in levels):
        return FAILED
    return COMPLETED if any("completed" in level.statuses for level in levels) else NO_DELEGATE_COMPLETED


def is_loopback(url: str) -> bool:
    """Say whether an endpoint is on this machine, as far as its URL shows."""
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _ask(endpoint: str, delegations: int) -> None:
    """Ask before traffic leaves this machine."""
    what = f"{delegations} delegations will ask {urlsplit(endpoint).hostname}, which may cost money and disturb others."
    if not streams.is_terminal(0):
        raise UserError(f"{what} Nothing was run. Say --yes if that is meant.")
    click.confirm(f"{what} Go on?", abort=True, err=True)


def _checked_endpoint(endpoint: str, model: str, *, synthetic: bool, for_synthetic: bool) -> str:
    """Return the endpoint's URL in its plain form, empty for the synthetic provider."""
    if bool(endpoint) == synthetic:
        raise UserError("Give --endpoint URL or --synthetic, one of the two. Nothing was run.")
    if synthetic:
        return ""
    if for_synthetic:
        raise UserError("--latency, --token-rate and --fault belong to --synthetic. Nothing was run.")
    if not model:
        raise UserError("--endpoint needs the name of its model: -m NAME. Nothing was run.")
    try:
        return url(endpoint)
    except UnexpectedValueError as error:
        raise UserError(f"--endpoint: {expectation(error, endpoint)}. Nothing was run.") from error


def _finite(token_rate: float) -> float:
    if not math.isfinite(token_rate):
        raise UserError(f"--token-rate {token_rate}: this must be a number of words a second. Nothing was run.")
    return token_rate


def _written(path: Path, data: bytes) -> bool:
    """Write a file, or say why that cannot be: the figures on standard output are true all the same."""
    try:
        path.write_bytes(data)
    except OSError as error:
        streams.complain(f"{path} could not be written: {error.strerror}.")
        return False
    return True


def _require_writable(path: Path) -> None:
    try:
        path.open("a", encoding="utf-8").close()
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror}. Nothing was run.") from error
