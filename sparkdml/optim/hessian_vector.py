"""The Hessian of a worker's rows times a vector, without the Hessian."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.special import softmax

from sparkdml.core import Update
from sparkdml.data.block import Block
from sparkdml.losses.base import Loss
from sparkdml.losses.softmax import Softmax
from sparkdml.problem.gradient import padded


def hessian_vector(
    loss: Loss,
    blocks: Sequence[Block],
    coefficients: np.ndarray,
    intercepts: np.ndarray,
    direction: np.ndarray,
    intercept_direction: np.ndarray,
) -> Update:
    """``sum_i X_i' H_i X_i v``, ``H_i`` (K, K) being the weighted second derivative of row i's loss in its margins.

    Parameters
    ----------
    coefficients, direction : float64 (d, K), ``intercepts`` and ``intercept_direction`` (K,): the point and v, for
        features as stored.

    Returns
    -------
    ``product`` (d, K), and ``product_sum`` (K,) for the intercepts.
    """
    at, along = padded(blocks, coefficients), padded(blocks, direction)
    product = np.zeros(at.shape)
    product_sum = np.zeros(loss.outputs)
    for block in blocks:
        step = block.chunk_rows(loss.outputs)
        for start in range(0, block.rows, step):
            stop = min(start + step, block.rows)
            margins, changes = np.empty((2, stop - start, loss.outputs))
            block.margins(start, stop, at, intercepts, margins)
            block.margins(start, stop, along, intercept_direction, changes)
            slopes = _slope_changes(loss, margins, changes, block.labels[start:stop], block.weights[start:stop])
            block.accumulate(start, stop, slopes, product)
            product_sum += slopes.sum(axis=0)
    return {"product": product[:, : loss.outputs].copy(), "product_sum": product_sum}


def _slope_changes(
    loss: Loss, margins: np.ndarray, changes: np.ndarray, labels: np.ndarray, weights: np.ndarray
) -> np.ndarray:
    """``H_i changes_i`` of every row, (n, K)."""
    if isinstance(loss, Softmax):
        # w p_k (delta_kl - p_l) summed over l
        shares = softmax(margins, axis=1)
        mean = np.einsum("ik,ik->i", shares, changes)
        return np.asarray(weights[:, None] * shares * (changes - mean[:, None]))
    if loss.outputs > 1:
        raise NotImplementedError(f"{type(loss).__name__} does not tell its second derivatives")
    return loss.curvatures(margins[:, 0], labels, weights)[:, None] * changes
