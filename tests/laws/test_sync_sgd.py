"""Synchronous SGD: gradient descent with all rows, an unbiased sample of it with some."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from cases import BLOCK_FORMATS
from problems import make_problem
from scipy import stats
from test_algorithm_states import assert_same_state
from test_batches import spread
from test_descent import scipy_optimum, some_rows, uncentred, value_at

from sparkdml.algorithms.progress import Limits
from sparkdml.algorithms.states import pack, unpack
from sparkdml.algorithms.sync_sgd import SyncSGD, SyncSGDState
from sparkdml.core import Turn, Update, add_updates
from sparkdml.data.block import Block
from sparkdml.losses import Logistic, Softmax
from sparkdml.optim.batches import ORDERS
from sparkdml.optim.local_solver import LocalObjective
from sparkdml.optim.schedules import Constant, Inverse
from sparkdml.optim.steps import SGD, STEPS, Adam, Momentum

losses = pytest.mark.parametrize("loss", [Logistic(), Softmax(3)], ids=["logistic", "softmax"])
#: A tolerance that no fit meets: objectives of these rules rise now and then.
ON = -1.0
Workers = Sequence[Sequence[Block]]


def asked(algorithm: SyncSGD, problem, workers: Workers, coef: np.ndarray, clock: int) -> Update:
    """What all workers say together."""
    updates = [
        algorithm.work(problem, blocks, coef, None, Turn(clock, n, len(workers)))[0] for n, blocks in enumerate(workers)
    ]
    total = updates[0]
    for update in updates[1:]:
        total = add_updates(total, update)
    return total


def fit(algorithm: SyncSGD, problem, workers: Workers) -> list[SyncSGDState]:
    states = [algorithm.init(problem, np.zeros(problem.size))]
    while states[-1].stop is None:
        total = asked(algorithm, problem, workers, states[-1].coef, len(states) - 1)
        states.append(algorithm.advance(problem, states[-1], total))
    return states


def shared(block_format: str, X, y, weights, workers: int, skew: float = 1.0) -> Workers:
    """Rows among workers, later ones with fewer; one of several has none."""
    cuts = (len(X) * np.linspace(0, 1, max(workers - 1, 1) + 1) ** skew).astype(int)
    shares = [spread((block_format,), X[a:b], y[a:b], weights[a:b]) for a, b in zip(cuts[:-1], cuts[1:], strict=True)]
    return [*shares, []] if workers > 1 else shares


@losses
@pytest.mark.parametrize("workers", [1, 2, 7])
@pytest.mark.parametrize("block_format", ["dense-float64", "sparse-float64"])
@pytest.mark.parametrize(("l1", "l2"), [(0.0, 0.05), (0.02, 0.03)], ids=["ridge", "elastic-net"])
def test_with_all_rows_it_is_gradient_descent_to_the_optimum(loss, workers, block_format, l1, l2) -> None:
    X, y, weights = some_rows(loss, density=0.6)
    problem = uncentred(loss, X, weights, l1, l2)
    algorithm = SyncSGD(Momentum(0.9), Constant(), 0.1, 1.0, Limits(800, ON))
    last = fit(algorithm, problem, shared(block_format, X, y, weights, workers, 2.0))[-1]
    objective = LocalObjective(problem, [])
    fun, best = scipy_optimum(objective, X, y, weights, l1, l2)
    assert value_at(objective, last.best, X, y, weights, l1, l2) == pytest.approx(fun, abs=1e-9)
    assert last.objective == pytest.approx(fun, abs=1e-9)
    zero = problem.split(best)[0] == 0.0
    assert zero.any() == (l1 > 0.0)
    np.testing.assert_array_equal(problem.split(last.best)[0] == 0.0, zero)


def test_with_all_rows_the_answer_does_not_depend_on_how_rows_are_spread() -> None:
    X, y, weights = some_rows(Softmax(3))
    problem = make_problem(Softmax(3), X, weights, 0.01)
    algorithm = SyncSGD(Adam(), Inverse(0.1), 0.1, 1.0, Limits(60, ON))
    ends = [fit(algorithm, problem, shared("dense-float64", X, y, weights, k, 2.0))[-1] for k in (1, 2, 7)]
    for end in ends[1:]:
        np.testing.assert_allclose(end.coef, ends[0].coef, rtol=1e-9, atol=1e-11)
        assert end.objective == pytest.approx(ends[0].objective, rel=1e-12)


@pytest.mark.parametrize("order", [make() for make in ORDERS.values()], ids=ORDERS.keys())
@pytest.mark.parametrize("fraction", [0.03, 0.3])
def test_samples_are_unbiased_whatever_the_weights_and_shares(order, fraction: float) -> None:
    """The mean of many lies within 4 standard errors of the gradient over all rows."""
    # rows that all pull the intercept to one side: none of a worker's sums is near 0
    X, y, weights = some_rows(Logistic())
    y = np.zeros_like(y)
    weights = weights * np.where(np.arange(120) % 4 == 0, 9.0, 1.0) * (np.arange(120) % 5 > 0)
    problem = uncentred(Logistic(), X, weights, 0.0, 0.1)
    workers = shared("sparse-float64", X, y, weights, 9, 1.5)
    c = np.append(0.3 * np.random.default_rng(1).standard_normal(problem.size - 1), 4.0)
    algorithm = SyncSGD(SGD(), Constant(), 0.1, fraction, Limits(10, ON), order=order)
    samples = np.array([asked(algorithm, problem, workers, c, clock)["gradient"] for clock in range(400)])
    full = asked(replace(algorithm, fraction=1.0), problem, workers, c, 0)["gradient"]
    errors = np.abs(samples.mean(axis=0) - full)
    assert (errors <= 4.0 * stats.sem(samples, axis=0)).all()
    assert stats.sem(samples, axis=0).max() > 0.0


def test_the_loss_is_asked_for_once_a_pass() -> None:
    X, y, weights = some_rows(Logistic())
    problem = uncentred(Logistic(), X, weights, 0.0, 0.1)
    workers = shared("dense-float64", X, y, weights, 3)
    algorithm = SyncSGD(SGD(), Inverse(), 0.3, 0.3, Limits(6, ON))
    states = fit(algorithm, problem, workers)
    assert [s.iteration for s in states] == [-1] + [n // 4 for n in range(4 * 6 + 1)]
    assert states[-1].stop.reason == "max_iterations"
    for n in range(0, 25, 4):
        value = value_at(LocalObjective(problem, []), states[n].coef, X, y, weights, 0.0, 0.1)
        assert states[n + 1].objective == pytest.approx(min(value, states[n].objective), rel=1e-12)
    keys = [asked(algorithm, problem, workers, states[0].coef, n).keys() for n in range(5)]
    assert [("loss" in k) for k in keys] == [True, False, False, False, True]
    assert all(k - {"loss"} == algorithm.compressible for k in keys)


@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("fraction", [0.2, 1.0])
def test_two_runs_are_bit_equal_states_travel_and_nothing_is_changed(name: str, fraction: float) -> None:
    X, y, weights = some_rows(Logistic())
    problem = uncentred(Logistic(), X, weights, 0.01, 0.1)
    workers = shared("sparse-float64", X, y, weights, 3)
    algorithm = SyncSGD(STEPS[name](), Inverse(), 0.1, fraction, Limits(3, ON), seed=-4)
    states, again = fit(algorithm, problem, workers), algorithm.init(problem, np.zeros(problem.size))
    for clock, expected in enumerate(states[1:]):
        before = copy.deepcopy(again)
        after = algorithm.advance(problem, again, asked(algorithm, problem, workers, again.coef, clock))
        assert_same_state(again, before)
        assert_same_state(after, expected)
        again = unpack(pack(after))


@pytest.mark.parametrize("order", [make() for make in ORDERS.values()], ids=ORDERS.keys())
def test_samples_come_near_the_optimum_with_decreasing_steps(order) -> None:
    X, y, weights = some_rows(Logistic(), rows=300)
    l1, l2 = 0.02, 0.03
    problem = uncentred(Logistic(), X, weights, l1, l2)
    algorithm = SyncSGD(SGD(), Inverse(0.3), 1.0, 0.1, Limits(100, ON), order=order)
    states = fit(algorithm, problem, shared("sparse-float64", X, y, weights, 3))
    fun, _ = scipy_optimum(LocalObjective(problem, []), X, y, weights, l1, l2)
    assert states[-1].objective - fun <= 0.05 * (states[1].objective - fun)


def test_rows_of_weight_0_change_nothing() -> None:
    X, y, weights = some_rows(Logistic())
    problem = uncentred(Logistic(), X, weights, 0.0, 0.1)
    build = BLOCK_FORMATS["sparse-float64"]
    more = np.insert(X, [3, 50, 120], 2.0, 0), np.insert(y, [3, 50, 120], 1.0), np.insert(weights, [3, 50, 120], 0.0)
    for fraction in (0.1, 1.0):
        algorithm = SyncSGD(SGD(), Inverse(), 0.3, fraction, Limits(3, ON))
        ends = [fit(algorithm, problem, [[block]])[-1] for block in (build(X, y, weights), build(*more))]
        np.testing.assert_allclose(ends[0].coef, ends[1].coef, rtol=1e-13, atol=1e-15)


def test_weight_2_is_the_row_twice() -> None:
    X, y, _ = some_rows(Logistic())
    counts = np.random.default_rng(4).integers(0, 4, 120)
    problem = uncentred(Logistic(), X, counts.astype(float), 0.01, 0.02)
    build = BLOCK_FORMATS["dense-float64"]
    blocks = (
        build(X, y, counts.astype(float)),
        build(np.repeat(X, counts, 0), np.repeat(y, counts), np.ones(counts.sum())),
    )
    algorithm = SyncSGD(SGD(), Constant(), 0.3, 1.0, Limits(40, ON))
    ends = [fit(algorithm, problem, [[block]])[-1] for block in blocks]
    np.testing.assert_allclose(ends[0].coef, ends[1].coef, rtol=1e-11)


def test_steps_that_are_far_too_long_are_seen_to_diverge() -> None:
    X, y, weights = some_rows(Logistic())
    problem = uncentred(Logistic(), X, weights, 0.0, 0.0)
    for step_size in (1e12, 1e200):
        algorithm = SyncSGD(Momentum(0.99), Constant(), step_size, 0.5, Limits(500, ON))
        last = fit(algorithm, problem, shared("dense-float64", 100.0 * X, y, weights, 2))[-1]
        assert last.stop.reason == "diverged"
        assert "stepSize" in last.stop.remedy


def test_settings_out_of_range_are_refused() -> None:
    for fraction in (0.0, 1.5):
        with pytest.raises(ValueError, match=f"fraction={fraction}"):
            SyncSGD(SGD(), Constant(), 0.1, fraction, Limits(1, ON))
    with pytest.raises(ValueError, match="step_size=-1"):
        SyncSGD(SGD(), Constant(), -1.0, 0.5, Limits(1, ON))
