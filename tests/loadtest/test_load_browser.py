"""The page of a load test in a real browser: drawn whole, without an error, wide and narrow, light and dark."""

import html
import json
import re
from pathlib import Path
from typing import Any

import pytest
from load_support import written_page
from real_browser import open_page

from fanjoin.cli.loadtest_style import DARK, LIGHT

MEASURE = """<script>
const inside = svg => { const box = svg.getBBox(), view = svg.viewBox.baseVal;
  return box.x >= 0 && box.y >= 0 && box.x + box.width <= view.width && box.y + box.height <= view.height; };
const colour = shape => { const style = getComputedStyle(shape);
  return shape.tagName === 'rect' ? style.fill : style.stroke; };
document.title = JSON.stringify({
  window: innerWidth, page: document.documentElement.scrollWidth,
  background: getComputedStyle(document.body).backgroundColor,
  plots: [...document.querySelectorAll('figure svg')].map(svg => ({
    width: svg.getBoundingClientRect().width, height: svg.getBoundingClientRect().height, inside: inside(svg),
    colours: [...new Set([...svg.querySelectorAll('rect, polyline')].map(colour))] })) });
</script></body>"""


def rgb(colour: str) -> tuple[int, ...]:
    """Return a colour as numbers, from ``#rrggbb`` or from ``rgb(r, g, b)``."""
    if colour.startswith("#"):
        return tuple(bytes.fromhex(colour[1:]))
    return tuple(map(int, re.findall(r"\d+", colour)))


@pytest.mark.parametrize(("size", "dark"), [((800, 1500), False), ((500, 1500), True)])
def test_the_page_is_drawn_in_a_real_browser(tmp_path: Path, size: tuple[int, int], dark: bool) -> None:
    """All plots have a size, nothing hangs over their edges or the page's, their colours are on the screen."""
    page = tmp_path / "page.html"
    page.write_text(written_page("ttft").replace("</body>", MEASURE), encoding="utf-8", newline="\n")
    opened = open_page(page, size, dark=dark)
    assert opened.console == []
    title = re.search(r"<title>(.*?)</title>", opened.document, re.DOTALL)
    assert title is not None
    told: dict[str, Any] = json.loads(html.unescape(title[1]))
    assert told["page"] <= told["window"]
    palette = DARK if dark else LIGHT
    assert rgb(told["background"]) == rgb(palette["page"])
    assert len(told["plots"]) == 3
    for plot in told["plots"]:
        assert plot["inside"]
        assert plot["width"] >= 600
        assert plot["height"] > 30
    wanted = {rgb(colour) for plot in told["plots"] for colour in plot["colours"]}
    assert len(wanted) >= 9
    pixels = opened.colours()
    assert {colour: pixels[colour] for colour in wanted if pixels[colour] < 20} == {}  # type: ignore[index]
    assert pixels[rgb(palette["page"])] > pixels.total() // 2  # type: ignore[index]
