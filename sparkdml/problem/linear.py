"""Losses of margins, which are linear in the coefficients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from sparkdml.core import Update
from sparkdml.data.block import Block
from sparkdml.losses.base import Loss
from sparkdml.penalties import L2, ElasticNet, Penalty
from sparkdml.problem.base import Differentiable, RowGradient
from sparkdml.problem.batch_gradient import BatchGradient
from sparkdml.problem.gradient import loss_and_gradient, total_loss


@dataclass(frozen=True)
class Scaling:
    """Standardisation that never touches the rows.

    ``mean`` and ``inverse_std`` have shape (d, 1). A constant feature has ``inverse_std`` 0: its coefficient is 0.
    ``unit`` is contained in ``inverse_std``: scaled coefficients of 1 move margins by so much a standard deviation.
    """

    mean: np.ndarray
    inverse_std: np.ndarray
    unit: float = 1.0

    @property
    def std(self) -> np.ndarray:
        """Shape (d, 1); 0 for constant features."""
        return np.divide(1.0, self.inverse_std, out=np.zeros_like(self.inverse_std), where=self.inverse_std > 0)


@dataclass(frozen=True)
class Problem(Differentiable):
    """``F(c) = 1/W * sum_i w_i * loss(x_i' coefficients + intercept, y_i) + penalty(scaled coefficients)``.

    Algorithms work on one flat vector ``c`` of (d * K) scaled coefficients, feature-major, K centred intercepts
    when ``fit_intercept``, and the loss's own parameters if it has any: ``c_jk = coefficient_jk * std_j``, and the
    intercept is the margin at the mean row. In these coordinates columns have mean 0 and variance 1, without one
    stored value being changed.

    ``whole_penalty`` is the penalty of all coefficients, where the problem is over some of them.
    """

    loss: Loss
    penalty: Penalty
    scaling: Scaling
    fit_intercept: bool
    weight_sum: float
    told: float = 1.0
    whole_penalty: float | None = None

    @property
    def features(self) -> int:
        return self.scaling.mean.shape[0]

    @property
    def outputs(self) -> int:
        return self.loss.outputs

    @property
    def size(self) -> int:
        return (self.features + self.fit_intercept) * self.loss.outputs + self.loss.extras

    @property
    def free(self) -> int:
        return self.size - self.features * self.loss.outputs

    @property
    def centre(self) -> np.ndarray:
        """The origin of the coordinates in feature space: the mean row, or 0 without an intercept, shape (d,)."""
        mean = self.scaling.mean[:, 0]
        return mean if self.fit_intercept else np.zeros_like(mean)

    def split(self, c: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Views of the scaled coefficients (d, K) and the centred intercepts (K,) or ()."""
        shape = (self.features, self.loss.outputs)
        count = shape[0] * shape[1]
        return c[:count].reshape(shape), c[count : len(c) - self.loss.extras]

    def loss_at(self, c: np.ndarray) -> Loss:
        """The loss with the parameters of its own that ``c`` ends with."""
        return self.loss.at(c[len(c) - self.loss.extras :]) if self.loss.extras else self.loss

    def to_raw(self, c: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Coefficients (d, K) and intercepts (K,) for the features as they are stored."""
        scaled, centred = self.split(c)
        coefficients = scaled * self.scaling.inverse_std
        if not self.fit_intercept:
            return coefficients, np.zeros(self.loss.outputs)
        return coefficients, centred - self.scaling.mean[:, 0] @ coefficients

    def from_raw(self, coefficients: np.ndarray, intercepts: np.ndarray) -> np.ndarray:
        """The inverse of :meth:`to_raw`; coefficients of constant features are dropped."""
        scaled = (coefficients * self.scaling.std).ravel()
        centred = intercepts + self.scaling.mean[:, 0] @ coefficients if self.fit_intercept else np.zeros(0)
        return np.concatenate([scaled, centred, np.zeros(self.loss.extras)])

    def sums(self, blocks: Sequence[Block], c: np.ndarray) -> Update:
        return loss_and_gradient(self.loss_at(c), blocks, *self.to_raw(c))

    def loss_sum(self, blocks: Sequence[Block], c: np.ndarray, threads: int = 1) -> float:
        return total_loss(self.loss_at(c), blocks, *self.to_raw(c), threads)

    def row_gradient(self, rng: np.random.Generator) -> RowGradient:
        return BatchGradient.of(self)

    def evaluate(self, c: np.ndarray, total: Update) -> tuple[float, np.ndarray]:
        scaled, _ = self.split(c)
        slope_sum = np.asarray(total["slope_sum"])
        gradient = np.array(total["gradient"])
        if self.fit_intercept:
            gradient -= self.scaling.mean * slope_sum
        gradient *= self.scaling.inverse_std
        gradient /= self.weight_sum
        gradient += self.penalty.gradient(scaled)
        value = float(total["loss"]) / self.weight_sum + self.penalty.value(scaled)
        tail = [slope_sum / self.weight_sum] if self.fit_intercept else []
        if self.loss.extras:
            tail.append(np.asarray(total["extra"]) / self.weight_sum)
        return value, np.concatenate([gradient.ravel(), *tail]) if tail else gradient.ravel()

    def objective(self, c: np.ndarray, loss_sum: float) -> float:
        if self.whole_penalty is None:
            return super().objective(c, loss_sum)
        return loss_sum / self.weight_sum + self.whole_penalty

    def penalty_at(self, c: np.ndarray) -> float:
        scaled, _ = self.split(c)
        value, strengths = self.penalty.value(scaled), self.penalty.l1()
        return value if strengths is None else value + float(np.sum(strengths * np.abs(scaled)))

    def strengths(self) -> tuple[np.ndarray, np.ndarray]:
        l2, l1 = np.zeros((2, self.size))
        self.split(l2)[0][:] = self.penalty.curvature()
        strengths = self.penalty.l1()
        if strengths is not None:
            self.split(l1)[0][:] = strengths
        return l2, l1

    def curvature(self) -> np.ndarray:
        shape = (self.features, self.loss.outputs)
        of_loss = self.loss.curvature * self.scaling.unit**2
        coefficients = np.broadcast_to(of_loss + self.penalty.curvature(), shape)
        rest = np.full(self.size - coefficients.size, self.loss.curvature)
        return np.concatenate([coefficients.ravel(), rest])

    @cached_property
    def root_curvature(self) -> np.ndarray:
        """The square root of :meth:`curvature`, kept."""
        return np.sqrt(self.curvature())


@dataclass(frozen=True)
class Objective:
    """A :class:`Problem` in Spark's terms, before anything is known of the features: it is as small for any number.

    ridge, lasso : strengths of the L2 and L1 penalty, on coefficients of unit-variance features if
        ``standardization``, else on coefficients of the features as given.
    centred : coordinates are around the mean row. scaled : they are in deviations, or else as features are given; then,
        unless ``constant``, features that do not vary have no coefficient.
    """

    loss: Loss
    ridge: float
    lasso: float
    standardization: bool
    fit_intercept: bool
    weight_sum: float
    centred: bool = True
    scaled: bool = True
    unit: float = 1.0
    told: float = 1.0
    constant: bool = False

    def over(self, mean: np.ndarray, std: np.ndarray) -> Problem:
        """The problem over features of this mean and standard deviation, both (d,)."""
        unscaled = (std > 0.0) | self.constant
        inverse_std = inverse_of(std if self.scaled else unscaled.astype(np.float64))[:, None]
        factors = np.ones_like(inverse_std) if self.standardization else inverse_std
        penalty = ElasticNet(self.ridge, factors**2, self.lasso, factors) if self.lasso else L2(self.ridge, factors**2)
        centre = mean[:, None] if self.centred else np.zeros_like(inverse_std)
        scaling = Scaling(centre, self.unit * inverse_std, self.unit)
        return Problem(self.loss, penalty, scaling, self.fit_intercept, self.weight_sum, self.told)

    def shard(self, mean: np.ndarray, std: np.ndarray) -> Problem:
        """The problem over some of the features: intercepts and the loss's own parameters are elsewhere."""
        problem = self.over(mean if self.fit_intercept else np.zeros_like(mean), std)
        return replace(problem, fit_intercept=False, loss=_Coefficients(self.loss))

    def tail(self) -> Problem:
        """The problem over intercepts and the loss's own parameters alone."""
        return self.over(np.zeros(0), np.zeros(0))

    def stored(self, features: int) -> Problem:
        """The loss over coefficients of the features as they are stored."""
        ones = np.ones((features, 1))
        return Problem(self.loss, L2(0.0, ones), Scaling(np.zeros_like(ones), ones), self.fit_intercept, 1.0)


class _Coefficients(Loss):
    """What a problem over coefficients alone must know of a loss."""

    def __init__(self, loss: Loss) -> None:
        self.outputs, self.curvature = loss.outputs, loss.curvature

    def evaluate(self, margins: np.ndarray, labels: np.ndarray, weights: np.ndarray, slopes: np.ndarray) -> float:
        raise NotImplementedError("rows are elsewhere")


def inverse_of(std: np.ndarray) -> np.ndarray:
    """``1 / std``, and 0 for constant features."""
    return np.divide(1.0, std, out=np.zeros_like(std), where=std > 0)
