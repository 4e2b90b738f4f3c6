"""A problem's coordinates change the numbers, never the model or the objective."""

from __future__ import annotations

import numpy as np
import pytest
from cases import BLOCK_FORMATS, LOSSES
from oracles import finite_difference, random_labels
from problems import make_problem, plain_objective

from sparkdml.losses import Logistic, Loss, Softmax
from sparkdml.problem.gradient import loss_and_gradient

every_loss = pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES.keys())
intercept = pytest.mark.parametrize("fit_intercept", [True, False], ids=["intercept", "no-intercept"])
standard = pytest.mark.parametrize("standardization", [True, False], ids=["standardized", "as-given"])
CONSTANT, LARGE_MEAN = 2, 3


def rows(loss: Loss):
    """Five columns of unlike scale: one constant, one whose mean is a million times its deviation."""
    rng = np.random.default_rng(11)
    X = rng.standard_normal((40, 5)) * [1.0, 50.0, 0.0, 1.0, 1e-3]
    X[:, CONSTANT] = 4.0
    X[:, LARGE_MEAN] += 1e6
    return X, random_labels(rng, loss, 40), rng.uniform(0.1, 2.0, 40)


def evaluate(problem, block, c: np.ndarray):
    sums = loss_and_gradient(problem.loss, [block], *problem.to_raw(c))
    return problem.evaluate(c, sums)


@every_loss
@intercept
def test_from_raw_is_the_inverse_of_to_raw(loss: Loss, fit_intercept: bool) -> None:
    X, _, weights = rows(loss)
    X = np.delete(X, CONSTANT, axis=1)
    problem = make_problem(loss, X, weights, fit_intercept=fit_intercept)
    c = np.random.default_rng(0).standard_normal(problem.size)
    assert c.size == (4 + fit_intercept) * loss.outputs
    coefficients, intercepts = problem.to_raw(c)
    assert coefficients.shape == (4, loss.outputs)
    assert intercepts.shape == (loss.outputs,)
    np.testing.assert_allclose(problem.from_raw(coefficients, intercepts), c, rtol=1e-9)
    if not fit_intercept:
        assert not intercepts.any()


@every_loss
def test_from_raw_keeps_every_margin_though_constant_columns_lose_theirs(loss: Loss) -> None:
    X, _, weights = rows(loss)
    problem = make_problem(loss, X, weights)
    rng = np.random.default_rng(1)
    given = rng.standard_normal((5, loss.outputs)), rng.standard_normal(loss.outputs)
    coefficients, intercepts = problem.to_raw(problem.from_raw(*given))
    assert not coefficients[CONSTANT].any()
    np.testing.assert_allclose(X @ coefficients + intercepts, X @ given[0] + given[1], rtol=1e-8, atol=1e-6)


@every_loss
@intercept
def test_the_intercept_is_the_margin_at_the_mean_row(loss: Loss, fit_intercept: bool) -> None:
    X, _, weights = rows(loss)
    problem = make_problem(loss, X, weights, fit_intercept=fit_intercept)
    c = np.random.default_rng(2).standard_normal(problem.size)
    scaled, centred = problem.split(c)
    coefficients, intercepts = problem.to_raw(c)
    if fit_intercept:
        at_mean = np.average(X, axis=0, weights=weights) @ coefficients + intercepts
        np.testing.assert_allclose(centred, at_mean, atol=1e-7)
    else:
        assert centred.size == 0
    deviations = problem.scaling.inverse_std
    np.testing.assert_array_equal(coefficients, scaled * deviations)


def some_coefficients(problem) -> np.ndarray:
    """Scaled coefficients, 0 for the constant column as in every fit."""
    c = 0.3 * np.random.default_rng(3).standard_normal(problem.size)
    problem.split(c)[0][CONSTANT] = 0.0
    return c


@every_loss
@intercept
@standard
def test_value_is_the_objective_that_is_documented(loss: Loss, fit_intercept: bool, standardization: bool) -> None:
    X, y, weights = rows(loss)
    problem = make_problem(loss, X, weights, 0.3, standardization, fit_intercept)
    c = some_coefficients(problem)
    value, _ = evaluate(problem, BLOCK_FORMATS["dense-float64"](X, y, weights), c)
    expected = plain_objective(loss, X, y, weights, 0.3, standardization, *problem.to_raw(c))
    assert value == pytest.approx(expected, rel=1e-9)


@every_loss
@intercept
@standard
def test_gradient_is_the_finite_difference_of_the_objective(
    loss: Loss, fit_intercept: bool, standardization: bool
) -> None:
    X, y, weights = rows(loss)
    if not fit_intercept:
        # a margin of a million leaves no difference to see
        X[:, LARGE_MEAN] -= 1e6
    problem = make_problem(loss, X, weights, 0.3, standardization, fit_intercept)
    block = BLOCK_FORMATS["dense-float64"](X, y, weights)
    c = some_coefficients(problem)
    _, gradient = evaluate(problem, block, c)
    assert gradient.shape == c.shape
    assert not problem.split(gradient)[0][CONSTANT].any()
    expected = finite_difference(lambda at: evaluate(problem, block, at)[0], c, 1e-4)
    np.testing.assert_allclose(gradient, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("loss", [Logistic(), Softmax(3)], ids=["logistic", "softmax"])
def test_shifting_a_column_moves_only_the_intercept(loss: Loss) -> None:
    X, y, weights = rows(loss)
    y = np.minimum(y, max(loss.outputs, 2) - 1.0)
    moved = X + [0.0, 30.0, 5.0, -1e6, 2.0]
    results = []
    for matrix in (X, moved):
        problem = make_problem(loss, matrix, weights, 0.1)
        c = np.random.default_rng(6).standard_normal(problem.size)
        results.append(evaluate(problem, BLOCK_FORMATS["dense-float64"](matrix, y, weights), c))
    assert results[0][0] == pytest.approx(results[1][0], rel=1e-8)
    np.testing.assert_allclose(results[0][1], results[1][1], atol=1e-7)


@every_loss
@intercept
def test_curvature_is_positive_even_where_a_column_is_constant(loss: Loss, fit_intercept: bool) -> None:
    X, _, weights = rows(loss)
    for standardization in (True, False):
        problem = make_problem(loss, X, weights, 0.3, standardization, fit_intercept)
        curvature = problem.curvature()
        assert curvature.shape == (problem.size,)
        assert np.isfinite(curvature).all()
        assert (curvature > 0).all()
