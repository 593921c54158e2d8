"""The page of a load test: what is in it, and that it needs nothing else."""

import re
from xml.etree.ElementTree import Element, fromstring

import pytest
from hypothesis import given
from hypothesis import strategies as st
from load_support import seen_level, written_page

from fanjoin.cli.loadtest_report import page
from fanjoin.cli.loadtest_style import STYLE
from fanjoin.cli.loadtest_svg import Bar, columns, distribution, rows, seconds, ticks
from fanjoin.client.load_stats import Delegation, figures


def parsed(text: str) -> Element:
    """Return a text of ours as XML."""
    return fromstring(text)  # noqa: S314 - we wrote it ourselves


def drawings(text: str) -> list[Element]:
    """Return the plots, parsed."""
    return [parsed(one) for one in re.findall(r"<svg.*?</svg>", text, re.DOTALL)]


def test_the_page_is_well_formed_and_has_its_plots() -> None:
    """The page parses as XML, so no text breaks out of its place, and it has the three plots of its level."""
    text = written_page()
    root = parsed(re.sub(r"<!DOCTYPE html>\n|<meta [^>]*>", "", text))
    assert len(root.findall(".//figure//svg")) == 3
    assert "<1&amp;0>" not in text
    assert "&lt;1&amp;0&gt; completed" in text
    assert "http://x/?a=&lt;b&gt;" in text


def test_every_class_has_a_style_and_every_colour_a_dark_one() -> None:
    """Nothing is drawn in black because its rule is missing, and no colour is forgotten for dark screens."""
    classes = {name for names in re.findall(r'class="([^"]*)"', written_page()) for name in names.split()}
    assert classes - set(re.findall(r"\.([a-z][a-z0-9-]*)", STYLE)) == set()
    light, dark = (set(re.findall(r"--([a-z0-9-]+):", part)) for part in STYLE.split("@media screen")[:2])
    assert set(re.findall(r"var\(--([a-z0-9-]+)\)", STYLE)) == light == dark


def test_the_page_asks_for_nothing_from_elsewhere() -> None:
    """No script, link, image or style of another place is in the page."""
    text = written_page()
    assert not re.search(r"<(script|link|img|iframe|object)|\b(src|href)=|url\(|@import", text)


def test_the_gantt_has_a_row_for_each_delegate() -> None:
    """Each delegate has a bar of its waiting, one of its run, whose class tells how it ended, and its requests."""
    _, gantt, _ = drawings(written_page())
    found = [[bar.get("class") for bar in row.findall("rect")] for row in gantt.findall("g")]
    assert found == [["queued", "run", "call", "call"], ["queued", "run", "call"], ["queued", "bad"]]


def test_the_distribution_has_a_line_for_each_latency() -> None:
    """Every latency that was measured is drawn, and the last point of each line is at the top."""
    latency, _, _ = drawings(written_page())
    found = latency.findall("g/polyline")
    assert len(found) == 7
    assert {line.get("points", "").split()[-1].split(",")[1] for line in found} == {"12.0"}


def test_missed_goals_stand_on_the_page() -> None:
    """What was missed is the first thing that is read."""
    assert "missed: ttft &lt; 1" in written_page("ttft < 1")


def test_plots_of_nothing_are_plots() -> None:
    """A level in which nothing was measured has empty axes and no division by zero."""
    for text in (
        distribution({}),
        distribution({"a": [(0.0, 0.0)]}),
        columns([], 1.0),
        columns([{"call": 0.0}], 1.0),
        rows([], []),
        rows([[Bar(0.0, 0.0, "run")]], ["x"]),
    ):
        assert parsed(text).tag == "svg"


def test_columns_stand_on_one_another() -> None:
    """A stack is as high as its sum, and nothing is drawn of a height of zero."""
    drawn = parsed(columns([{"call": 3.0, "bad": 1.0}, {"call": 0.0, "bad": 0.0}], 2.0)).findall("rect")
    assert [one.get("class") for one in drawn] == ["call", "bad"]
    tops, heights = ([float(one.get(name, "")) for one in drawn] for name in ("y", "height"))
    assert heights[0] == pytest.approx(3 * heights[1], abs=0.1)
    assert tops[0] == pytest.approx(tops[1] + heights[1], abs=0.1)


@given(st.floats(1e-6, 1e9))
def test_ticks_are_few_and_round(most: float) -> None:
    """They begin at zero, cover everything, are few, and their step is 1, 2 or 5 of some decade."""
    found = ticks(most)
    assert found[0] == 0
    assert found[-1] >= most * (1 - 1e-9)
    assert 2 <= len(found) <= 10
    assert f"{found[1]:e}"[0] in "125"


def test_times_are_shown_with_their_unit() -> None:
    """Below a second in milliseconds."""
    assert [seconds(value) for value in (0.0, 0.0001, 0.25, 1.0, 90.0)] == ["0 s", "0.1 ms", "250 ms", "1 s", "90 s"]


def test_a_delegate_that_never_started_has_one_bar() -> None:
    """A delegate without a process has only waited."""
    seen = seen_level()
    seen.delegations = [Delegation(mark="1-0", join=1, due=100.0, committed=102.0, status="cancelled", reason="budget")]
    plan = {"endpoint": "", "model": "", "arrival": 0.0, "scenario": {}}
    gantt = drawings(page(plan, [seen], [figures(seen)], []))[1]
    assert len(gantt.findall("g/rect")) == 1


def test_a_scale_of_decades_spreads_small_latencies() -> None:
    """Each power of ten takes the same room, and what is too small to show is at the left edge."""
    drawn = parsed(distribution({"a": [(0.0, 0.0), (0.001, 1.0), (0.01, 2.0), (1.0, 3.0)]}))
    places = [float(point.split(",")[0]) for point in drawn.findall("g/polyline")[0].get("points", "").split()]
    unit = places[1] - places[0]
    assert places[0] == 60.0
    assert [round((place - places[0]) / unit) for place in places] == [0, 1, 2, 4]
