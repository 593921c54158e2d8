"""The page of a load test (pure): one HTML file with its plots drawn in SVG, which asks for nothing from elsewhere."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from fanjoin.cli.loadtest_style import STYLE
from fanjoin.cli.loadtest_svg import Bar, columns, distribution, round_up, rows
from fanjoin.cli.loadtest_text import megabytes, shown
from fanjoin.client.load_stats import PARTS, QUANTILES, Call, Delegation, Level, Seen, latencies

_MEANING = {
    "queued": "due to process begun",
    "launch": "process begun to first request",
    "ttft": "request passed on to first byte of its reply",
    "between": "pause between two pieces of a reply",
    "receipt": "delegate's end to its receipt committed",
    "joining": "last receipt to join",
    "join": "whole fan-out, from due to joined",
}
_KINDS = {"queued": "queued", "run": "works", "call": "waits for the model", "bad": "did not complete"}
_ENDS = {"call": "completed", "bad": "did not complete"}
_MOST_ROWS = 200
_MOST_COLUMNS = 60
_POINTS = 200


def page(plan: Mapping[str, Any], seen: Sequence[Seen], levels: Sequence[Level], misses: Sequence[str]) -> str:
    """Return the whole page."""
    body = "".join(_level(one, level) for one, level in zip(seen, levels, strict=True))
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><title>fanjoin loadtest</title>'
        f"<style>{STYLE}</style></head><body><header><h1>fanjoin loadtest</h1>{_told(plan)}</header>"
        f"{_verdict(levels, misses)}{_overview(levels)}{body}</body></html>\n"
    )


def _told(plan: Mapping[str, Any]) -> str:
    """Return what was asked for, as terms and what they are."""
    arrival = f"Poisson, {plan['arrival']:g} fan-outs a second" if plan["arrival"] else "closed"
    told = {"endpoint": plan["endpoint"] or "synthetic provider", "model": plan["model"], "arrival": arrival}
    told |= {name.replace("_", " "): _value(value) for name, value in plan["scenario"].items()}
    items = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in told.items() if value
    )
    return f'<dl class="plan">{items}</dl>'


def _value(value: Any) -> str:
    if not isinstance(value, dict):
        return str(value)
    return f"{value['median']:g} s" + (f" (lognormal, sigma {value['sigma']:g})" if value["sigma"] else "")


def _verdict(levels: Sequence[Level], misses: Sequence[str]) -> str:
    """Return what has to be known before any figure: missed goals, broken promises, figures about the wrong thing."""
    bad = [f"missed: {text}" for text in misses]
    for level in levels:
        bad += [f"concurrency {level.concurrency}: {text}" for text in level.wrong]
        if level.generator_limit:
            bad.append(f"concurrency {level.concurrency}: the load test was itself the limit: {level.generator_limit}")
    items = "".join(f'<li class="bad">{escape(text)}</li>' for text in bad)
    good = (
        ""
        if any(level.wrong for level in levels)
        else '<li class="good">one receipt for each delegation, no process left</li>'
    )
    return f'<ul class="verdict">{items}{good}</ul>'


def _overview(levels: Sequence[Level]) -> str:
    """Return one row for each level."""
    names = ("concurrency", "delegations", "failed", "delegations/s", "steps/s", "tokens/s", "ttft p50", "ttft p99")
    head = _cells("th", (*names, "join p50", "join p99", "CPU each", "memory"))
    return _scrolled(f"<table><tr>{head}</tr>{''.join(map(_overview_row, levels))}</table>")


def _overview_row(level: Level) -> str:
    ttft, join = level.latency["ttft"], level.latency["join"]
    cpu = "unknown" if level.cpu_per_delegation is None else f"{level.cpu_per_delegation * 1000:.0f} ms"
    rates = (level.delegations_per_second, level.steps_per_second, level.output_tokens_per_second)
    values = (
        *(str(level.concurrency), str(level.delegations), f"{level.failed:.1%}", *(f"{rate:.2f}" for rate in rates)),
        *(shown(latency.get(name)) for latency in (ttft, join) for name in ("p50", "p99")),
        *(cpu, megabytes(level.resources.peak_memory)),
    )
    return f"<tr>{_cells('td', values)}</tr>"


def _level(seen: Seen, level: Level) -> str:
    by_part = {part: values for part, values in latencies(seen).items() if values}
    shares = {part: _shares(sorted(values)) for part, values in by_part.items()}
    series = {f"line-{part}": part for part in shares}
    return "".join(
        (
            f"<section><h2>Concurrency {level.concurrency}</h2>",
            f"<p>{escape(_sentence(level))}</p>",
            _table(level),
            _figure("Latency: how many took no longer", "lower axis in powers of ten", series, distribution(shares)),
            _figure("Delegates over time", _which(len(seen.delegations)), _KINDS, _gantt(seen)),
            _figure("Delegates that ended, per second", "", _ENDS, _throughput(seen)),
            "</section>",
        )
    )


def _sentence(level: Level) -> str:
    counts = {"Outcomes": level.statuses, "Failures": level.failures, "Requests that failed": level.request_errors}
    told = [
        f"{name}: {', '.join(f'{n} {what}' for what, n in found.items())}." for name, found in counts.items() if found
    ]
    return (
        f"{level.delegations} delegations with {level.requests} requests in {level.seconds:.2f} s; "
        f"{level.output_tokens} output tokens, {level.cached_tokens} of {level.input_tokens} input tokens cached. "
        + " ".join(told)
    )


def _table(level: Level) -> str:
    head = _cells("th", ("latency", "count", *QUANTILES))
    return _scrolled(f"<table><tr>{head}</tr>{''.join(_row(part, level.latency[part]) for part in PARTS)}</table>")


def _row(part: str, values: Mapping[str, float]) -> str:
    cells = _cells("td", (f"{values['count']:.0f}", *(shown(values.get(name)) for name in QUANTILES)))
    return f"<tr><td>{part} <small>{_MEANING[part]}</small></td>{cells}</tr>"


def _cells(tag: str, texts: Iterable[str]) -> str:
    return "".join(f"<{tag}>{escape(text)}</{tag}>" for text in texts)


def _scrolled(table: str) -> str:
    return f'<div class="wide">{table}</div>'


def _figure(title: str, note: str, legend: Mapping[str, str], drawing: str) -> str:
    keys = "".join(f'<li><i class="{kind}"></i>{escape(name)}</li>' for kind, name in legend.items())
    caption = f"<figcaption><b>{escape(title)}</b> {escape(note)}<ul>{keys}</ul></figcaption>"
    return f'<figure>{caption}<div class="wide">{drawing}</div></figure>'


def _shares(ordered: Sequence[float]) -> list[tuple[float, float]]:
    """Return (seconds, percent) of values in order, from zero percent on, at most about so many points of them."""
    step = max(1, len(ordered) // _POINTS)
    indexes = [*range(0, len(ordered), step), len(ordered) - 1]
    return [(ordered[0], 0.0), *((ordered[index], 100 * (index + 1) / len(ordered)) for index in indexes)]


def _which(total: int) -> str:
    return f"the first {_MOST_ROWS} of {total}" if total > _MOST_ROWS else f"all {total}"


def _gantt(seen: Seen) -> str:
    calls: dict[str, list[Call]] = {}
    for call in seen.calls:
        calls.setdefault(call.mark, []).append(call)
    ordered = sorted(seen.delegations, key=lambda one: one.due)[:_MOST_ROWS]
    lines = [_bars_of(one, calls.get(one.mark, []), seen.began) for one in ordered]
    return rows(lines, [f"{one.mark} {one.status} {one.reason}".rstrip() for one in ordered])


def _bars_of(one: Delegation, calls: Sequence[Call], began: float) -> list[Bar]:
    end = one.committed or one.launched
    bars = [Bar(one.due - began, (one.launched or end) - began, "queued")]
    if one.launched:
        bars.append(Bar(one.launched - began, end - began, "run" if one.status == "completed" else "bad"))
    asked = [(call.sent, call.ended or end) for call in calls if call.sent and one.status == "completed"]
    return bars + [Bar(begin - began, until - began, "call") for begin, until in asked]


def _throughput(seen: Seen) -> str:
    took = max(seen.ended - seen.began, 1e-3)
    width = round_up(took / _MOST_COLUMNS)
    counts = [Counter[str]() for _ in range(int(took / width) + 1)]
    for one in seen.delegations:
        if one.committed:
            index = int((one.committed - seen.began) / width)
            counts[min(len(counts) - 1, max(0, index))]["call" if one.status == "completed" else "bad"] += 1
    return columns([{kind: found[kind] / width for kind in _ENDS} for found in counts], width)
