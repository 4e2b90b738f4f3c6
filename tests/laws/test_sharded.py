"""Algorithms by shards of the coefficients take the steps of those that see all of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from cases import BLOCK_FORMATS
from oracles import weighted_std
from problems import drive
from shards import fit_by_shards

from sparkdml.algorithms import LBFGS, OWLQN, SyncSGD
from sparkdml.algorithms.element_wise import ElementWise
from sparkdml.algorithms.progress import Limits
from sparkdml.algorithms.vector_free import VectorFree, two_loop
from sparkdml.core import Turn
from sparkdml.losses import Hinge, Huber, Logistic, Softmax, Squared
from sparkdml.optim.schedules import InverseSquareRoot
from sparkdml.optim.steps import STEPS
from sparkdml.problem import Objective

D = 7
BOUNDS = {"one": [0, D], "three": [0, 2, 5, D], "empty": [0, 0, 3, 3, D, D]}
bounds = pytest.mark.parametrize("bounds", BOUNDS.values(), ids=BOUNDS)


def rows(loss, seed: int = 0, n: int = 60):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, D)) * np.logspace(-1, 1, D) + 0.3
    X[rng.random(X.shape) < 0.4] = 0.0
    X[:, 4] = 0.0  # never seen
    if loss.outputs > 1:
        y = rng.integers(0, loss.outputs, n).astype(float)
    elif isinstance(loss, (Squared, Huber)):
        y = X @ rng.standard_normal(D) + rng.standard_normal(n)
    else:
        y = (rng.random(n) < 1 / (1 + np.exp(-X[:, 0] - 0.3 * X[:, 5]))).astype(float)
    return X, y, rng.integers(1, 4, n).astype(float)


def case(loss, ridge=0.01, lasso=0.0, standardization=True, fit_intercept=True, **how):
    X, y, weights = rows(loss)
    objective = Objective(loss, ridge, lasso, standardization, fit_intercept, float(weights.sum()), **how)
    mean, std = np.average(X, axis=0, weights=weights), weighted_std(X, weights)
    cuts = [0, 25, 25, len(X)]
    make = BLOCK_FORMATS["sparse-float64"]
    workers = [[make(X[a:b], y[a:b], weights[a:b])] if b > a else [] for a, b in zip(cuts, cuts[1:], strict=False)]
    return objective, mean, std, workers


def assert_same_steps(found, states, problem) -> None:
    """Objectives and gradient norms after every accepted step, and the answer."""
    mine = {lead.iteration: (lead.objective, lead.gradient_norm) for lead in found.leads if np.isfinite(lead.objective)}
    theirs = {s.iteration: (s.objective, s.gradient_norm) for s in states if np.isfinite(s.objective)}
    assert mine.keys() == theirs.keys()
    for step in mine:
        np.testing.assert_allclose(mine[step], theirs[step], rtol=1e-6, atol=1e-9, equal_nan=True)
    coefficients, intercepts = problem.to_raw(states[-1].best)
    np.testing.assert_allclose(found.coefficients, coefficients, rtol=1e-5, atol=1e-8)
    np.testing.assert_allclose(found.intercepts, intercepts, rtol=1e-5, atol=1e-8)
    assert found.leads[-1].stop.reason == states[-1].stop.reason


smooth = pytest.mark.parametrize(
    "loss", [Logistic(), Softmax(3), Squared(), Huber()], ids=["logistic", "softmax", "squared", "huber"]
)


@smooth
@bounds
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("standardization", [True, False])
def test_vector_free_is_lbfgs(loss, bounds, fit_intercept, standardization) -> None:
    objective, mean, std, workers = case(loss, 0.01, 0.0, standardization, fit_intercept)
    problem = objective.over(mean, std)
    states = drive(LBFGS(30, 1e-9), problem, workers)
    found = fit_by_shards(VectorFree(30, 1e-9), objective, mean, std, workers, bounds)
    assert_same_steps(found, states, problem)


@bounds
@pytest.mark.parametrize("loss", [Logistic(), Softmax(3), Hinge()], ids=["logistic", "softmax", "hinge"])
@pytest.mark.parametrize("lasso", [0.0, 0.02, 10.0])
@pytest.mark.parametrize("standardization", [True, False])
def test_vector_free_is_owlqn(loss, bounds, lasso, standardization) -> None:
    objective, mean, std, workers = case(loss, 0.01, lasso, standardization)
    problem = objective.over(mean, std)
    states = drive(OWLQN(25, 1e-9), problem, workers, max_rounds=5000)
    found = fit_by_shards(VectorFree(25, 1e-9, lasso=True), objective, mean, std, workers, bounds)
    assert_same_steps(found, states, problem)
    if lasso:
        np.testing.assert_array_equal(found.coefficients == 0.0, problem.to_raw(states[-1].best)[0] == 0.0)


@bounds
@pytest.mark.parametrize("rule", STEPS)
@pytest.mark.parametrize("fraction", [1.0, 0.3])
@pytest.mark.parametrize("centred", [True, False])
def test_step_rules_take_the_same_steps(rule, bounds, fraction, centred) -> None:
    loss = Softmax(3) if rule in ("adam", "ftrl") else Logistic()
    objective, mean, std, workers = case(loss, 0.01, 0.003, centred=centred)
    method = SyncSGD(STEPS[rule](), InverseSquareRoot(), 0.1, fraction, Limits(10, -1.0), seed=3)
    problem = objective.over(mean, std)
    states = drive(method, problem, workers)
    found = fit_by_shards(ElementWise(method), objective, mean, std, workers, bounds)
    # a sample's gradient is centred by all workers' slopes together here and there, so steps are the same ones
    assert_same_steps(found, states, problem)


def test_a_start_that_is_not_finite_is_told() -> None:
    objective, mean, std, workers = case(Squared())
    workers[0][0].labels[0] = 1e200
    found = fit_by_shards(VectorFree(5, 1e-6), objective, mean, std, workers, [0, 3, D])
    assert found.leads[-1].stop.reason == "diverged"


def test_no_iterations_leave_the_start() -> None:
    objective, mean, std, workers = case(Logistic())
    found = fit_by_shards(VectorFree(0, 1e-6), objective, mean, std, workers, [0, 3, D])
    assert found.leads[-1].stop.reason == "max_iterations"
    assert not found.coefficients.any()


def test_a_shard_decides_by_the_whole_penalty() -> None:
    """Steps that lead uphill are seen as such by every shard, whichever of them has the large coefficients."""
    objective, mean, std, workers = case(Logistic(), ridge=5.0)
    method = SyncSGD(STEPS["sgd"](), InverseSquareRoot(), 3.0, 1.0, Limits(8, -1.0))
    problem = objective.over(mean, std)
    states = drive(method, problem, workers)
    found = fit_by_shards(ElementWise(method), objective, mean, std, workers, [0, 1, 2, 3, D])
    assert_same_steps(found, states, problem)


def test_two_loop_solves_quadratics_once_it_knows_them() -> None:
    """With n corrections along conjugate directions of a quadratic, the inverse Hessian is exact."""
    rng = np.random.default_rng(1)
    root = rng.standard_normal((4, 4))
    hessian = root @ root.T + np.eye(4)
    steps = np.linalg.eigh(hessian)[1].T
    changes = steps @ hessian
    slope = rng.standard_normal(4)
    basis = np.concatenate([steps, changes, slope[None]])
    np.testing.assert_allclose(two_loop(basis @ basis.T) @ basis, np.linalg.solve(hessian, slope), rtol=1e-8)


def test_turns_are_passed_on() -> None:
    objective, mean, std, workers = case(Logistic())
    method = ElementWise(SyncSGD(STEPS["sgd"](), InverseSquareRoot(), 0.1, 0.3, Limits(1, -1.0)))
    stored, point = replace(objective, lasso=0.0).stored(D), np.zeros(D + 1)
    draws = [method.work(stored, workers[2], point, Turn(clock, 2, 3))["gradient"] for clock in (0, 1, 0)]
    assert (draws[0] == draws[2]).all()
    assert (draws[0] != draws[1]).any()
