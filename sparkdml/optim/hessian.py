"""Loss, gradient and Hessian over a worker's rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sparkdml.core import Update
from sparkdml.data.block import Block
from sparkdml.losses.base import Loss
from sparkdml.optim.gram import mirrored


def loss_gradient_and_hessian(
    loss: Loss, blocks: Sequence[Block], coefficients: np.ndarray, intercepts: np.ndarray, centre: np.ndarray
) -> Update:
    """As :func:`~sparkdml.problem.gradient.loss_and_gradient` for one margin a row, with second derivatives.

    ``hessian`` (d, d) is ``sum_i h_i (x_i - centre)(x_i - centre)'``, ``cross`` (d,) ``sum_i h_i (x_i - centre)`` and
    ``curvature`` (float) ``sum_i h_i``, where ``h_i`` is the weighted second derivative of row i's loss.
    """
    features = len(coefficients)
    value, slope_sum, curvature = 0.0, 0.0, 0.0
    gradient, weighted = np.zeros((features, 1)), np.zeros((features, 1))
    hessian = np.zeros((features, features))
    for block in blocks:
        step = block.chunk_rows(1)
        for start in range(0, block.rows, step):
            stop = min(start + step, block.rows)
            labels, weights = block.labels[start:stop], block.weights[start:stop]
            margins, slopes = np.empty((stop - start, 1)), np.empty((stop - start, 1))
            block.margins(start, stop, coefficients, intercepts, margins)
            value += loss.evaluate(margins, labels, weights, slopes)
            seconds = loss.curvatures(margins[:, 0], labels, weights)
            block.accumulate(start, stop, slopes, gradient)
            block.accumulate(start, stop, seconds[:, None], weighted)
            block.add_gram(start, stop, seconds, centre, hessian)
            slope_sum += float(slopes.sum())
            curvature += float(seconds.sum())
    return {
        "loss": value,
        "gradient": gradient,
        "slope_sum": np.array([slope_sum]),
        "hessian": mirrored(hessian),
        "cross": weighted[:, 0] - curvature * centre,
        "curvature": curvature,
    }
