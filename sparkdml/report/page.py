"""A page that is one file: text, tables and charts, readable offline, on a phone, by day and by night."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from sparkdml.report import charts
from sparkdml.report.charts import swatch

#: Colours by day and by night.
_PALETTE = """
:root { color-scheme: light dark; --ink: #1a1a1a; --paper: #fdfdfc; --faint: #d8d8d4; --quiet: #5c5c58;
  --c0: #0072b2; --c1: #d55e00; --c2: #009e73; --c3: #cc79a7; --c4: #a07800; --c5: #3a93c8; --c6: #6d6d6d; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e8e8e4; --paper: #16181a; --faint: #3a3d40; --quiet: #a0a4a6;
    --c0: #5ab4e8; --c1: #ff8a4c; --c2: #3ecfa4; --c3: #e8a4cc; --c4: #e6c84a; --c5: #9ad4f5; --c6: #b8b8b8; } }
"""
_CHARTS = """
svg text { font: 12px system-ui, sans-serif; fill: var(--ink); }
svg .grid { stroke: var(--faint); }
svg polyline { fill: none; stroke: currentColor; stroke-width: 2; }
svg circle, svg rect { fill: currentColor; }
""" + "".join(f".s{number} {{ color: var(--c{number}); }}\n" for number in range(charts.COLOURS))
_PAGE = """
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 60rem; padding: 1rem; font: 1rem/1.5 system-ui, sans-serif; color: var(--ink);
  background: var(--paper); }
h1, h2, h3 { line-height: 1.2; }
p.quiet { color: var(--quiet); }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .6rem; text-align: right; border-bottom: 1px solid var(--faint); white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
figure { margin: 1rem 0; }
figcaption { color: var(--quiet); }
figure > svg { width: 100%; height: auto; }
ul.legend { display: flex; flex-wrap: wrap; gap: .2rem 1.2rem; padding: 0; list-style: none; }
.swatch { width: 1.6rem; height: .6rem; margin-right: .4rem; }
"""
#: Of a picture's legend: units down and across from one name to the next.
_DOWN, _ACROSS = 18, 210


def page(title: str, sections: Sequence[str]) -> str:
    """The whole page; ``sections`` are what the other functions return."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_PALETTE}{_PAGE}{_CHARTS}</style></head>\n"
        f"<body><h1>{escape(title)}</h1>\n" + "\n".join(sections) + "\n</body></html>\n"
    )


def heading(text: str) -> str:
    return f"<h2>{escape(text)}</h2>"


def paragraph(text: str, quiet: bool = False) -> str:
    kind = ' class="quiet"' if quiet else ""
    return f"<p{kind}>{escape(text)}</p>"


def table(rows: Sequence[Sequence[str]]) -> str:
    """The first row is the head."""
    head = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in rows[0])
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows[1:])
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def figure(chart: str, caption: str, names: Sequence[str] = ()) -> str:
    """A chart of :mod:`~sparkdml.report.charts`, and a legend of its lines or parts."""
    items = "".join(f"<li>{swatch(number)}{escape(name)}</li>" for number, name in enumerate(names))
    legend = f'<ul class="legend">{items}</ul>' if names else ""
    return f"<figure>{legend}{chart}<figcaption>{escape(caption)}</figcaption></figure>"


def picture(chart: str, names: Sequence[str] = ()) -> str:
    """The same as SVG that stands alone: the legend is in it."""
    columns = charts.WIDTH // _ACROSS
    top = _DOWN * -(-len(names) // columns)
    legend = ""
    for number, name in enumerate(names):
        sample = swatch(number).replace("<svg ", '<svg y="6" width="24" height="8" ', 1)
        at = f"{8 + _ACROSS * (number % columns)} {_DOWN * (number // columns)}"
        legend += f'<g transform="translate({at})">{sample}<text x="30" y="14">{escape(name)}</text></g>'
    height = charts.height_of(chart)
    inner = chart.replace("<svg ", f'<svg y="{top}" width="{charts.WIDTH}" height="{height}" ', 1)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {charts.WIDTH} {top + height}" '
        f'width="{charts.WIDTH}" height="{top + height}"><style>{_PALETTE}{_CHARTS}</style>'
        f'<rect width="100%" height="100%" style="fill: var(--paper)"/>{legend}{inner}</svg>\n'
    )
