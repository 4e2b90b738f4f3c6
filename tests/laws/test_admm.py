"""ADMM reaches the optimum of smooth + L1 objectives, whatever rho it starts from and whoever holds which rows."""

from __future__ import annotations

import math

import numpy as np
import pytest
from cases import BLOCK_FORMATS
from problems import drive, make_problem, plain_objective
from test_easgd import quadratics
from test_model_averaging import by_first_column, dealt, run, standard_rows
from test_optimum import scipy_optimum
from test_owlqn import elastic_problem, l1_costs

from sparkdml.algorithms import OWLQN
from sparkdml.algorithms.admm import ADMM, balanced
from sparkdml.algorithms.progress import Limits
from sparkdml.algorithms.states import pack, unpack
from sparkdml.core import Turn
from sparkdml.losses import Logistic, Loss, Softmax, Squared

LOSSES = {"logistic": Logistic(), "squared": Squared(), "softmax": Softmax(4)}
losses = pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
BOUNDS = [100, 150, 300]


def data(loss: Loss) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sorted, so that workers' rows differ."""
    X, y, weights = by_first_column(*standard_rows(loss if loss.outputs > 1 else Logistic()))
    return X, y + X @ np.array([0.0, 0.0, 0.0, 1.0, 2.0, 3.0]) if isinstance(loss, Squared) else y, weights


@losses
@pytest.mark.parametrize(("l1", "l2"), [(0.02, 0.0), (0.01, 0.02)], ids=["lasso", "elastic-net"])
@pytest.mark.parametrize("bounds", [[], BOUNDS], ids=str)
def test_objective_and_zeros_are_owlqns(loss: Loss, l1: float, l2: float, bounds: list[int]) -> None:
    X, y, weights = data(loss)
    l1 *= 5.0 if isinstance(loss, Squared) else 1.0
    problem = elastic_problem(loss, X, weights, l1, l2)
    oracle = drive(OWLQN(500, 0.0), problem, [[BLOCK_FORMATS["dense-float64"](X, y, weights)]], max_rounds=5000)[-1]
    last = run(ADMM(Limits(500, 1e-7)), problem, dealt(X, y, weights, bounds))[-1]
    assert last.stop.reason == "converged"
    assert last.objective == pytest.approx(oracle.objective, rel=1e-9)
    if l2 > 0.0 or loss.outputs == 1:  # else the softmax's optimum is not unique
        np.testing.assert_array_equal(problem.split(last.best)[0] == 0.0, problem.split(oracle.best)[0] == 0.0)
        np.testing.assert_allclose(problem.split(last.best)[0], problem.split(oracle.best)[0], atol=1e-4)
    if l2 == 0.0:
        assert 0 < np.count_nonzero(problem.split(last.best)[0]) < problem.features * loss.outputs


@pytest.mark.parametrize("loss", [Logistic(), Softmax(4)], ids=["binomial", "multinomial"])
@pytest.mark.parametrize("standardization", [True, False], ids=["standardized", "as-given"])
@pytest.mark.parametrize("fit_intercept", [True, False], ids=["intercept", "no-intercept"])
def test_a_ridge_is_scipys(loss: Loss, standardization: bool, fit_intercept: bool) -> None:
    X, y, weights = data(loss)
    X[:, 2] = 3.0 * X[:, 2] + 1.0
    problem = make_problem(loss, X, weights, 0.02, standardization, fit_intercept)
    last = run(ADMM(Limits(500, 1e-8)), problem, dealt(X, y, weights, BOUNDS))[-1]
    best = scipy_optimum(loss, X, y, weights, 0.02, standardization, fit_intercept)
    assert last.objective == pytest.approx(best.fun, rel=1e-9)
    reached = plain_objective(loss, X, y, weights, 0.02, standardization, *problem.to_raw(last.best))
    assert last.objective == pytest.approx(reached, rel=1e-12)


def test_rounds_follow_the_closed_form() -> None:
    """Squared errors: ``x_k`` solves a linear system, z is shrunk, multipliers add up the relaxed disagreement."""
    X, y, weights = data(Squared())
    problem = elastic_problem(Squared(), X, weights, 0.3, 0.05)
    rho, relaxation = 0.4, 1.3
    algorithm = ADMM(Limits(6, 0.0), rho, relaxation, adaptive=False, local_iterations=500)
    states = run(algorithm, problem, dealt(X, y, weights, BOUNDS))
    ridgeless = make_problem(Squared(), X, weights, 0.0)
    parts = quadratics(ridgeless, X, y, weights, BOUNDS)
    z, u = np.zeros(7), np.zeros((4, 7))
    for state in states[1:]:
        x = np.array(
            [
                np.linalg.solve(
                    weight / weights.sum() * A + rho * np.eye(7), weight / weights.sum() * b + rho * (z - u_k)
                )
                for u_k, (weight, A, b) in zip(u, parts, strict=True)
            ]
        )
        relaxed = relaxation * x + (1.0 - relaxation) * z
        mean = (relaxed + u).mean(axis=0)
        following = mean.copy()
        shrunk = np.sign(mean) * np.maximum(np.abs(mean) - 0.3 / (4 * rho), 0.0) / (1.0 + 0.05 / (4 * rho))
        following[:6] = shrunk[:6]
        np.testing.assert_allclose(state.coef[:-1], following, atol=1e-6)
        u, z = u + relaxed - following, following
    # the last round told of the z and x before its own
    assert states[-1].primal > 0.0
    assert states[-1].iteration == 6


@losses
@pytest.mark.parametrize("rho", [1e-3, 1e3])
def test_a_bad_rho_mends_itself(loss: Loss, rho: float) -> None:
    X, y, weights = data(loss)
    problem = elastic_problem(loss, X, weights, 0.01, 0.01)
    workers = dealt(X, y, weights, BOUNDS)
    best = drive(OWLQN(500, 0.0), problem, [[block for worker in workers for block in worker]], max_rounds=5000)[-1]
    states = run(ADMM(Limits(200, 1e-7), rho), problem, workers)
    assert states[-1].stop.reason == "converged"
    assert states[-1].objective == pytest.approx(best.objective, rel=1e-8)
    stuck = run(ADMM(Limits(len(states), 1e-7), rho, adaptive=False), problem, workers)[-1]
    assert stuck.stop.reason == "max_iterations"
    assert stuck.objective - best.objective > 1e3 * abs(states[-1].objective - best.objective)


def test_the_scale_of_the_objective_changes_no_rho_but_its_own_scale() -> None:
    X, y, weights = data(Squared())
    workers = dealt(X, y, weights, BOUNDS)
    one, other = (
        run(ADMM(Limits(12, 0.0)), elastic_problem(Squared(scale), X, weights, 0.01 * scale), workers)
        for scale in (1.0, 1024.0)
    )
    assert len({state.coef[-1] for state in one}) > 1
    for a, b in zip(one, other, strict=True):
        assert b.coef[-1] == pytest.approx(1024.0 * a.coef[-1])


def test_multipliers_keep_their_size_when_rho_changes() -> None:
    """The scaled ``u = multipliers / rho`` is told anew in units of the rho that a round comes with."""
    X, y, weights = data(Squared())
    problem = elastic_problem(Squared(), X, weights, 0.1)
    algorithm = ADMM(Limits(6, 0.0), 0.4, 1.0, local_iterations=500)
    worker = dealt(X, y, weights, BOUNDS)[0]
    weight, A, b = quadratics(make_problem(Squared(), X, weights, 0.0), X, y, weights, BOUNDS)[0]
    share = weight / weights.sum()
    _, memory = algorithm.work(problem, worker, np.append(np.zeros(7), 0.4), None, Turn(0, 0, 4))
    z = np.full(7, 0.3)
    told, _ = algorithm.work(problem, worker, np.append(z, 0.1), memory, Turn(1, 0, 4))
    x = np.linalg.solve(share * A + 0.4 * np.eye(7), share * b)
    u = 4.0 * (x - z)
    x = np.linalg.solve(share * A + 0.1 * np.eye(7), share * b + 0.1 * (z - u))
    np.testing.assert_allclose(told["sum"], x + u, atol=1e-5)


def test_rho_moves_towards_balance() -> None:
    assert balanced(1.0, 100.0, 1.0) == 2.0
    assert balanced(1.0, 1.0, 100.0) == 0.5
    assert balanced(1.0, 1.0, 2.0) == 1.0
    assert balanced(1.0, 0.0, 0.0) == 1.0


@losses
@pytest.mark.parametrize("bounds", [[10], [0, 5, 380, 400]], ids=str)
def test_the_answer_does_not_depend_on_how_rows_are_spread(loss: Loss, bounds: list[int]) -> None:
    X, y, weights = data(loss)
    problem = elastic_problem(loss, X, weights, 0.01, 0.05)
    alone, spread = (run(ADMM(Limits(500, 1e-8)), problem, dealt(X, y, weights, part))[-1] for part in ([], bounds))
    assert spread.stop.reason == "converged"
    assert spread.objective == pytest.approx(alone.objective, rel=1e-10)
    np.testing.assert_allclose(spread.best[:-4], alone.best[:-4], atol=1e-5)


@losses
def test_lost_memory_is_made_up_for(loss: Loss) -> None:
    X, y, weights = data(loss)
    problem = elastic_problem(loss, X, weights, 0.01, 0.01)
    workers = dealt(X, y, weights, BOUNDS)
    algorithm = ADMM(Limits(500, 1e-7))
    straight = run(algorithm, problem, workers)
    states = run(algorithm, problem, workers, lambda clock, n: clock in (2, 7) and n in (1, clock % 2))
    assert np.abs(states[4].coef - straight[4].coef).max() > 1e-4
    assert states[-1].stop.reason == "converged"
    assert states[-1].objective == pytest.approx(straight[-1].objective, rel=1e-9)
    # a fit cannot end in a round in which one worker does not know where it was
    late = run(algorithm, problem, workers, lambda clock, n: clock == len(straight) - 2 and n == 1)
    assert late[len(straight) - 1].stop is None
    assert late[-1].stop.reason == "converged"
    assert late[-1].objective == pytest.approx(straight[-1].objective, rel=1e-9)


def test_workers_without_weight_take_no_part() -> None:
    X, y, weights = data(Logistic())
    problem = elastic_problem(Logistic(), X, weights, 0.01)
    workers = dealt(X, y, weights, BOUNDS)
    absent = BLOCK_FORMATS["dense-float64"](X[:5], y[:5], np.zeros(5))
    plain, spread = (
        run(ADMM(Limits(20, 0.0)), problem, workers),
        run(ADMM(Limits(20, 0.0)), problem, [[], *workers, [absent]]),
    )
    np.testing.assert_allclose(spread[-1].coef, plain[-1].coef, rtol=1e-12)


def test_a_weight_of_2_is_the_row_twice() -> None:
    X, y, _ = data(Logistic())
    weights = np.ones(400)
    weights[:50] = 2.0
    problem = elastic_problem(Logistic(), X, weights, 0.02)
    twice = np.concatenate([np.arange(50), np.arange(150)]), np.arange(150, 400)
    build = BLOCK_FORMATS["dense-float64"]
    weighted = run(ADMM(Limits(300, 1e-8)), problem, dealt(X, y, weights, [150]))[-1]
    repeated = run(ADMM(Limits(300, 1e-8)), problem, [[build(X[i], y[i], np.ones(len(i)))] for i in twice])[-1]
    np.testing.assert_allclose(repeated.best, weighted.best, atol=1e-7)


def test_a_strong_penalty_leaves_only_intercepts() -> None:
    X, y, weights = data(Logistic())
    last = run(ADMM(Limits(500, 1e-8)), elastic_problem(Logistic(), X, weights, 5.0), dealt(X, y, weights, BOUNDS))[-1]
    assert not last.best[:6].any()
    share = np.average(y, weights=weights)
    assert last.best[6] == pytest.approx(math.log(share / (1.0 - share)), abs=1e-5)
    assert plain_objective(Logistic(), X, y, weights, 0.0, True, np.zeros((6, 1)), last.best[6:]) == pytest.approx(
        last.objective
    )
    assert l1_costs(X, weights, 5.0, True).min() > 0.0


def test_repeated_runs_are_bit_equal_and_survive_packing() -> None:
    X, y, weights = data(Softmax(4))
    problem = elastic_problem(Softmax(4), X, weights, 0.01)
    workers = dealt(X, y, weights, BOUNDS)
    algorithm = ADMM(Limits(15, 0.0), 5.0)
    once, again = (run(algorithm, problem, workers) for _ in range(2))
    for one, other in zip(once, again, strict=True):
        np.testing.assert_array_equal(one.coef, other.coef)
        np.testing.assert_array_equal(unpack(pack(one)).coef, one.coef)
    assert once[1].coef[-1] == 5.0 != once[-1].coef[-1]
    _, memory = algorithm.work(problem, workers[0], once[0].coef, None, Turn(0, 0, 4))
    fresh, _ = algorithm.work(problem, workers[0], once[1].coef, memory, Turn(1, 0, 4))
    read, _ = algorithm.work(problem, workers[0], once[1].coef, unpack(pack(memory)), Turn(1, 0, 4))
    np.testing.assert_array_equal(fresh["sum"], read["sum"])


@pytest.mark.parametrize("options", [{"rho": 0.0}, {"rho": math.inf}, {"relaxation": 2.0}, {"relaxation": 0.0}])
def test_what_cannot_converge_is_refused(options: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="must be above 0"):
        ADMM(Limits(10, 0.0), **options)
