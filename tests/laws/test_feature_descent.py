"""Descent by features reaches the optimum of all rows, however their columns are dealt, and never goes uphill."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from cases import BLOCK_FORMATS
from oracles import random_rows
from problems import drive
from scipy import optimize
from sklearn.linear_model import ElasticNet as SklearnElasticNet
from sklearn.linear_model import Ridge
from test_algorithm_states import assert_same_state
from test_optimum import scipy_optimum
from test_variance_reduction import labelled_rows, problem_for, sklearn_elastic, split_block

from sparkdml.algorithms.feature_descent import REFRESH, FeatureDescent
from sparkdml.algorithms.progress import Limits
from sparkdml.algorithms.states import pack, unpack
from sparkdml.core import Turn, add_updates
from sparkdml.data.block import Block
from sparkdml.losses import Hinge, Huber, Logistic, Loss, Softmax, Squared
from sparkdml.optim.coordinate import columns_of
from sparkdml.penalties import ElasticNet
from sparkdml.problem import Problem

WIDTH = 8
#: Which worker has each column; worker 1 of "gaps" has none, and worker 0 the intercept alone.
DEALS = {
    "1": np.zeros(WIDTH, int),
    "2": np.arange(WIDTH) % 2,
    "5": np.array([3, 0, 0, 1, 4, 2, 3, 1]),
    "gaps": np.array([2, 2, 3, 2, 3, 3, 3, 2]),
}
deals = pytest.mark.parametrize("deal", DEALS)
losses = pytest.mark.parametrize("loss", [Logistic(), Squared(0.7)], ids=["logistic", "squared"])
penalties = pytest.mark.parametrize(
    ("l2", "l1"), [(0.05, 0.0), (0.0, 0.03), (0.03, 0.02)], ids=["ridge", "lasso", "elastic-net"]
)


def method(tolerance: float = 0.0, max_iterations: int = 1900, **options) -> FeatureDescent:
    return FeatureDescent(Limits(max_iterations, tolerance), **options)


def rows(loss: Loss):
    """Columns of unlike scale; some features tell of the labels, and others do not."""
    X, y, weights = labelled_rows(loss, features=WIDTH)
    if isinstance(loss, Squared):
        noise = np.random.default_rng(5).standard_normal(len(X))
        y = X @ [2.0, 0.0, 0.0, -1.0, 0.5, 0.0, 0.0, 0.3] + noise + 1.5
    return X * [1.0, 10.0, 0.1, 1.0, 3.0, 1.0, 0.5, 1.0], y, weights


def dealt(deal: str, X, y, weights) -> list[list[Block]]:
    """Every worker's entries of all rows, in some blocks."""
    owners = DEALS[deal]
    return [
        split_block("sparse-float64", np.where(owners == worker, X, 0.0), y, weights, 90, 200)
        for worker in range(owners.max() + 1)
    ]


def elastic(loss: Loss, X, weights, l2: float, l1: float, fit_intercept: bool = True) -> Problem:
    return problem_for("sparse-float64", loss, X, weights, l2, l1, fit_intercept)


def value(problem: Problem, X, y, weights, c: np.ndarray) -> float:
    """The objective in plain numpy."""
    coefficients, b = c[:WIDTH], c[WIDTH:].sum()
    margins = X @ (problem.scaling.inverse_std[:, 0] * coefficients) + b
    if isinstance(problem.loss, Logistic):
        losses_of_rows = np.logaddexp(0.0, (1.0 - 2.0 * y) * margins)
    else:
        losses_of_rows = 0.5 * problem.loss.scale * (margins - y) ** 2
    l1 = problem.penalty.l1_strength if isinstance(problem.penalty, ElasticNet) else 0.0
    penalty = problem.penalty.strength / 2 * coefficients @ coefficients + l1 * np.abs(coefficients).sum()
    return np.average(losses_of_rows, weights=weights) + penalty


def optimum(problem: Problem, X, y, weights, l2: float, l1: float) -> np.ndarray:
    """scikit-learn's coefficients of standardised columns, and the intercept; scipy's for logistic ridge."""
    Z, loss = X * problem.scaling.inverse_std[:, 0], problem.loss
    if isinstance(loss, Squared):
        total = (l1 + l2) / loss.scale
        model = SklearnElasticNet(total, l1_ratio=l1 / (l1 + l2), tol=1e-13, max_iter=100000)
        model = model if l1 else Ridge(total * weights.sum(), tol=1e-12, solver="cholesky")
        model.fit(Z, y, weights)
        return np.append(model.coef_, model.intercept_)
    if l1:
        c = sklearn_elastic(X, y, weights, l2, l1)
        # its columns are centred: the intercept is the margin at the mean row
        return np.append(c[:-1], c[-1] - np.average(Z, axis=0, weights=weights) @ c[:-1])
    found = scipy_optimum(loss, X, y, weights, l2, True, True).x
    coefficients = found[:WIDTH] / X.std(axis=0)
    return np.append(coefficients / problem.scaling.inverse_std[:, 0], found[-1] - X.mean(axis=0) @ coefficients)


@losses
@penalties
def test_the_optimum_is_reached_with_its_exact_zeros_however_columns_are_dealt(loss: Loss, l2, l1) -> None:
    X, y, weights = rows(loss)
    problem = elastic(loss, X, weights, l2, l1)
    best = optimum(problem, X, y, weights, l2, l1)
    assert bool(l1) == (best == 0.0).any()
    for deal in DEALS:
        last = drive(method(), problem, dealt(deal, X, y, weights))[-1]
        assert last.stop.reason == "converged"
        assert last.objective == pytest.approx(value(problem, X, y, weights, last.best), rel=1e-12)
        assert last.objective == pytest.approx(value(problem, X, y, weights, best), rel=1e-8)
        np.testing.assert_allclose(last.best, best, atol=1e-5)
        np.testing.assert_array_equal(last.best == 0.0, best == 0.0)


@losses
@deals
@pytest.mark.parametrize("passes", [1, 7])
def test_the_objective_never_rises_not_even_for_columns_that_are_all_alike(loss: Loss, deal: str, passes: int) -> None:
    """There the workers' changes add up in every row: without K in the bound they would overshoot."""
    X, y, weights = rows(loss)
    X = X[:, :1] + 0.01 * X
    problem = elastic(loss, X, weights, 0.001, 0.001)
    start = 3.0 * np.random.default_rng(1).standard_normal(problem.size)
    states = drive(method(0.0, 60, local_passes=passes), problem, dealt(deal, X, y, weights), start)
    told = [s.coef[: problem.size] for s in states if len(s.coef) > problem.size]
    values = np.array([value(problem, X, y, weights, c) for c in told])
    assert len(values) > 50
    assert (np.diff(values) <= 1e-14 * values[:-1]).all()
    assert values[10] < 0.9 * values[0]


def test_one_worker_solves_an_orthogonal_lasso_in_one_round() -> None:
    """``c_j = shrink(z_j'y / n, l1) / (z_j'z_j / n)``, for columns of mean 0 whose products are 0."""
    X, weights = np.random.default_rng(2).standard_normal((60, WIDTH)), np.ones(60)
    X = np.linalg.qr(X - X.mean(axis=0))[0]
    y = X @ np.linspace(-4.0, 4.0, WIDTH)
    problem = elastic(Squared(), X, weights, 0.0, 0.2)
    Z = X * problem.scaling.inverse_std[:, 0]
    correlation, variance = Z.T @ y / 60, (Z**2).mean(axis=0)
    expected = np.sign(correlation) * np.maximum(np.abs(correlation) - 0.2, 0.0) / variance
    states = drive(method(0.0, 4), problem, dealt("1", X, y, weights))
    np.testing.assert_allclose(states[2].coef[:WIDTH], expected, atol=1e-12)
    assert 0 < (expected == 0.0).sum() < WIDTH


@deals
def test_many_passes_reach_the_optimum_of_a_workers_own_problem(deal: str) -> None:
    """Against L-BFGS-B on positive and negative parts, from a start that is not 0."""
    X, y, weights = rows(Logistic())
    problem = elastic(Logistic(), X, weights, 0.02, 0.03)
    rng = np.random.default_rng(4)
    c, slopes, curvatures = rng.standard_normal(problem.size), rng.standard_normal(len(X)) / 300, weights / 600
    workers = dealt(deal, X, y, weights)
    for number, blocks in enumerate(workers):
        own = np.append(np.flatnonzero(DEALS[deal] == number), [WIDTH] if number == 0 else []).astype(int)
        A = np.hstack([X * problem.scaling.inverse_std[:, 0], np.ones((len(X), 1))])[:, own]
        l2, l1 = (strength * (own < WIDTH) for strength in (0.02, 0.03))

        def bound(parts, A=A, own=own, l1=l1, l2=l2):
            u = parts[: len(own)] - parts[len(own) :]
            m = A @ (u - c[own])
            gradient = A.T @ (slopes + curvatures * m) + l2 * u
            total = slopes @ m + curvatures @ m**2 / 2 + l2 @ u**2 / 2 + np.append(l1, l1) @ parts
            return total, np.append(gradient + l1, l1 - gradient)

        found, moved = columns_of(problem, blocks, number == 0).descend(c, slopes, curvatures, 400, rng)
        np.testing.assert_allclose(moved, A @ (found - c)[own], atol=1e-12)
        assert not np.delete(found, own).any()
        if len(own):
            options = {"ftol": 0.0, "gtol": 1e-10, "maxiter": 5000, "maxfun": 20000}
            oracle = optimize.minimize(
                bound, np.ones(2 * len(own)), jac=True, method="L-BFGS-B", bounds=[(0, None)] * 2 * len(own),
                options=options,
            )  # fmt: skip
            np.testing.assert_allclose(found[own], oracle.x[: len(own)] - oracle.x[len(own) :], atol=1e-6)


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_margins_stay_those_of_the_coefficients(fit_intercept: bool) -> None:
    X, y, weights = rows(Logistic())
    problem = elastic(Logistic(), X, weights, 1e-4, 1e-4, fit_intercept)
    start = np.random.default_rng(8).standard_normal(problem.size)
    states = drive(method(-1.0, 3 * REFRESH), problem, dealt("5", X, y, weights), start)
    asked = [n for n, state in enumerate(states) if len(state.coef) == problem.size]
    assert asked[:3] == [0, REFRESH + 1, 2 * REFRESH + 2]
    for state in states:
        c, v = state.coef[: problem.size], state.coef[problem.size :]
        if len(v):
            coefficients, b = problem.to_raw(c)
            np.testing.assert_allclose(v, X @ coefficients[:, 0] + b, rtol=1e-12, atol=1e-12)


def test_a_fit_goes_on_from_the_coefficients_it_is_given() -> None:
    X, y, weights = rows(Logistic())
    problem, workers = elastic(Logistic(), X, weights, 0.03, 0.02), dealt("2", X, y, weights)
    cold = drive(method(1e-10), problem, workers)
    warm = drive(method(1e-10), problem, workers, cold[-1].best)
    assert warm[2].objective == pytest.approx(value(problem, X, y, weights, cold[-1].best), rel=1e-12)
    assert warm[-1].objective <= cold[-1].objective
    assert warm[-1].iteration < cold[-1].iteration


@deals
def test_weight_2_is_the_row_twice_and_weight_0_none(deal: str) -> None:
    X, y, _ = rows(Logistic())
    counts = np.random.default_rng(6).integers(0, 3, len(X))
    weighted, repeated = (X, y, counts.astype(float)), [np.repeat(a, counts, axis=0) for a in (X, y, np.ones(len(y)))]
    problem = elastic(Logistic(), X, counts.astype(float), 0.02, 0.02)
    runs = [drive(method(-1.0, 30), problem, dealt(deal, *some)) for some in (weighted, repeated)]
    for one, other in zip(*runs, strict=True):
        np.testing.assert_allclose(one.coef[: problem.size], other.coef[: problem.size], atol=1e-10)


def test_columns_that_say_nothing_get_0() -> None:
    """One is constant, one without entries, and one has entries in a row of weight 0 only."""
    X, y, weights = rows(Logistic())
    weights[0], X[:, [3, 5, 6]] = 0.0, 0.0
    X[:, 3], X[0, 6] = 7.0, 1.0
    problem = elastic(Logistic(), X, weights, 0.02, 0.02)
    assert not problem.scaling.inverse_std[[3, 5]].any()
    far = np.full(problem.size, 2.0)
    last = drive(method(), problem, dealt("5", X, y, weights), far)[-1]
    assert not last.best[[3, 5, 6]].any()
    best = optimum(problem, X[1:], y[1:], weights[1:], 0.02, 0.02)
    assert last.objective == pytest.approx(value(problem, X, y, weights, best), rel=1e-8)


def test_two_runs_are_bit_equal_and_orders_differ_by_seed_and_round() -> None:
    X, y, weights = rows(Logistic())
    problem, workers = elastic(Logistic(), X, weights, 0.01, 0.01), dealt("5", X, y, weights)
    first, second, other = (drive(method(1e-6, seed=seed), problem, workers) for seed in (3, 3, 4))
    assert len(first) == len(second)
    for one, same in zip(first, second, strict=True):
        assert_same_state(one, same)
        assert_same_state(one, unpack(pack(one)))
    assert (first[3].coef != other[3].coef).any()
    answers = [method().work(problem, workers[0], first[1].coef, None, Turn(clock, 0, 5))[0] for clock in (1, 2)]
    assert (answers[0]["margins"] != answers[1]["margins"]).any()


def test_work_and_advance_change_none_of_their_arguments() -> None:
    X, y, weights = rows(Logistic())
    problem, workers = elastic(Logistic(), X, weights, 0.01, 0.01), dealt("2", X, y, weights)
    algorithm = method()
    state = algorithm.init(problem, np.ones(problem.size))
    for clock in range(4):
        before = pack(state)
        updates = [algorithm.work(problem, b, state.coef, None, Turn(clock, k, 2))[0] for k, b in enumerate(workers)]
        total = add_updates(*updates)
        kept = pack(total)
        following = algorithm.advance(problem, state, total)
        assert pack(state) == before
        assert pack(total) == kept
        for array in total.values():
            if isinstance(array, np.ndarray):
                assert not np.shares_memory(following.coef, array)
        state = following


def test_values_of_single_precision_give_the_same_fit() -> None:
    _, y, weights = rows(Squared())
    X = random_rows(np.random.default_rng(0), len(y), WIDTH)
    problem = elastic(Squared(), X, weights, 0.1, 0.01)
    runs = [
        drive(method(-1.0, 20), problem, [[BLOCK_FORMATS[f"sparse-{kind}"](X, y, weights)]])[-1]
        for kind in ("float32", "float64")
    ]
    np.testing.assert_allclose(runs[0].best, runs[1].best, rtol=1e-12)


def test_what_cannot_be_solved_is_refused() -> None:
    X, y, weights = rows(Logistic())
    problem = elastic(Logistic(), X, weights, 0.1, 0.0)
    with pytest.raises(ValueError, match="local_passes=0"):
        method(local_passes=0)
    for loss in (Softmax(3), Softmax(2), Hinge(), Huber()):
        unknown = replace(problem, loss=loss)
        with pytest.raises(ValueError, match=rf"Logistic or Squared, not {type(loss).__name__}"):
            method().init(unknown, np.zeros(unknown.size))
    centred = problem_for("dense-float64", Logistic(), X, weights, 0.1)
    with pytest.raises(ValueError, match="centred"):
        method().init(centred, np.zeros(centred.size))
    with pytest.raises(ValueError, match="worker 1 of 2 holds 0 rows"):
        method().work(problem, [], np.zeros(problem.size), None, Turn(0, 1, 2))
    some, coef = dealt("1", X, y, weights)[0][:1], np.zeros(problem.size + len(X))
    with pytest.raises(ValueError, match=r"worker 0 of 1 holds 90 rows \(margins are of 300\)"):
        method().work(problem, some, coef, None, Turn(1))
