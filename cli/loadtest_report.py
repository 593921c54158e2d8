"""The page of a load test (pure): one HTML file with its plots drawn in SVG, which asks for nothing from elsewhere."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from fanjoin.cli.loadtest_svg import BLUE, GREEN, GREY, RED, Bar, bars, lines
from fanjoin.client.load_stats import PARTS, QUANTILES, Delegation, Level, Seen, latencies

_STYLE = """
body{font:15px/1.5 system-ui,sans-serif;max-width:1000px;margin:2em auto;padding:0 1em;color:#222;background:#fff}
table{border-collapse:collapse;margin:1em 0}th,td{padding:.2em .8em;text-align:right;border-bottom:1px solid #ddd}
th:first-child,td:first-child{text-align:left}svg{width:100%;height:auto}svg text{font:11px system-ui,sans-serif}
.bad{color:#b3261e;font-weight:600}.good{color:#1b6e37}figure{margin:1.5em 0}figcaption{color:#555}
"""
_MEANING = {
    "queued": "due to process begun",
    "launch": "process begun to first request",
    "ttft": "request passed on to first byte of its reply",
    "between": "pause between two pieces of a reply",
    "receipt": "delegate's end to its receipt",
    "joining": "last receipt to join",
    "join": "whole fan-out, from due to joined",
}
_MOST_ROWS = 200
_BINS = 60
_POINTS = 200


def page(plan: Mapping[str, Any], seen: Sequence[Seen], levels: Sequence[Level], misses: Sequence[str]) -> str:
    """Return the whole page."""
    verdict = "".join(f'<p class="bad">missed: {escape(text)}</p>' for text in misses)
    body = "".join(_level(one, level) for one, level in zip(seen, levels, strict=True))
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>fanjoin loadtest</title>'
        f"<style>{_STYLE}</style></head><body><h1>fanjoin loadtest</h1>"
        f"<p>{escape(_told(plan))}</p>{verdict}{body}</body></html>\n"
    )


def _told(plan: Mapping[str, Any]) -> str:
    arrival = f"poisson, {plan['arrival']:g} fan-outs a second" if plan["arrival"] else "closed"
    scenario = ", ".join(f"{name} {_value(value)}" for name, value in plan["scenario"].items())
    return f"{plan['endpoint'] or 'synthetic provider'} {plan['model']}; arrival {arrival}; {scenario}"


def _value(value: Any) -> str:
    return f"{value['median']:g} s (sigma {value['sigma']:g})" if isinstance(value, dict) else str(value)


def _level(seen: Seen, level: Level) -> str:
    checked = '<p class="good">One receipt for each delegation, no process left.</p>'
    wrong = "".join(f'<p class="bad">{escape(text)}</p>' for text in level.wrong) or checked
    limit = f'<p class="bad">The load test was itself the limit: {escape(level.generator_limit)}.</p>'
    return "".join(
        (
            f"<section><h2>Concurrency {level.concurrency}</h2>",
            f"<p>{escape(_sentence(level))}</p>",
            limit if level.generator_limit else "",
            wrong,
            _table(level),
            _figure(
                "Latency: the share of all (%) that took no longer than so many seconds (a power of ten at each mark)",
                _distribution(seen),
            ),
            _figure(_gantt_caption(len(seen.delegations)), _gantt(seen)),
            _figure("Delegates that ended, per second, over time in seconds", _throughput(seen)),
            "</section>",
        )
    )


def _sentence(level: Level) -> str:
    outcomes = ", ".join(f"{count} {name}" for name, count in level.statuses.items())
    rates = (
        f"{level.delegations_per_second:.2f} a second; {level.steps_per_second:.2f} steps and "
        f"{level.output_tokens_per_second:.0f} output tokens a second; "
        f"{level.cached_tokens} of {level.input_tokens} input tokens cached"
    )
    return f"{level.delegations} delegations in {level.seconds:.2f} s: {rates}. Outcomes: {outcomes}."


def _table(level: Level) -> str:
    head = "".join(f"<th>{name}</th>" for name in ("latency", "count", *QUANTILES))
    return f"<table><tr>{head}</tr>{''.join(_row(part, level.latency[part]) for part in PARTS)}</table>"


def _row(part: str, values: Mapping[str, float]) -> str:
    cells = "".join(f"<td>{values[name]:.4f} s</td>" if name in values else "<td>-</td>" for name in QUANTILES)
    return f"<tr><td>{part} <small>{_MEANING[part]}</small></td><td>{values['count']:.0f}</td>{cells}</tr>"


def _figure(caption: str, drawing: str) -> str:
    return f"<figure>{drawing}<figcaption>{escape(caption)}</figcaption></figure>"


def _distribution(seen: Seen) -> str:
    return lines({part: _shares(sorted(values)) for part, values in latencies(seen).items() if values}, decades=True)


def _shares(ordered: Sequence[float]) -> list[tuple[float, float]]:
    """Return (seconds, percent) of values in order, at most so many points of them."""
    step = max(1, len(ordered) // _POINTS)
    indexes = [*range(0, len(ordered), step), len(ordered) - 1]
    return [(ordered[index], 100 * (index + 1) / len(ordered)) for index in indexes]


def _gantt_caption(total: int) -> str:
    some = f"the first {_MOST_ROWS} of {total} delegates" if total > _MOST_ROWS else "all delegates"
    return f"Gantt of {some}, over time in seconds: grey queued, blue completed, red ended otherwise"


def _gantt(seen: Seen) -> str:
    ordered = sorted(seen.delegations, key=lambda one: one.due)[:_MOST_ROWS]
    return bars([_bars_of(one, seen.began) for one in ordered], [f"{one.mark} {one.status}" for one in ordered])


def _bars_of(one: Delegation, began: float) -> list[Bar]:
    end = one.written or one.launched
    colour = BLUE if one.status == "completed" else RED
    queued = Bar(one.due - began, (one.launched or end) - began, GREY)
    return [queued, Bar(one.launched - began, end - began, colour)] if one.launched else [queued]


def _throughput(seen: Seen) -> str:
    width = max(seen.ended - seen.began, 1e-9) / _BINS
    counts = [0] * _BINS
    for one in seen.delegations:
        if one.written:
            counts[min(_BINS - 1, max(0, int((one.written - seen.began) / width)))] += 1
    return lines({"ended": [((index + 0.5) * width, count / width) for index, count in enumerate(counts)]}, [GREEN])
