"""Elastic averaging: one round in closed form, where the centre rests, and what it survives."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from problems import make_problem
from test_model_averaging import GradientSteps, by_first_column, dealt, run, standard_rows
from test_optimum import scipy_optimum

from sparkdml.algorithms import Problem
from sparkdml.algorithms.easgd import EASGD
from sparkdml.algorithms.intervals import Fixed
from sparkdml.algorithms.progress import Limits
from sparkdml.algorithms.states import pack, unpack
from sparkdml.core import Turn
from sparkdml.losses import Logistic, Squared
from sparkdml.optim.local_solver import LocalObjective, LocalSolver
from sparkdml.problem.gradient import loss_and_gradient

BOUNDS = [100, 150, 300]


@dataclass(frozen=True)
class MomentumSteps(LocalSolver):
    """Heavy-ball steps on ``F_k``; the memory is the velocity."""

    step_size: float
    momentum: float

    def passes(self, objective: LocalObjective, steps: int) -> float:
        return float(max(steps, 1))

    def solve(
        self, objective: LocalObjective, start: np.ndarray, memory: Any, steps: int, turn: Turn
    ) -> tuple[np.ndarray, Any]:
        problem = replace(objective.problem, weight_sum=objective.weight_sum)
        point, velocity = start, np.zeros_like(start) if memory is None else memory
        for _ in range(max(steps, 1)):
            sums = loss_and_gradient(problem.loss, objective.blocks, *problem.to_raw(point))
            velocity = self.momentum * velocity - self.step_size * problem.evaluate(point, sums)[1]
            point = point + velocity
        return point, velocity


def quadratics(problem: Problem, X, y, weights, bounds) -> list[tuple[float, np.ndarray, np.ndarray]]:
    """Of squared errors, in plain numpy: W_k, A_k and b_k of ``F_k(c) = c'A_k c / 2 - b_k'c + constant``."""
    Z = np.column_stack([(X - problem.scaling.mean[:, 0]) * problem.scaling.inverse_std[:, 0], np.ones(len(X))])
    ridge = np.diag(np.append(np.full(X.shape[1], problem.penalty.strength), 0.0))
    result = []
    for part in np.split(np.arange(len(y)), bounds):
        total = weights[part].sum()
        result.append(
            (
                total,
                (Z[part].T * weights[part]) @ Z[part] / total + ridge,
                Z[part].T @ (weights[part] * y[part]) / total,
            )
        )
    return result


def squared_problem(alike: bool = False):
    """``alike``: every worker has the same rows."""
    X, y, weights = by_first_column(*standard_rows(Logistic()))
    y = y + X @ np.arange(1.0, 7.0)
    bounds = BOUNDS
    if alike:
        X, y, weights, bounds = np.tile(X[::4], (4, 1)), np.tile(y[::4], 4), np.tile(weights[::4], 4), BOUNDS
        bounds = [100, 200, 300]
    problem = make_problem(Squared(), X, weights, 0.05)
    return problem, (X, y, weights), bounds


def test_rounds_follow_the_closed_form() -> None:
    """``y_k = x_k - eta F_k'(x_k)``, ``x_k <- y_k - alpha (y_k - c)``, ``c <- c + beta sum_k W_k/W (y_k - c)``."""
    problem, data, bounds = squared_problem()
    states = run(EASGD(GradientSteps(0.1), Fixed(1), Limits(5, -1.0), 0.3, 0.8), problem, dealt(*data, bounds))
    parts = quadratics(problem, *data, bounds)
    centre, replicas = np.zeros(problem.size), [np.zeros(problem.size) for _ in parts]
    for state in states[1:]:
        reached = [x - 0.1 * (A @ x - b) for x, (_, A, b) in zip(replicas, parts, strict=True)]
        replicas = [x - 0.3 * (x - centre) for x in reached]
        shift = sum(weight * (x - centre) for x, (weight, _, _) in zip(reached, parts, strict=True))
        centre = centre + 0.8 * shift / problem.weight_sum
        np.testing.assert_allclose(state.point, centre, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("alpha", [0.2, 0.6])
def test_the_centre_rests_where_moreau_envelopes_are_smallest(alpha: float) -> None:
    """Which is beside the optimum, and nearer to it for smaller steps."""
    problem, data, bounds = squared_problem()
    workers, parts = dealt(*data, bounds), quadratics(problem, *data, bounds)
    optimum = np.linalg.solve(sum(w * A for w, A, _ in parts), sum(w * b for w, _, b in parts))
    apart = []
    for step_size in (0.2, 0.05):
        algorithm = EASGD(GradientSteps(step_size), Fixed(1), Limits(1500, -1.0), alpha, 0.8)
        width = step_size * (1.0 - alpha) / alpha
        identity = np.eye(problem.size)
        # the envelope's gradient at c is A_k prox(c) - b_k
        left, right = 0.0, 0.0
        for weight, A, b in parts:
            inner = np.linalg.inv(identity + width * A)
            left, right = left + weight * A @ inner, right + weight * (b - width * A @ inner @ b)
        rest = np.linalg.solve(left, right)
        point = run(algorithm, problem, workers)[-1].point
        np.testing.assert_allclose(point, rest, atol=1e-8)
        apart.append(np.linalg.norm(point - optimum))
    assert apart[0] > 1.5 * apart[1] > 1e-4


def test_workers_of_equal_rows_agree_on_the_optimum() -> None:
    problem, data, bounds = squared_problem(alike=True)
    ((_, A, b), *_) = quadratics(problem, *data, bounds)
    for solver in (GradientSteps(0.2), MomentumSteps(0.1, 0.6)):
        last = run(EASGD(solver, Fixed(3), Limits(600, -1.0)), problem, dealt(*data, bounds))[-1]
        np.testing.assert_allclose(last.point, np.linalg.solve(A, b), atol=1e-8)


def test_with_alpha_1_the_centre_rests_at_the_optimum() -> None:
    X, y, weights = by_first_column(*standard_rows(Logistic()))
    problem = make_problem(Logistic(), X, weights, 0.05)
    algorithm = EASGD(GradientSteps(1.0), Fixed(1), Limits(500, -1.0), 1.0, 0.7)
    last = run(algorithm, problem, dealt(X, y, weights, BOUNDS))[-1]
    best = scipy_optimum(Logistic(), X, y, weights, 0.05, True, True).fun
    assert last.objective == pytest.approx(best, rel=1e-10)


def test_lost_replicas_start_at_the_centre_and_change_not_where_it_rests() -> None:
    problem, data, bounds = squared_problem()
    workers = dealt(*data, bounds)
    algorithm = EASGD(GradientSteps(0.2), Fixed(1), Limits(1500, -1.0), 0.3, 0.8)
    forgetful = run(algorithm, problem, workers, lambda clock, worker: clock in (3, 40) and worker in (1, 2))
    straight = run(algorithm, problem, workers)
    assert np.abs(forgetful[4].point - straight[4].point).max() > 1e-3
    np.testing.assert_allclose(forgetful[-1].point, straight[-1].point, atol=1e-9)
    centre = straight[5].point
    restarted, _ = algorithm.work(problem, workers[0], straight[5].coef, None, Turn(5, 0, 4))
    (weight, A, b), *_ = quadratics(problem, *data, bounds)
    np.testing.assert_allclose(restarted["change"], -0.2 * weight * (A @ centre - b), atol=1e-9)


def test_alpha_is_by_default_the_share_of_one_worker() -> None:
    problem, data, bounds = squared_problem()
    workers = dealt(*data, bounds)
    plain = run(EASGD(GradientSteps(0.1), Fixed(1), Limits(6, -1.0), beta=0.8), problem, workers)
    named = run(EASGD(GradientSteps(0.1), Fixed(1), Limits(6, -1.0), 0.2, 0.8), problem, workers)
    np.testing.assert_array_equal(plain[-1].coef, named[-1].coef)


def test_workers_without_rows_change_nothing_and_runs_are_bit_equal() -> None:
    problem, data, bounds = squared_problem()
    algorithm = EASGD(MomentumSteps(0.05, 0.5), Fixed(2), Limits(20, -1.0), 0.2, 0.8)
    once, again = (run(algorithm, problem, dealt(*data, bounds)) for _ in range(2))
    for one, other in zip(once, again, strict=True):
        np.testing.assert_array_equal(one.coef, other.coef)
    spread = run(algorithm, problem, [[], *dealt(*data, bounds), []])
    np.testing.assert_allclose(spread[-1].point, once[-1].point, rtol=1e-12)


def test_memory_survives_packing() -> None:
    problem, data, bounds = squared_problem()
    workers = dealt(*data, bounds)
    algorithm = EASGD(MomentumSteps(0.05, 0.5), Fixed(2), Limits(20, -1.0), 0.2, 0.8)
    state = algorithm.init(problem, np.zeros(problem.size))
    _, memory = algorithm.work(problem, workers[0], state.coef, None, Turn(0, 0, 4))
    fresh, _ = algorithm.work(problem, workers[0], state.coef, memory, Turn(1, 0, 4))
    read, _ = algorithm.work(problem, workers[0], state.coef, unpack(pack(memory)), Turn(1, 0, 4))
    np.testing.assert_array_equal(fresh["change"], read["change"])


@pytest.mark.parametrize(("alpha", "beta"), [(0.0, 0.5), (1.1, 0.5), (0.5, 0.0), (0.5, 1.5)])
def test_shares_outside_0_to_1_are_refused(alpha: float, beta: float) -> None:
    with pytest.raises(ValueError, match="share above 0"):
        EASGD(GradientSteps(0.1), Fixed(1), Limits(1, 0.0), alpha, beta)
