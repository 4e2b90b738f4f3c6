"""The Gram preconditioner is the Hessian's shape, changes the path and never the optimum."""

from __future__ import annotations

import numpy as np
import pytest
from cases import BLOCK_FORMATS

from sparkdml.algorithms import LBFGS, Problem, Scaling
from sparkdml.algorithms.preconditioner import gram_pays, gram_preconditioner
from sparkdml.core import Turn
from sparkdml.data.block import DenseBlock
from sparkdml.losses import Logistic, Softmax
from sparkdml.optim.gram import gram_matrix
from sparkdml.penalties import L2


def correlated(rows: int = 500, features: int = 8, classes: int = 2, seed: int = 0):
    """Rows whose covariance has a condition number of about 10^6, labels, weights."""
    rng = np.random.default_rng(seed)
    mixing = rng.standard_normal((features, features)) * np.logspace(0, -3, features)
    X = rng.standard_normal((rows, features)) @ mixing.T + 5.0
    scores = rng.standard_normal((rows, classes)) + (X[:, :1] - X[:, :1].mean()) * np.arange(classes)
    return X, scores.argmax(axis=1).astype(float), rng.integers(1, 4, rows).astype(float)


def problem_of(X: np.ndarray, w: np.ndarray, loss, reg: float, intercept: bool = True) -> Problem:
    mean = np.average(X, axis=0, weights=w)[:, None]
    std = X.std(axis=0)[:, None]
    inverse = np.divide(1.0, std, out=np.zeros_like(std), where=std > 0)
    return Problem(loss, L2(reg, np.ones_like(std)), Scaling(mean, inverse), intercept, w.sum())


def minimise(algorithm: LBFGS, problem: Problem, block) -> tuple:
    state, rounds = algorithm.init(problem, np.zeros(problem.size)), 0
    while state.stop is None:
        update, _ = algorithm.work(problem, [block], state.coef, None, Turn(rounds))
        state, rounds = algorithm.advance(problem, state, update), rounds + 1
    return state, rounds


@pytest.mark.parametrize("make", BLOCK_FORMATS.values(), ids=BLOCK_FORMATS.keys())
@pytest.mark.parametrize("rows", [1, 7, 300])
@pytest.mark.parametrize("centred", [False, True])
def test_gram_matrix_is_the_weighted_product_around_a_centre(make, rows, centred):
    rng = np.random.default_rng(rows)
    X = (rng.standard_normal((rows, 5)) * (rng.random((rows, 5)) < 0.5)).astype(np.float32).astype(float)
    w = rng.random(rows)
    block = make(X, np.zeros(rows), w)
    centre = rng.standard_normal(5) if centred else np.zeros(5)
    expected = 2 * ((X - centre).T * w) @ (X - centre)
    np.testing.assert_allclose(gram_matrix([block, block], centre), expected, rtol=1e-10, atol=1e-12 * rows)


@pytest.mark.parametrize("intercept", [True, False])
def test_solve_inverts_the_hessian_at_zero_of_the_logistic_loss(intercept):
    """At coefficients 0 every row's second derivative is 1/4, so the approximation is exact."""
    X, y, w = correlated()
    problem = problem_of(X, w, Logistic(), 0.1, intercept)
    block = DenseBlock(y, w, X.shape[1], X)
    preconditioner = gram_preconditioner(problem, gram_matrix([block], problem.centre))
    scaled = (X - problem.scaling.mean.T * intercept) * problem.scaling.inverse_std.T
    hessian = 0.25 * (scaled.T * w) @ scaled / w.sum() + 0.1 * np.eye(X.shape[1])
    vector = np.random.default_rng(1).standard_normal(problem.size)
    expected = np.linalg.solve(hessian, vector[: X.shape[1]])
    np.testing.assert_allclose(preconditioner.solve(vector)[: X.shape[1]], expected, rtol=1e-8)
    if intercept:
        assert preconditioner.solve(vector)[-1] == pytest.approx(4 * vector[-1])


@pytest.mark.parametrize("loss", [Logistic(), Softmax(3)], ids=["logistic", "softmax"])
@pytest.mark.parametrize("reg", [0.0, 1e-3])
def test_same_optimum_in_fewer_rounds(loss, reg):
    X, y, w = correlated(classes=max(loss.outputs, 2))
    problem = problem_of(X, w, loss, reg)
    block = DenseBlock(y, w, X.shape[1], X)
    plain, slow = minimise(LBFGS(10_000, 1e-13), problem, block)
    shaped, fast = minimise(LBFGS(10_000, 1e-13, gram=True), problem, block)
    assert shaped.objective == pytest.approx(plain.objective, rel=1e-9)
    assert fast < slow


def test_constant_and_duplicate_columns_do_not_break_it():
    X, y, w = correlated()
    X = np.column_stack([X, np.full(len(y), 3.0), X[:, 0]])
    problem = problem_of(X, w, Logistic(), 0.0)
    state, _ = minimise(LBFGS(500, 1e-10, gram=True), problem, DenseBlock(y, w, X.shape[1], X))
    assert state.stop.reason in ("converged", "stalled")
    coefficients, _ = problem.to_raw(state.best)
    assert coefficients[8] == 0.0


def test_it_is_not_worth_it_where_features_are_many_or_rows_cost_little():
    assert gram_pays(400_000, 100, 4e7, 2, 0.05)
    assert not gram_pays(10_000, 5_000, 5e7, 2, 0.05)
    assert not gram_pays(200_000, 100_000, 8e6, 2, 0.05)
    # many workers would send more matrices than a driver should take
    assert not gram_pays(10**9, 1_000, 1e12, 1_000, 0.05)
