"""Draws are fair and repeatable, and a batch is the rows that were drawn, whatever blocks they lie in."""

from __future__ import annotations

import numpy as np
import pytest
from cases import BLOCK_FORMATS
from oracles import random_labels, random_rows
from problems import make_problem, plain_gradient
from scipy import stats

from sparkdml.core import Turn
from sparkdml.losses import Huber, Logistic, Loss, Softmax
from sparkdml.optim.batches import ORDERS, Rows, Shuffled, WithReplacement, generator
from sparkdml.optim.schedules import SCHEDULES, Constant, Cosine, Inverse, InverseSquareRoot, WarmUp, scale_with_batch
from sparkdml.problem.batch_gradient import BatchGradient
from sparkdml.problem.gradient import loss_and_gradient

every_order = pytest.mark.parametrize("order", [make() for make in ORDERS.values()], ids=ORDERS.keys())
#: Formats of blocks that the same rows are spread over.
SPREADS = [
    ("dense-float64",),
    ("sparse-float64",),
    ("dense-float32", "dense-float64", "dense-float32"),
    ("sparse-float64", "sparse-float32"),
    ("sparse-float32", "dense-float64", "sparse-float64", "dense-float32"),
]
every_spread = pytest.mark.parametrize("formats", SPREADS, ids="+".join)


def spread(formats: tuple[str, ...], X: np.ndarray, y: np.ndarray, weights: np.ndarray):
    """The rows in blocks of these formats."""
    shares = np.array_split(np.arange(len(X)), len(formats))
    return [BLOCK_FORMATS[name](X[i], y[i], weights[i]) for name, i in zip(formats, shares, strict=True)]


def numbered(formats: tuple[str, ...], count: int, weights: np.ndarray | None = None):
    """Rows whose labels are their numbers, and their features."""
    X = random_rows(np.random.default_rng(0), count, 5)
    return X, spread(formats, X, np.arange(float(count)), np.ones(count) if weights is None else weights)


def labels_of(batch) -> list[int]:
    return [int(label) for block, start, stop in batch.parts for label in block.labels[start:stop]]


@pytest.mark.parametrize("count", [1, 7, 500])
def test_without_replacement_an_epoch_has_every_row_once(count: int) -> None:
    epochs = [Shuffled().draw(count, count, generator(3, Turn(1), epoch)) for epoch in range(4)]
    for epoch in epochs:
        np.testing.assert_array_equal(np.sort(epoch), np.arange(count))
    if count > 1:
        assert len({tuple(epoch) for epoch in epochs}) > 1
    part = Shuffled().draw(500, 60, generator(3, Turn(1)))
    assert len(set(part)) == 60


@every_order
def test_every_row_is_as_likely_at_every_place(order) -> None:
    draws = np.array([order.draw(8, 3, np.random.default_rng(n)) for n in range(4000)])
    for place in draws.T:
        assert stats.chisquare(np.bincount(place, minlength=8)).pvalue > 1e-4


def test_with_replacement_draws_are_independent() -> None:
    draws = np.array([WithReplacement().draw(4, 2, np.random.default_rng(n)) for n in range(4000)])
    assert stats.chisquare(np.bincount(4 * draws[:, 0] + draws[:, 1], minlength=16)).pvalue > 1e-4


def test_draws_are_repeated_with_the_task_and_differ_between_tasks() -> None:
    turns = [(Turn(2, worker, 3), epoch, seed) for worker in (0, 1) for epoch in (0, 1) for seed in (-7, 8)]
    turns += [(Turn(3, 0, 3), 0, 8)]
    draws = [tuple(Shuffled().draw(50, 50, generator(seed, turn, epoch))) for turn, epoch, seed in turns]
    again = [tuple(Shuffled().draw(50, 50, generator(seed, turn, epoch))) for turn, epoch, seed in turns]
    assert draws == again
    assert len(set(draws)) == len(turns)


@every_spread
@pytest.mark.parametrize("batch_size", [1, 8, 29, 100])
def test_batches_are_the_drawn_rows(formats, batch_size: int) -> None:
    X, blocks = numbered(formats, 29)
    numbers = np.random.default_rng(1).integers(0, 29, 60)
    rows = Rows(blocks)
    batches = list(rows.batches(numbers, batch_size))
    expected = np.split(numbers, range(batch_size, 60, batch_size))
    assert [sorted(labels_of(batch)) for batch in batches] == [sorted(part) for part in expected]
    for batch in batches:
        assert len(batch.parts) <= len({name.split("-")[0] for name in formats})
        assert batch.rows == len(labels_of(batch))
        for block, start, stop in batch.parts:
            out = np.empty((stop - start, 1))
            block.margins(start, stop, np.arange(1.0, 6.0)[:, None], np.zeros(1), out)
            np.testing.assert_allclose(out[:, 0], X[block.labels[start:stop].astype(int)] @ np.arange(1.0, 6.0))


def test_stretches_of_many_bytes_change_no_batch() -> None:
    X = np.random.default_rng(0).standard_normal((3000, 300))
    rows = Rows(spread(("dense-float64",) * 2, X, np.arange(3000.0), np.ones(3000)))
    numbers = np.random.default_rng(1).permutation(3000)
    batches = [labels_of(batch) for batch in rows.batches(numbers, 70)]
    assert [sorted(batch) for batch in batches] == [sorted(part) for part in np.split(numbers, range(70, 3000, 70))]


@every_spread
def test_rows_of_weight_0_are_not_there(formats) -> None:
    weights = np.where(np.arange(30) % 3 == 0, 0.0, 1.0 + np.arange(30))
    rows = Rows(numbered(formats, 30, weights)[1])
    assert rows.count == 20
    assert rows.mean_weight == pytest.approx(weights[weights > 0].mean(), rel=1e-15)
    drawn = [label for batch in rows.batches(np.arange(20), 7) for label in labels_of(batch)]
    assert sorted(drawn) == list(np.flatnonzero(weights))


def test_a_worker_without_rows_has_none() -> None:
    none = numbered(("dense-float64",), 0)[1]
    for blocks in ([], none, numbered(("sparse-float64",), 4, np.zeros(4))[1]):
        rows = Rows(blocks)
        assert rows.count == 0
        assert rows.mean_weight == 0.0


def test_only_sparse_rows_keep_to_some_features() -> None:
    assert [Rows(numbered(formats, 12)[1]).sparse for formats in SPREADS] == [False, True, False, True, False]


@every_spread
@pytest.mark.parametrize("loss", [Logistic(), Softmax(3), Huber()], ids=["logistic", "softmax", "huber"])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_the_gradient_over_all_rows_is_the_problem_s(formats, loss: Loss, fit_intercept: bool) -> None:
    rng = np.random.default_rng(4)
    X, y, weights = random_rows(rng, 200, 5) + 0.5, random_labels(rng, loss, 200), rng.uniform(0.5, 2.0, 200)
    X[:, 3] = 1.5
    blocks = spread(formats, X.astype(np.float32).astype(np.float64), y, weights)
    problem = make_problem(loss, X, weights, 0.0, fit_intercept=fit_intercept)
    c = rng.standard_normal(problem.size)
    coefficients, intercepts = problem.to_raw(c)
    _, expected = problem.evaluate(c, loss_and_gradient(problem.loss_at(c), blocks, coefficients, intercepts))
    found = BatchGradient.of(problem)(c, Rows(blocks).whole().parts) / weights.sum()
    np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-14)


@every_order
def test_batch_gradients_are_unbiased(order) -> None:
    """Within 4 standard errors of the full gradient, by all coordinates."""
    rng = np.random.default_rng(5)
    loss = Logistic()
    X, y, weights = random_rows(rng, 90, 4), random_labels(rng, loss, 90), rng.uniform(0.2, 3.0, 90)
    problem = make_problem(loss, X, weights, fit_intercept=False)
    c = rng.standard_normal(4)
    rows, gradient = Rows(spread(("dense-float64",) * 3, X, y, weights)), BatchGradient.of(problem)
    samples = []
    for epoch in range(300):
        batch = next(rows.batches(order.draw(rows.count, 8, generator(0, Turn(0), epoch)), 8))
        samples.append(gradient(c, batch.parts) / (8 * rows.mean_weight))
    raw, _ = problem.to_raw(c)
    full, _ = plain_gradient(loss, X, y, weights, 0.0, True, raw, np.zeros(1))
    errors = np.mean(samples, axis=0) - full[:, 0] * problem.scaling.inverse_std[:, 0]
    assert (np.abs(errors) <= 4.0 * stats.sem(samples, axis=0)).all()


def test_schedules_have_their_formulas() -> None:
    t = np.linspace(0.0, 30.0, 61)
    np.testing.assert_allclose([Constant()(at) for at in t], 1.0)
    np.testing.assert_allclose([Inverse(0.5)(at) for at in t], 1 / (1 + 0.5 * t))
    np.testing.assert_allclose([InverseSquareRoot(2.0)(at) for at in t], (1 + 2 * t) ** -0.5)
    cosine = 0.1 + 0.9 * (1 + np.cos(np.pi * np.minimum(t / 20, 1))) / 2
    np.testing.assert_allclose([Cosine(20.0, 0.1)(at) for at in t], cosine)
    warm = np.where(t < 4, t / 4, 1 / (1 + np.maximum(t - 4, 0)))
    np.testing.assert_allclose([WarmUp(4.0, Inverse(1.0))(at) for at in t], warm)


@pytest.mark.parametrize("make", SCHEDULES.values(), ids=SCHEDULES.keys())
def test_every_schedule_is_a_factor_from_0_to_1(make) -> None:
    values = [make()(t) for t in np.linspace(0.0, 100.0, 1001)]
    assert 0.0 <= min(values) <= max(values) == 1.0


def test_step_sizes_grow_with_batches() -> None:
    assert scale_with_batch(0.1, 8192, 256) == pytest.approx(3.2)
    with pytest.raises(ValueError, match="batch_size=0"):
        scale_with_batch(0.1, 0, 256)
    with pytest.raises(ValueError, match="length=0"):
        WarmUp(0.0)
