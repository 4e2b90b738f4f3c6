"""An algorithm is a pure state machine: its answers depend on its arguments and nothing else."""

from __future__ import annotations

import copy
import dataclasses
import pickle

import numpy as np
import pytest
from cases import ALGORITHMS, BLOCK_FORMATS
from oracles import random_labels, random_rows
from problems import drive, make_problem

from sparkdml.losses import Logistic, Loss, Softmax

every_algorithm = pytest.mark.parametrize("make_algorithm", ALGORITHMS.values(), ids=ALGORITHMS.keys())


def rows(loss: Loss, count: int = 150):
    rng = np.random.default_rng(23)
    return random_rows(rng, count, 5), random_labels(rng, loss, count), rng.uniform(0.1, 2, count)


def problem_and_block(loss: Loss):
    X, y, weights = rows(loss)
    problem = make_problem(loss, X, weights, 1e-3)
    return problem, BLOCK_FORMATS["dense-float64"](X, y, weights)


def leaves(value) -> list[object]:
    """Every array and number within a state, in a fixed order."""
    if dataclasses.is_dataclass(value):
        fields = dataclasses.fields(value)
        return [leaf for field in fields for leaf in leaves(getattr(value, field.name))]
    if isinstance(value, tuple):
        return [leaf for item in value for leaf in leaves(item)]
    return [value]


def assert_same_state(found, expected) -> None:
    found, expected = leaves(found), leaves(expected)
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


@every_algorithm
@pytest.mark.parametrize("loss", [Logistic(), Softmax(3)], ids=["logistic", "softmax"])
def test_advance_and_work_change_none_of_their_arguments(make_algorithm, loss: Loss) -> None:
    problem, block = problem_and_block(loss)
    algorithm = make_algorithm(30, 1e-9)
    start = np.zeros(problem.size)
    state = algorithm.init(problem, start)
    rounds = 0
    while state.stop is None:
        before = copy.deepcopy(state)
        total, _ = algorithm.work(problem, [block], state.coef, None, rounds)
        assert_same_state(state, before)
        total_before = copy.deepcopy(total)
        state_after = algorithm.advance(problem, state, total)
        assert_same_state(state, before)
        for name, value in total_before.items():
            np.testing.assert_array_equal(total[name], value)
        state, rounds = state_after, rounds + 1
    assert rounds > 3
    assert not start.any()


@every_algorithm
@pytest.mark.parametrize("loss", [Logistic(), Softmax(3)], ids=["logistic", "softmax"])
def test_objective_and_gradient_norm_belong_to_the_best_point(make_algorithm, loss: Loss) -> None:
    problem, block = problem_and_block(loss)
    algorithm = make_algorithm(30, 1e-9)
    for state in drive(algorithm, problem, [[block]])[1:]:
        total, _ = algorithm.work(problem, [block], state.best, None, 0)
        value, gradient = problem.evaluate(state.best, total)
        assert state.objective == value
        assert state.gradient_norm == pytest.approx(np.linalg.norm(gradient), rel=1e-12)


@every_algorithm
def test_a_state_survives_as_a_checkpoint(make_algorithm) -> None:
    """Pickled and read back after every round, the fit ends the same."""
    problem, block = problem_and_block(Softmax(3))
    algorithm = make_algorithm(25, 1e-9)
    straight = drive(algorithm, problem, [[block]])
    state = algorithm.init(problem, np.zeros(problem.size))
    for expected in straight[1:]:
        state = pickle.loads(pickle.dumps(state))
        total, _ = algorithm.work(problem, [block], state.coef, None, 0)
        state = algorithm.advance(problem, state, total)
        assert_same_state(state, expected)
    assert state.stop is not None


@every_algorithm
@pytest.mark.parametrize("loss", [Logistic(), Softmax(3)], ids=["logistic", "softmax"])
def test_two_runs_are_equal_to_the_last_bit(make_algorithm, loss: Loss) -> None:
    problem, block = problem_and_block(loss)
    once, again = (drive(make_algorithm(40, 1e-9), problem, [[block]]) for _ in range(2))
    assert len(once) == len(again)
    for one, other in zip(once, again, strict=True):
        assert_same_state(one, other)


@every_algorithm
@pytest.mark.parametrize("cuts", [[], [1], [75], [10, 20, 30, 140, 149]], ids=str)
def test_rows_may_be_cut_into_blocks_and_workers(make_algorithm, cuts: list[int]) -> None:
    loss = Softmax(3)
    X, y, weights = rows(loss)
    problem = make_problem(loss, X, weights, 1e-3)
    builders = list(BLOCK_FORMATS.values())
    whole = drive(make_algorithm(300, 1e-12), problem, [[builders[1](X, y, weights)]])[-1]
    bounds = [0, *cuts, len(X)]
    blocks = [
        builders[n % 4](X[a:b], y[a:b], weights[a:b]) for n, (a, b) in enumerate(zip(bounds, bounds[1:], strict=False))
    ]
    one_worker = drive(make_algorithm(300, 1e-12), problem, [blocks])[-1]
    a_worker_each = drive(make_algorithm(300, 1e-12), problem, [[block] for block in blocks])[-1]
    idle_worker = drive(make_algorithm(300, 1e-12), problem, [blocks, []])[-1]
    for end in (one_worker, a_worker_each, idle_worker):
        assert end.objective == pytest.approx(whole.objective, abs=1e-12)
        np.testing.assert_allclose(end.best, whole.best, atol=1e-6)


@every_algorithm
def test_no_iterations_return_the_start_and_its_objective(make_algorithm) -> None:
    problem, block = problem_and_block(Logistic())
    start = np.linspace(-1.0, 1.0, problem.size)
    states = drive(make_algorithm(0, 1e-6), problem, [[block]], start)
    assert len(states) == 2
    assert states[-1].iteration == 0
    assert states[-1].stop.reason == "max_iterations"
    np.testing.assert_array_equal(states[-1].best, start)
    total, _ = make_algorithm(0, 1e-6).work(problem, [block], start, None, 0)
    assert states[-1].objective == problem.evaluate(start, total)[0]


@every_algorithm
def test_stopping_at_max_iterations_says_so_and_what_to_change(make_algorithm) -> None:
    problem, block = problem_and_block(Logistic())
    last = drive(make_algorithm(3, 0.0), problem, [[block]])[-1]
    assert last.iteration == 3
    assert last.stop.reason == "max_iterations"
    assert "3" in last.stop.message
    assert "maxIter" in last.stop.remedy


@every_algorithm
def test_a_start_at_the_optimum_stops_in_the_first_round(make_algorithm) -> None:
    problem, block = problem_and_block(Logistic())
    best = drive(make_algorithm(200, 1e-12), problem, [[block]])[-1].best
    states = drive(make_algorithm(200, 1e-5), problem, [[block]], best)
    assert len(states) == 2
    assert states[-1].stop.reason == "converged"
    assert states[-1].stop.remedy == ""


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@every_algorithm
@pytest.mark.parametrize("size", [1e200, 1e308])
def test_an_objective_that_is_not_finite_is_a_stop_with_a_remedy(make_algorithm, size: float) -> None:
    problem, block = problem_and_block(Logistic())
    states = drive(make_algorithm(20, 1e-6), problem, [[block]], np.full(problem.size, size))
    assert states[-1].stop.reason == "diverged"
    assert states[-1].stop.remedy
