"""Normal equations against numpy and scikit-learn, without Spark."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from cases import BLOCK_FORMATS
from oracles import random_rows
from problems import drive, make_problem
from sklearn import linear_model

from sparkdml.algorithms import NormalEquations, Problem
from sparkdml.losses import Logistic
from sparkdml.penalties import ElasticNet

intercept = pytest.mark.parametrize("fit_intercept", [True, False], ids=["intercept", "no-intercept"])
standard = pytest.mark.parametrize("standardization", [True, False], ids=["standardized", "as-given"])
formats = pytest.mark.parametrize("block_format", BLOCK_FORMATS)


def rows(count: int = 300):
    """Columns of unlike scale, one of them far from 0, some without influence."""
    rng = np.random.default_rng(5)
    X = random_rows(rng, count, 7, density=0.7) * [1.0, 8.0, 0.0625, 1.0, 2.0, 1.0, 1.0]
    X[:, 2] += 4.0
    y = X @ [1.0, -0.25, 3.0, 0.0, 0.0, 0.02, 0.5] + 3.0 + rng.standard_normal(count)
    return X, y, rng.uniform(0.2, 3.0, count)


def problem_of(X, weights, strength=0.0, l1=0.0, standardization=True, fit_intercept=True) -> Problem:
    # any loss of one output: normal equations ask nothing of it
    problem = make_problem(Logistic(), X, weights, strength, standardization, fit_intercept)
    if not l1:
        return problem
    inverse_std = problem.scaling.inverse_std
    l1_factors = np.ones_like(inverse_std) if standardization else inverse_std
    penalty = ElasticNet(strength, problem.penalty.factors, l1, l1_factors)
    return dataclasses.replace(problem, penalty=penalty)


def fit(problem, X, y, weights, block_format="dense-float64"):
    [_, last] = drive(NormalEquations(), problem, [[BLOCK_FORMATS[block_format](X, y, weights)]])
    coefficients, intercepts = problem.to_raw(last.best)
    return last, coefficients[:, 0], intercepts[0]


def least_squares(X, y, weights, fit_intercept):
    """Coefficients and intercept by a QR-like solver that never forms ``X' X``."""
    design = np.column_stack([X, np.ones(len(X))]) if fit_intercept else X
    root = np.sqrt(weights)
    found = np.linalg.lstsq(design * root[:, None], y * root, rcond=None)[0]
    return (found[:-1], found[-1]) if fit_intercept else (found, 0.0)


@formats
@intercept
def test_without_a_penalty_it_is_least_squares(block_format: str, fit_intercept: bool) -> None:
    X, y, weights = rows()
    X = X.astype(np.float32).astype(np.float64)
    last, coefficients, shift = fit(problem_of(X, weights, fit_intercept=fit_intercept), X, y, weights, block_format)
    expected, expected_shift = least_squares(X, y, weights, fit_intercept)
    np.testing.assert_allclose(coefficients, expected, rtol=1e-9, atol=1e-11)
    assert shift == pytest.approx(expected_shift, rel=1e-9)
    assert last.stop.reason == "converged"
    assert last.objective == pytest.approx(
        0.5 * np.average((y - X @ expected - expected_shift) ** 2, weights=weights), rel=1e-10
    )
    assert last.gradient_norm < 1e-12


@intercept
def test_ridge_is_scikit_learns(fit_intercept: bool) -> None:
    X, y, weights = rows()
    strength = 0.3
    problem = problem_of(X, weights, strength, standardization=False, fit_intercept=fit_intercept)
    last, coefficients, shift = fit(problem, X, y, weights)
    oracle = linear_model.Ridge(strength * weights.sum(), fit_intercept=fit_intercept).fit(X, y, weights)
    np.testing.assert_allclose(coefficients, oracle.coef_, rtol=1e-9)
    assert shift == pytest.approx(oracle.intercept_, rel=1e-9, abs=1e-12)
    residuals = y - oracle.predict(X)
    value = 0.5 * np.average(residuals**2, weights=weights) + strength / 2 * np.sum(oracle.coef_**2)
    assert last.objective == pytest.approx(value, rel=1e-10)


@pytest.mark.parametrize(("strength", "l1"), [(0.0, 0.05), (0.1, 0.1), (0.0, 0.5)])
@intercept
def test_elastic_net_is_scikit_learns(strength: float, l1: float, fit_intercept: bool) -> None:
    X, y, weights = rows()
    problem = problem_of(X, weights, strength, l1, standardization=False, fit_intercept=fit_intercept)
    last, coefficients, shift = fit(problem, X, y, weights)
    kind = {"l1_ratio": l1 / (l1 + strength)} if strength else {}
    model = linear_model.ElasticNet if strength else linear_model.Lasso
    oracle = model(l1 + strength, fit_intercept=fit_intercept, tol=1e-14, max_iter=100_000, **kind).fit(X, y, weights)
    np.testing.assert_allclose(coefficients, oracle.coef_, atol=1e-8)
    np.testing.assert_array_equal(coefficients == 0.0, oracle.coef_ == 0.0)
    assert (coefficients == 0.0).any()
    assert shift == pytest.approx(oracle.intercept_, abs=1e-8)
    assert len(last.inverse_diagonal) == 0


@formats
@standard
@pytest.mark.parametrize("strength", [0.0, 0.2])
def test_optimality_conditions_hold_exactly(block_format: str, standardization: bool, strength: float) -> None:
    """``x_j' W (y - x'b - b0) / W = l1_j sign(b_j) + strength_j b_j``, at most ``l1_j`` where ``b_j = 0``."""
    X, y, weights = rows()
    X = X.astype(np.float32).astype(np.float64)
    l1 = 0.1
    problem = problem_of(X, weights, strength, l1, standardization)
    last, coefficients, shift = fit(problem, X, y, weights, block_format)
    std = 1.0 / problem.scaling.inverse_std[:, 0] if standardization else np.ones(7)
    residuals = weights * (y - X @ coefficients - shift) / weights.sum()
    slopes = X.T @ residuals - strength * std**2 * coefficients
    nonzero = coefficients != 0.0
    assert 0 < nonzero.sum() < 7
    assert residuals.sum() == pytest.approx(0.0, abs=1e-12)
    np.testing.assert_allclose(slopes[nonzero], l1 * (std * np.sign(coefficients))[nonzero], rtol=1e-8)
    assert (np.abs(slopes) <= l1 * std * (1.0 + 1e-9))[~nonzero].all()
    value = np.sum(weights * (y - X @ coefficients - shift) ** 2) / (2.0 * weights.sum())
    value += strength / 2 * np.sum((std * coefficients) ** 2) + l1 * np.sum(np.abs(std * coefficients))
    assert last.objective == pytest.approx(value, rel=1e-10)


def test_a_large_l1_leaves_only_the_intercept() -> None:
    X, y, weights = rows()
    _, coefficients, shift = fit(problem_of(X, weights, l1=100.0), X, y, weights)
    assert not coefficients.any()
    assert shift == pytest.approx(np.average(y, weights=weights))


def test_strongly_correlated_features_reach_the_optimum_too() -> None:
    rng = np.random.default_rng(2)
    shared = rng.standard_normal((500, 1))
    X = shared + 1e-3 * rng.standard_normal((500, 8))
    y = X @ np.linspace(-20.0, 30.0, 8) + rng.standard_normal(500)
    weights = np.ones(500)
    last, _, _ = fit(problem_of(X, weights, l1=1e-7), X, y, weights)
    assert last.stop.reason == "converged"
    assert last.gradient_norm < 1e-11


def test_the_result_does_not_depend_on_the_start_nor_on_the_split() -> None:
    X, y, weights = rows()
    algorithm = NormalEquations()
    build = BLOCK_FORMATS["dense-float64"]
    for l1 in (0.0, 0.1):
        problem = problem_of(X, weights, 0.05, l1)
        whole = drive(algorithm, problem, [[build(X, y, weights)]])[-1]
        far = np.random.default_rng(1).standard_normal(problem.size)
        moved = drive(algorithm, problem, [[build(X, y, weights)]], far)[-1]
        parts = np.array_split(np.arange(len(X)), 5)
        split = drive(algorithm, problem, [[build(X[p], y[p], weights[p])] for p in parts] + [[]])[-1]
        for other in (moved, split):
            np.testing.assert_allclose(other.best, whole.best, rtol=1e-8, atol=1e-10)
            assert other.objective == pytest.approx(whole.objective, rel=1e-10)


def test_offsets_are_taken_off_the_labels() -> None:
    X, y, weights = rows()
    offsets = np.random.default_rng(3).standard_normal(len(X))
    problem = problem_of(X, weights)
    block = dataclasses.replace(BLOCK_FORMATS["sparse-float64"](X, y + offsets, weights), offsets=offsets)
    found = drive(NormalEquations(), problem, [[block]])[-1].best
    np.testing.assert_allclose(found, fit(problem, X, y, weights)[0].best, rtol=1e-10, atol=1e-12)


@intercept
def test_inverse_diagonal_gives_the_textbook_standard_errors(fit_intercept: bool) -> None:
    X, y, weights = rows()
    last, _, _ = fit(problem_of(X, weights, fit_intercept=fit_intercept), X, y, weights)
    design = np.column_stack([X, np.ones(len(X))]) if fit_intercept else X
    expected = np.diagonal(np.linalg.inv(design.T @ (weights[:, None] * design)))
    np.testing.assert_allclose(last.inverse_diagonal, expected, rtol=1e-9)


def test_inverse_diagonal_of_a_ridge_has_the_penalty_in_it() -> None:
    """As Spark's ``diagInvAtWA``: of ``X'WX + W * penalty``, a column of ones included and not penalised."""
    X, y, weights = rows()
    problem = problem_of(X, weights, 0.4)
    last, _, _ = fit(problem, X, y, weights)
    design = np.column_stack([X, np.ones(len(X))])
    matrix = design.T @ (weights[:, None] * design)
    matrix[:-1, :-1] += weights.sum() * 0.4 * np.diag(problem.scaling.inverse_std[:, 0] ** -2.0)
    np.testing.assert_allclose(last.inverse_diagonal, np.diagonal(np.linalg.inv(matrix)), rtol=1e-9)


@pytest.mark.parametrize("l1", [0.0, 0.01])
def test_dependent_features_share_what_one_would_have(l1: float) -> None:
    X, y, weights = rows()
    once = fit(problem_of(X, weights, l1=l1), X, y, weights)
    twice = np.column_stack([X, X[:, 0]])
    last, coefficients, _ = fit(problem_of(twice, weights, l1=l1), twice, y, weights)
    assert last.objective == pytest.approx(once[0].objective, rel=1e-9)
    assert coefficients[0] + coefficients[-1] == pytest.approx(once[1][0], rel=1e-7)
    assert len(last.inverse_diagonal) == 0
    if not l1:
        assert coefficients[0] == pytest.approx(coefficients[-1], rel=1e-7)


def test_more_features_than_rows_is_no_error() -> None:
    X, y, weights = rows(5)
    last, coefficients, shift = fit(problem_of(X, weights), X, y, weights)
    np.testing.assert_allclose(X @ coefficients + shift, y, atol=1e-6)
    assert last.objective < 1e-12


@pytest.mark.parametrize("l1", [0.0, 0.01])
@standard
def test_a_constant_column_gets_0_and_changes_nothing_else(l1: float, standardization: bool) -> None:
    X, y, weights = rows()
    more = np.insert(X, 2, 7.0, axis=1)
    arguments = {"strength": 0.01, "l1": l1, "standardization": standardization}
    last, coefficients, shift = fit(problem_of(more, weights, **arguments), more, y, weights)
    _, expected, expected_shift = fit(problem_of(X, weights, **arguments), X, y, weights)
    assert coefficients[2] == 0.0
    np.testing.assert_allclose(np.delete(coefficients, 2), expected, rtol=1e-9, atol=1e-12)
    assert shift == pytest.approx(expected_shift, rel=1e-9)
    assert len(last.inverse_diagonal) == 0


def test_means_far_from_0_lose_nothing() -> None:
    rng = np.random.default_rng(11)
    near = rng.standard_normal((400, 5))
    far = near + 1e6
    near = far - 1e6  # what is left of the digits
    y = near @ np.arange(1.0, 6.0) + rng.standard_normal(400)
    weights = np.ones(400)
    last, coefficients, _ = fit(problem_of(far, weights), far, y, weights)
    expected, _ = least_squares(near, y, weights, True)
    np.testing.assert_allclose(coefficients, expected, rtol=1e-7)
    far_labels, problem = y + 1e8, problem_of(near, weights)
    start = np.append(np.zeros(5), far_labels.mean())
    block = BLOCK_FORMATS["dense-float64"](near, far_labels, weights)
    shifted = drive(NormalEquations(), problem, [[block]], start)[-1]
    np.testing.assert_allclose(problem.to_raw(shifted.best)[0][:, 0], expected, rtol=1e-6)
    assert shifted.objective == pytest.approx(last.objective, rel=1e-6)


def test_a_start_is_not_changed_and_sums_that_overflow_end_the_fit() -> None:
    X, y, weights = rows()
    problem = problem_of(X, weights)
    start = np.ones(problem.size)
    last = drive(NormalEquations(), problem, [[BLOCK_FORMATS["dense-float64"](X, y * 1e200, weights)]], start)[-1]
    assert last.stop.reason == "diverged"
    assert (start == 1.0).all()
    nothing = drive(NormalEquations(), problem, [[BLOCK_FORMATS["dense-float64"](X, y, 0.0 * weights)]])[-1]
    assert nothing.stop.reason == "diverged"
