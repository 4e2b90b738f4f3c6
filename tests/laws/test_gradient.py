"""Loss and gradient over blocks are the plain formula, however rows are stored, cut and chunked."""

from __future__ import annotations

import numpy as np
import pytest
from cases import BLOCK_FORMATS, LOSSES
from oracles import finite_difference, plain_losses, plain_slopes, random_labels, random_rows

from sparkdml.data.block import DenseBlock, SparseBlock
from sparkdml.losses import Loss
from sparkdml.problem.gradient import loss_and_gradient

every_format = pytest.mark.parametrize("build", BLOCK_FORMATS.values(), ids=BLOCK_FORMATS.keys())
every_loss = pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES.keys())


def task(loss: Loss, rows: int, features: int):
    """Rows, labels, weights, coefficients, intercepts."""
    rng = np.random.default_rng(rows + features)
    return (
        random_rows(rng, rows, features),
        random_labels(rng, loss, rows),
        rng.uniform(0.0, 2.0, rows),
        rng.standard_normal((features, loss.outputs)),
        rng.standard_normal(loss.outputs),
    )


def assert_same_sums(found, expected, rtol: float = 1e-12) -> None:
    assert found.keys() == expected.keys() == {"loss", "gradient", "slope_sum"}
    for name, value in expected.items():
        scale = np.abs(value).max() if np.size(value) else 1.0
        np.testing.assert_allclose(found[name], value, rtol=rtol, atol=rtol * scale, err_msg=name)


@every_loss
@every_format
@pytest.mark.parametrize("shape", [(1, 1), (1, 9), (7, 1), (7, 3), (133, 21)], ids=str)
def test_sums_are_the_plain_formula(build, loss: Loss, shape: tuple[int, int]) -> None:
    X, y, weights, coefficients, intercepts = task(loss, *shape)
    margins = X @ coefficients + intercepts
    slopes = weights[:, None] * plain_slopes(loss, margins, y)
    expected = {
        "loss": weights @ plain_losses(loss, margins, y),
        "gradient": X.T @ slopes,
        "slope_sum": slopes.sum(axis=0),
    }
    found = loss_and_gradient(loss, [build(X, y, weights)], coefficients, intercepts)
    assert_same_sums(found, expected)


@every_loss
@every_format
@pytest.mark.parametrize("chunk", [1, 2, 7, 100, 10**6])
def test_chunks_change_only_the_rounding(build, loss: Loss, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    X, y, weights, coefficients, intercepts = task(loss, 101, 6)
    block = build(X, y, weights)
    expected = loss_and_gradient(loss, [block], coefficients, intercepts)
    for kind in (DenseBlock, SparseBlock):
        monkeypatch.setattr(kind, "chunk_rows", lambda self, outputs: chunk)
    assert_same_sums(loss_and_gradient(loss, [block], coefficients, intercepts), expected)


@every_loss
@every_format
def test_default_chunks_cover_rows_that_no_chunk_divides(build, loss: Loss, monkeypatch: pytest.MonkeyPatch) -> None:
    X, y, weights, coefficients, intercepts = task(loss, 333, 4)
    block = build(X, y, weights)
    expected = loss_and_gradient(loss, [block], coefficients, intercepts)
    monkeypatch.setattr("sparkdml.data.block.CHUNK_BYTES", 1)
    assert block.chunk_rows(loss.outputs) < 333
    assert_same_sums(loss_and_gradient(loss, [block], coefficients, intercepts), expected)


@every_loss
def test_mixed_blocks_of_any_cut_sum_to_the_whole(loss: Loss) -> None:
    X, y, weights, coefficients, intercepts = task(loss, 90, 8)
    builders = list(BLOCK_FORMATS.values())
    whole = loss_and_gradient(loss, [builders[1](X, y, weights)], coefficients, intercepts)
    cuts = [0, 1, 8, 40, 89, 90]
    parts = [
        builders[n % len(builders)](X[a:b], y[a:b], weights[a:b])
        for n, (a, b) in enumerate(zip(cuts, cuts[1:], strict=False))
    ]
    assert_same_sums(loss_and_gradient(loss, parts, coefficients, intercepts), whole)


@every_loss
def test_no_blocks_sum_to_zeros(loss: Loss) -> None:
    coefficients = np.ones((3, loss.outputs))
    found = loss_and_gradient(loss, [], coefficients, np.ones(loss.outputs))
    zeros = {"loss": 0.0, "gradient": np.zeros((3, loss.outputs)), "slope_sum": np.zeros(loss.outputs)}
    assert_same_sums(found, zeros)


@every_loss
def test_gradient_is_the_finite_difference_of_the_loss(loss: Loss) -> None:
    X, y, weights, coefficients, intercepts = task(loss, 12, 3)
    block = BLOCK_FORMATS["dense-float64"](X, y, weights)

    def value(coefficients: np.ndarray, intercepts: np.ndarray) -> float:
        return loss_and_gradient(loss, [block], coefficients, intercepts)["loss"]

    found = loss_and_gradient(loss, [block], coefficients, intercepts)
    by_coefficients = finite_difference(lambda c: value(c, intercepts), coefficients, 1e-5)
    by_intercepts = finite_difference(lambda b: value(coefficients, b), intercepts, 1e-5)
    np.testing.assert_allclose(found["gradient"], by_coefficients, atol=1e-7)
    np.testing.assert_allclose(found["slope_sum"], by_intercepts, atol=1e-7)


@every_format
def test_inputs_are_left_alone_and_outputs_are_new(build) -> None:
    loss = LOSSES["softmax-5"]
    X, y, weights, coefficients, intercepts = task(loss, 40, 5)
    block = build(X, y, weights)
    for array in (y, weights, coefficients, intercepts, block.values):
        array.flags.writeable = False
    first = loss_and_gradient(loss, [block], coefficients, intercepts)
    second = loss_and_gradient(loss, [block], coefficients, intercepts)
    assert first["loss"] == second["loss"]
    np.testing.assert_array_equal(first["gradient"], second["gradient"])
    assert not np.shares_memory(first["gradient"], second["gradient"])
