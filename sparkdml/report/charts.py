"""Charts as SVG text: lines on linear or logarithmic axes, and stacked bars."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

#: Of a chart, in the units of its view box; pages scale it to the width that there is.
WIDTH, HEIGHT = 640, 360
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 12, 12, 44
#: Lines of one colour differ by their dashes.
COLOURS = 7
_DASHES = ("", "6 3", "2 3")
_TICKS = 5
#: Lines of fewer points have them marked.
_DOTS = 30


@dataclass(frozen=True)
class Line:
    """``name`` and its points; those that are not finite, or not above 0 on a logarithmic axis, are left out."""

    name: str
    xs: Sequence[float]
    ys: Sequence[float]


@dataclass(frozen=True)
class Axis:
    label: str
    logarithmic: bool = False

    def position(self, value: float, low: float, high: float) -> float:
        """Where ``value`` is between ``low`` and ``high``, as a share."""
        scale = math.log10 if self.logarithmic else float
        span = scale(high) - scale(low)
        return (scale(value) - scale(low)) / span if span else 0.5

    def ticks(self, low: float, high: float) -> list[float]:
        """Round numbers from ``low`` to ``high``."""
        if self.logarithmic:
            powers = range(math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9) + 1)
            every = max(math.ceil(len(powers) / _TICKS), 1)
            found = [10.0**power for power in powers][::every]
            return found if len(found) > 1 else sorted({low, high})
        if high <= low:
            return [low]
        step = 10.0 ** math.floor(math.log10((high - low) / _TICKS))
        step *= next((factor for factor in (1, 2, 5) if (high - low) / (factor * step) <= _TICKS), 10)
        return [number * step for number in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


def lines(series: Sequence[Line], x: Axis, y: Axis) -> str:
    """One line a series, in the colours that :func:`swatch` shows."""
    shown = [_shown(line, x, y) for line in series]
    points = [point for line in shown for point in line]
    if not points:
        return _frame('<text x="320" y="180" text-anchor="middle">nothing to show</text>', f"{y.label} by {x.label}")
    x_low, x_high = _range([p[0] for p in points], x)
    y_low, y_high = _range([p[1] for p in points], y)

    def at(point: tuple[float, float]) -> tuple[float, float]:
        return _across(x.position(point[0], x_low, x_high)), _down(y.position(point[1], y_low, y_high))

    body = [_axes(x, y, (x_low, x_high), (y_low, y_high))]
    for number, (line, found) in enumerate(zip(series, shown, strict=True)):
        places = list(map(at, found))
        path = " ".join(f"{across:.1f},{down:.1f}" for across, down in places)
        dots = "".join(f'<circle cx="{across:.1f}" cy="{down:.1f}" r="2.5"/>' for across, down in places)
        body.append(
            f'<g class="s{number % COLOURS}"><title>{escape(line.name)}</title>'
            f'<polyline points="{path}" stroke-dasharray="{_dashes(number)}"/>{dots if len(places) < _DOTS else ""}</g>'
        )
    return _frame("".join(body), f"{y.label} by {x.label}: {', '.join(line.name for line in series)}")


def stacked(names: Sequence[str], parts: Sequence[str], values: Sequence[Sequence[float]], label: str) -> str:
    """A horizontal bar for each of ``names``, of ``values[name][part]`` from left to right."""
    row, left = 26, 210
    height = row * len(names) + 48
    widest = max((sum(bar) for bar in values), default=0.0) or 1.0
    axis, body = Axis(label), []
    for tick in axis.ticks(0.0, widest):
        x = left + (WIDTH - left - 20) * tick / widest
        body.append(
            f'<line class="grid" x1="{x:.1f}" y1="4" x2="{x:.1f}" y2="{row * len(names) + 8}"/>'
            f'<text x="{x:.1f}" y="{row * len(names) + 22}" text-anchor="middle">{_number(tick)}</text>'
        )
    body.append(f'<text x="{(left + WIDTH) / 2}" y="{height - 6}" text-anchor="middle">{escape(label)}</text>')
    for place, (name, bar) in enumerate(zip(names, values, strict=True)):
        y, x = 8 + row * place, float(left)
        body.append(f'<text x="{left - 8}" y="{y + 14}" text-anchor="end">{escape(name)}</text>')
        for number, (part, value) in enumerate(zip(parts, bar, strict=True)):
            width = (WIDTH - left - 20) * max(value, 0.0) / widest
            body.append(
                f'<rect class="s{number % COLOURS}" x="{x:.1f}" y="{y}" width="{width:.1f}" height="{row - 8}">'
                f"<title>{escape(name)}, {escape(part)}: {_number(value)}</title></rect>"
            )
            x += width
    return _frame("".join(body), f"{label}: {', '.join(names)}", height)


def swatch(number: int) -> str:
    """What line ``number`` looks like, for a legend."""
    return (
        f'<svg class="swatch s{number % COLOURS}" viewBox="0 0 24 8" aria-hidden="true">'
        f'<polyline points="0,4 24,4" stroke-dasharray="{_dashes(number)}"/></svg>'
    )


def height_of(chart: str) -> int:
    """Of a chart that this module made, in the units of its view box."""
    found = re.match(r'<svg viewBox="0 0 \d+ (\d+)"', chart)
    assert found is not None
    return int(found[1])


def _shown(line: Line, x: Axis, y: Axis) -> list[tuple[float, float]]:
    def fits(value: float, axis: Axis) -> bool:
        return math.isfinite(value) and (value > 0.0 or not axis.logarithmic)

    return [(a, b) for a, b in zip(line.xs, line.ys, strict=True) if fits(a, x) and fits(b, y)]


def _range(values: Sequence[float], axis: Axis) -> tuple[float, float]:
    low, high = min(values), max(values)
    if axis.logarithmic:
        return (low / 2.0, high * 2.0) if low == high else (low, high)
    low = min(low, 0.0)
    return low, high if high > low else low + 1.0


def _axes(x: Axis, y: Axis, xs: tuple[float, float], ys: tuple[float, float]) -> str:
    body = []
    for tick in x.ticks(*xs):
        at = _across(x.position(tick, *xs))
        body.append(
            f'<line class="grid" x1="{at:.1f}" y1="{_TOP}" x2="{at:.1f}" y2="{HEIGHT - _BOTTOM}"/>'
            f'<text x="{at:.1f}" y="{HEIGHT - _BOTTOM + 16}" text-anchor="middle">{_number(tick)}</text>'
        )
    for tick in y.ticks(*ys):
        at = _down(y.position(tick, *ys))
        body.append(
            f'<line class="grid" x1="{_LEFT}" y1="{at:.1f}" x2="{WIDTH - _RIGHT}" y2="{at:.1f}"/>'
            f'<text x="{_LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{_number(tick)}</text>'
        )
    middle = (_TOP + HEIGHT - _BOTTOM) / 2
    body.append(
        f'<text x="{(_LEFT + WIDTH) / 2}" y="{HEIGHT - 6}" text-anchor="middle">{escape(x.label)}</text>'
        f'<text transform="translate(14 {middle}) rotate(-90)" text-anchor="middle">{escape(y.label)}</text>'
    )
    return "".join(body)


def _across(share: float) -> float:
    return _LEFT + share * (WIDTH - _LEFT - _RIGHT)


def _down(share: float) -> float:
    return HEIGHT - _BOTTOM - share * (HEIGHT - _TOP - _BOTTOM)


def _dashes(number: int) -> str:
    return _DASHES[number // COLOURS % len(_DASHES)]


def _number(value: float) -> str:
    return f"{value:.4g}"


def _frame(body: str, description: str, height: int = HEIGHT) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(description)}" '
        f'xmlns="http://www.w3.org/2000/svg">{body}</svg>'
    )
