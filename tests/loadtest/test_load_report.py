"""The page of a load test: what is in it, and that it needs nothing else."""

import re
from xml.etree.ElementTree import Element, fromstring

import msgspec
from load_support import seen_level

from fanjoin.cli.loadtest_report import page
from fanjoin.cli.loadtest_svg import Bar, bars, lines
from fanjoin.client.load_scenario import Scenario
from fanjoin.client.load_stats import Delegation, figures


def written(*misses: str) -> str:
    """Return the page of one level."""
    seen = seen_level()
    seen.delegations[0].mark = "<1&0>"
    plan = {"endpoint": "http://x/?a=<b>", "model": "m", "arrival": 2.0, "scenario": msgspec.to_builtins(Scenario())}
    return page(plan, [seen], [figures(seen)], list(misses))


def parsed(text: str) -> Element:
    """Return a text of ours as XML."""
    return fromstring(text)  # noqa: S314 - we wrote it ourselves


def drawings(text: str) -> list[Element]:
    """Return the plots, parsed."""
    return [parsed(one) for one in re.findall(r"<svg.*?</svg>", text, re.DOTALL)]


def test_the_page_is_well_formed_and_has_its_plots() -> None:
    """The page parses as XML, so no text breaks out of its place, and it has the three plots of its level."""
    text = written()
    root = parsed(text.replace("<!DOCTYPE html>\n", "").replace('<meta charset="utf-8">', ""))
    assert len(root.findall(".//svg")) == 3
    assert "<1&amp;0>" not in text
    assert "&lt;1&amp;0&gt; completed" in text
    assert "http://x/?a=&lt;b&gt;" in text


def test_the_page_asks_for_nothing_from_elsewhere() -> None:
    """No script, link, image or style of another place is in the page."""
    text = written()
    assert not re.search(r"<(script|link|img|iframe|object)|\b(src|href)=|url\(|@import", text)


def test_the_gantt_has_a_row_for_each_delegate() -> None:
    """Each delegate has a bar of its waiting and one of its run, whose colour tells how it ended."""
    _, gantt, _ = drawings(written())
    rows = [[bar.get("fill") for bar in row.findall("rect")] for row in gantt.findall("g")]
    assert rows == [["#c8c8c8", "#1f77b4"], ["#c8c8c8", "#1f77b4"], ["#c8c8c8", "#c0392b"]]


def test_the_distribution_has_a_line_for_each_latency() -> None:
    """Every latency that was measured is drawn, and the last point of each line is at the top."""
    distribution, _, _ = drawings(written())
    found = distribution.findall("polyline")
    assert len(found) == 7
    assert {line.get("points", "").split()[-1].split(",")[1] for line in found} == {"8.0"}


def test_missed_goals_stand_on_the_page() -> None:
    """What was missed is the first thing that is read."""
    assert "missed: ttft &lt; 1" in written("ttft < 1")


def test_plots_of_nothing_are_plots() -> None:
    """A level in which nothing was measured has empty axes and no division by zero."""
    for text in (
        lines({}),
        lines({}, decades=True),
        lines({"a": [(0.0, 0.0)]}),
        bars([], []),
        bars([[Bar(0.0, 0.0, "red")]], ["x"]),
    ):
        assert parsed(text).tag == "svg"


def test_a_delegate_that_never_started_has_one_bar() -> None:
    """A delegate without a process has only waited."""
    seen = seen_level()
    seen.delegations = [Delegation(mark="1-0", join=1, due=100.0, written=102.0, status="cancelled", reason="budget")]
    plan = {"endpoint": "", "model": "", "arrival": 0.0, "scenario": {}}
    gantt = drawings(page(plan, [seen], [figures(seen)], []))[1]
    assert len(gantt.findall("g/rect")) == 1


def test_a_scale_of_decades_spreads_small_latencies() -> None:
    """Each power of ten takes the same room, and what is too small to show is at the left edge."""
    drawn = parsed(lines({"a": [(0.0, 0.0), (0.001, 1.0), (0.01, 2.0), (1.0, 3.0)]}, decades=True))
    places = [float(point.split(",")[0]) for point in drawn.findall("polyline")[0].get("points", "").split()]
    unit = places[1] - places[0]
    assert places[0] == 55.0
    assert [round((place - places[0]) / unit) for place in places] == [0, 1, 2, 4]
