"""Coefficients as threads share them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sparkdml.optim.hogwild import kernels
from sparkdml.optim.steps.base import Slots
from sparkdml.problem import Problem

#: Doubles of a cache line.
LINE = 8


@dataclass(frozen=True)
class Table:
    """What threads write: ``records``, one a feature (:mod:`~.kernels`), and ``tail``, the intercepts and their
    squared gradients, (2, K), or (0, K) without them. Whatever else is here they only read.

    l1, ridge : the penalty's strengths, (d,), or (1,) where all features have the same.
    centre : (d,); 0 where columns are not centred. adaptive : records hold squared gradients.
    """

    records: np.ndarray
    tail: np.ndarray
    l1: np.ndarray
    ridge: np.ndarray
    centre: np.ndarray
    curvature: float
    adaptive: bool

    @classmethod
    def of(cls, problem: Problem, point: np.ndarray, slots: Slots) -> Table:
        """With the rule's slots: AdaGrad's sums of squared gradients (size,), or none."""
        outputs, features = problem.loss.outputs, problem.features
        records = _lines(features, kernels.COEFFICIENTS + outputs * (1 + len(slots)))
        records[:, kernels.INVERSE_STD] = problem.scaling.inverse_std[:, 0]
        tail = np.zeros((2 if problem.fit_intercept else 0, outputs))
        for n, values in enumerate((point, *slots)):
            coefficients, intercepts = problem.split(values)
            first = kernels.COEFFICIENTS + n * outputs
            records[:, first : first + outputs] = coefficients
            tail[n : n + 1] = intercepts.reshape(-1, outputs)
        l1 = problem.penalty.l1()
        l1, ridge = _once(np.zeros(1) if l1 is None else l1[:, 0]), _once(problem.penalty.curvature()[:, 0])
        return cls(records, tail, l1, ridge, problem.centre, problem.loss.curvature, bool(slots))

    @property
    def outputs(self) -> int:
        return self.tail.shape[1]

    def point(self) -> np.ndarray:
        """The coefficients and intercepts, (size,)."""
        return self._flat(0)

    def slots(self) -> Slots:
        """As :meth:`of` takes them."""
        return (self._flat(1),) if self.adaptive else ()

    def settle(self, now: int, step_size: float, epsilon: float) -> None:
        """Give every coefficient what it has missed of the penalty's ``now`` steps."""
        if self.l1.any() or self.ridge.any():
            kernels.settle(self.records, self.outputs, float(now), step_size, epsilon, self.l1, self.ridge)
        else:
            self.records[:, kernels.SEEN] = 0.0

    def move_intercepts(self, slopes: np.ndarray, step_size: float, epsilon: float) -> None:
        """A step along the mean of ``slopes`` (n, K): AdaGrad's, or n plain ones at once, or what is safe if less."""
        if not len(self.tail):
            return
        mean = slopes.mean(axis=0)
        if epsilon < 0.0:
            self.tail[0] -= min(len(slopes) * step_size, 1.0 / self.curvature) * mean
            return
        self.tail[1] += mean * mean
        roots = np.sqrt(self.tail[1])
        self.tail[0] -= step_size / np.where(roots > 0.0, roots + epsilon, 1.0) * mean

    def _flat(self, n: int) -> np.ndarray:
        first = kernels.COEFFICIENTS + n * self.outputs
        return np.concatenate([self.records[:, first : first + self.outputs].ravel(), self.tail[n : n + 1].ravel()])


def _lines(rows: int, width: int) -> np.ndarray:
    """Zeros of shape (rows, at least width), of which a row of up to half a line never lies in two."""
    width = -(-width // (LINE // 2)) * (LINE // 2)
    memory = np.zeros(rows * width + LINE)
    start = (-memory.ctypes.data // memory.itemsize) % LINE
    return memory[start : start + rows * width].reshape(rows, width)


def _once(strengths: np.ndarray) -> np.ndarray:
    """One number instead of many that are the same."""
    same = len(strengths) and (strengths == strengths[0]).all()
    return strengths[:1] if same else np.ascontiguousarray(strengths)
