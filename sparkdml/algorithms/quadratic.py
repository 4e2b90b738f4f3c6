"""A least squares problem on the parameter side: a quadratic function and where it is smallest."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.linalg.lapack import dpotri

from sparkdml.core import Update
from sparkdml.problem import Problem

#: Share of a feature's variance that others leave unexplained, below which it counts as their linear combination; also
#: the share of the largest eigenvalue below which one counts as 0.
RANK_TOLERANCE = 1e-13
LARGEST_SUM = 1e150


@dataclass(frozen=True)
class Factor:
    """``matrix = diag(size) * U * diag(size)`` over the features in ``kept``, and U's Cholesky factor.

    U has a unit diagonal, which is close to the best scaling there is (van der Sluis, 1969). ``lower`` is None where
    features are linearly dependent.
    """

    kept: np.ndarray
    size: np.ndarray
    unit: np.ndarray
    lower: np.ndarray | None

    def solve(self, vector: np.ndarray) -> np.ndarray:
        """``matrix^-1 vector``, or the shortest least squares solution in units of ``size``; 0 where not kept."""
        scaled = vector[self.kept] / self.size
        if self.lower is not None:
            found = cho_solve((self.lower, True), scaled, check_finite=False)
        else:
            values, vectors = np.linalg.eigh(self.unit)
            rank = values > RANK_TOLERANCE * values[-1]
            found = vectors[:, rank] @ ((vectors[:, rank].T @ scaled) / values[rank])
        result = np.zeros_like(vector)
        result[self.kept] = found / self.size
        return result


def factorize(matrix: np.ndarray, kept: np.ndarray) -> Factor:
    """Of a finite positive semidefinite ``matrix`` (d, d), whose diagonal is positive where ``kept`` (d,)."""
    inner = matrix[np.ix_(kept, kept)]
    size = np.sqrt(np.diagonal(inner))
    unit = inner / size[:, None] / size
    return Factor(kept, size, unit, _cholesky(unit))


def _cholesky(unit: np.ndarray) -> np.ndarray | None:
    if not len(unit):
        return unit
    try:
        lower, _ = cho_factor(unit, lower=True, check_finite=False)
    except np.linalg.LinAlgError:
        return None
    return lower if np.diagonal(lower).min() ** 2 > RANK_TOLERANCE else None


@dataclass(frozen=True)
class Quadratic:
    """``1 / (2 W) sum_i w_i (e_i - u_i' s - t)^2`` of a step (s, t) from ``origin``, the best t put in.

    In the problem's coordinates; without an intercept t is 0. As a function of s it is ``s' hessian s / 2 -
    linear' s + constant``. ``kept`` are the features that vary, the others' coefficients are 0.
    ``row`` is the weighted mean of the features as stored, and ``mean_residual - mean_row' s`` the best t.
    """

    origin: np.ndarray
    hessian: np.ndarray
    linear: np.ndarray
    constant: float
    kept: np.ndarray
    weight_sum: float
    row: np.ndarray
    mean_row: np.ndarray
    mean_residual: float

    def factor(self, ridge: np.ndarray) -> Factor:
        """Of ``hessian + diag(ridge)``."""
        matrix = self.hessian.copy()
        np.einsum("ii->i", matrix)[:] += ridge
        return factorize(matrix, self.kept)

    def minimise(self, factor: Factor, ridge: np.ndarray) -> np.ndarray:
        """Coefficients (d,) at which the quadratic ``+ sum_j ridge_j c_j^2 / 2`` is smallest."""
        if factor.lower is None:
            # shortest counts from 0, not from the origin
            return factor.solve(self.linear + self.hessian @ self.origin)
        return np.where(self.kept, self.origin + factor.solve(self.linear - ridge * self.origin), 0.0)

    def gradient(self, coefficients: np.ndarray) -> np.ndarray:
        """By the coefficients, shape (d,), of the quadratic alone."""
        return self.hessian @ (coefficients - self.origin) - self.linear

    def value(self, coefficients: np.ndarray) -> float:
        """The quadratic at coefficients (d,)."""
        step = coefficients - self.origin
        return max(float(step @ (0.5 * (self.hessian @ step) - self.linear)) + self.constant, 0.0)

    def flat(self, problem: Problem, coef: np.ndarray, coefficients: np.ndarray) -> np.ndarray:
        """The flat vector of ``coefficients`` and the intercept that is best with them; ``coef`` was the last one."""
        if not problem.fit_intercept:
            return coefficients
        shift = self.mean_residual - self.mean_row @ (coefficients - self.origin)
        return np.append(coefficients, coef[-1] + shift)

    def inverse_diagonal(self, problem: Problem, factor: Factor) -> np.ndarray:
        """The diagonal of ``(X' W X + W ridge)^-1``, with a column of ones in X for the intercept, which comes last.

        For features as stored; times the dispersion these are the variances of the coefficients (what Spark calls
        ``diagInvAtWA``). Empty where some feature is constant or linearly dependent.
        """
        if factor.lower is None or not self.kept.all():
            return np.empty(0)
        inverse_std = problem.scaling.inverse_std[:, 0]
        inverse, _ = dpotri(factor.lower, lower=1) if len(factor.lower) else (factor.lower, 0)
        variances = np.diagonal(inverse) * (inverse_std / factor.size) ** 2
        if problem.fit_intercept:
            scaled_row = self.row * inverse_std
            variances = np.append(variances, 1.0 + scaled_row @ factor.solve(scaled_row))
        return variances / self.weight_sum


def quadratic(problem: Problem, coef: np.ndarray, total: Update) -> Quadratic | None:
    """From the sums of ``optim.least_squares`` at the flat vector ``coef``; None where they define no problem.

    That is where a sum is not finite, or so large that its square is not, or no row has weight.
    """
    weight_sum = float(total["weight_sum"])
    if not weight_sum > 0.0 or not all((np.abs(value) < LARGEST_SUM).all() for value in total.values()):
        return None
    inverse_std = problem.scaling.inverse_std[:, 0]
    mean_row = inverse_std * np.asarray(total["row_sum"]) / weight_sum
    moments = inverse_std[:, None] * np.asarray(total["gram"]) * inverse_std / weight_sum
    linear = inverse_std * np.asarray(total["row_residual_sum"]) / weight_sum
    mean_residual = float(total["residual_sum"]) / weight_sum
    squares = float(total["residual_squares"]) / weight_sum
    hessian = moments
    if problem.fit_intercept:
        hessian = moments - np.outer(mean_row, mean_row)
        linear = linear - mean_residual * mean_row
        squares -= mean_residual**2
    return Quadratic(
        origin=problem.split(coef)[0][:, 0],
        hessian=hessian,
        linear=linear,
        constant=0.5 * max(squares, 0.0),
        kept=np.diagonal(hessian) > RANK_TOLERANCE * np.diagonal(moments),
        weight_sum=weight_sum,
        row=problem.centre + np.asarray(total["row_sum"]) / weight_sum,
        mean_row=mean_row,
        mean_residual=mean_residual,
    )


def response_std(total: Update) -> float:
    """The population standard deviation of responses, from sums at coefficients 0; where that is 0 their size, or 1."""
    weight_sum = float(total["weight_sum"])
    mean = float(total["residual_sum"]) / weight_sum
    return math.sqrt(max(float(total["residual_squares"]) / weight_sum - mean**2, 0.0)) or abs(mean) or 1.0


def feature_variances(problem: Problem, total: Update) -> np.ndarray:
    """Population variances (d,) of the features in the problem's coordinates, by the weights in the sums."""
    weight_sum = float(total["weight_sum"])
    moments = np.diagonal(np.asarray(total["gram"])) / weight_sum
    variances = moments - (np.asarray(total["row_sum"]) / weight_sum) ** 2
    return np.maximum(variances, 0.0) * problem.scaling.inverse_std[:, 0] ** 2
