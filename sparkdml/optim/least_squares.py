"""A worker's part of a weighted least squares problem."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from sparkdml.core import Update
from sparkdml.data.block import Block
from sparkdml.optim.gram import mirrored


class Responses(NamedTuple):
    """Of n rows: ``response`` and ``weights`` (never negative), shape (n,), and a number to be summed with them."""

    response: np.ndarray
    weights: np.ndarray
    loss: float = 0.0


#: ``(block, start, stop, margins)`` -> what is regressed on rows start to stop; ``margins`` has shape (n,).
ResponseAndWeights = Callable[[Block, int, int, np.ndarray], Responses]


def labels_less_offsets(block: Block, start: int, stop: int, margins: np.ndarray) -> Responses:
    """Plain linear regression: labels with the rows' own weights."""
    labels = block.labels[start:stop]
    response = labels if block.offsets is None else labels - block.offsets[start:stop]
    return Responses(response, block.weights[start:stop])


def least_squares_sums(
    blocks: Sequence[Block],
    centre: np.ndarray,
    coefficients: np.ndarray,
    intercepts: np.ndarray,
    response_and_weights: ResponseAndWeights,
) -> Update:
    """Sums over all rows of ``blocks`` of what defines ``sum_i w_i (z_i - x_i' b - b0)^2`` around a point.

    With ``e_i = z_i - x_i' coefficients - intercept``, the residual there, and ``u_i = x_i - centre``. Residuals keep
    digits that responses far from 0 would lose.

    Parameters
    ----------
    centre : float64 (d,), ``coefficients`` (d, 1) and ``intercepts`` (1,), for features as stored.

    Returns
    -------
    ``weight_sum``: sum w; ``residual_sum``: sum w e; ``residual_squares``: sum w e^2; ``row_sum`` (d,): sum w u;
    ``row_residual_sum`` (d,): sum w e u; ``gram`` (d, d): sum w u u'; ``loss``: sum of ``Responses.loss``.
    """
    scalars = np.zeros(4)
    row_sum, row_residual_sum = np.zeros((len(centre), 1)), np.zeros((len(centre), 1))
    gram = np.zeros((len(centre), len(centre)))
    # weights that overflow are found out from their sums
    with np.errstate(all="ignore"):
        for block in blocks:
            step = block.chunk_rows(1)
            for start in range(0, block.rows, step):
                stop = min(start + step, block.rows)
                margins = np.empty((stop - start, 1))
                block.margins(start, stop, coefficients, intercepts, margins)
                response, weights, loss = response_and_weights(block, start, stop, margins[:, 0])
                residuals = response - margins[:, 0]
                weighted = weights * residuals
                scalars += np.array([weights.sum(), weighted.sum(), weighted @ residuals, loss])
                block.accumulate(start, stop, weights[:, None], row_sum)
                block.accumulate(start, stop, weighted[:, None], row_residual_sum)
                block.add_gram(start, stop, weights, centre, gram)
        weight_sum, residual_sum, residual_squares, loss = scalars.tolist()
        return {
            "weight_sum": weight_sum,
            "residual_sum": residual_sum,
            "residual_squares": residual_squares,
            "row_sum": row_sum[:, 0] - weight_sum * centre,
            "row_residual_sum": row_residual_sum[:, 0] - residual_sum * centre,
            "gram": mirrored(gram),
            "loss": loss,
        }
