"""Loss and gradient over a worker's rows, in one read of the features."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sparkdml.core import Update, add_updates
from sparkdml.data.block import Block
from sparkdml.losses.base import Loss
from sparkdml.problem.devices.block import DeviceBlock
from sparkdml.problem.devices.gradient import sums_on_devices
from sparkdml.problem.devices.losses import ARRAY_LOSSES
from sparkdml.resources.threads import each_of


def loss_and_gradient(loss: Loss, blocks: Sequence[Block], coefficients: np.ndarray, intercepts: np.ndarray) -> Update:
    """Sums over all rows of ``blocks``: the weighted loss and its derivatives.

    Parameters
    ----------
    coefficients : float64 (d, K) and ``intercepts`` float64 (K,), for features as stored.

    Returns
    -------
    ``loss`` (float), ``gradient`` (d, K), ``slope_sum`` (K,), the derivative by the intercepts; for a loss with
    parameters of its own also ``extra`` (extras,), the derivative by them.
    """
    value, wide = 0.0, padded(blocks, coefficients)
    gradient = np.zeros(wide.shape)
    slope_sum, extra = np.zeros(loss.outputs), np.zeros(loss.extras)
    held: list[DeviceBlock] = []
    for block in blocks:
        if isinstance(block, DeviceBlock) and type(loss) in ARRAY_LOSSES:
            held.append(block)
        else:
            value += _add_block(loss, block, wide, intercepts, gradient, slope_sum, extra)
    sums: Update = {"loss": value, "gradient": gradient[:, : loss.outputs], "slope_sum": slope_sum}
    if held:
        sums = add_updates(sums, sums_on_devices(loss, held, coefficients, intercepts))
    return {**sums, "extra": extra} if loss.extras else sums


def total_loss(
    loss: Loss, blocks: Sequence[Block], coefficients: np.ndarray, intercepts: np.ndarray, threads: int = 1
) -> float:
    """The weighted loss alone, summed over all rows of ``blocks``; arguments as in :func:`loss_and_gradient`.

    The sum is the same, bit by bit, for any number of threads.
    """
    wide = padded(blocks, coefficients)
    chunks = [(block, start) for block in blocks for start in range(0, block.rows, block.chunk_rows(loss.outputs))]
    values = np.zeros(len(chunks))

    def evaluate(number: int) -> None:
        block, start = chunks[number]
        stop = min(start + block.chunk_rows(loss.outputs), block.rows)
        margins, slopes = np.empty((2, stop - start, loss.outputs))
        block.margins(start, stop, wide, intercepts, margins)
        values[number] = loss.evaluate(margins, block.labels[start:stop], block.weights[start:stop], slopes)

    each_of(range(len(chunks)), evaluate, threads)
    return float(sum(values.tolist()))


def padded(blocks: Sequence[Block], coefficients: np.ndarray) -> np.ndarray:
    """``coefficients`` (d, K), with columns of 0 beyond K where kernels of these blocks want them."""
    outputs = coefficients.shape[1]
    lanes = max((block.lanes(outputs) for block in blocks), default=outputs)
    if lanes == outputs:
        return coefficients
    wide = np.zeros((len(coefficients), lanes))
    wide[:, :outputs] = coefficients
    return wide


def _add_block(
    loss: Loss,
    block: Block,
    coefficients: np.ndarray,
    intercepts: np.ndarray,
    gradient: np.ndarray,
    slope_sum: np.ndarray,
    extra: np.ndarray,
) -> float:
    """Add the block's derivatives to ``gradient``, ``slope_sum`` and ``extra``; returns its loss."""
    value = 0.0
    # A chunk fits the core's cache, so the second use of its features (the gradient) does not reach memory again.
    chunk_rows = block.chunk_rows(loss.outputs)
    margins = np.empty((chunk_rows, loss.outputs))
    slopes = np.empty_like(margins)
    for start in range(0, block.rows, chunk_rows):
        stop = min(start + chunk_rows, block.rows)
        m, s = margins[: stop - start], slopes[: stop - start]
        block.margins(start, stop, coefficients, intercepts, m)
        labels, weights = block.labels[start:stop], block.weights[start:stop]
        value += loss.evaluate(m, labels, weights, s)
        if loss.extras:
            extra += loss.extra_slopes(m, labels, weights)
        block.accumulate(start, stop, s, gradient)
        slope_sum += np.add.reduce(s)
    return value
