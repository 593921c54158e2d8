"""Two kinds of plots as SVG text (pure): lines over two axes, and bars in rows over time."""

import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape

from msgspec import Struct

BLUE, GREEN, RED, GREY = "#1f77b4", "#2a8a4a", "#c0392b", "#c8c8c8"
_COLOURS = (BLUE, "#e67e22", GREEN, RED, "#8e44ad", "#16a0a0", "#555555")
_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOP, _LEGEND = 900, 300, 55, 24, 8, 90
_TICKS = 5
_ROW = 8
_LEAST = 1e-4


class Bar(Struct, frozen=True):
    """A bar from one time to another, in seconds."""

    begin: float
    end: float
    colour: str


def lines(
    series: Mapping[str, Sequence[tuple[float, float]]], colours: Sequence[str] = _COLOURS, *, decades: bool = False
) -> str:
    """Return a plot of named lines; axes begin at zero, the lower one in ``decades`` at 0.1 ms."""
    points = [point for line in series.values() for point in line]
    right, top = _most(x for x, _ in points), _most(y for _, y in points)
    across, up = _WIDTH - _LEFT - _LEGEND, _HEIGHT - _TOP - _BOTTOM
    scale = _Decades(right) if decades else _Even(right)
    parts = [_axis_x(scale, across, _HEIGHT - _BOTTOM), *_axis_y(top, up)]
    for index, (name, line) in enumerate(series.items()):
        colour = colours[index % len(colours)]
        places = " ".join(f"{_LEFT + across * scale.share(x):.1f},{_TOP + up * (1 - y / top):.1f}" for x, y in line)
        parts.append(f'<polyline fill="none" stroke="{colour}" stroke-width="1.5" points="{places}"/>')
        parts.append(_text(_WIDTH - _LEGEND + 8, _TOP + 12 + 16 * index, name, colour))
    return _svg(_HEIGHT, parts)


class _Even:
    """A scale from zero to the largest value."""

    def __init__(self, right: float) -> None:
        self._right = right
        self.marks = [right * tick / _TICKS for tick in range(_TICKS + 1)]

    def share(self, value: float) -> float:
        """Return where a value is, from 0 to 1."""
        return value / self._right


class _Decades:
    """A scale of powers of ten, from 0.1 ms to the first one that covers the largest value."""

    def __init__(self, right: float) -> None:
        self._decades = max(1, math.ceil(math.log10(right / _LEAST)))
        self.marks = [_LEAST * 10**power for power in range(self._decades + 1)]

    def share(self, value: float) -> float:
        """Return where a value is, from 0 to 1; what is below the least is at the left edge."""
        return math.log10(max(value, _LEAST) / _LEAST) / self._decades


def bars(rows: Sequence[Sequence[Bar]], names: Sequence[str]) -> str:
    """Return rows of bars over time; a row's name is shown when it is pointed at."""
    right = _most(bar.end for row in rows for bar in row)
    across, bottom = _WIDTH - _LEFT - 10, _TOP + _ROW * max(1, len(rows))
    parts = [_axis_x(_Even(right), across, bottom)]
    for index, (row, name) in enumerate(zip(rows, names, strict=True)):
        drawn = "".join(_rectangle(bar, index, across / right) for bar in row)
        parts.append(f"<g><title>{escape(name)}</title>{drawn}</g>")
    return _svg(bottom + _BOTTOM, parts)


def _rectangle(bar: Bar, row: int, scale: float) -> str:
    begin, end = max(0.0, bar.begin), max(0.0, bar.end)
    place = f'x="{_LEFT + begin * scale:.1f}" y="{_TOP + row * _ROW}"'
    size = f'width="{max(0.5, (end - begin) * scale):.1f}" height="{_ROW - 2}"'
    return f'<rect {place} {size} fill="{bar.colour}"/>'


def _axis_x(scale: _Even | _Decades, across: float, bottom: float) -> str:
    marks = [_text(_LEFT + across * scale.share(mark), bottom + 16, f"{mark:.3g}") for mark in scale.marks]
    return f'<path d="M{_LEFT} {bottom}h{across}" stroke="#888"/>{"".join(marks)}'


def _axis_y(top: float, up: float) -> list[str]:
    places = [(top * tick / _TICKS, _TOP + up * (1 - tick / _TICKS)) for tick in range(_TICKS + 1)]
    return [
        _text(4, y + 4, f"{value:.3g}") + f'<path d="M{_LEFT} {y:.1f}h{_WIDTH - _LEFT - _LEGEND}" stroke="#eee"/>'
        for value, y in places
    ]


def _text(x: float, y: float, text: str, colour: str = "#444") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour}">{escape(text)}</text>'


def _most(values: Iterable[float]) -> float:
    return max([*values, 0.0]) or 1.0


def _svg(height: float, parts: Sequence[str]) -> str:
    return f'<svg viewBox="0 0 {_WIDTH} {height:.0f}" role="img">{"".join(parts)}</svg>'
