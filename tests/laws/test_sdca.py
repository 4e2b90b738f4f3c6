"""SDCA closes the duality gap of a worker's own rows, with a free intercept too; conjugates are the losses'."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from problems import make_problem
from scipy import optimize
from scipy.special import expit
from sklearn.svm import SVC
from test_optimum import scipy_optimum
from test_variance_reduction import labelled_rows, problem_for, sklearn_elastic, solved, split_block, value_at

from sparkdml.algorithms.states import pack, unpack
from sparkdml.core import Turn
from sparkdml.losses import Hinge, Huber, Logistic, Loss, Softmax, Squared
from sparkdml.losses.conjugates import conjugate_of, dual_step
from sparkdml.optim.dual import dual_of
from sparkdml.optim.local_solver import LocalObjective, Pull
from sparkdml.optim.sdca import SDCA

formats = pytest.mark.parametrize("block_format", ["dense-float64", "dense-float32", "sparse-float64"])
losses = pytest.mark.parametrize("loss", [Logistic(), Squared(0.7), Hinge()], ids=["logistic", "squared", "hinge"])
elastic = pytest.mark.parametrize("l1", [0.0, 0.02])


def plain_loss(loss: Loss, margins: np.ndarray, y: np.ndarray) -> np.ndarray:
    signs = 2.0 * y - 1.0
    if isinstance(loss, Logistic):
        return np.logaddexp(0.0, -signs * margins)
    return 0.35 * (margins - y) ** 2 if isinstance(loss, Squared) else np.maximum(0.0, 1.0 - signs * margins)


def feasible_duals(loss: Loss, y: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return rng.standard_normal(len(y)) if isinstance(loss, Squared) else (2.0 * y - 1.0) * rng.random(len(y))


@losses
def test_conjugates_are_the_suprema_that_define_them(loss: Loss) -> None:
    rng, far = np.random.default_rng(0), np.linspace(-60.0, 60.0, 240001)
    y = rng.integers(0, 2, 20).astype(float)
    for label, dual in zip(y, feasible_duals(loss, y, rng), strict=True):
        expected = np.max(-dual * far - plain_loss(loss, far, np.full(len(far), label)))
        found = conjugate_of(loss).total(np.array([dual]), np.array([label]), np.array([2.0])) / 2.0
        assert found == pytest.approx(expected, abs=1e-6)


@losses
@pytest.mark.parametrize("curvature", [1e-3, 1.0, 1e4])
def test_a_dual_step_is_where_its_objective_is_highest(loss: Loss, curvature: float) -> None:
    rng, conjugate = np.random.default_rng(1), conjugate_of(loss)
    y = rng.integers(0, 2, 30).astype(float)
    for label, dual in zip(y, feasible_duals(loss, y, rng), strict=True):
        margin = 4.0 * rng.standard_normal()

        def cost(u: float, label=label, dual=dual, margin=margin) -> float:
            total = conjugate.total(np.array([u]), np.array([label]), np.ones(1))
            return total + (u - dual) * margin + curvature / 2.0 * (u - dual) ** 2

        low, high = (-50.0, 50.0) if isinstance(loss, Squared) else sorted((0.0, 2.0 * label - 1.0))
        oracle = optimize.minimize_scalar(cost, bounds=(low, high), method="bounded", options={"xatol": 1e-10})
        found = dual_step(conjugate.kind, conjugate.scale, dual, label, margin, curvature)
        assert low <= found <= high
        assert found == pytest.approx(oracle.x, abs=1e-5)
        assert cost(found) <= oracle.fun + 1e-12 * (1.0 + curvature)


@pytest.mark.parametrize("margin", [-800.0, 800.0])
@pytest.mark.parametrize("dual", [0.0, 1.0])
def test_a_logistic_dual_step_stays_feasible_far_out(margin: float, dual: float) -> None:
    conjugate = conjugate_of(Logistic())
    for curvature in (0.0, 1e-8, 1e8):
        found = dual_step(conjugate.kind, conjugate.scale, dual, 1.0, margin, curvature)
        assert 0.0 <= found <= 1.0
    assert dual_step(conjugate.kind, 1.0, dual, 1.0, margin, 0.0) == pytest.approx(float(margin < 0.0), abs=1e-12)


@pytest.mark.parametrize("dual", [0.0, 1e-9, 0.5, 1.0])
@pytest.mark.parametrize("margin", [-50.0, -3.0, 0.0, 50.0])
@pytest.mark.parametrize("curvature", [0.5, 100.0, 1e6])
def test_a_logistic_dual_step_solves_its_equation_from_anywhere(dual: float, margin: float, curvature: float) -> None:
    """Where Newton's method alone would leap from one flat end of the sigmoid to the other."""
    conjugate = conjugate_of(Logistic())
    root = optimize.brentq(
        lambda z: z + curvature * (expit(z) - (1.0 - dual)) - margin, -1e7, 1e7, xtol=1e-12, rtol=1e-14, maxiter=1000
    )
    found = dual_step(conjugate.kind, conjugate.scale, dual, 1.0, margin, curvature)
    assert found == pytest.approx(expit(-root), rel=1e-7, abs=1e-14)


@losses
@elastic
@pytest.mark.parametrize("block_format", ["dense-float64", "sparse-float64"])
def test_weak_duality_holds_anywhere(loss: Loss, l1: float, block_format: str) -> None:
    """No dual objective exceeds a primal one, of any feasible dual variables and any point."""
    X, y, weights = labelled_rows(loss)
    problem = problem_for(block_format, loss, X, weights, 0.05, l1)
    blocks, rng = split_block(block_format, X, y, weights, 120), np.random.default_rng(4)
    dual = dual_of(problem, float(weights.sum()), centre=0.3)
    for _ in range(20):
        duals = tuple(feasible_duals(loss, block.labels, rng) for block in blocks)
        v = dual.vector(blocks, duals)
        _, conjugate = dual.totals(blocks, duals, dual.point(v))
        c = 0.3 * rng.standard_normal(problem.size)
        hold = dual.ridge[-1] / 2.0 * (c[-1] - 0.3) ** 2
        margins = X @ problem.to_raw(c)[0][:, 0] + problem.to_raw(c)[1]
        mean_loss = np.average(plain_loss(loss, margins, y), weights=weights)
        primal = mean_loss + 0.025 * c[:-1] @ c[:-1] + l1 * np.abs(c[:-1]).sum() + hold
        constant = dual.ridge[-1] / 2.0 * 0.3**2
        dual_value = constant - conjugate / weights.sum() - 0.5 * float(dual.ridge @ dual.point(v) ** 2)
        assert dual_value <= primal
        loss_sum, _ = dual.totals(blocks, duals, dual.point(v))
        gap = dual.gap(v, loss_sum, conjugate)
        assert gap >= 0.0
        margins = X @ problem.to_raw(dual.point(v))[0][:, 0] + problem.to_raw(dual.point(v))[1]
        assert loss_sum == pytest.approx(weights @ plain_loss(loss, margins, y), rel=1e-9)


@losses
@elastic
@formats
def test_the_duality_gap_closes(loss: Loss, l1: float, block_format: str) -> None:
    """Without an intercept it is the problem's own gap, which bounds the distance from the optimum."""
    X, y, weights = labelled_rows(loss)
    problem = problem_for(block_format, loss, X, weights, 0.3, l1, fit_intercept=False)
    blocks = split_block(block_format, X, y, weights, 120)
    objective, dual = LocalObjective(problem, blocks), dual_of(problem, float(weights.sum()))
    memory, gaps = None, []
    for clock in range(400):
        point, memory = SDCA().solve(objective, np.zeros(problem.size), memory, 0, Turn(clock))
        v = dual.vector(blocks, memory.duals)
        np.testing.assert_array_equal(point, dual.point(v))
        gaps.append(dual.gap(v, *dual.totals(blocks, memory.duals, point)))
        if gaps[-1] <= 1e-8:
            break
    assert min(gaps) >= -1e-15
    assert gaps[-1] <= 1e-8 < gaps[0]


@formats
def test_logistic_regression_with_an_intercept_is_scipys(block_format: str) -> None:
    X, y, weights = labelled_rows(Logistic())
    for l2 in (0.01, 0.3):
        problem = problem_for(block_format, Logistic(), X, weights, l2)
        objective = LocalObjective(problem, split_block(block_format, X, y, weights, 100))
        best = scipy_optimum(Logistic(), X, y, weights, l2, True, True)
        reached = value_at(problem, X, y, weights, l2, solved(SDCA(), objective, 150))
        assert reached == pytest.approx(best.fun, abs=1e-8)


@formats
def test_elastic_net_is_scikit_learns_with_the_same_exact_zeros(block_format: str) -> None:
    X, y, weights = labelled_rows(Logistic())
    problem = problem_for(block_format, Logistic(), X, weights, 0.02, 0.03)
    c = solved(SDCA(), LocalObjective(problem, split_block(block_format, X, y, weights, 100)), 300)
    oracle = sklearn_elastic(X, y, weights, 0.02, 0.03)
    assert (oracle == 0.0).any()
    np.testing.assert_array_equal(c[:-1] == 0.0, oracle[:-1] == 0.0)
    np.testing.assert_allclose(c[:-1], oracle[:-1], atol=1e-6)


@formats
def test_ridge_regression_is_the_closed_form(block_format: str) -> None:
    X, _, weights = labelled_rows(Squared())
    y = X @ np.linspace(-1.0, 1.0, X.shape[1]) + np.random.default_rng(5).standard_normal(len(X)) + 3.0
    problem = problem_for(block_format, Squared(), X, weights, 0.1)
    c = solved(SDCA(), LocalObjective(problem, split_block(block_format, X, y, weights)), 150)
    Z = np.hstack([(X - problem.scaling.mean[:, 0]) * problem.scaling.inverse_std[:, 0], np.ones((len(X), 1))])
    hessian = (Z.T * weights) @ Z / weights.sum() + np.diag([0.1] * X.shape[1] + [0.0])
    expected = np.linalg.solve(hessian, (Z.T * weights) @ y / weights.sum())
    np.testing.assert_allclose(c, expected, atol=1e-7)


@pytest.mark.parametrize("block_format", ["dense-float64", "sparse-float64"])
def test_a_support_vector_machine_with_an_intercept_is_libsvms(block_format: str) -> None:
    X, y, weights = labelled_rows(Hinge())
    problem = problem_for(block_format, Hinge(), X, weights, 0.3)
    Z = (X - problem.scaling.mean[:, 0]) * problem.scaling.inverse_std[:, 0]
    oracle = SVC(kernel="linear", C=1.0 / (0.3 * weights.sum()), tol=1e-9).fit(Z, y, weights)
    margins, b = oracle.decision_function(Z), oracle.coef_[0]
    best = np.average(plain_loss(Hinge(), margins, y), weights=weights) + 0.15 * b @ b
    c = solved(SDCA(), LocalObjective(problem, split_block(block_format, X, y, weights)), 1500)
    margins = X @ problem.to_raw(c)[0][:, 0] + problem.to_raw(c)[1]
    reached = np.average(plain_loss(Hinge(), margins, y), weights=weights) + 0.15 * c[:-1] @ c[:-1]
    assert reached == pytest.approx(best, abs=1e-6)


def test_a_pull_stands_in_for_the_penalty() -> None:
    """On the intercept too, which then needs no centre of its own."""
    X, y, weights = labelled_rows(Logistic())
    problem = problem_for("dense-float64", Logistic(), X, weights, 0.0)
    pull = Pull(0.2, np.linspace(-1.0, 1.0, problem.size))
    c = solved(SDCA(), LocalObjective(problem, split_block("dense-float64", X, y, weights), pull), 100)
    Z = np.hstack([(X - problem.scaling.mean[:, 0]) * problem.scaling.inverse_std[:, 0], np.ones((len(X), 1))])

    def objective(at: np.ndarray) -> float:
        return np.average(plain_loss(Logistic(), Z @ at, y), weights=weights) + 0.1 * np.sum((at - pull.centre) ** 2)

    oracle = optimize.minimize(objective, np.zeros(problem.size), method="BFGS", options={"gtol": 1e-7})
    assert objective(c) <= oracle.fun + 1e-10
    np.testing.assert_allclose(c, oracle.x, atol=1e-5)


def test_a_pull_without_strength_is_none() -> None:
    X, y, weights = labelled_rows(Logistic())
    problem = problem_for("dense-float64", Logistic(), X, weights, 0.1)
    blocks = split_block("dense-float64", X, y, weights)
    pulls = (None, Pull(0.0, np.ones(problem.size)))
    ends = [solved(SDCA(), LocalObjective(problem, blocks, pull), 20) for pull in pulls]
    np.testing.assert_array_equal(*ends)


def test_weight_2_is_the_row_twice_and_weight_0_none() -> None:
    X, y, _ = labelled_rows(Logistic())
    counts = np.random.default_rng(6).integers(0, 3, len(X))
    weighted, repeated = (X, y, counts.astype(float)), [np.repeat(a, counts, axis=0) for a in (X, y, np.ones(len(y)))]
    ends = []
    for matrix, labels, weights in (weighted, repeated):
        problem = problem_for("dense-float64", Logistic(), X, counts.astype(float), 0.1)
        objective = LocalObjective(problem, split_block("dense-float64", matrix, labels, weights))
        ends.append(solved(SDCA(), objective, 100))
    np.testing.assert_allclose(*ends, atol=1e-7)


def test_without_memory_it_starts_near_the_point_given() -> None:
    """At the optimum of a smooth loss, one step away from it is nowhere else."""
    X, y, weights = labelled_rows(Logistic())
    problem = problem_for("dense-float64", Logistic(), X, weights, 0.1)
    objective = LocalObjective(problem, split_block("dense-float64", X, y, weights))
    optimum = solved(SDCA(), objective, 200)
    point, memory = SDCA().solve(objective, optimum, None, 1, Turn(0))
    np.testing.assert_allclose(point, optimum, atol=1e-6)
    cold, _ = SDCA().solve(objective, np.zeros(problem.size), None, 1, Turn(0))
    assert np.abs(cold - optimum).max() > 1e-2
    before = pack(memory)
    again = [SDCA().solve(objective, optimum, kept, 0, Turn(1)) for kept in (memory, unpack(before))]
    np.testing.assert_array_equal(again[0][0], again[1][0])
    assert pack(memory) == before


def test_a_constant_feature_has_coefficient_0() -> None:
    X, y, weights = labelled_rows(Logistic())
    X[:, 3] = 7.0
    problem = make_problem(Logistic(), X, weights, 0.1, standardization=False)
    c = solved(SDCA(), LocalObjective(problem, split_block("dense-float64", X, y, weights)), 50)
    assert c[3] == 0.0
    assert np.abs(np.delete(c, 3)).min() > 0.0


def test_what_cannot_be_solved_is_refused() -> None:
    X, y, weights = labelled_rows(Logistic())
    problem = problem_for("dense-float64", Logistic(), X, weights, 0.1)
    with pytest.raises(ValueError, match=r"regParam > 0 and elasticNetParam < 1"):
        dual_of(replace(problem, penalty=replace(problem.penalty, strength=0.0)), 1.0)
    for loss in (Softmax(3), Huber()):
        with pytest.raises(ValueError, match=type(loss).__name__):
            dual_of(replace(problem, loss=loss), 1.0)
