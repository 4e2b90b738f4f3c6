"""SVRG, SAG and SAGA reach the optimum of a worker's own rows at a constant step; lazy steps are the eager ones."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import sklearn
from cases import BLOCK_FORMATS
from oracles import random_labels, random_rows
from problems import make_problem, plain_gradient, plain_objective
from sklearn.linear_model import LogisticRegression
from test_optimum import scipy_optimum

from sparkdml.algorithms.states import pack, unpack
from sparkdml.core import Turn
from sparkdml.losses import Huber, Logistic, Loss, Softmax
from sparkdml.optim.local_solver import LocalObjective, LocalSolver, Pull
from sparkdml.optim.variance_reduction import SAG, SAGA, SVRG
from sparkdml.optim.variance_reduction.kernels import proximal_step, repeated_steps
from sparkdml.optim.variance_reduction.smoothness import batch_smoothness
from sparkdml.optim.variance_reduction.stepping import all_slopes, mean_gradient
from sparkdml.optim.variance_reduction.walk import slopes_of, walk
from sparkdml.penalties import ElasticNet
from sparkdml.problem import Problem, Scaling

SOLVERS = {"svrg": SVRG, "saga": SAGA, "sag": SAG}
every_solver = pytest.mark.parametrize("make_solver", SOLVERS.values(), ids=SOLVERS.keys())
formats = pytest.mark.parametrize("block_format", ["dense-float64", "dense-float32", "sparse-float64"])
losses = pytest.mark.parametrize("loss", [Logistic(), Softmax(3)], ids=["binomial", "multinomial"])


def labelled_rows(loss: Loss, count: int = 300, features: int = 8, density: float = 0.7):
    """Labels that features tell little of, and weights."""
    rng = np.random.default_rng(3)
    X = random_rows(rng, count, features, density)
    y = random_labels(rng, loss, count)
    y[X[:, 0] > 0.5] = 1.0
    return X, y, rng.uniform(0.2, 3.0, count)


def problem_for(
    block_format: str, loss: Loss, X, weights, l2: float, l1: float = 0.0, fit_intercept: bool = True
) -> Problem:
    """Standardised, in coordinates that keep 0 where it is if rows are sparse."""
    problem = make_problem(loss, X, weights, l2, True, fit_intercept)
    if block_format.startswith("sparse"):
        problem = replace(problem, scaling=Scaling(0.0 * problem.scaling.mean, problem.scaling.inverse_std))
    factors = problem.penalty.factors
    return replace(problem, penalty=ElasticNet(l2, factors, l1, factors)) if l1 else problem


def split_block(block_format: str, X, y, weights, *cuts: int):
    """The rows as some blocks, one of them without rows."""
    parts = zip(np.split(X, cuts), np.split(y, cuts), np.split(weights, cuts), strict=True)
    return [BLOCK_FORMATS[block_format](*part) for part in [*parts, (X[:0], y[:0], weights[:0])]]


def solved(solver: LocalSolver, objective: LocalObjective, calls: int, start: np.ndarray | None = None) -> np.ndarray:
    point, memory = np.zeros(objective.problem.size) if start is None else start, None
    for clock in range(calls):
        point, memory = solver.solve(objective, point, memory, 0, Turn(clock))
    return point


def value_at(problem: Problem, X, y, weights, l2: float, c: np.ndarray) -> float:
    """The objective in plain numpy."""
    strengths = problem.penalty.l1()
    costs = 0.0 if strengths is None else float(np.sum(strengths * np.abs(problem.split(c)[0])))
    return plain_objective(problem.loss, X, y, weights, l2, True, *problem.to_raw(c)) + costs


def sklearn_elastic(X, y, weights, l2: float, l1: float) -> np.ndarray:
    """scikit-learn's coefficients and intercept on standardised columns, (d + 1,)."""
    scale = make_problem(Logistic(), X, weights).scaling
    Z = (X - scale.mean[:, 0]) * scale.inverse_std[:, 0]
    # scikit-learn 1.8 takes the penalty from l1_ratio, and warns where it is named
    old = tuple(map(int, sklearn.__version__.split(".")[:2])) < (1, 8)
    named = {"penalty": "elasticnet"} if old else {}
    model = LogisticRegression(
        **named, C=1.0 / ((l1 + l2) * weights.sum()), l1_ratio=l1 / (l1 + l2),
        solver="saga", tol=1e-12, max_iter=20000, random_state=0,
    ).fit(Z, y, weights)  # fmt: skip
    return np.append(model.coef_[0], model.intercept_)


@every_solver
@formats
@losses
@pytest.mark.parametrize("fit_intercept", [True, False], ids=["intercept", "no-intercept"])
def test_objective_is_within_1e_8_of_scipys_optimum(make_solver, block_format, loss: Loss, fit_intercept) -> None:
    X, y, weights = labelled_rows(loss)
    problem = problem_for(block_format, loss, X, weights, 0.05, fit_intercept=fit_intercept)
    objective = LocalObjective(problem, split_block(block_format, X, y, weights, 100, 133))
    reached = value_at(problem, X, y, weights, 0.05, solved(make_solver(), objective, 100))
    best = scipy_optimum(loss, X, y, weights, 0.05, True, fit_intercept)
    assert reached == pytest.approx(best.fun, abs=1e-8)


@every_solver
@formats
def test_elastic_net_is_scikit_learns_with_the_same_exact_zeros(make_solver, block_format) -> None:
    X, y, weights = labelled_rows(Logistic())
    l2, l1 = 0.02, 0.03
    problem = problem_for(block_format, Logistic(), X, weights, l2, l1)
    objective = LocalObjective(problem, split_block(block_format, X, y, weights, 100))
    c = solved(make_solver(), objective, 100)
    oracle = sklearn_elastic(X, y, weights, l2, l1)
    assert (oracle == 0.0).any()
    np.testing.assert_array_equal(c[:-1] == 0.0, oracle[:-1] == 0.0)
    np.testing.assert_allclose(c[:-1], oracle[:-1], atol=1e-6)


@every_solver
def test_errors_fall_by_a_constant_factor_a_pass(make_solver) -> None:
    X, y, weights = labelled_rows(Logistic())
    problem = problem_for("dense-float64", Logistic(), X, weights, 0.1)
    objective = LocalObjective(problem, split_block("dense-float64", X, y, weights))
    best = scipy_optimum(Logistic(), X, y, weights, 0.1, True, True, gtol=1e-12).fun
    gaps = [
        value_at(problem, X, y, weights, 0.1, solved(make_solver(), objective, calls)) - best for calls in (10, 20, 30)
    ]
    assert gaps[1] <= 0.1 * gaps[0]
    assert gaps[2] <= 0.1 * gaps[1]


@every_solver
@losses
@pytest.mark.parametrize("pulled", [False, True])
@pytest.mark.parametrize("l1", [0.0, 0.01])
def test_lazy_steps_are_the_eager_ones(make_solver, loss: Loss, pulled: bool, l1: float) -> None:
    """Of sparse rows and of a dense copy, in the same coordinates and with the same draws."""
    X, y, weights = labelled_rows(loss, 200, 60, density=0.03)
    problem = problem_for("sparse-float64", loss, X, weights, 0.01, l1)
    pull = Pull(0.3, np.random.default_rng(0).standard_normal(problem.size)) if pulled else None
    start = np.random.default_rng(1).standard_normal(problem.size)
    ends = []
    for block_format in ("sparse-float64", "dense-float64"):
        objective = LocalObjective(problem, split_block(block_format, X, y, weights, 77), pull)
        ends.append(solved(make_solver(), objective, 3, start))
    assert np.abs(ends[0] - start).max() > 1e-2
    np.testing.assert_allclose(ends[0], ends[1], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("l1", [0.0, 0.2])
@pytest.mark.parametrize("ridge", [0.0, 0.5])
def test_repeated_steps_are_steps_repeated(l1: float, ridge: float) -> None:
    rng = np.random.default_rng(0)
    crossed = 0
    for value, slope in zip(rng.standard_normal(300), rng.standard_normal(300) * 0.4, strict=True):
        for count in (1, 2, 7, 60, 400):
            expected = value
            for _ in range(count):
                expected = proximal_step(expected, slope, l1, ridge, 0.1)
            found = repeated_steps(value, slope, l1, ridge, 0.1, count)
            assert found == pytest.approx(expected, rel=1e-10, abs=1e-12)
            assert (found == 0.0) == (expected == 0.0)
            crossed += value * expected < 0.0
    assert crossed > 50
    assert repeated_steps(0.0, 0.1, 0.2, 1.0, 0.1, 5) == 0.0


@pytest.mark.parametrize("make_solver", [SAGA, SAG])
@pytest.mark.parametrize("block_format", ["dense-float64", "sparse-float64"])
def test_the_average_is_of_the_stored_gradients(make_solver, block_format) -> None:
    X, y, weights = labelled_rows(Softmax(3))
    problem = problem_for(block_format, Softmax(3), X, weights, 0.01, 0.01)
    objective = LocalObjective(problem, split_block(block_format, X, y, weights, 50), Pull(0.1, np.ones(problem.size)))
    point, memory = np.zeros(problem.size), None
    for clock in range(20):
        point, memory = make_solver().solve(objective, point, memory, 0, Turn(clock))
    Z = (X - problem.scaling.mean[:, 0]) * problem.scaling.inverse_std[:, 0]
    slopes = memory.slopes / weights.sum()
    expected = np.append((Z.T @ slopes).ravel(), slopes.sum(axis=0))
    np.testing.assert_allclose(memory.average, expected, atol=1e-12)
    assert np.abs(memory.slopes - all_slopes(objective, point)).max() > 0.0


@pytest.mark.parametrize("block_format", ["dense-float64", "sparse-float64"])
def test_svrgs_direction_is_unbiased(block_format) -> None:
    """Over all batches, its mean is the gradient where the walk is, whatever the anchor."""
    loss = Softmax(3)
    X, y, weights = labelled_rows(loss)
    problem = problem_for(block_format, loss, X, weights, 0.0)
    objective = LocalObjective(problem, split_block(block_format, X, y, weights, 90))
    anchor, at = np.random.default_rng(2).standard_normal((2, problem.size))
    slopes, rate = all_slopes(objective, anchor), 0.1
    batches, directions = SVRG().batches(objective), []
    for batch in batches:
        path = walk(objective, at, mean_gradient(objective, slopes), rate)
        changes = slopes_of(problem, batch, path.margins(batch)) - slopes[batch.places]
        path.step(batch, changes, len(batches) / objective.weight_sum, 0.0)
        directions.append((at - path.point()) / rate)
    by_coefficients, by_intercepts = plain_gradient(loss, X, y, weights, 0.0, True, *problem.to_raw(at))
    scaled = (by_coefficients - problem.scaling.mean * by_intercepts) * problem.scaling.inverse_std
    np.testing.assert_allclose(np.mean(directions, axis=0), np.append(scaled.ravel(), by_intercepts), atol=1e-12)
    assert np.std(directions, axis=0).max() > 1e-2


@pytest.mark.parametrize("block_format", ["dense-float64", "sparse-float64"])
def test_smoothness_bounds_every_batch_and_not_by_much(block_format) -> None:
    X, y, weights = labelled_rows(Logistic())
    problem = problem_for(block_format, Logistic(), X, weights, 0.0)
    objective = LocalObjective(problem, split_block(block_format, X, y, weights))
    batches = SVRG().batches(objective)
    Z = np.hstack([(X - problem.scaling.mean[:, 0]) * problem.scaling.inverse_std[:, 0], np.ones((len(X), 1))])
    constants = [
        0.25 * len(batches) / weights.sum() * np.linalg.norm(Z[b.places].T * weights[b.places] @ Z[b.places], 2)
        for b in batches
    ]
    found = batch_smoothness(objective, batches)
    assert max(constants) <= found <= 16**0.25 * max(constants)


@every_solver
def test_lost_memory_reaches_the_same_optimum(make_solver) -> None:
    X, y, weights = labelled_rows(Logistic())
    problem = problem_for("sparse-float64", Logistic(), X, weights, 0.1)
    objective = LocalObjective(problem, split_block("sparse-float64", X, y, weights))
    point, memory = np.zeros(problem.size), None
    for clock in range(80):
        point, memory = make_solver().solve(objective, point, None if clock in (3, 20) else memory, 0, Turn(clock))
    best = scipy_optimum(Logistic(), X, y, weights, 0.1, True, True).fun
    assert value_at(problem, X, y, weights, 0.1, point) == pytest.approx(best, abs=1e-8)


@every_solver
def test_same_turn_same_bits_and_nothing_given_is_changed(make_solver) -> None:
    X, y, weights = labelled_rows(Logistic())
    problem = problem_for("sparse-float64", Logistic(), X, weights, 0.1, 0.01)
    objective = LocalObjective(problem, split_block("sparse-float64", X, y, weights))
    start = np.ones(problem.size)
    point, memory = make_solver().solve(objective, start, None, 5, Turn(0, 2))
    np.testing.assert_array_equal(start, 1.0)
    before = pack(memory)
    first, after = make_solver().solve(objective, point, memory, 0, Turn(1, 2))
    again, after_again = make_solver().solve(objective, point, unpack(before), 0, Turn(1, 2))
    np.testing.assert_array_equal(first, again)
    assert pack(memory) == before
    assert pack(after) == pack(after_again)
    other, _ = make_solver().solve(objective, point, memory, 0, Turn(2, 2))
    assert (other != first).any()


@every_solver
def test_a_worker_without_rows_or_weight_answers_the_start(make_solver) -> None:
    X, y, weights = labelled_rows(Logistic())
    problem = problem_for("dense-float64", Logistic(), X, weights, 0.1)
    for blocks in ([], split_block("dense-float64", X, y, 0.0 * weights)):
        point, memory = make_solver().solve(LocalObjective(problem, blocks), np.ones(problem.size), None, 0, Turn(0))
        np.testing.assert_array_equal(point, 1.0)
        assert memory is None


@every_solver
def test_a_pass_is_as_many_steps_as_batches(make_solver) -> None:
    X, y, weights = labelled_rows(Logistic())
    problem = problem_for("dense-float64", Logistic(), X, weights, 0.1)
    objective = LocalObjective(problem, split_block("dense-float64", X, y, weights, 100))
    solver = make_solver(batch_rows=50)
    assert solver.passes(objective, 0) == 1.0
    assert solver.passes(objective, 9) == 9 / 6
    ends = [solver.solve(objective, np.zeros(problem.size), None, steps, Turn(0))[0] for steps in (0, 6)]
    np.testing.assert_array_equal(*ends)


@every_solver
def test_what_cannot_be_solved_is_refused(make_solver) -> None:
    X, y, weights = labelled_rows(Logistic())
    with pytest.raises(ValueError, match="batch_rows=0"):
        make_solver(batch_rows=0)
    with pytest.raises(ValueError, match="step_size=-1"):
        make_solver(step_size=-1.0)
    problem = problem_for("dense-float64", Huber(), X, weights, 0.1)
    objective = LocalObjective(problem, split_block("dense-float64", X, y, weights))
    with pytest.raises(ValueError, match="Huber"):
        make_solver().solve(objective, np.zeros(problem.size), None, 0, Turn(0))
