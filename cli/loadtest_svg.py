"""Plots as SVG text (pure): lines over two axes, bars over time, rows of bars over time.

Colours are classes of the page (``line-`` and a line's name, what a bar is called), which has them for light and dark.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape

from msgspec import Struct

_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 900, 300, 60, 30, 12, 28
_ACROSS, _UP = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM
_TICKS = 8
_LEAST = 1e-4
_ROWS_HEIGHT, _LOWEST_ROW, _HIGHEST_ROW = 480, 3.0, 10.0

Shown = Callable[[float], str]


class Bar(Struct, frozen=True):
    """A bar from one time to another, in seconds; ``kind`` is its class."""

    begin: float
    end: float
    kind: str


def seconds(value: float) -> str:
    """Return a time as an axis shows it."""
    return f"{value * 1000:.3g} ms" if 0 < value < 1 else f"{value:.4g} s"


def percent(value: float) -> str:
    """Return a share as an axis shows it."""
    return f"{value:.3g} %"


def plain(value: float) -> str:
    """Return a number as an axis shows it."""
    return f"{value:.4g}"


def round_up(value: float) -> float:
    """Return the next number that is 1, 2 or 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(value))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= value * (1 - 1e-9))


def ticks(most: float) -> list[float]:
    """Return round numbers from zero on, the last of which is not below ``most``."""
    step = round_up(most / _TICKS)
    return [step * index for index in range(math.ceil(most / step - 1e-9) + 1)]


class _Even:
    """A scale from zero to a round number above the largest value."""

    def __init__(self, most: float) -> None:
        self.marks = ticks(most)

    def share(self, value: float) -> float:
        """Return where a value is, from 0 to 1."""
        return value / self.marks[-1]


class _Decades:
    """A scale of powers of ten, from 0.1 ms to the first one that covers the largest value."""

    def __init__(self, most: float) -> None:
        self._decades = max(1, math.ceil(math.log10(most / _LEAST)))
        self.marks = [_LEAST * 10**power for power in range(self._decades + 1)]

    def share(self, value: float) -> float:
        """Return where a value is, from 0 to 1; what is below the least is at the left edge."""
        return math.log10(max(value, _LEAST) / _LEAST) / self._decades


def distribution(series: Mapping[str, Sequence[tuple[float, float]]]) -> str:
    """Return named lines of (seconds, percent), the seconds in powers of ten."""
    across = _Decades(_most(x for line in series.values() for x, _ in line))
    up = _Even(100.0)
    parts = [*_grid_up(up, percent), *_axis_across(across, seconds, _HEIGHT - _BOTTOM)]
    for name, line in series.items():
        places = " ".join(
            f"{_LEFT + _ACROSS * across.share(x):.1f},{_TOP + _UP * (1 - up.share(y)):.1f}" for x, y in line
        )
        shape = f'<polyline class="line-{name}" points="{places}"/>'
        parts.append(f"<g><title>{escape(name)}</title>{shape}</g>")
    return _svg(_HEIGHT, parts)


def columns(stacks: Sequence[Mapping[str, float]], width: float) -> str:
    """Return columns over time, each a stack of named heights; ``width`` is how many seconds a column takes."""
    across, up = _Even(max(len(stacks) * width, width)), _Even(_most(sum(stack.values()) for stack in stacks))
    parts = [*_grid_up(up, plain), *_axis_across(across, seconds, _HEIGHT - _BOTTOM)]
    wide = _ACROSS * across.share(width)
    for index, stack in enumerate(stacks):
        below = 0.0
        for kind, height in stack.items():
            below += height
            tall = _UP * up.share(height)
            y = _TOP + _UP * (1 - up.share(below))
            parts.extend([_rectangle(_LEFT + index * wide, y, wide - 0.5, tall, kind)] if height else [])
    return _svg(_HEIGHT, parts)


def rows(lines: Sequence[Sequence[Bar]], names: Sequence[str]) -> str:
    """Return rows of bars over time; a row's name is shown when it is pointed at."""
    across = _Even(_most(bar.end for line in lines for bar in line))
    row = min(_HIGHEST_ROW, max(_LOWEST_ROW, _ROWS_HEIGHT / max(1, len(lines))))
    bottom = _TOP + row * max(1, len(lines))
    parts = _axis_across(across, seconds, bottom, top=_TOP)
    for index, (line, name) in enumerate(zip(lines, names, strict=True)):
        drawn = "".join(_bar(bar, across, _TOP + index * row, row * 0.8) for bar in line)
        parts.append(f"<g><title>{escape(name)}</title>{drawn}</g>")
    return _svg(bottom + _BOTTOM, parts)


def _bar(bar: Bar, across: _Even, y: float, height: float) -> str:
    begin, end = (_ACROSS * across.share(max(0.0, value)) for value in (bar.begin, bar.end))
    return _rectangle(_LEFT + begin, y, max(0.5, end - begin), height, bar.kind)


def _rectangle(x: float, y: float, width: float, height: float, kind: str) -> str:
    return f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" width="{max(0.5, width):.1f}" height="{height:.1f}"/>'


def _axis_across(scale: _Even | _Decades, shown: Shown, bottom: float, top: float = 0.0) -> list[str]:
    """Return the lower axis; with ``top`` also a line up from each mark."""
    parts = [f'<path class="axis" d="M{_LEFT} {bottom:.1f}h{_ACROSS}"/>']
    for mark in scale.marks:
        x = _LEFT + _ACROSS * scale.share(mark)
        parts.append(_text(x, bottom + 18, shown(mark), "middle"))
        parts.extend([f'<path class="grid" d="M{x:.1f} {top:.1f}V{bottom:.1f}"/>'] if top else [])
    return parts


def _grid_up(scale: _Even, shown: Shown) -> list[str]:
    places = [(mark, _TOP + _UP * (1 - scale.share(mark))) for mark in scale.marks]
    lines = [f'<path class="grid" d="M{_LEFT} {y:.1f}h{_ACROSS}"/>' for _, y in places]
    return [*lines, *(_text(_LEFT - 8, y + 4, shown(mark), "end") for mark, y in places)]


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _most(values: Iterable[float]) -> float:
    return max([*values, 0.0]) or 1.0


def _svg(height: float, parts: Sequence[str]) -> str:
    return f'<svg viewBox="0 0 {_WIDTH} {height:.0f}" role="img">{"".join(parts)}</svg>'
