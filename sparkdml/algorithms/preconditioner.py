"""An approximation of the inverse Hessian to start a quasi-Newton method from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from sparkdml.core import Update
from sparkdml.problem import Differentiable, Problem

#: Products a second on one core: dense by matrix routines, sparse by scattered additions.
DENSE_RATE, SPARSE_RATE = 2e10, 1e9
#: Values that one core evaluates in a second.
VALUE_RATE = 7e8
#: A Gram matrix saves an easy problem few rounds and a hard one hundreds; so many are staked on it.
ROUNDS_STAKED = 8
#: Rounds to a tolerance of 1e-6 or so, by Newton's method and by L-BFGS that starts from a Gram matrix.
NEWTON_ROUNDS, LBFGS_ROUNDS = 7, 18
#: Gram matrices of all workers together, on their way to the driver.
GRAM_BYTES = 64 * 2**20


class Preconditioner(ABC):
    """A positive definite approximation of the inverse Hessian; arrays only, so that states can be checkpointed."""

    @abstractmethod
    def solve(self, gradient: np.ndarray) -> np.ndarray:
        """The approximate inverse Hessian times a vector of the problem's size."""


@dataclass(frozen=True)
class Diagonal(Preconditioner):
    """``1 / diagonal``."""

    diagonal: np.ndarray

    def solve(self, gradient: np.ndarray) -> np.ndarray:
        return gradient / self.diagonal


@dataclass(frozen=True)
class Gram(Preconditioner):
    """``curvature * covariance + penalty``, the same for every class, by its Cholesky factor.

    For a loss whose second derivative varies little over the rows this is the Hessian itself up to a factor, however
    strongly features depend on one another (the fixed-Hessian bound of Boehning & Lindsay, 1988).
    """

    factor: np.ndarray
    intercept_curvature: float
    outputs: int

    def solve(self, gradient: np.ndarray) -> np.ndarray:
        features = len(self.factor)
        count = features * self.outputs
        scaled = cho_solve((self.factor, True), gradient[:count].reshape(features, self.outputs))
        return np.concatenate([scaled.ravel(), gradient[count:] / self.intercept_curvature])


@dataclass(frozen=True)
class Full(Preconditioner):
    """A Hessian by its Cholesky factor, (size, size)."""

    factor: np.ndarray

    def solve(self, gradient: np.ndarray) -> np.ndarray:
        return np.asarray(cho_solve((self.factor, True), gradient))


def hessian_preconditioner(problem: Problem, total: Update) -> Preconditioner:
    """The Hessian of the whole objective, from the sums of ``optim.hessian``; for losses of one margin a row.

    A row without curvature (a constant feature, saturated rows) gets a little, so that it can be solved with.
    """
    scale = problem.scaling.inverse_std[:, 0]
    hessian = np.zeros((problem.size, problem.size))
    features = problem.features
    hessian[:features, :features] = scale[:, None] * np.asarray(total["hessian"]) * scale
    if problem.fit_intercept:
        hessian[-1, :features] = hessian[:features, -1] = np.asarray(total["cross"]) * scale
        hessian[-1, -1] = float(total["curvature"])
    hessian /= problem.weight_sum
    diagonal = np.einsum("ii->i", hessian)
    diagonal[:features] += problem.penalty.curvature()[:, 0]
    diagonal += 1e-10 * max(float(diagonal.max(initial=0.0)), 1e-300)
    diagonal[diagonal < 1e-12 * problem.loss.curvature] = problem.loss.curvature
    try:
        factor, _ = cho_factor(hessian, lower=True)
    except (np.linalg.LinAlgError, ValueError):  # indefinite by rounding, or not finite
        return diagonal_preconditioner(problem)
    return Full(np.tril(factor))


def diagonal_preconditioner(problem: Differentiable) -> Diagonal:
    """From bounds of the loss's and the penalty's second derivatives."""
    return Diagonal(problem.curvature())


def gram_preconditioner(problem: Problem, gram: np.ndarray) -> Preconditioner:
    """From ``gram = sum_i w_i (x_i - centre)(x_i - centre)'``, shape (d, d), around ``problem.centre``.

    The diagonal one where means so much larger than deviations leave no covariance in the rounding.
    """
    inverse_std = problem.scaling.inverse_std
    hessian = problem.loss.curvature / problem.weight_sum * (inverse_std * gram * inverse_std.T)
    # Rounding may leave dependent features slightly indefinite; constant ones have a row of zeros.
    floor = 1e-7 * problem.loss.curvature
    diagonal = np.einsum("ii->i", hessian)
    diagonal += np.maximum(problem.penalty.curvature()[:, 0], floor)
    try:
        factor, _ = cho_factor(hessian, lower=True)
    except (np.linalg.LinAlgError, ValueError):  # indefinite, or not finite
        return diagonal_preconditioner(problem)
    return Gram(np.tril(factor), problem.loss.curvature, problem.loss.outputs)


def gram_pays(rows: int, features: int, nonzeros: float, workers: int, latency: float) -> bool:
    """Whether computing a Gram matrix costs no more than the rounds it can be trusted to save.

    Compares ``rows * (values a row)^2 / rate`` with :data:`ROUNDS_STAKED` rounds of ``latency + values /
    VALUE_RATE``, both over ``workers``, from the rates above.
    """
    if 8 * features * features * workers > GRAM_BYTES:
        return False
    gram, plain = _gram_seconds(rows, features, nonzeros, workers), latency + nonzeros / (VALUE_RATE * workers)
    return gram <= ROUNDS_STAKED * plain


def _gram_seconds(rows: int, features: int, nonzeros: float, workers: int) -> float:
    dense = nonzeros > 0.33 * rows * features
    products = rows * (features if dense else nonzeros / max(rows, 1)) ** 2
    return products / ((DENSE_RATE if dense else SPARSE_RATE) * workers) + features**3 / DENSE_RATE


def newton_pays(rows: int, features: int, nonzeros: float, workers: int, latency: float) -> bool:
    """Whether Hessians in every round cost less than the rounds that L-BFGS would need beyond Newton's method.

    Newton's method takes about :data:`NEWTON_ROUNDS`, each with a Gram matrix; L-BFGS with a Gram matrix in its first
    round takes about :data:`LBFGS_ROUNDS`.
    """
    if 8 * features * features * workers > GRAM_BYTES:
        return False
    gram, plain = _gram_seconds(rows, features, nonzeros, workers), latency + nonzeros / (VALUE_RATE * workers)
    return NEWTON_ROUNDS * (gram + plain) < gram + LBFGS_ROUNDS * plain
