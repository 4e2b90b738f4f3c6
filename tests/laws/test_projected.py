"""ProjectedLBFGS reaches the optimum within its box that scipy finds, and never leaves the box."""

from __future__ import annotations

import copy
from collections.abc import Callable

import numpy as np
import pytest
from cases import BLOCK_FORMATS
from problems import drive, make_problem, plain_gradient, plain_objective
from scipy import optimize
from test_algorithm_states import assert_same_state
from test_optimum import rows

from sparkdml.algorithms import LBFGS, Problem, ProjectedLBFGS
from sparkdml.losses import Logistic, Loss, Softmax

losses = pytest.mark.parametrize("loss", [Logistic(), Softmax(4)], ids=["binomial", "multinomial"])
strengths = pytest.mark.parametrize("strength", [0.0, 0.01])
standard = pytest.mark.parametrize("standardization", [True, False], ids=["standardized", "as-given"])
intercept = pytest.mark.parametrize("fit_intercept", [True, False], ids=["intercept", "no-intercept"])
formats = pytest.mark.parametrize("block_format", ["dense-float64", "sparse-float64"])


def _nonnegative(size: int) -> tuple[np.ndarray, np.ndarray]:
    return np.zeros(size), np.full(size, np.inf)


def _small(size: int) -> tuple[np.ndarray, np.ndarray]:
    return np.full(size, -0.05), np.full(size, 0.1)


def _mixed(size: int) -> tuple[np.ndarray, np.ndarray]:
    """No bound, one, both, the same one twice, and boxes that leave 0 outside."""
    kinds = [(-np.inf, np.inf), (-np.inf, 0.02), (-0.1, 0.1), (0.03, 0.03), (0.2, 1.0), (-np.inf, -0.1)]
    lower, upper = np.array([kinds[n % len(kinds)] for n in range(size)]).T
    return lower.copy(), upper.copy()


def _thin(size: int) -> tuple[np.ndarray, np.ndarray]:
    """Narrower than the distance from which a coordinate counts as being at a bound."""
    return np.full(size, -1e-4), np.full(size, 2e-4)


def _unbounded(size: int) -> tuple[np.ndarray, np.ndarray]:
    return np.full(size, -np.inf), np.full(size, np.inf)


BOXES: dict[str, Callable[[int], tuple[np.ndarray, np.ndarray]]] = {
    "nonnegative": _nonnegative,
    "small": _small,
    "mixed": _mixed,
    "thin": _thin,
    "unbounded": _unbounded,
}
boxes = pytest.mark.parametrize("box", BOXES.values(), ids=BOXES.keys())


def scipy_optimum(problem: Problem, X, y, weights, strength, standardization, lower, upper):
    """L-BFGS-B on the plain objective as a function of the problem's coordinates."""
    mean, inverse = problem.scaling.mean, problem.scaling.inverse_std

    def both(c: np.ndarray) -> tuple[float, np.ndarray]:
        at = (problem.loss, X, y, weights, strength, standardization, *problem.to_raw(c))
        slopes, by_intercepts = plain_gradient(*at)
        if not problem.fit_intercept:
            return plain_objective(*at), (slopes * inverse).ravel()
        slopes = (slopes - mean * by_intercepts) * inverse
        return plain_objective(*at), np.concatenate([slopes.ravel(), by_intercepts])

    found = optimize.minimize(
        both, np.clip(np.zeros(problem.size), lower, upper), jac=True, method="L-BFGS-B",
        bounds=np.column_stack([lower, upper]),
        options={"ftol": 0.0, "gtol": 1e-10, "maxiter": 5000, "maxfun": 10000},
    )  # fmt: skip
    assert np.abs(found.x - np.clip(found.x - found.jac, lower, upper)).max() < 1e-6
    return found


@losses
@strengths
@standard
@intercept
@boxes
def test_objective_is_that_of_scipys_l_bfgs_b(loss: Loss, strength, standardization, fit_intercept, box) -> None:
    X, y, weights = rows(loss)
    problem = make_problem(loss, X, weights, strength, standardization, fit_intercept)
    lower, upper = box(problem.size)
    states = drive(ProjectedLBFGS(500, 1e-13, lower, upper), problem, [[BLOCK_FORMATS["dense-float64"](X, y, weights)]])
    last = states[-1]
    assert last.stop.reason in ("converged", "stalled")
    reached = plain_objective(loss, X, y, weights, strength, standardization, *problem.to_raw(last.best))
    assert last.objective == pytest.approx(reached, rel=1e-12)
    best = scipy_optimum(problem, X, y, weights, strength, standardization, lower, upper)
    assert reached == pytest.approx(best.fun, rel=1e-8)


@losses
@formats
@boxes
def test_no_point_asked_for_lies_outside_the_box(loss: Loss, block_format: str, box) -> None:
    X, y, weights = rows(loss)
    problem = make_problem(loss, X, weights, 1e-3)
    lower, upper = box(problem.size)
    start = 3.0 * np.random.default_rng(2).standard_normal(problem.size)
    block = BLOCK_FORMATS[block_format](X, y, weights)
    states = drive(ProjectedLBFGS(500, 1e-12, lower, upper), problem, [[block]], start)
    np.testing.assert_array_equal(states[0].coef, np.clip(start, lower, upper))
    for state in states:
        for point in (state.coef, state.best):
            assert (lower <= point).all()
            assert (point <= upper).all()


@losses
@boxes
def test_gradient_norm_is_that_of_the_projected_gradient_and_ends_at_0(loss: Loss, box) -> None:
    X, y, weights = rows(loss)
    problem = make_problem(loss, X, weights, 0.01)
    lower, upper = box(problem.size)
    algorithm, block = ProjectedLBFGS(500, 0.0, lower, upper), BLOCK_FORMATS["dense-float64"](X, y, weights)
    states = drive(algorithm, problem, [[block]])
    assert states[-1].gradient_norm <= 1e-7
    for state in states[1:]:
        value, gradient = problem.evaluate(state.best, algorithm.work(problem, [block], state.best, None, 0)[0])
        assert state.objective == value
        expected = np.linalg.norm(state.best - np.clip(state.best - gradient, lower, upper))
        assert state.gradient_norm == pytest.approx(expected, rel=1e-12)
    assert (np.diff([state.objective for state in states[1:]]) <= 1e-13).all()


@losses
@standard
@intercept
def test_infinite_bounds_give_lbfgs_s_optimum(loss: Loss, standardization: bool, fit_intercept: bool) -> None:
    X, y, weights = rows(loss)
    problem = make_problem(loss, X, weights, 0.01, standardization, fit_intercept)
    block = BLOCK_FORMATS["dense-float64"](X, y, weights)
    expected = drive(LBFGS(500, 1e-13), problem, [[block]])
    found = drive(ProjectedLBFGS(500, 1e-13, *_unbounded(problem.size)), problem, [[block]])
    assert found[-1].objective == pytest.approx(expected[-1].objective, abs=1e-12)
    np.testing.assert_allclose(problem.split(found[-1].best)[0], problem.split(expected[-1].best)[0], atol=1e-6)
    assert len(found) <= 1.5 * len(expected)


@losses
@pytest.mark.parametrize("workers", [2, 5])
def test_the_answer_does_not_depend_on_how_rows_are_spread(loss: Loss, workers: int) -> None:
    X, y, weights = rows(loss)
    problem = make_problem(loss, X, weights, 0.01)
    build, algorithm = BLOCK_FORMATS["dense-float64"], ProjectedLBFGS(500, 0.0, *_small(problem.size))
    alone = drive(algorithm, problem, [[build(X, y, weights)]])[-1]
    shares = np.array_split(np.arange(len(y)), workers)
    spread = drive(algorithm, problem, [[build(X[i], y[i], weights[i])] for i in shares])[-1]
    assert spread.objective == pytest.approx(alone.objective, abs=1e-12)
    np.testing.assert_allclose(spread.best, alone.best, atol=1e-9)


@losses
def test_rounds_change_no_state_and_runs_repeat_to_the_last_bit(loss: Loss) -> None:
    X, y, weights = rows(loss)
    problem = make_problem(loss, X, weights, 1e-3)
    lower, upper = _mixed(problem.size)
    algorithm, block = ProjectedLBFGS(50, 1e-10, lower, upper), BLOCK_FORMATS["dense-float64"](X, y, weights)
    start = np.ones(problem.size)
    again = drive(algorithm, problem, [[block]], start)
    state = algorithm.init(problem, start)
    for expected in again[1:]:
        before = copy.deepcopy(state)
        after = algorithm.advance(problem, state, algorithm.work(problem, [block], state.coef, None, 0)[0])
        assert_same_state(state, before)
        assert_same_state(after, expected)
        state = after
    assert state.stop is not None
    assert (start == 1.0).all()
    for bound, expected_bound in zip((lower, upper), _mixed(problem.size), strict=True):
        np.testing.assert_array_equal(bound, expected_bound)


def test_a_box_of_one_point_is_the_answer_at_once() -> None:
    X, y, weights = rows(Logistic())
    problem = make_problem(Logistic(), X, weights)
    point = np.linspace(-1.0, 1.0, problem.size)
    block = BLOCK_FORMATS["dense-float64"](X, y, weights)
    states = drive(ProjectedLBFGS(50, 1e-9, point, point), problem, [[block]])
    assert len(states) == 2
    assert states[-1].stop.reason == "converged"
    np.testing.assert_array_equal(states[-1].best, point)


def test_max_iterations_says_what_to_change() -> None:
    X, y, weights = rows(Softmax(4))
    problem = make_problem(Softmax(4), X, weights)
    block = BLOCK_FORMATS["dense-float64"](X, y, weights)
    for iterations in (0, 2):
        last = drive(ProjectedLBFGS(iterations, 0.0, *_small(problem.size)), problem, [[block]])[-1]
        assert last.iteration == iterations
        assert last.stop.reason == "max_iterations"
        assert "maxIter" in last.stop.remedy


@pytest.mark.parametrize("value", [2.0, np.nan])
def test_crossed_bounds_are_refused_by_index(value: float) -> None:
    lower, upper = np.zeros(5), np.ones(5)
    lower[3] = value
    with pytest.raises(ValueError, match=r"lower\[3\].*upper\[3\]"):
        ProjectedLBFGS(10, 1e-6, lower, upper)


def test_bounds_of_the_wrong_size_are_refused() -> None:
    with pytest.raises(ValueError, match=r"\(3,\).*\(4,\)"):
        ProjectedLBFGS(10, 1e-6, np.zeros(3), np.ones(4))
    X, _, weights = rows(Logistic())
    problem = make_problem(Logistic(), X, weights)
    with pytest.raises(ValueError, match="3 entries.*7 coordinates"):
        ProjectedLBFGS(10, 1e-6, np.zeros(3), np.ones(3)).init(problem, np.zeros(problem.size))
