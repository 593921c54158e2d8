"""``fanjoin loadtest``: what agent traffic does to a model server, and what this machine does under it."""

import ipaddress
import os
from pathlib import Path
from urllib.parse import urlsplit

import click
import msgspec

from fanjoin.cli import streams
from fanjoin.cli.app import Start
from fanjoin.cli.exit_codes import COMPLETED, FAILED, NO_DELEGATE_COMPLETED
from fanjoin.cli.signals import InterruptedRunError
from fanjoin.cli.table import table
from fanjoin.client import load_scenario as read
from fanjoin.client.load_stats import FIGURES, PARTS, QUANTILES, Level, figures, missed
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
    if bool(endpoint) == synthetic:
        raise UserError("Give --endpoint URL or --synthetic, one of the two. Nothing was run.")
    if endpoint and (faults or token_rate or read.seconds(latency)):
        raise UserError("--latency, --token-rate and --fault belong to --synthetic. Nothing was run.")
    if endpoint and not model:
        raise UserError("--endpoint needs the name of its model: -m NAME. Nothing was run.")
    goals = read.parse_goals(slo, FIGURES)
    from fanjoin.cli.loadtest_run import Plan, run_levels

    plan = Plan(
        endpoint=endpoint or "",
        model=model,
        api_key_env=api_key_env,
        delegations=delegations,
        levels=read.parse_levels(concurrency),
        arrival=read.parse_arrival(arrival),
        scenario=read.parse_scenario(scenario),
        latency=read.seconds(latency),
        token_rate=token_rate,
        faults=read.parse_faults(faults),
        timeout=read.seconds(timeout),
        seed=seed,
    )
    for file in filter(None, (json_file, report)):
        _require_writable(file)
    if endpoint and not yes and not is_loopback(endpoint):
        _ask(endpoint, delegations * len(plan.levels))
    start.interrupts.listen()
    try:
        with start.interrupts.raising():
            seen = run_levels(plan, os.environ)
    except InterruptedRunError:
        streams.complain("interrupted; everything that ran was ended, and there are no figures")
        return start.interrupts.exit_code()
    levels = [figures(one) for one in seen]
    misses = [f"concurrency {level.concurrency}: {text}" for level in levels for text in missed(level, goals)]
    told = {"plan": msgspec.to_builtins(plan), "levels": msgspec.to_builtins(levels), "missed": misses}
    if json_file:
        json_file.write_bytes(msgspec.json.format(msgspec.json.encode(told)) + b"\n")
    if report:
        from fanjoin.cli.loadtest_report import page

        report.write_text(page(told["plan"], seen, levels, misses), encoding="utf-8", newline="\n")
    streams.write_line(text_of(levels, misses))
    return _code(levels, misses)


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


def _require_writable(path: Path) -> None:
    try:
        path.open("a", encoding="utf-8").close()
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror}. Nothing was run.") from error


def text_of(levels: list[Level], misses: list[str]) -> str:
    """Return what a person reads: the figures of each level, and what was missed."""
    parts = [_level_text(level) for level in levels]
    verdict = [f"missed: {text}" for text in misses]
    return "\n\n".join([*parts, *(["\n".join(verdict)] if verdict else [])])


def _level_text(level: Level) -> str:
    rates = (
        f"{level.delegations_per_second:.2f} delegations/s, {level.steps_per_second:.2f} steps/s, "
        f"{level.output_tokens_per_second:.0f} output tokens/s"
    )
    lines = [
        f"concurrency {level.concurrency}: {level.delegations} delegations in {level.seconds:.2f} s: {rates}",
        f"tokens: {level.input_tokens} in ({level.cached_tokens} cached), {level.output_tokens} out",
        f"outcomes: {_counts(level.statuses)}; failures: {_counts(level.failures) or 'none'}",
        f"requests: {level.requests}; errors: {_counts(level.request_errors) or 'none'}",
        _resources_text(level),
        table(("LATENCY", "COUNT", *QUANTILES), [_row(part, level.latency[part]) for part in PARTS]),
    ]
    if level.generator_limit:
        lines.append(f"The load test was itself the limit: {level.generator_limit}. Take the figures with care.")
    lines += [f"wrong at the end: {text}" for text in level.wrong]
    if not level.wrong:
        lines.append("check: one receipt for each delegation, no process left")
    return "\n".join(lines)


def _row(part: str, values: dict[str, float]) -> tuple[str, ...]:
    return (part, f"{values['count']:.0f}", *(shown(values.get(name)) for name in QUANTILES))


def shown(seconds: float | None) -> str:
    """Return a latency as a person reads it."""
    if seconds is None:
        return "-"
    return f"{seconds * 1000:.1f} ms" if seconds < 1 else f"{seconds:.2f} s"


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))


def _resources_text(level: Level) -> str:
    used = level.resources
    cpu = "unknown" if level.cpu_per_delegation is None else f"{level.cpu_per_delegation * 1000:.0f} ms"
    return (
        f"CPU per delegation: {cpu}; memory ({used.memory_kind}): {_megabytes(used.child_memory)} the largest child, "
        f"{_megabytes(used.peak_memory)} all at their peak"
    )


def _megabytes(size: int | None) -> str:
    return "unknown" if size is None else f"{size / 1e6:.1f} MB"
