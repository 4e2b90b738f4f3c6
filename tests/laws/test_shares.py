"""The local placement's split of rows over threads: every row once, in order, evenly."""

from __future__ import annotations

import numpy as np
import pytest
from cases import BLOCK_FORMATS

from sparkdml.losses import Logistic
from sparkdml.placement import local
from sparkdml.problem.gradient import loss_and_gradient

every_format = pytest.mark.parametrize("make", BLOCK_FORMATS.values(), ids=BLOCK_FORMATS.keys())


def blocks_of(make, sizes, features=6):
    rng = np.random.default_rng(sum(sizes))
    result, first = [], 0
    for rows in sizes:
        X = rng.standard_normal((rows, features)).astype(np.float32).astype(float)
        labels = np.arange(first, first + rows, dtype=float)
        result.append(make(X, labels, rng.random(rows) + 0.5))
        first += rows
    return result


@every_format
@pytest.mark.parametrize("threads", [1, 2, 3, 8])
@pytest.mark.parametrize("sizes", [[1], [5, 1], [100], [40, 3, 57], [1] * 9], ids=str)
def test_every_row_is_in_one_share(make, threads, sizes, monkeypatch):
    monkeypatch.setattr(local, "SHARE_BYTES", 1)
    partitions = [[block] for block in blocks_of(make, sizes)]
    shares = local.shares(partitions, threads)
    assert 1 <= len(shares) <= threads
    labels = np.concatenate([block.labels for share in shares for block in share])
    np.testing.assert_array_equal(labels, np.arange(sum(sizes)))
    counts = [sum(block.rows for block in share) for share in shares]
    assert max(counts) - min(counts) <= 2


@every_format
def test_sums_do_not_depend_on_the_split(make, monkeypatch):
    blocks = blocks_of(make, [30, 41])
    for block in blocks:
        block.labels[:] %= 2
    coefficients, intercepts = np.full((6, 1), 0.3), np.array([-0.2])
    whole = loss_and_gradient(Logistic(), blocks, coefficients, intercepts)
    monkeypatch.setattr(local, "SHARE_BYTES", 1)
    parts = [loss_and_gradient(Logistic(), s, coefficients, intercepts) for s in local.shares([blocks], 5)]
    assert len(parts) == 5
    for name, value in whole.items():
        np.testing.assert_allclose(sum(part[name] for part in parts), value, rtol=1e-12)


def test_small_data_keeps_to_one_thread():
    assert len(local.shares([blocks_of(BLOCK_FORMATS["dense-float64"], [50])], 8)) == 1
