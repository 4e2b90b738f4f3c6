"""A line search that asks for one evaluation at a time."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

#: Sufficient decrease and curvature constants for quasi-Newton directions (Nocedal & Wright, section 3.1).
DECREASE, CURVATURE = 1e-4, 0.9
MAX_TRIALS = 30
#: Relative rounding of an objective that is a sum over many rows.
ROUNDING = 1e-14


@dataclass(frozen=True)
class Point:
    """Along the direction: step length, objective, slope."""

    step: float
    value: float
    slope: float


@dataclass(frozen=True)
class LineSearch:
    """Bracketing search with cubic interpolation for the strong Wolfe conditions.

    Nocedal & Wright, *Numerical Optimization*, algorithms 3.5 and 3.6. Near the optimum, where the decrease drowns
    in rounding, the approximate Wolfe condition of Hager & Zhang (2005) takes over.

    ``step`` is the trial to evaluate next; ``accepted`` and ``failed`` tell when the search is over.
    """

    start: Point
    step: float
    low: Point
    high: Point | None = None
    trials: int = 0
    accepted: bool = False
    failed: bool = False

    @classmethod
    def begin(cls, value: float, slope: float, step: float) -> LineSearch:
        """Search from objective ``value`` with directional derivative ``slope`` < 0."""
        start = Point(0.0, value, slope)
        return cls(start=start, step=step, low=start)

    def told(self, value: float, slope: float) -> LineSearch:
        """The objective and slope at ``step``; returns the search with its next step."""
        here = Point(self.step, value, slope)
        trials = self.trials + 1
        if self._acceptable(here):
            return replace(self, low=here, trials=trials, accepted=True)
        if trials >= MAX_TRIALS:
            return replace(self, trials=trials, failed=True)
        low, high = self._bracket(here)
        if high is None:
            step = low.step * 4.0
        elif trials % 3 == 0:
            # interpolation may creep along one end: halving every third time bounds the number of trials
            step = 0.5 * (low.step + high.step)
        else:
            step = _between(low, high)
        collapsed = high is not None and abs(high.step - low.step) <= 1e-14 * max(step, 1e-300)
        return replace(self, low=low, high=high, step=step, trials=trials, failed=collapsed)

    def _acceptable(self, here: Point) -> bool:
        if not (math.isfinite(here.value) and math.isfinite(here.slope)):
            return False
        flat = abs(here.slope) <= -CURVATURE * self.start.slope
        limit = self.start.value + DECREASE * here.step * self.start.slope
        if here.value <= limit:
            return flat
        noise = ROUNDING * abs(self.start.value)
        gentle = here.slope <= (2.0 * DECREASE - 1.0) * self.start.slope
        return flat and gentle and here.value <= self.start.value + noise

    def _bracket(self, here: Point) -> tuple[Point, Point | None]:
        """The interval that must hold an acceptable step; its low end has the lower objective."""
        limit = self.start.value + DECREASE * here.step * self.start.slope
        too_high = not math.isfinite(here.value) or here.value > limit
        if too_high or here.value >= self.low.value:
            return self.low, here
        if self.high is None:
            return (here, None) if here.slope < 0 else (here, self.low)
        towards_high = here.slope * (self.high.step - self.low.step)
        return (here, self.low) if towards_high >= 0 else (here, self.high)


def _between(low: Point, high: Point) -> float:
    """The minimiser of the cubic through both ends, kept inside the middle 80 % of the interval."""
    width = high.step - low.step
    fraction = 0.5
    if math.isfinite(high.value) and math.isfinite(high.slope):
        slope_low, slope_high = low.slope * width, high.slope * width
        theta = 3.0 * (low.value - high.value) + slope_low + slope_high
        root = theta * theta - slope_low * slope_high
        if root >= 0.0:
            gamma = math.sqrt(root)
            divisor = slope_high - slope_low + 2.0 * gamma
            if divisor != 0.0:
                fraction = (gamma - slope_low + theta) / divisor
    if not math.isfinite(high.value) or not math.isfinite(fraction):
        # over a cliff, or so high that the cubic overflows: the acceptable steps are near the low end
        fraction = 0.1
    return low.step + min(max(fraction, 0.1), 0.9) * width
