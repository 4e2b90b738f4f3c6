"""Distributed SVRG reaches the optimum of all rows, however they are spread over workers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from cases import BLOCK_FORMATS
from oracles import random_rows
from problems import drive, make_problem
from test_algorithm_states import assert_same_state
from test_optimum import scipy_optimum
from test_variance_reduction import labelled_rows, problem_for, sklearn_elastic, value_at

from sparkdml.algorithms.base import Algorithm
from sparkdml.algorithms.dsvrg import DSVRG
from sparkdml.algorithms.progress import Limits
from sparkdml.algorithms.states import pack, unpack
from sparkdml.core import Turn, Update
from sparkdml.data.block import Block
from sparkdml.losses import Huber, Logistic, Loss, Softmax
from sparkdml.optim.variance_reduction import SVRG
from sparkdml.problem import Problem

formats = pytest.mark.parametrize("block_format", ["dense-float64", "sparse-float64"])


def spread(layout: str, block_format: str, X, y, weights) -> list[list[Block]]:
    """Workers with blocks of rows; "skewed" ones hold rows of one label, few of them or none."""
    if layout == "skewed":
        order = np.lexsort((X[:, 1], y))
        cuts = [2, len(X) // 10, len(X) // 10, len(X) // 2]
    else:
        order, count = np.arange(len(X)), int(layout)
        cuts = [len(X) * k // count for k in range(1, count)]
    parts = np.split(order, cuts)
    return [[BLOCK_FORMATS[block_format](X[p], y[p], weights[p])] if len(p) else [] for p in parts]


layouts = pytest.mark.parametrize("layout", ["1", "2", "7", "skewed"])


@dataclass(frozen=True)
class Forgetful(Algorithm):
    """Another algorithm, some of whose workers lose their memory: ``losses`` holds (clock, worker)."""

    inner: Algorithm
    losses: frozenset[tuple[int, int]]

    def init(self, problem: Problem, coef: np.ndarray) -> Any:
        return self.inner.init(problem, coef)

    def work(
        self, problem: Problem, blocks: Sequence[Block], coef: np.ndarray, memory: Any, turn: Turn
    ) -> tuple[Update, Any]:
        kept = None if (turn.clock, turn.worker) in self.losses else memory
        return self.inner.work(problem, blocks, coef, kept, turn)

    def advance(self, problem: Problem, state: Any, total: Update) -> Any:
        return self.inner.advance(problem, state, total)


def method(max_iterations: int = 300, tolerance: float = 1e-12, **options) -> DSVRG:
    return DSVRG(SVRG(), Limits(max_iterations, tolerance), **options)


@layouts
@formats
@pytest.mark.parametrize("loss", [Logistic(), Softmax(3)], ids=["binomial", "multinomial"])
def test_objective_is_within_1e_8_of_scipys_optimum(layout: str, block_format: str, loss: Loss) -> None:
    X, y, weights = labelled_rows(loss)
    problem = problem_for(block_format, loss, X, weights, 0.05)
    last = drive(method(), problem, spread(layout, block_format, X, y, weights))[-1]
    assert last.stop.reason == "converged"
    reached = value_at(problem, X, y, weights, 0.05, last.best)
    assert last.objective == pytest.approx(reached, rel=1e-10)
    assert reached == pytest.approx(scipy_optimum(loss, X, y, weights, 0.05, True, True).fun, abs=1e-8)


@layouts
@formats
def test_elastic_net_is_scikit_learns_with_the_same_exact_zeros(layout: str, block_format: str) -> None:
    X, y, weights = labelled_rows(Logistic())
    problem = problem_for(block_format, Logistic(), X, weights, 0.02, 0.03)
    c = drive(method(), problem, spread(layout, block_format, X, y, weights))[-1].best
    oracle = sklearn_elastic(X, y, weights, 0.02, 0.03)
    assert (oracle == 0.0).any()
    np.testing.assert_array_equal(c[:-1] == 0.0, oracle[:-1] == 0.0)
    np.testing.assert_allclose(c[:-1], oracle[:-1], atol=1e-5)


@layouts
def test_local_steps_from_the_optimum_stay_there(layout: str) -> None:
    """Though no worker's own rows have their optimum there."""
    X, y, weights = labelled_rows(Logistic())
    problem = problem_for("dense-float64", Logistic(), X, weights, 0.02, 0.03)
    workers = spread(layout, "dense-float64", X, y, weights)
    algorithm = method(tolerance=0.0, local_steps=200)
    optimum = drive(method(tolerance=1e-16), problem, workers)[-1].best
    state = algorithm.init(problem, optimum)
    for clock in range(2):
        turns = [(own, Turn(clock, k, len(workers))) for k, own in enumerate(workers)]
        updates = [algorithm.work(problem, own, state.coef, None, turn)[0] for own, turn in turns]
        total = {name: sum(update[name] for update in updates) for name in updates[0]}
        state = algorithm.advance(problem, state, total)
    np.testing.assert_allclose(state.coef, optimum, atol=1e-6)


def test_rows_that_differ_wildly_need_a_pull() -> None:
    """Each worker's rows vary in a direction of their own: alone it runs far along all others."""
    rng = np.random.default_rng(7)
    X = np.kron(np.eye(4), np.ones((30, 1))) * rng.choice([-1.0, 1.0], (120, 1)) + 1e-3 * random_rows(rng, 120, 4)
    y = (rng.random(120) < 1.0 / (1.0 + np.exp(-X.sum(axis=1)))).astype(float)
    weights = np.ones(120)
    problem = make_problem(Logistic(), X, weights, 1e-3)
    states = drive(method(400, local_steps=400), problem, spread("4", "dense-float64", X, y, weights))
    assert max(state.pull for state in states) > 0.0
    best = scipy_optimum(Logistic(), X, y, weights, 1e-3, True, True)
    assert states[-1].objective == pytest.approx(best.fun, abs=1e-6)
    objectives = [state.objective for state in states[1:]]
    assert (np.diff(objectives) <= 0.0).all()


def test_lost_memory_changes_nothing() -> None:
    X, y, weights = labelled_rows(Logistic())
    problem = problem_for("sparse-float64", Logistic(), X, weights, 0.1)
    workers = spread("2", "sparse-float64", X, y, weights)
    lost = Forgetful(method(), frozenset({(1, 0), (6, 1), (9, 0)}))
    ends = [drive(algorithm, problem, workers)[-1] for algorithm in (method(), lost)]
    assert_same_state(*ends)


def test_two_runs_and_one_from_a_checkpoint_are_bit_equal() -> None:
    X, y, weights = labelled_rows(Logistic())
    problem = problem_for("dense-float64", Logistic(), X, weights, 0.1, 0.01)
    workers = spread("2", "dense-float64", X, y, weights)
    first, second = drive(method(), problem, workers), drive(method(), problem, workers)
    assert len(first) == len(second)
    for one, other in zip(first, second, strict=True):
        assert_same_state(one, other)
        assert_same_state(one, unpack(pack(one)))


def test_weight_2_is_the_row_twice_and_weight_0_none() -> None:
    X, y, _ = labelled_rows(Logistic())
    counts = np.random.default_rng(6).integers(0, 3, len(X))
    weighted, repeated = (X, y, counts.astype(float)), [np.repeat(a, counts, axis=0) for a in (X, y, np.ones(len(y)))]
    problem = problem_for("dense-float64", Logistic(), X, counts.astype(float), 0.1)
    ends = [
        drive(method(), problem, spread("2", "dense-float64", *rows))[-1].objective for rows in (weighted, repeated)
    ]
    assert ends[0] == pytest.approx(ends[1], abs=1e-10)


def test_an_outer_step_is_two_rounds_of_one_vector_each() -> None:
    X, y, weights = labelled_rows(Logistic())
    problem = problem_for("dense-float64", Logistic(), X, weights, 0.1)
    workers = spread("2", "dense-float64", X, y, weights)
    algorithm = method()
    states = drive(algorithm, problem, workers)
    assert [s.iteration for s in states[1:6]] == [0, 0, 1, 1, 2]
    for clock, state in enumerate(states[:4]):
        update, _ = algorithm.work(problem, workers[0], state.coef, None, Turn(clock, 0, 2))
        vectors = [value for value in update.values() if isinstance(value, np.ndarray) and value.size > 1]
        assert len(vectors) == 1


def test_a_loss_with_parameters_of_its_own_is_refused() -> None:
    X, _, weights = labelled_rows(Logistic())
    problem = replace(problem_for("dense-float64", Logistic(), X, weights, 0.1), loss=Huber())
    with pytest.raises(ValueError, match="Huber"):
        method().init(problem, np.zeros(problem.size))
