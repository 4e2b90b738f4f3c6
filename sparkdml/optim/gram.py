"""Second moments of a worker's rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sparkdml.data.block import Block


def gram_matrix(blocks: Sequence[Block], centre: np.ndarray) -> np.ndarray:
    """``sum_i w_i (x_i - centre)(x_i - centre)'`` over all rows, float64 (d, d); ``centre`` has shape (d,).

    Centring rows before they are multiplied keeps the digits that a difference of two large sums would lose (dense
    rows; sparse ones are never filled in).
    """
    total = np.zeros((len(centre), len(centre)))
    for block in blocks:
        step = block.chunk_rows(1)
        for start in range(0, block.rows, step):
            stop = min(start + step, block.rows)
            block.add_gram(start, stop, block.weights[start:stop], centre, total)
    return mirrored(total)


def mirrored(lower: np.ndarray) -> np.ndarray:
    """The symmetric matrix whose lower triangle is that of ``lower``."""
    triangle = np.tril(lower)
    return triangle + np.tril(lower, -1).T
