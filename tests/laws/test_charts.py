"""Charts and pages: well-formed, whole, and of one file."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ET
from html.parser import HTMLParser

import pytest

from sparkdml.report import charts, page

SVG = "{http://www.w3.org/2000/svg}"


def points(chart: str) -> list[list[tuple[float, float]]]:
    found = ET.fromstring(chart).iter(f"{SVG}polyline")
    return [[tuple(map(float, pair.split(","))) for pair in line.get("points").split()] for line in found]


def test_points_are_where_axes_say():
    chart = charts.lines([charts.Line("a", [0, 5, 10], [0.0, 1.0, 2.0])], charts.Axis("x"), charts.Axis("y"))
    ((left, bottom), (middle, half), (right, top)) = points(chart)[0]
    assert left < middle < right
    assert bottom > half > top
    assert middle == pytest.approx((left + right) / 2)
    assert half == pytest.approx((bottom + top) / 2)


def test_equal_ratios_are_equally_long_on_a_logarithmic_axis():
    line = charts.Line("a", [1, 10, 100], [1.0, 0.1, 0.01])
    (found,) = points(charts.lines([line], charts.Axis("x", True), charts.Axis("y", True)))
    assert found[1][0] - found[0][0] == pytest.approx(found[2][0] - found[1][0], abs=0.2)
    assert found[1][1] - found[0][1] == pytest.approx(found[2][1] - found[1][1], abs=0.2)


def test_what_an_axis_cannot_show_is_left_out():
    line = charts.Line("a", [0, 1, 2, 3], [1.0, math.nan, math.inf, 2.0])
    assert len(points(charts.lines([line], charts.Axis("x"), charts.Axis("y")))[0]) == 2
    assert len(points(charts.lines([line], charts.Axis("x", True), charts.Axis("y")))[0]) == 1
    assert "nothing to show" in charts.lines([charts.Line("a", [], [])], charts.Axis("x"), charts.Axis("y"))


@pytest.mark.parametrize("values", [(0.0, 1.0), (3.0, 3.0), (1e-9, 5e12), (0.0, 0.0), (0.2, 0.3)])
@pytest.mark.parametrize("logarithmic", [False, True])
def test_ticks_are_few_and_inside(values, logarithmic):
    low, high = values
    if logarithmic and low <= 0.0:
        low = high = 1.0
    ticks = charts.Axis("x", logarithmic).ticks(low, high)
    assert 1 <= len(ticks) <= 7
    slack = 1e-9 * (high - low) + 1e-12
    assert all(low - slack <= tick <= high + slack for tick in ticks)


def test_bars_are_as_long_as_their_values_and_side_by_side():
    chart = ET.fromstring(charts.stacked(["one", "two"], ["a", "b"], [[1.0, 3.0], [2.0, 0.0]], "ms"))
    bars = [(float(bar.get("x")), float(bar.get("width"))) for bar in chart.iter(f"{SVG}rect")]
    assert bars[1][1] == pytest.approx(3 * bars[0][1], abs=0.2)
    assert bars[1][0] == pytest.approx(bars[0][0] + bars[0][1], abs=0.2)
    assert bars[3][1] == 0.0


class _Seen(HTMLParser):
    def __init__(self):
        super().__init__()
        self.open, self.links, self.text = [], [], ""

    def handle_starttag(self, tag, attributes):
        if tag not in ("meta", "rect", "line", "circle", "polyline"):
            self.open.append(tag)
        self.links += [value for name, value in attributes if name in ("src", "href")]

    def handle_endtag(self, tag):
        if self.open and self.open[-1] == tag:
            self.open.pop()

    def handle_data(self, data):
        self.text += data


def test_a_page_is_whole_needs_nothing_else_and_escapes():
    chart = charts.lines([charts.Line("<b>", [1], [1.0])], charts.Axis("x & y"), charts.Axis("z"))
    sections = [
        page.heading("H"),
        page.paragraph("less < more"),
        page.table([["a", "b"], ["1", "<script>"]]),
        page.figure(chart, "what it shows", ["<b>"]),
    ]
    text = page.page("T & t", sections)
    seen = _Seen()
    seen.feed(text)
    assert not seen.open
    assert not seen.links
    assert "<script>" not in text
    assert "<b>" not in text
    for word in ("less < more", "what it shows", "x & y"):
        assert word in seen.text
    assert "prefers-color-scheme: dark" in text
    assert 'name="viewport"' in text


def test_a_picture_stands_alone():
    names = ["a", "b & c", "d", "e"]
    picture = page.picture(charts.stacked(names, ["x"], [[1.0]] * 4, "ms"), names)
    root = ET.fromstring(picture)
    assert "var(--c0)" in picture
    assert "--c0:" in picture
    inner = [child for child in root if child.tag == f"{SVG}svg"]
    assert len(inner) == 1
    top, height = int(inner[0].get("y")), int(inner[0].get("height"))
    assert top == 36  # two rows of names
    assert root.get("viewBox") == f"0 0 {charts.WIDTH} {top + height}"
    texts = [text.text for text in root.iter(f"{SVG}text")]
    assert texts[:4] == names
