"""CoCoA+ closes the duality gap of all rows, however they are spread and whatever workers forget."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from problems import drive
from sklearn.svm import SVC
from test_algorithm_states import assert_same_state
from test_dsvrg import Forgetful, layouts, spread
from test_optimum import scipy_optimum
from test_sdca import plain_loss
from test_variance_reduction import labelled_rows, problem_for, sklearn_elastic, value_at

from sparkdml.algorithms.cocoa import CoCoA
from sparkdml.algorithms.progress import Limits
from sparkdml.algorithms.states import pack, unpack
from sparkdml.core import Turn, add_updates
from sparkdml.losses import Hinge, Huber, Logistic, Loss, Softmax, Squared

formats = pytest.mark.parametrize("block_format", ["dense-float64", "sparse-float64"])
losses = pytest.mark.parametrize("loss", [Logistic(), Squared(0.7), Hinge()], ids=["logistic", "squared", "hinge"])


def method(tolerance: float = 1e-9, max_iterations: int = 1500, **options) -> CoCoA:
    return CoCoA(Limits(max_iterations, tolerance), **options)


@layouts
@formats
@losses
def test_the_duality_gap_closes(layout: str, block_format: str, loss: Loss) -> None:
    X, y, weights = labelled_rows(loss)
    problem = problem_for(block_format, loss, X, weights, 0.5, fit_intercept=False)
    states = drive(method(1e-8), problem, spread(layout, block_format, X, y, weights))
    gaps = [state.gap for state in states[1:]]
    assert min(gaps) >= -1e-15
    assert states[-1].stop.reason == "converged"
    assert gaps[-1] <= 1e-8 * states[-1].first < gaps[1]


@layouts
@formats
def test_logistic_regression_with_an_intercept_is_scipys(layout: str, block_format: str) -> None:
    X, y, weights = labelled_rows(Logistic())
    problem = problem_for(block_format, Logistic(), X, weights, 0.2)
    last = drive(method(), problem, spread(layout, block_format, X, y, weights))[-1]
    assert last.stop.reason == "converged"
    reached = value_at(problem, X, y, weights, 0.2, last.best)
    assert last.objective == pytest.approx(reached, rel=1e-12)
    best = scipy_optimum(Logistic(), X, y, weights, 0.2, True, True).fun
    # the gap that ended the fit is at most 1e-9 of the first objective, log 2
    assert reached == pytest.approx(best, abs=1e-9)


@layouts
def test_elastic_net_is_scikit_learns_with_the_same_exact_zeros(layout: str) -> None:
    X, y, weights = labelled_rows(Logistic())
    l2, l1 = 0.2, 0.03
    problem = problem_for("sparse-float64", Logistic(), X, weights, l2, l1)
    last = drive(method(1e-13), problem, spread(layout, "sparse-float64", X, y, weights))[-1]
    oracle = sklearn_elastic(X, y, weights, l2, l1)
    assert (oracle == 0.0).any()
    np.testing.assert_array_equal(last.best[:-1] == 0.0, oracle[:-1] == 0.0)
    np.testing.assert_allclose(last.best[:-1], oracle[:-1], atol=1e-6)


@pytest.mark.parametrize("layout", ["1", "2", "skewed"])
def test_ridge_regression_is_the_closed_form(layout: str) -> None:
    X, _, weights = labelled_rows(Squared())
    y = X @ np.linspace(-1.0, 1.0, X.shape[1]) + np.random.default_rng(5).standard_normal(len(X)) + 3.0
    problem = problem_for("dense-float64", Squared(), X, weights, 0.5)
    last = drive(method(1e-13), problem, spread(layout, "dense-float64", X, y, weights))[-1]
    Z = np.hstack([(X - problem.scaling.mean[:, 0]) * problem.scaling.inverse_std[:, 0], np.ones((len(X), 1))])
    hessian = (Z.T * weights) @ Z / weights.sum() + np.diag([0.5] * X.shape[1] + [0.0])
    np.testing.assert_allclose(last.best, np.linalg.solve(hessian, (Z.T * weights) @ y / weights.sum()), atol=1e-5)


def test_a_support_vector_machine_with_an_intercept_is_libsvms() -> None:
    X, y, weights = labelled_rows(Hinge())
    problem = problem_for("dense-float64", Hinge(), X, weights, 0.5)
    Z = (X - problem.scaling.mean[:, 0]) * problem.scaling.inverse_std[:, 0]
    oracle = SVC(kernel="linear", C=1.0 / (0.5 * weights.sum()), tol=1e-9).fit(Z, y, weights)
    mean_loss = np.average(plain_loss(Hinge(), oracle.decision_function(Z), y), weights=weights)
    best = mean_loss + 0.25 * oracle.coef_[0] @ oracle.coef_[0]
    last = drive(method(1e-7), problem, spread("2", "dense-float64", X, y, weights))[-1]
    assert last.stop.reason == "converged"
    assert last.objective == pytest.approx(best, abs=1e-6)


@pytest.mark.parametrize("tolerance", [1e-2, 1e-3, 1e-4, 1e-6])
def test_unbalanced_labels_do_not_end_a_fit_early(tolerance: float) -> None:
    """There the loss hardly curves along the intercept, whose centre then has a long way to go."""
    X, y, weights = labelled_rows(Logistic())
    y, weights = (np.arange(len(y)) % 100 == 7).astype(float), np.ones(len(y))
    problem = problem_for("dense-float64", Logistic(), X, weights, 0.5)
    last = drive(method(tolerance), problem, spread("1", "dense-float64", X, y, weights))[-1]
    assert last.stop.reason == "converged"
    best = scipy_optimum(Logistic(), X, y, weights, 0.5, True, True).fun
    assert last.objective - best <= tolerance * last.first


def test_the_intercept_waits_for_the_coefficients_where_these_are_slow() -> None:
    """A centre that moved in every round would swing to and fro."""
    X, _, weights = labelled_rows(Squared())
    y = X @ np.linspace(-1.0, 1.0, X.shape[1]) + np.random.default_rng(5).standard_normal(len(X)) + 3.0
    problem = problem_for("dense-float64", Squared(2.0), X, weights, 0.03)
    last = drive(method(1e-6), problem, spread("1", "dense-float64", X, y, weights))[-1]
    assert last.stop.reason == "converged"
    assert last.iteration <= 150


@pytest.mark.parametrize("lost", [{(1, 0)}, {(4, 1), (5, 2)}, {(8, 0), (8, 1), (8, 2), (9, 0)}])
def test_lost_dual_variables_reach_the_same_optimum(lost: set) -> None:
    X, y, weights = labelled_rows(Logistic())
    problem = problem_for("sparse-float64", Logistic(), X, weights, 0.2, 0.01)
    workers = spread("3", "sparse-float64", X, y, weights)
    states = drive(Forgetful(method(), frozenset(lost)), problem, workers)
    kept = drive(method(), problem, workers)[-1]
    assert states[-1].stop.reason == "converged"
    assert states[-1].objective == pytest.approx(kept.objective, abs=2e-9)
    for clock, _ in lost:
        assert states[clock + 1].gap == np.inf


def test_the_sum_is_right_one_round_after_a_loss() -> None:
    X, y, weights = labelled_rows(Logistic())
    problem = problem_for("dense-float64", Logistic(), X, weights, 0.2, fit_intercept=False)
    workers, algorithm = spread("3", "dense-float64", X, y, weights), method()
    state, memories = algorithm.init(problem, np.zeros(problem.size)), [None] * 3
    Z = X * problem.scaling.inverse_std[:, 0]
    for clock in range(6):
        kept = [None if (clock, k) == (3, 1) else memory for k, memory in enumerate(memories)]
        answers = [
            algorithm.work(problem, own, state.coef, kept[k], Turn(clock, k, 3)) for k, own in enumerate(workers)
        ]
        total = answers[0][0]
        for update, _ in answers[1:]:
            total = add_updates(total, update)
        memories = [memory for _, memory in answers]
        state = algorithm.advance(problem, state, total)
        duals = np.concatenate([own for memory in memories for own in memory])
        np.testing.assert_allclose(state.coef, Z.T @ (weights * duals) / weights.sum(), atol=1e-14)
        assert (duals[100:200] == 0.0).all() == (clock == 3)


def test_two_runs_and_memory_from_disk_are_bit_equal() -> None:
    X, y, weights = labelled_rows(Logistic())
    problem = problem_for("dense-float64", Logistic(), X, weights, 0.2, 0.01)
    workers = spread("skewed", "dense-float64", X, y, weights)
    first, second = drive(method(), problem, workers), drive(method(), problem, workers)
    assert len(first) == len(second)
    for one, other in zip(first, second, strict=True):
        assert_same_state(one, other)
        assert_same_state(one, unpack(pack(one)))
    _, memory = method().work(problem, workers[-1], first[3].coef, None, Turn(0, 4, 5))
    before = pack(memory)
    answers = [method().work(problem, workers[-1], first[3].coef, m, Turn(1, 4, 5)) for m in (memory, unpack(before))]
    np.testing.assert_array_equal(answers[0][0]["dual_vector"], answers[1][0]["dual_vector"])
    assert pack(memory) == before


def test_weight_2_is_the_row_twice_and_weight_0_none() -> None:
    X, y, _ = labelled_rows(Logistic())
    counts = np.random.default_rng(6).integers(0, 3, len(X))
    weighted, repeated = (X, y, counts.astype(float)), [np.repeat(a, counts, axis=0) for a in (X, y, np.ones(len(y)))]
    problem = problem_for("dense-float64", Logistic(), X, counts.astype(float), 0.2)
    ends = [
        drive(method(), problem, spread("2", "dense-float64", *rows))[-1].objective for rows in (weighted, repeated)
    ]
    assert ends[0] == pytest.approx(ends[1], abs=2e-9)


def test_a_worker_without_rows_adds_nothing() -> None:
    X, _, weights = labelled_rows(Logistic())
    problem = problem_for("dense-float64", Logistic(), X, weights, 0.2)
    algorithm = method()
    coef = algorithm.init(problem, np.ones(problem.size)).coef
    for clock in (0, 3):
        update, _ = algorithm.work(problem, [], coef, None, Turn(clock, 1, 2))
        assert not any(np.any(value) for value in update.values())


def test_what_cannot_be_solved_is_refused() -> None:
    X, _, weights = labelled_rows(Logistic())
    problem = problem_for("dense-float64", Logistic(), X, weights, 0.1)
    with pytest.raises(ValueError, match="local_passes=0"):
        method(local_passes=0.0)
    with pytest.raises(ValueError, match=r"regParam > 0 and elasticNetParam < 1"):
        method().init(replace(problem, penalty=replace(problem.penalty, strength=0.0)), np.zeros(problem.size))
    for loss in (Softmax(3), Huber()):
        unknown = replace(problem, loss=loss)
        with pytest.raises(ValueError, match=type(loss).__name__):
            method().init(unknown, np.zeros(unknown.size))
