"""Independent formulas in plain numpy and scipy."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.special import expit, logsumexp, softmax

from sparkdml.losses import Logistic, Loss, Softmax


def plain_losses(loss: Loss, margins: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The loss of every row, shape (n,)."""
    if isinstance(loss, Logistic):
        return np.logaddexp(0.0, np.where(labels == 1, -1.0, 1.0) * margins[:, 0])
    assert isinstance(loss, Softmax)
    picked = np.take_along_axis(margins, labels.astype(int)[:, None], axis=1)[:, 0]
    return logsumexp(margins, axis=1) - picked


def plain_slopes(loss: Loss, margins: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The derivative of every row's loss by its margins, shape (n, K)."""
    if isinstance(loss, Logistic):
        return expit(margins) - labels[:, None]
    return softmax(margins, axis=1) - np.eye(loss.outputs)[labels.astype(int)]


def finite_difference(f: Callable[[np.ndarray], float], at: np.ndarray, step: float) -> np.ndarray:
    """Central differences of ``f`` by every entry of ``at``."""
    result = np.zeros_like(at)
    for i in np.ndindex(at.shape):
        ahead, behind = at.copy(), at.copy()
        ahead[i] += step
        behind[i] -= step
        result[i] = (f(ahead) - f(behind)) / (2.0 * step)
    return result


def weighted_std(X: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Spark's: ``sqrt(sum w (x - mean)^2 / (W - sum w^2 / W))``; exactly 0 for constant columns."""
    total = weights.sum()
    squares = weights @ (X - np.average(X, axis=0, weights=weights)) ** 2
    std = np.sqrt(squares / (total - weights @ weights / total))
    return np.where(np.ptp(X, axis=0) == 0, 0.0, std)


def random_labels(rng: np.random.Generator, loss: Loss, rows: int) -> np.ndarray:
    return rng.integers(0, max(loss.outputs, 2), rows).astype(np.float64)


def random_rows(rng: np.random.Generator, rows: int, features: int, density: float = 0.4) -> np.ndarray:
    """A matrix with zeros, whose values float32 holds exactly; its middle row is empty where there are several."""
    X = rng.standard_normal((rows, features)).astype(np.float32).astype(np.float64)
    X[rng.random(X.shape) > density] = 0.0
    if rows > 2:
        X[rows // 2] = 0.0
    return X
