"""OWLQN reaches the optimum of smooth + L1 objectives, with exact zeros, however rows are spread."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace

import numpy as np
import pytest
import sklearn
from cases import BLOCK_FORMATS
from oracles import weighted_std
from problems import drive, make_problem, plain_gradient, plain_objective
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC
from test_algorithm_states import assert_same_state
from test_optimum import rows

from sparkdml.algorithms import LBFGS, OWLQN, Problem
from sparkdml.losses import Logistic, Loss, Softmax
from sparkdml.penalties import ElasticNet

losses = pytest.mark.parametrize("loss", [Logistic(), Softmax(4)], ids=["binomial", "multinomial"])
standard = pytest.mark.parametrize("standardization", [True, False], ids=["standardized", "as-given"])
intercept = pytest.mark.parametrize("fit_intercept", [True, False], ids=["intercept", "no-intercept"])
formats = pytest.mark.parametrize("block_format", ["dense-float64", "sparse-float64"])
starts = pytest.mark.parametrize("unit_start", [False, True], ids=["curvature-start", "unit-start"])


@dataclass(frozen=True)
class Hinge(Loss):
    """``max(0, 1 - m)`` for label 1, ``max(0, 1 + m)`` for label 0; not differentiable at the kink."""

    outputs: int = 1
    curvature: float = 1.0

    def evaluate(self, margins: np.ndarray, labels: np.ndarray, weights: np.ndarray, slopes: np.ndarray) -> float:
        signs = 2.0 * labels - 1.0
        short = 1.0 - signs * margins[:, 0]
        slopes[:, 0] = np.where(short > 0.0, -signs * weights, 0.0)
        return float(weights @ np.maximum(short, 0.0))


def elastic_problem(
    loss: Loss, X, weights, l1: float, l2: float = 0.0, standardization: bool = True, fit_intercept: bool = True
) -> Problem:
    """``l1 sum_jk |c_jk|`` of scaled coefficients, or of those as given without standardization; L2 likewise."""
    problem = make_problem(loss, X, weights, l2, standardization, fit_intercept)
    factors = problem.penalty.factors
    return replace(problem, penalty=ElasticNet(l2, factors, l1, np.sqrt(factors)))


def l1_costs(X: np.ndarray, weights: np.ndarray, l1: float, standardization: bool) -> np.ndarray:
    """What one unit of a coefficient as given costs, shape (d, 1)."""
    return l1 * (weighted_std(X, weights)[:, None] if standardization else np.ones((X.shape[1], 1)))


def fit(algorithm: OWLQN, problem: Problem, X, y, weights, block_format: str = "dense-float64"):
    return drive(algorithm, problem, [[BLOCK_FORMATS[block_format](X, y, weights)]], max_rounds=5000)[-1]


def proximal_gradient(loss: Loss, X, y, weights, l1, l2, standardization, fit_intercept, steps=20000) -> float:
    """The optimal objective: FISTA with restarts (Beck & Teboulle, 2009) on standardised columns."""
    std, mean = weighted_std(X, weights)[:, None], fit_intercept * np.average(X, axis=0, weights=weights)
    costs = l1_costs(X, weights, l1, standardization)
    shape = (X.shape[1], loss.outputs)

    def raw(b: np.ndarray, a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return b / std, a - mean @ (b / std)

    def objective(b: np.ndarray, a: np.ndarray) -> float:
        coefficients, intercepts = raw(b, a)
        smooth = plain_objective(loss, X, y, weights, l2, standardization, coefficients, intercepts)
        return smooth + float(np.sum(costs * np.abs(coefficients)))

    Z = np.hstack([(X - mean) / std[:, 0], np.ones((len(X), 1))])
    curvature = 0.25 if loss.outputs == 1 else 0.5
    lipschitz = curvature * np.linalg.eigvalsh((Z.T * weights) @ Z / weights.sum()).max() + l2 * max(
        1.0, 0.0 if standardization else (std**-2).max()
    )
    b, a = np.zeros(shape), np.zeros(loss.outputs)
    ahead, momentum, value = (b, a), 1.0, objective(b, a)
    for _ in range(steps):
        by_coefficients, by_intercepts = plain_gradient(loss, X, y, weights, l2, standardization, *raw(*ahead))
        slope = (by_coefficients - np.outer(mean, by_intercepts)) / std
        moved = ahead[0] - slope / lipschitz
        new_b = np.sign(moved) * np.maximum(np.abs(moved) - costs / std / lipschitz, 0.0)
        new_a = ahead[1] - fit_intercept * by_intercepts / lipschitz
        new_value = objective(new_b, new_a)
        if new_value > value and momentum > 1.0:
            ahead, momentum = (b, a), 1.0
            continue
        if abs(new_b - b).max() + abs(new_a - a).max() < 1e-13:
            break
        following = (1.0 + np.sqrt(1.0 + 4.0 * momentum**2)) / 2.0
        pull = (momentum - 1.0) / following
        ahead = (new_b + pull * (new_b - b), new_a + pull * (new_a - a))
        b, a, momentum, value = new_b, new_a, following, new_value
    return value


@losses
@formats
@standard
@intercept
@pytest.mark.parametrize(("l1", "l2"), [(0.02, 0.0), (0.01, 0.02)], ids=["lasso", "elastic-net"])
def test_optimality_conditions_hold(loss: Loss, block_format, standardization, fit_intercept, l1, l2) -> None:
    """``|g_j| <= t_j`` where a coefficient is 0, ``g_j = -t_j sign(c_j)`` elsewhere; intercepts have slope 0."""
    X, y, weights = rows(loss)
    problem = elastic_problem(loss, X, weights, l1, l2, standardization, fit_intercept)
    last = fit(OWLQN(500, 0.0), problem, X, y, weights, block_format)
    coefficients, intercepts = problem.to_raw(last.best)
    slopes, by_intercepts = plain_gradient(loss, X, y, weights, l2, standardization, coefficients, intercepts)
    # in the scaled coordinates, where columns have variance 1 and, with an intercept, mean 0
    std = weighted_std(X, weights)[:, None]
    if fit_intercept:
        slopes -= np.outer(np.average(X, axis=0, weights=weights), by_intercepts)
        np.testing.assert_allclose(by_intercepts, 0.0, atol=1e-6)
    slopes /= std
    costs = np.broadcast_to(l1_costs(X, weights, l1, standardization) / std, slopes.shape)
    zero = coefficients == 0.0
    assert 0 < zero.sum() < zero.size
    assert (np.abs(slopes[zero]) <= costs[zero] + 1e-6).all()
    np.testing.assert_allclose(slopes[~zero], (-costs * np.sign(coefficients))[~zero], atol=1e-6)


@losses
@standard
@intercept
@starts
def test_objective_is_that_of_a_long_proximal_gradient_run(
    loss: Loss, standardization: bool, fit_intercept: bool, unit_start: bool
) -> None:
    X, y, weights = rows(loss)
    l1, l2 = 0.02, 1e-3
    problem = elastic_problem(loss, X, weights, l1, l2, standardization, fit_intercept)
    last = fit(OWLQN(500, 1e-13, unit_start=unit_start), problem, X, y, weights)
    coefficients, intercepts = problem.to_raw(last.best)
    reached = plain_objective(loss, X, y, weights, l2, standardization, coefficients, intercepts)
    reached += float(np.sum(l1_costs(X, weights, l1, standardization) * np.abs(coefficients)))
    assert last.objective == pytest.approx(reached, rel=1e-12)
    best = proximal_gradient(loss, X, y, weights, l1, l2, standardization, fit_intercept)
    assert reached == pytest.approx(best, rel=1e-8)


@losses
@intercept
def test_coefficients_are_scikit_learns(loss: Loss, fit_intercept: bool) -> None:
    X, y, weights = rows(loss)
    X = (X - X.mean(axis=0)) / X.std(axis=0)  # saga crawls on columns of unlike scale
    l1, l2 = 0.02, 0.02
    # from 1.8 on the ratio alone asks for the elastic net, and naming it is deprecated
    old = tuple(map(int, sklearn.__version__.split(".")[:2])) < (1, 8)
    named = {"penalty": "elasticnet"} if old else {}
    oracle = LogisticRegression(
        **named, l1_ratio=0.5, C=1.0 / ((l1 + l2) * weights.sum()), solver="saga", tol=1e-10, max_iter=5000,
        fit_intercept=fit_intercept, random_state=0,
    ).fit(X, y, weights)  # fmt: skip
    problem = elastic_problem(loss, X, weights, l1, l2, False, fit_intercept)
    coefficients, intercepts = problem.to_raw(fit(OWLQN(500, 0.0), problem, X, y, weights).best)
    np.testing.assert_allclose(coefficients.T, oracle.coef_, atol=1e-5)
    np.testing.assert_array_equal(coefficients.T == 0.0, np.abs(oracle.coef_) < 1e-7)
    # adding one number to every intercept changes no probability
    shift = intercepts.mean() if loss.outputs > 1 else 0.0
    expected = oracle.intercept_ - (oracle.intercept_.mean() if loss.outputs > 1 else 0.0)
    np.testing.assert_allclose(intercepts - shift, expected, atol=1e-5)


@losses
@starts
def test_a_strong_penalty_leaves_only_intercepts(loss: Loss, unit_start: bool) -> None:
    """They are then the logarithms of the classes' shares."""
    X, y, weights = rows(loss)
    problem = elastic_problem(loss, X, weights, 10.0)
    far = np.random.default_rng(3).standard_normal(problem.size)
    block = BLOCK_FORMATS["dense-float64"](X, y, weights)
    last = drive(OWLQN(500, 0.0, unit_start=unit_start), problem, [[block]], far)[-1]
    coefficients, intercepts = problem.split(last.best)
    assert not coefficients.any()
    shares = np.bincount(y.astype(int), weights) / weights.sum()
    expected = np.log(shares) if loss.outputs > 1 else np.log(shares[1:] / shares[:1])
    shift = (intercepts - expected).mean() if loss.outputs > 1 else 0.0
    np.testing.assert_allclose(intercepts - shift, expected, atol=1e-6)


@losses
@pytest.mark.parametrize("workers", [2, 5])
def test_the_answer_does_not_depend_on_how_rows_are_spread(loss: Loss, workers: int) -> None:
    X, y, weights = rows(loss)
    problem = elastic_problem(loss, X, weights, 0.01, 0.01)
    build = BLOCK_FORMATS["dense-float64"]
    alone = drive(OWLQN(500, 0.0), problem, [[build(X, y, weights)]])[-1]
    shares = np.array_split(np.arange(len(y)), workers)
    spread = drive(OWLQN(500, 0.0), problem, [[build(X[i], y[i], weights[i])] for i in shares])[-1]
    assert spread.objective == pytest.approx(alone.objective, abs=1e-12)
    # intercepts of a softmax are determined up to a common shift
    models = [problem.split(end.best) for end in (alone, spread)]
    np.testing.assert_array_equal(models[0][0] == 0.0, models[1][0] == 0.0)
    np.testing.assert_allclose(models[0][0], models[1][0], atol=1e-9)


@losses
def test_without_an_l1_part_the_optimum_is_lbfgs_s(loss: Loss) -> None:
    X, y, weights = rows(loss)
    plain = make_problem(loss, X, weights, 0.01)
    zero_l1 = elastic_problem(loss, X, weights, 0.0, 0.01)
    block = BLOCK_FORMATS["dense-float64"](X, y, weights)
    expected = drive(LBFGS(500, 1e-12), plain, [[block]])[-1]
    for problem in (plain, zero_l1):
        found = drive(OWLQN(500, 1e-12), problem, [[block]])[-1]
        assert found.objective == pytest.approx(expected.objective, abs=1e-12)


@losses
@starts
def test_rounds_of_a_state_change_nothing_and_report_the_best_point(loss: Loss, unit_start: bool) -> None:
    X, y, weights = rows(loss)
    l1 = 0.01
    problem = elastic_problem(loss, X, weights, l1)
    algorithm, block = OWLQN(40, 1e-9, unit_start=unit_start), BLOCK_FORMATS["dense-float64"](X, y, weights)
    state = algorithm.init(problem, np.zeros(problem.size))
    objectives = []
    while state.stop is None:
        before = copy.deepcopy(state)
        total, _ = algorithm.work(problem, [block], state.coef, None, 0)
        after = algorithm.advance(problem, state, total)
        assert_same_state(state, before)
        at_best, _ = algorithm.work(problem, [block], after.best, None, 0)
        value, _ = problem.evaluate(after.best, at_best)
        expected = value + l1 * np.abs(problem.split(after.best)[0]).sum()
        assert after.objective == pytest.approx(expected, rel=1e-14)
        assert after.iteration - state.iteration in (0, 1)
        objectives.append(after.objective)
        state = after
    assert (np.diff(objectives) <= 1e-13).all()


def test_a_step_never_leaves_its_orthant() -> None:
    """Between accepted points no penalised coordinate changes from one sign to the other."""
    X, y, weights = rows(Softmax(4))
    problem = elastic_problem(Softmax(4), X, weights, 0.005)
    start = np.random.default_rng(5).standard_normal(problem.size)
    states = drive(OWLQN(100, 1e-10), problem, [[BLOCK_FORMATS["dense-float64"](X, y, weights)]], start)
    for state in states:
        products = problem.split(state.coef * state.best)[0]
        assert (products >= 0.0).all()
    signs = [np.sign(problem.split(states[n].best)[0]) for n in (0, -1)]
    assert (signs[0] * signs[1] < 0.0).any()


def test_unit_start_begins_with_half_a_unit_and_shrinks_to_tenths() -> None:
    X, y, weights = rows(Logistic())
    problem = elastic_problem(Logistic(), X, weights, 0.01)
    algorithm = OWLQN(10, 1e-9, unit_start=True)
    block = BLOCK_FORMATS["dense-float64"](X, y, weights)
    state = algorithm.init(problem, np.zeros(problem.size))
    total, _ = algorithm.work(problem, [block], state.coef, None, 0)
    state = algorithm.advance(problem, state, total)
    _, gradient = problem.evaluate(state.best, total)
    costs = np.append(np.full(problem.features, 0.01), 0.0)
    pseudo = np.sign(gradient) * np.maximum(np.abs(gradient) - costs, 0.0)
    np.testing.assert_allclose(state.coef, -0.5 * pseudo / np.linalg.norm(pseudo), rtol=1e-12)
    shrunk = algorithm.advance(problem, state, {**total, "loss": 1e9})
    np.testing.assert_allclose(shrunk.coef, 0.1 * state.coef, rtol=1e-12)
    assert shrunk.iteration == 0


def test_unit_start_goes_on_from_the_identity_scaled_by_the_latest_pair() -> None:
    """``H = V'(s'y / y'y) V + s s' / s'y`` with ``V = I - y s' / s'y``; its first trial is the whole direction."""
    X, y, weights = rows(Logistic())
    problem = make_problem(Logistic(), X, weights)
    algorithm, block = OWLQN(10, 1e-9, unit_start=True), BLOCK_FORMATS["dense-float64"](X, y, weights)
    states = drive(algorithm, problem, [[block]])
    state = next(s for s in states if s.iteration == 1)
    gradients = [
        problem.evaluate(at, algorithm.work(problem, [block], at, None, 0)[0])[1] for at in (states[0].best, state.best)
    ]
    s, change = state.best - states[0].best, gradients[1] - gradients[0]
    v = np.eye(problem.size) - np.outer(change, s) / (s @ change)
    inverse = (s @ change) / (change @ change) * v.T @ v + np.outer(s, s) / (s @ change)
    expected = -inverse @ gradients[1]
    expected[expected * gradients[1] >= 0.0] = 0.0
    leaves = np.sign(state.best + expected) != np.sign(state.best)
    np.testing.assert_allclose(state.coef, np.where(leaves, 0.0, state.best + expected), rtol=1e-9, atol=1e-12)
    worse = {**algorithm.work(problem, [block], state.coef, None, 0)[0], "loss": 1e9}
    refused = algorithm.advance(problem, state, worse)
    np.testing.assert_allclose(refused.coef[~leaves], (state.best + 0.5 * expected)[~leaves], rtol=1e-9)


@starts
@pytest.mark.parametrize("l1", [0.0, 0.01])
@pytest.mark.parametrize("tolerance", [0.0, 1e-6])
def test_a_hinge_loss_ends_near_its_optimum(unit_start: bool, l1: float, tolerance: float) -> None:
    X, y, weights = rows(Logistic())
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    l2 = 0.01
    problem = elastic_problem(Hinge(), X, weights, l1, l2, False, False)
    last = fit(OWLQN(300, tolerance, unit_start=unit_start), problem, X, y, weights)
    assert last.stop.reason in ("converged", "stalled", "max_iterations")
    oracle = LinearSVC(C=1.0 / (l2 * weights.sum()), loss="hinge", fit_intercept=False, max_iter=200000, tol=1e-8)
    c = oracle.fit(X, y, weights).coef_[0]
    # the optimum without L1 is a lower bound, and its point gives an upper one
    lower = np.average(np.maximum(0.0, 1.0 - (2 * y - 1) * (X @ c)), weights=weights) + l2 / 2 * c @ c
    assert lower - 1e-9 <= last.objective <= (1.0 + 1e-5) * (lower + l1 * np.abs(c).sum())


def test_no_acceptable_step_drops_corrections_and_then_stalls() -> None:
    X, y, weights = rows(Logistic())
    problem = elastic_problem(Logistic(), X, weights, 0.01)
    algorithm, block = OWLQN(100, 0.0), BLOCK_FORMATS["dense-float64"](X, y, weights)
    state = drive(algorithm, problem, [[block]])[4]
    assert state.pairs
    worse = {**algorithm.work(problem, [block], state.best, None, 0)[0], "loss": 1e9}
    sizes, best = [], state.best
    while state.stop is None:
        state = algorithm.advance(problem, state, worse)
        sizes.append(len(state.pairs))
    assert state.stop.reason == "stalled"
    assert state.stop.remedy
    assert sizes[0] > 0
    assert sizes[-1] == 0
    assert len(sizes) <= 60
    np.testing.assert_array_equal(state.best, best)
    np.testing.assert_array_equal(state.coef, best)


def test_columns_of_very_unlike_scale_take_few_rounds() -> None:
    """Without standardization the penalties' curvatures and costs are as unlike as the columns."""
    X, y, weights = rows(Logistic())
    X = (X - X.mean(axis=0)) / X.std(axis=0) * np.logspace(-3, 3, X.shape[1])
    problem = elastic_problem(Logistic(), X, weights, 1e-4, 1e-4, standardization=False)
    states = drive(OWLQN(200, 0.0), problem, [[BLOCK_FORMATS["dense-float64"](X, y, weights)]])
    assert states[-1].gradient_norm <= 1e-6
    assert len(states) <= 20
