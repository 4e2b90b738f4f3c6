"""The proximal operator of penalty and pull, for flat vectors: once, many times, and backwards."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from sparkdml.optim.local_solver import Pull
from sparkdml.problem import Differentiable
from sparkdml.resources.compiled import compiled


@dataclass(frozen=True)
class Proximal:
    """The proximal operator of ``h(x) = sum_i l2_i / 2 x_i^2 + l1_i |x_i| + strength / 2 (x_i - centre_i)^2``.

    Every penalty here is of that form, since its smooth part has a constant curvature (:class:`~.penalties.Penalty`).

    l2, l1 : float64 (n,); 0 for what is not penalised. centre : float64 (n,), or (1,) where strength is 0.
    free : the last ``free`` of the n coordinates are never penalised (intercepts, and the loss's own parameters).
    """

    l2: np.ndarray
    l1: np.ndarray
    strength: float
    centre: np.ndarray
    free: int

    def __call__(self, point: np.ndarray, rate: np.ndarray | float) -> np.ndarray:
        """``argmin_x h(x) + sum_i (x_i - point_i)^2 / (2 rate_i)``, shape (n,); rate is a number or has shape (n,)."""
        result = np.empty_like(point)
        _prox(point, _rates(rate), self.l2, self.l1, self.strength, self.centre, result)
        return result

    def repeated(self, point: np.ndarray, rate: np.ndarray | float, times: np.ndarray) -> np.ndarray:
        """Applied ``times_i`` (0 or more) times to each coordinate, shape (n,)."""
        result = np.empty_like(point)
        _repeated(point, _rates(rate), times, self.l2, self.l1, self.strength, self.centre, result)
        return result

    def origin(self, result: np.ndarray, rate: np.ndarray | float, near: np.ndarray) -> np.ndarray:
        """A point whose proximal point is ``result``, shape (n,).

        Where an L1 part made a zero of many points, it is the one nearest to ``near``.
        """
        shift = rate * self.strength * self.centre
        reach = rate * self.l1
        zero = np.clip(near, -reach - shift, reach - shift)
        moved = result * (1.0 + rate * (self.l2 + self.strength)) + reach * np.sign(result) - shift
        return np.where(result == 0.0, zero, moved)

    def of(self, places: np.ndarray) -> Proximal:
        """The operator on some coordinates, all free ones among them and last."""
        centre = self.centre[places] if self.strength else self.centre
        return replace(self, l2=self.l2[places], l1=self.l1[places], centre=centre)

    def shrunk(self, point: np.ndarray, share: float) -> np.ndarray:
        """``(1 - share) * point``; free coordinates stay as they are."""
        result = (1.0 - share) * point
        end = len(point) - self.free
        result[end:] = point[end:]
        return result


def proximal(problem: Differentiable, pull: Pull | None = None) -> Proximal:
    """The operator of the problem's penalty, and of a pull, which takes every coordinate."""
    (l2, l1), free = problem.strengths(), problem.free
    return Proximal(l2, l1, pull.strength, pull.centre, free) if pull else Proximal(l2, l1, 0.0, np.zeros(1), free)


def _rates(rate: np.ndarray | float) -> np.ndarray:
    return np.asarray(rate, np.float64).reshape(-1)


@compiled()
def _step(x, rate, l2, l1, strength, centre):
    """``soft(x + rate strength centre, rate l1) / (1 + rate (l2 + strength))``."""
    moved = x + rate * strength * centre
    shrunk = abs(moved) - rate * l1
    if shrunk <= 0.0:
        return 0.0
    return math.copysign(shrunk, moved) / (1.0 + rate * (l2 + strength))


@compiled()
def _prox(point, rate, l2, l1, strength, centre, result):
    per_rate, per_centre = rate.shape[0] > 1, centre.shape[0] > 1
    for i in range(point.shape[0]):
        r, z = rate[i * per_rate], centre[i * per_centre]
        result[i] = _step(point[i], r, l2[i], l1[i], strength, z)


@compiled()
def _repeated(point, rate, times, l2, l1, strength, centre, result):
    """One sign at a time a step is affine, ``|x| -> (|x| + push) / (1 + bend)``, and many of them a geometric series.

    Steps go towards their fixed point from one side. So a series that ends below 0 ended at 0, where L1 holds it,
    unless the pull leads across 0: those steps are taken one by one up to there.
    """
    per_rate, per_centre = rate.shape[0] > 1, centre.shape[0] > 1
    for i in range(point.shape[0]):
        x, left = point[i], times[i]
        r, z = rate[i * per_rate], centre[i * per_centre]
        held, bend = r * l1[i], r * (l2[i] + strength)
        while left > 0:
            drift = r * strength * z
            side = math.copysign(1.0, x if x != 0.0 else drift)
            if left > 1 and side * drift >= -held:
                decay = math.expm1(-left * math.log1p(bend))
                series = -decay / bend if bend > 0.0 else float(left)
                reached = (1.0 + decay) * abs(x) + (side * drift - held) * series
                x = 0.0 if reached <= 0.0 else side * reached
                break
            x = _step(x, r, l2[i], l1[i], strength, z)
            left -= 1
        result[i] = x
