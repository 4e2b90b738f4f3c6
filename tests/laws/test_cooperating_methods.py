"""Laws of every method by which workers that hold rows cooperate, listed once in ``cooperation.SOLVERS``."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from cases import BLOCK_FORMATS
from problems import make_problem

from sparkdml.algorithms import LBFGS, Limits
from sparkdml.algorithms.states import pack, unpack
from sparkdml.comm.packets import Packets
from sparkdml.cooperation import BY_FEATURES, SOLVERS, Plan, parse_schedule
from sparkdml.core import Turn, add_updates
from sparkdml.losses import Logistic
from sparkdml.optim.schedules import Constant, Cosine, WarmUp
from sparkdml.problem import Problem, Scaling

PLAN = Plan(
    solver="sgd",
    limits=Limits(25, 1e-9),
    optimizer="adagrad",
    step_size=None,
    default_step_size=0.3,
    schedule="constant",
    batch_size=8,
    fraction=0.2,
    local_steps="pass",
    block_momentum=-1.0,
    elasticity=0.9,
    codec="identity",
    topology="auto",
    seed=5,
)
#: Numbers in updates that are times, which no two runs share.
TIMES = ("compute_seconds", "exchange_seconds")

#: Methods of workers that hold all rows have laws of their own.
every_method = pytest.mark.parametrize("solver", [name for name in SOLVERS if name not in BY_FEATURES])


def task(form: str = "dense-float64", cuts=(0, 40, 150)) -> tuple[Problem, list[list[Any]]]:
    rng = np.random.default_rng(1)
    X = rng.standard_normal((150, 5))
    X[rng.random(X.shape) < 0.4] = 0.0
    y = (rng.random(150) < 1 / (1 + np.exp(-X @ rng.standard_normal(5)))).astype(float)
    weights = rng.integers(1, 3, 150).astype(float)
    problem = make_problem(Logistic(), X, weights, 0.1)
    if "sparse" in form:  # sparse rows are not centred
        zero = Scaling(np.zeros_like(problem.scaling.mean), problem.scaling.inverse_std)
        problem = replace(problem, scaling=zero)
    make = BLOCK_FORMATS[form]
    parts = list(zip(cuts, cuts[1:], strict=False))
    return problem, [[make(X[a:b], y[a:b], weights[a:b])] if b > a else [] for a, b in parts]


def run(algorithm, problem: Problem, workers, lose: tuple[int, ...] = (), written: bool = False) -> list[Any]:
    """Every state; in the rounds ``lose`` all memories are lost, and with ``written`` all goes through bytes."""
    state = algorithm.init(problem, np.zeros(problem.size))
    states, memories = [state], [None] * len(workers)
    while state.stop is None and len(states) < 400:
        clock = len(states) - 1
        total: dict[str, Any] = {}
        for k, blocks in enumerate(workers):
            memory = None if clock in lose else memories[k]
            memory = unpack(pack(memory)) if written and memory is not None else memory
            before = state.coef.copy()
            update, memories[k] = algorithm.work(problem, blocks, state.coef, memory, Turn(clock, k, len(workers)))
            np.testing.assert_array_equal(state.coef, before)
            # times would change the answer of methods that measure, and the comparison of any
            update.update({name: 0.0 for name in TIMES if name in update})
            total = add_updates(total, update) if total else update
        state = algorithm.advance(problem, unpack(pack(state)) if written else state, total)
        states.append(state)
    return states


@every_method
def test_two_runs_are_bit_equal(solver: str) -> None:
    problem, workers = task()
    algorithm = replace(PLAN, solver=solver).algorithm()
    one, other = run(algorithm, problem, workers), run(algorithm, problem, workers)
    assert [s.objective for s in one] == [s.objective for s in other]
    np.testing.assert_array_equal(one[-1].best, other[-1].best)


@every_method
@pytest.mark.parametrize("codec", ["identity", "1-bit"])
def test_states_and_memories_survive_as_bytes(solver: str, codec: str) -> None:
    if codec != "identity" and solver not in ("sgd", "model-averaging", "bmuf", "easgd"):
        return
    problem, workers = task()
    algorithm = replace(PLAN, solver=solver, codec=codec).algorithm()
    straight, written = run(algorithm, problem, workers), run(algorithm, problem, workers, written=True)
    np.testing.assert_array_equal(straight[-1].best, written[-1].best)


@every_method
def test_a_worker_without_rows_takes_nothing_away(solver: str) -> None:
    problem, workers = task()
    _, with_empty = task(cuts=(0, 40, 150, 150))
    algorithm = replace(PLAN, solver=solver).algorithm()
    optimum = run(LBFGS(200, 1e-12), problem, workers)[-1].objective
    alone, together = run(algorithm, problem, workers)[-1], run(algorithm, problem, with_empty)[-1]
    assert np.isfinite(together.best).all()
    assert together.objective - optimum <= 2.0 * max(alone.objective - optimum, 0.0) + 5e-3


@every_method
@pytest.mark.parametrize("form", BLOCK_FORMATS)
def test_how_rows_are_stored_matters_little(solver: str, form: str) -> None:
    problem, workers = task(form)
    _, as_doubles = task(form.replace("float32", "float64"))
    algorithm = replace(PLAN, solver=solver).algorithm()
    found, reference = run(algorithm, problem, workers)[-1], run(algorithm, problem, as_doubles)[-1]
    assert found.objective == pytest.approx(reference.objective, rel=1e-4)


@every_method
def test_lost_memories_cost_rounds_only(solver: str) -> None:
    problem, workers = task()
    algorithm = replace(PLAN, solver=solver).algorithm()
    kept, lost = run(algorithm, problem, workers)[-1], run(algorithm, problem, workers, lose=(3, 4))[-1]
    assert lost.objective == pytest.approx(kept.objective, rel=5e-3)


@every_method
def test_updates_add_up(solver: str) -> None:
    """Names and shapes do not depend on the worker, which topologies count on."""
    problem, workers = task(cuts=(0, 40, 150, 150))
    algorithm = replace(PLAN, solver=solver).algorithm()
    state = algorithm.init(problem, np.zeros(problem.size))
    updates = [algorithm.work(problem, b, state.coef, None, Turn(0, k, 3))[0] for k, b in enumerate(workers)]
    shapes = [{name: np.shape(value) for name, value in update.items()} for update in updates]
    assert shapes[0] == shapes[1] == shapes[2]
    assert not any(isinstance(value, Packets) for update in updates for value in update.values())


def test_schedules_are_spelled_as_documented() -> None:
    assert parse_schedule("constant", 9) == Constant()
    assert parse_schedule("warm-up:2+cosine", 9) == WarmUp(2.0, Cosine(9, 1e-3))
    assert parse_schedule("warm-up:0.5", 9) == WarmUp(0.5)
    for wrong in ("cosine+constant", "warm-up", "warm-up:x", "warm-up:2+linear", ""):
        with pytest.raises(ValueError, match="schedule="):
            parse_schedule(wrong, 9)
