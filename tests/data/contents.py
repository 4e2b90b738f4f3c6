"""What a data set holds, read from its block files, and what it should."""

from __future__ import annotations

import numpy as np
from batches import stacked
from oracles import plain_losses, plain_slopes, weighted_std

from sparkdml.data import Dataset
from sparkdml.data.open_blocks import open_handle
from sparkdml.losses import Softmax
from sparkdml.problem.gradient import loss_and_gradient

Table = tuple[np.ndarray, np.ndarray, np.ndarray]


def blocks_of(dataset: Dataset) -> list:
    return [block for handle in dataset.handles for block in open_handle(handle)]


def rows_of(dataset: Dataset) -> Table:
    """X, y, weights, sorted by the first column."""
    X, y, weights = stacked(blocks_of(dataset))
    order = np.argsort(X[:, 0], kind="stable")
    return X[order], y[order], weights[order]


def assert_rows(dataset: Dataset, table: Table) -> None:
    """Every row is there exactly once, with its label and weight."""
    for found, expected in zip(rows_of(dataset), table, strict=True):
        np.testing.assert_array_equal(found, expected)


def assert_statistics(dataset: Dataset, table: Table) -> None:
    """The statistics are numpy's of ``table``."""
    X, y, weights = table
    found = dataset.statistics
    assert (dataset.rows, dataset.features) == X.shape
    np.testing.assert_allclose(found.weight_sum, weights.sum(), rtol=1e-13)
    np.testing.assert_allclose(found.mean, np.average(X, axis=0, weights=weights), rtol=1e-11)
    np.testing.assert_allclose(found.std, weighted_std(X, weights), rtol=1e-9)
    np.testing.assert_array_equal(found.nonzeros, np.count_nonzero(X, axis=0))
    np.testing.assert_allclose(found.histogram, np.bincount(y.astype(int), weights), rtol=1e-12)


def assert_sums(dataset: Dataset, table: Table) -> None:
    """Loss and gradient over the blocks are the plain formula over ``table``."""
    X, y, weights = table
    loss = Softmax(int(y.max()) + 1)
    rng = np.random.default_rng(43)
    coefficients = 0.1 * rng.standard_normal((X.shape[1], loss.outputs))
    intercepts = rng.standard_normal(loss.outputs)
    margins = X @ coefficients + intercepts
    slopes = weights[:, None] * plain_slopes(loss, margins, y)
    found = loss_and_gradient(loss, blocks_of(dataset), coefficients, intercepts)
    np.testing.assert_allclose(found["loss"], weights @ plain_losses(loss, margins, y), rtol=1e-12)
    np.testing.assert_allclose(found["gradient"], X.T @ slopes, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(found["slope_sum"], slopes.sum(axis=0), rtol=1e-10, atol=1e-10)
