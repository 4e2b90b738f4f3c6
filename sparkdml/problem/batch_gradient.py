"""The gradient of a loss of margins over a few rows, in a problem's coordinates."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from sparkdml.data.block import Block, Part
from sparkdml.losses.base import Loss
from sparkdml.problem.base import RowGradient

if TYPE_CHECKING:
    from sparkdml.problem.linear import Problem


@dataclass(frozen=True)
class BatchGradient(RowGradient):
    """Of a loss of margins.

    inverse_std, centre : shape (d, 1); ``centre`` is None where columns are not centred.
    """

    loss: Loss
    inverse_std: np.ndarray
    centre: np.ndarray | None
    fit_intercept: bool

    @classmethod
    def of(cls, problem: Problem) -> BatchGradient:
        centred = problem.fit_intercept and problem.scaling.mean.any()
        scaling = problem.scaling
        return cls(problem.loss, scaling.inverse_std, scaling.mean if centred else None, problem.fit_intercept)

    @property
    def by_feature(self) -> bool:
        return self.centre is None

    def over(self, columns: np.ndarray) -> BatchGradient:
        """For rows that have these features alone, and points that are over them alone."""
        assert self.centre is None
        return replace(self, inverse_std=self.inverse_std[columns])

    def __call__(self, point: np.ndarray, parts: Iterable[Part]) -> np.ndarray:
        loss = self.loss.at(point[len(point) - self.loss.extras :]) if self.loss.extras else self.loss
        outputs, features = loss.outputs, len(self.inverse_std)
        count = features * outputs
        raw = point[:count].reshape(features, outputs) * self.inverse_std
        intercepts = point[count : count + outputs] if self.fit_intercept else np.zeros(outputs)
        if self.centre is not None:
            intercepts = intercepts - self.centre[:, 0] @ raw
        result = np.zeros(len(point))
        slopes_end = len(point) - loss.extras
        gradient = result[:count].reshape(features, outputs)
        for block, start, stop in parts:
            for low, high in _chunks(block, start, stop, outputs):
                slope_sum = _add_rows(loss, block, low, high, raw, intercepts, gradient, result[slopes_end:])
                if self.fit_intercept:
                    result[count:slopes_end] += slope_sum
        if self.centre is not None:
            gradient -= self.centre * result[count:slopes_end]
        gradient *= self.inverse_std
        return result


def _chunks(block: Block, start: int, stop: int, outputs: int) -> Iterable[tuple[int, int]]:
    if stop - start <= 64:
        return ((start, stop),)
    rows = block.chunk_rows(outputs)
    return [(low, min(low + rows, stop)) for low in range(start, stop, rows)]


def _add_rows(
    loss: Loss,
    block: Block,
    start: int,
    stop: int,
    coefficients: np.ndarray,
    intercepts: np.ndarray,
    gradient: np.ndarray,
    extra: np.ndarray,
) -> np.ndarray:
    """Add the derivatives by coefficients and the loss's own parameters; returns those by the intercepts, (K,)."""
    margins, slopes = np.empty((2, stop - start, loss.outputs))
    lanes = block.lanes(loss.outputs)
    if lanes == loss.outputs:
        padded, sums = coefficients, gradient
    else:
        padded, sums = np.zeros((2, len(coefficients), lanes))
        padded[:, : loss.outputs] = coefficients
    block.margins(start, stop, padded, intercepts, margins)
    labels, weights = block.labels[start:stop], block.weights[start:stop]
    loss.evaluate(margins, labels, weights, slopes)
    block.accumulate(start, stop, slopes, sums)
    if sums is not gradient:
        gradient += sums[:, : loss.outputs]
    if loss.extras:
        extra += loss.extra_slopes(margins, labels, weights)
    return np.asarray(np.add.reduce(slopes))
