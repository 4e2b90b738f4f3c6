"""Second moments of a worker's rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sparkdml.data.block import Block


def gram_matrix(blocks: Sequence[Block], features: int) -> np.ndarray:
    """``sum_i w_i x_i x_i'`` over all rows, float64 (features, features)."""
    total = np.zeros((features, features))
    for block in blocks:
        step = block.chunk_rows(1)
        for start in range(0, block.rows, step):
            block.add_gram(start, min(start + step, block.rows), total)
    # kernels may fill one triangle only
    lower = np.tril(total)
    return lower + np.tril(lower, -1).T
