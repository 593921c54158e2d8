"""The style of a load test's page: light and dark as the reader's system is, wide or narrow, and on paper."""

from fanjoin.client.load_stats import PARTS

LIGHT = {
    "page": "#ffffff",
    "text": "#1f2328",
    "soft": "#59636e",
    "line": "#d1d9e0",
    "grid": "#eaeef2",
    "good": "#1a7f37",
    "bad": "#cf222e",
    "queued": "#c5ccd3",
    "run": "#a9cdf5",
    "call": "#1f6feb",
}
DARK = {
    "page": "#0d1117",
    "text": "#e6edf3",
    "soft": "#9198a1",
    "line": "#3d444d",
    "grid": "#21262d",
    "good": "#3fb950",
    "bad": "#ff7b72",
    "queued": "#3d444d",
    "run": "#1b4b86",
    "call": "#58a6ff",
}
_LIGHT_LINES = ("#1f6feb", "#bc4c00", "#1a7f37", "#cf222e", "#8250df", "#0e7490", "#57606a")
_DARK_LINES = ("#58a6ff", "#f0883e", "#3fb950", "#ff7b72", "#bc8cff", "#39c5cf", "#b1bac4")
_RULES = """
body{font:16px/1.5 system-ui,sans-serif;max-width:68rem;margin:0 auto;padding:1rem;
color:var(--text);background:var(--page)}
h1{margin:.5rem 0}h2{margin:2.5rem 0 .5rem;border-top:1px solid var(--line);padding-top:1.5rem}
.plan{display:flex;flex-wrap:wrap;gap:.5rem 2rem;margin:0}dt{color:var(--soft);font-size:.8rem}dd{margin:0}
.verdict{list-style:none;padding:0;font-weight:600}.bad{color:var(--bad)}.good{color:var(--good)}
.wide{overflow-x:auto}table{border-collapse:collapse;margin:1rem 0;white-space:nowrap;font-size:.9rem;
font-variant-numeric:tabular-nums}
th,td{padding:.25rem .6rem;text-align:right;border-bottom:1px solid var(--line)}
th{color:var(--soft);font-weight:500;font-size:.85rem}
th:first-child,td:first-child{text-align:left;padding-left:0}small{color:var(--soft)}
figure{margin:2rem 0;break-inside:avoid}figcaption{color:var(--soft)}figcaption b{color:var(--text)}
figcaption ul{list-style:none;display:flex;flex-wrap:wrap;gap:0 1.2rem;margin:.25rem 0;padding:0;font-size:.85rem}
figcaption i{display:inline-block;width:.8em;height:.8em;border-radius:2px;margin-right:.4em}
svg{display:block;width:100%;min-width:40rem;height:auto}svg text{font:12px system-ui,sans-serif;fill:var(--soft)}
.grid{stroke:var(--grid)}.axis{stroke:var(--soft)}polyline{fill:none;stroke-width:2;stroke-linejoin:round}
@media(max-width:40rem){small{display:none}}
"""


def _variables(colours: dict[str, str], lines: tuple[str, ...]) -> str:
    named = colours | {f"line-{part}": colour for part, colour in zip(PARTS, lines, strict=True)}
    return ":root{" + "".join(f"--{name}:{colour};" for name, colour in named.items()) + "}"


def _classes() -> str:
    kinds = ("queued", "run", "call", "bad")
    bars = "".join(f"rect.{kind}{{fill:var(--{kind})}}i.{kind}{{background:var(--{kind})}}" for kind in kinds)
    names = [f"line-{part}" for part in PARTS]
    return bars + "".join(f".{name}{{stroke:var(--{name})}}i.{name}{{background:var(--{name})}}" for name in names)


STYLE = (
    ":root{color-scheme:light dark}"
    + _variables(LIGHT, _LIGHT_LINES)
    + f"@media screen and (prefers-color-scheme:dark){{{_variables(DARK, _DARK_LINES)}}}"
    + _RULES
    + _classes()
)
