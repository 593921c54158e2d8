"""The figures of a load test as a person reads them (pure)."""

from fanjoin.cli.table import table
from fanjoin.client.load_stats import PARTS, QUANTILES, Level


def level_text(level: Level) -> str:
    """Return the figures of a level as a person reads them."""
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
        f"CPU per delegation: {cpu}; memory ({used.memory_kind}): {megabytes(used.child_memory)} the largest child, "
        f"{megabytes(used.peak_memory)} all at their peak"
    )


def megabytes(size: int | None) -> str:
    """Return an amount of memory as a person reads it."""
    return "unknown" if size is None else f"{size / 1e6:.1f} MB"
