"""Averaging of locally trained models, once, in rounds, and with block momentum."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from cases import BLOCK_FORMATS
from problems import make_problem, plain_gradient, plain_objective
from scipy import optimize
from test_optimum import rows, scipy_optimum

from sparkdml.algorithms import Algorithm, Problem
from sparkdml.algorithms.bmuf import BMUF
from sparkdml.algorithms.intervals import Fixed
from sparkdml.algorithms.model_averaging import ModelAveraging, OneShotAveraging
from sparkdml.algorithms.progress import Limits
from sparkdml.algorithms.states import pack, unpack
from sparkdml.core import Turn, add_updates
from sparkdml.data.block import Block
from sparkdml.losses import Logistic, Loss, Softmax
from sparkdml.optim.local_solver import LocalObjective, LocalSolver
from sparkdml.problem.gradient import loss_and_gradient

losses = pytest.mark.parametrize("loss", [Logistic(), Softmax(4)], ids=["binomial", "multinomial"])


@dataclass(frozen=True)
class GradientSteps(LocalSolver):
    """Gradient descent on a smooth ``F_k``; ``step_size / (1 + decay * clock)``, and a step reads ``share`` passes."""

    step_size: float
    decay: float = 0.0
    share: float = 1.0

    def passes(self, objective: LocalObjective, steps: int) -> float:
        return self.share * steps if steps else 1.0

    def solve(
        self, objective: LocalObjective, start: np.ndarray, memory: Any, steps: int, turn: Turn
    ) -> tuple[np.ndarray, Any]:
        problem = replace(objective.problem, weight_sum=objective.weight_sum)
        point = start
        for _ in range(steps or round(1.0 / self.share)):
            sums = loss_and_gradient(problem.loss, objective.blocks, *problem.to_raw(point))
            point = point - self.step_size / (1.0 + self.decay * turn.clock) * problem.evaluate(point, sums)[1]
        return point, None


def run(
    algorithm: Algorithm,
    problem: Problem,
    workers: Sequence[Sequence[Block]],
    forgets: Callable[[int, int], bool] = lambda clock, worker: False,
    max_rounds: int = 5000,
) -> list[Any]:
    """Every state of a fit whose workers remember, but for rounds and workers that ``forgets`` names."""
    states = [algorithm.init(problem, np.zeros(problem.size))]
    memories: list[Any] = [None] * len(workers)
    while states[-1].stop is None:
        clock, total = len(states) - 1, None
        assert clock < max_rounds
        for number, blocks in enumerate(workers):
            memory = None if forgets(clock, number) else memories[number]
            turn = Turn(clock, number, len(workers))
            update, memories[number] = algorithm.work(problem, blocks, states[-1].coef, memory, turn)
            total = update if total is None else add_updates(total, update)
        states.append(algorithm.advance(problem, states[-1], total))
    return states


def dealt(X: np.ndarray, y: np.ndarray, weights: np.ndarray, bounds: Sequence[int]) -> list[list[Block]]:
    """Workers with the rows between bounds, of alternating block formats; none between equal bounds."""
    builders = list(BLOCK_FORMATS.values())
    pairs = zip([0, *bounds], [*bounds, len(y)], strict=True)
    return [
        [builders[1 + 2 * (n % 2)](X[a:b], y[a:b], weights[a:b])] if b > a else [] for n, (a, b) in enumerate(pairs)
    ]


def standard_rows(loss: Loss) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    X, y, weights = rows(loss)
    return (X - X.mean(axis=0)) / X.std(axis=0), y, weights


def by_first_column(X: np.ndarray, y: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sorted, so that workers' rows differ."""
    order = np.argsort(X[:, 0], kind="stable")
    return X[order], y[order], weights[order]


@losses
@pytest.mark.parametrize("absolute", [True, False], ids=["model", "change"])
@pytest.mark.parametrize("bounds", [[], [100, 150], [0, 10, 399]], ids=str)
def test_one_full_gradient_step_a_round_is_gradient_descent(loss: Loss, absolute: bool, bounds: list[int]) -> None:
    X, y, weights = standard_rows(loss)
    problem = make_problem(loss, X, weights, 0.01, standardization=False)
    algorithm = ModelAveraging(GradientSteps(0.7), Fixed(1), Limits(6, 0.0), absolute)
    states = run(algorithm, problem, dealt(*by_first_column(X, y, weights), bounds))
    coefficients, intercepts = np.zeros((X.shape[1], loss.outputs)), np.zeros(loss.outputs)
    std, mean = problem.scaling.std, problem.scaling.mean[:, 0]
    for state in states[1:]:
        centred = intercepts + mean @ coefficients
        slopes, by_intercepts = plain_gradient(loss, X, y, weights, 0.01, False, coefficients, intercepts)
        coefficients = coefficients - 0.7 * (slopes - np.outer(mean, by_intercepts)) / std**2
        intercepts = centred - 0.7 * by_intercepts - mean @ coefficients
        found = problem.to_raw(state.point)
        np.testing.assert_allclose(found[0], coefficients, rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(found[1], intercepts, rtol=1e-10, atol=1e-12)


@losses
def test_one_full_gradient_step_a_round_reaches_the_optimum(loss: Loss) -> None:
    X, y, weights = standard_rows(loss)
    problem = make_problem(loss, X, weights, 0.05)
    algorithm = ModelAveraging(GradientSteps(1.0), Fixed(1), Limits(3000, 1e-13))
    last = run(algorithm, problem, dealt(*by_first_column(X, y, weights), [40, 200]))[-1]
    best = scipy_optimum(loss, X, y, weights, 0.05, True, True)
    assert last.stop.reason == "converged"
    assert last.objective == pytest.approx(best.fun, rel=1e-9)
    assert plain_objective(loss, X, y, weights, 0.05, True, *problem.to_raw(last.best)) == pytest.approx(last.objective)


def test_with_more_local_steps_only_decaying_ones_reach_the_optimum() -> None:
    """Rows differ between workers: constant steps rest beside the optimum, the farther the longer intervals are."""
    loss = Logistic()
    X, y, weights = standard_rows(loss)
    problem = make_problem(loss, X, weights, 0.05)
    workers = dealt(*by_first_column(X, y, weights), [100, 200, 300])
    best = scipy_optimum(loss, X, y, weights, 0.05, True, True).fun

    def gap(steps: int, decay: float) -> float:
        algorithm = ModelAveraging(GradientSteps(1.0, decay), Fixed(steps), Limits(150, -1.0))
        return run(algorithm, problem, workers)[-1].objective - best

    short, long, decaying = gap(2, 0.0), gap(20, 0.0), gap(20, 0.5)
    assert short > 1e-7
    assert long > 3.0 * short
    assert decaying < 0.01 * long


@pytest.mark.parametrize("make", [ModelAveraging, BMUF])
def test_weights_count_rows_and_workers_without_rows_change_nothing(make) -> None:
    loss = Softmax(4)
    X, y, weights = standard_rows(loss)
    problem = make_problem(loss, X, weights, 0.01)
    algorithm = make(GradientSteps(0.5), Fixed(3), Limits(8, 0.0), absolute=False)
    plain = run(algorithm, problem, dealt(X, y, weights, [100, 250]))[-1]
    # half of a row's weight in each of two copies, absent rows, workers without rows or with absent ones alone
    pairs = [np.concatenate([part, part]) for part in (X[:100], y[:100])]
    absent = BLOCK_FORMATS["dense-float64"](X[:5] + 9.0, y[:5], np.zeros(5))
    doubled = [BLOCK_FORMATS["sparse-float64"](*pairs, np.concatenate([weights[:100], weights[:100]]) / 2.0), absent]
    others = dealt(X[100:], y[100:], weights[100:], [150])
    spread = run(algorithm, problem, [[], doubled, others[0], [absent], others[1]])[-1]
    np.testing.assert_allclose(spread.point, plain.point, rtol=1e-10, atol=1e-13)
    assert spread.objective == pytest.approx(plain.objective, rel=1e-12)


@losses
def test_one_shot_is_the_average_of_the_workers_own_optima(loss: Loss) -> None:
    X, y, weights = by_first_column(*standard_rows(loss))
    problem = make_problem(loss, X, weights, 0.1)
    bounds = [150, 180]
    states = run(OneShotAveraging(GradientSteps(1.0, share=0.5), 500), problem, dealt(X, y, weights, bounds))
    assert len(states) == 3
    assert states[-1].stop.reason == "converged"
    std, mean = problem.scaling.std, problem.scaling.mean[:, 0]
    shape = std.shape[0], loss.outputs

    def unpack_raw(c: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        coefficients = c[: -loss.outputs].reshape(shape) / std
        return coefficients, c[-loss.outputs :] - mean @ coefficients

    total = np.zeros(problem.size)
    for part in np.split(np.arange(len(y)), bounds):

        def local(c: np.ndarray, part=part) -> float:
            coefficients, intercepts = unpack_raw(c)
            ridge = 0.05 * float(np.sum(c[: -loss.outputs] ** 2))
            here = X[part], y[part], weights[part]
            return plain_objective(loss, *here, 0.0, False, coefficients, intercepts) + ridge

        found = optimize.minimize(local, np.zeros(problem.size), method="L-BFGS-B", options={"gtol": 1e-8, "ftol": 0.0})
        total += weights[part].sum() * found.x
    expected = total / weights.sum()
    if loss.outputs > 1:  # a shift of all intercepts is no change of any probability
        expected[-4:] += states[1].point[-4:].mean() - expected[-4:].mean()
    np.testing.assert_allclose(states[1].point, expected, atol=2e-4)


def test_one_shot_counts_passes_and_ends_with_an_evaluation() -> None:
    X, y, weights = standard_rows(Logistic())
    problem = make_problem(Logistic(), X, weights, 0.01)
    (worker,) = dealt(X, y, weights, [])
    solver = GradientSteps(0.5, share=0.25)
    states = run(OneShotAveraging(solver, 3), problem, [worker])
    expected, _ = solver.solve(LocalObjective(problem, worker), np.zeros(problem.size), None, 12, Turn(0))
    np.testing.assert_allclose(states[1].point, expected, rtol=1e-12)
    assert [state.unseen for state in states[1:]] == [3.0, 0.0]
    np.testing.assert_allclose(states[2].best, expected, rtol=1e-12)
    reached = plain_objective(Logistic(), X, y, weights, 0.01, True, *problem.to_raw(expected))
    assert states[2].objective == pytest.approx(reached, rel=1e-12)
    with pytest.raises(ValueError, match="passes=0"):
        OneShotAveraging(solver, 0)


def test_the_loss_is_evaluated_once_a_pass() -> None:
    X, y, weights = standard_rows(Logistic())
    problem = make_problem(Logistic(), X, weights, 0.01)
    algorithm = ModelAveraging(GradientSteps(0.5, share=0.125), Fixed(2), Limits(3, 0.0))
    states = run(algorithm, problem, dealt(X, y, weights, [200]))
    assert [state.iteration for state in states[1:]] == [0] * 4 + [1] * 4 + [2] * 4 + [3]
    for state, before in zip(states[1:], states, strict=False):
        if state.iteration > before.iteration:
            reached = plain_objective(Logistic(), X, y, weights, 0.01, True, *problem.to_raw(before.point))
            assert state.objective == pytest.approx(reached, rel=1e-12)


def test_neighbours_without_rows_keep_their_point() -> None:
    X, y, weights = standard_rows(Logistic())
    problem = make_problem(Logistic(), X, weights, 0.01)
    algorithm = ModelAveraging(GradientSteps(0.5), Fixed(1), Limits(5, 0.0))
    state = algorithm.init(problem, np.arange(7.0))
    update, memory = algorithm.work(problem, [], state.coef, None, Turn(0))
    assert memory is None
    np.testing.assert_array_equal(algorithm.advance(problem, state, update).point, np.arange(7.0))


def test_steps_that_are_too_long_diverge() -> None:
    X, y, weights = standard_rows(Logistic())
    problem = make_problem(Logistic(), X, weights, 1.0)
    stop = run(ModelAveraging(GradientSteps(500.0), Fixed(4), Limits(300, 0.0)), problem, dealt(X, y, weights, []))[
        -1
    ].stop
    assert stop.reason == "diverged"
    assert stop.remedy


@pytest.mark.parametrize("nesterov", [True, False])
def test_block_momentum_0_is_model_averaging(nesterov: bool) -> None:
    X, y, weights = standard_rows(Logistic())
    problem = make_problem(Logistic(), X, weights, 0.01)
    workers = dealt(X, y, weights, [30, 200])
    plain = run(ModelAveraging(GradientSteps(0.5), Fixed(3), Limits(15, 0.0)), problem, workers)
    block = run(BMUF(GradientSteps(0.5), Fixed(3), Limits(15, 0.0), momentum=0.0, nesterov=nesterov), problem, workers)
    assert len(plain) == len(block)
    for one, other in zip(plain, block, strict=True):
        np.testing.assert_allclose(one.point, other.point, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("nesterov", [True, False])
def test_block_momentum_filters_updates(nesterov: bool) -> None:
    """On one worker with full-gradient steps it is gradient descent with classical or Nesterov's momentum."""
    X, y, weights = standard_rows(Logistic())
    problem = make_problem(Logistic(), X, weights, 0.01)
    (worker,) = dealt(X, y, weights, [])
    algorithm = BMUF(GradientSteps(0.5), Fixed(1), Limits(10, 0.0), momentum=0.8, rate=0.6, nesterov=nesterov)
    states = run(algorithm, problem, [worker])

    def gradient(c: np.ndarray) -> np.ndarray:
        return problem.evaluate(c, loss_and_gradient(problem.loss, worker, *problem.to_raw(c)))[1]

    model, velocity = np.zeros(problem.size), np.zeros(problem.size)
    for state in states[:-1]:
        ahead = model + 0.8 * velocity if nesterov else model
        np.testing.assert_allclose(state.point, ahead, rtol=1e-10, atol=1e-13)
        velocity = 0.8 * velocity - 0.6 * 0.5 * gradient(ahead)
        model = model + velocity


def test_block_momentum_saves_rounds_where_averaging_is_slow() -> None:
    """Columns that nearly agree: the optimum lies at the end of a long flat valley."""
    loss = Logistic()
    X, y, weights = standard_rows(loss)
    X[:, 1] = X[:, 0] + 0.1 * X[:, 1]
    problem = make_problem(loss, X, weights, 1e-3)
    workers = dealt(X, y, weights, [100, 200, 300])
    best = scipy_optimum(loss, X, y, weights, 1e-3, True, True).fun

    def rounds(make, **options: Any) -> int:
        states = run(make(GradientSteps(0.5), Fixed(2), Limits(400, -1.0), **options), problem, workers)
        return next(n for n, state in enumerate(states) if state.objective <= best + 1e-3)

    # of 4 workers the momentum is 3/4, as if steps were 4 times as long
    assert 2 * rounds(BMUF) < rounds(ModelAveraging)
    assert 2 * rounds(BMUF, nesterov=False) < rounds(ModelAveraging)
    assert rounds(BMUF) == rounds(BMUF, momentum=0.75)


@pytest.mark.parametrize("make", [ModelAveraging, BMUF])
def test_repeated_runs_are_bit_equal_and_survive_packing(make) -> None:
    X, y, weights = standard_rows(Softmax(4))
    problem = make_problem(Softmax(4), X, weights, 0.01)
    workers = dealt(X, y, weights, [100])
    algorithm = make(GradientSteps(0.5), Fixed(2), Limits(5, 0.0))
    once, again = (run(algorithm, problem, workers) for _ in range(2))
    for one, other in zip(once, again, strict=True):
        np.testing.assert_array_equal(one.coef, other.coef)
        assert one.objective == other.objective
        np.testing.assert_array_equal(unpack(pack(one)).coef, one.coef)
    _, memory = algorithm.work(problem, workers[0], once[0].coef, None, Turn(0))
    _, later = algorithm.work(problem, workers[0], once[1].coef, unpack(pack(memory)), Turn(1))
    assert later.ended >= memory.ended


def test_ratio_is_known_from_the_second_round_on() -> None:
    X, y, weights = standard_rows(Logistic())
    problem = make_problem(Logistic(), X, weights, 0.01)
    workers = dealt(X, y, weights, [100])
    algorithm = ModelAveraging(GradientSteps(0.5), Fixed(2), Limits(3, 0.0))
    states = run(algorithm, problem, workers)
    assert math.isnan(states[1].ratio)
    assert states[-1].ratio > 0.0
    assert states[-1].measured.told == 2.0 * (len(states) - 2)
    # without memory there is nothing to compare with
    assert math.isnan(run(algorithm, problem, workers, lambda clock, worker: True)[-1].ratio)
