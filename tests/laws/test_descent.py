"""Mini-batch descent: the worker's optimum with full batches, and the same steps however rows are stored."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from cases import BLOCK_FORMATS
from oracles import plain_losses, plain_slopes, random_labels, random_rows
from problems import make_problem
from scipy import optimize
from test_batches import spread

from sparkdml.algorithms.states import pack, unpack
from sparkdml.core import Turn
from sparkdml.losses import Logistic, Loss, Softmax
from sparkdml.optim.batches import ORDERS
from sparkdml.optim.descent import Descent, Walk
from sparkdml.optim.local_solver import LocalObjective, Pull
from sparkdml.optim.schedules import Constant, Inverse
from sparkdml.optim.steps import SGD, STEPS, Adam, Momentum
from sparkdml.penalties import L2, ElasticNet
from sparkdml.problem import Problem, Scaling

losses = pytest.mark.parametrize("loss", [Logistic(), Softmax(3)], ids=["logistic", "softmax"])
every_step = pytest.mark.parametrize("name", STEPS)
penalties = pytest.mark.parametrize(("l1", "l2"), [(0.0, 0.0), (0.0, 0.05), (0.02, 0.03)], ids=["none", "l2", "l1+l2"])
pulls = pytest.mark.parametrize("strength", [0.0, 0.3], ids=["free", "pulled"])


def some_rows(loss: Loss, rows: int = 120, features: int = 12, density: float = 0.3):
    rng = np.random.default_rng(23)
    X = random_rows(rng, rows, features, density)
    y = np.where(X[:, 0] > 0.3, 1.0, random_labels(rng, loss, rows))
    return X, y, rng.integers(1, 8, rows) / 4.0


def uncentred(loss: Loss, X: np.ndarray, weights: np.ndarray, l1: float, l2: float) -> Problem:
    """As problems over sparse rows are."""
    problem = make_problem(loss, X, weights, l2)
    factors = np.ones((X.shape[1], 1))
    scaling = Scaling(np.zeros_like(factors), problem.scaling.inverse_std)
    return replace(problem, scaling=scaling, penalty=ElasticNet(l2, factors, l1, factors) if l1 else L2(l2, factors))


def pull_of(problem: Problem, strength: float) -> Pull | None:
    return Pull(strength, np.random.default_rng(3).standard_normal(problem.size)) if strength else None


def scipy_optimum(objective: LocalObjective, X, y, weights, l1: float, l2: float) -> tuple[float, np.ndarray]:
    """Of ``F_k`` with its pull, in plain numpy, by L-BFGS-B over positive and negative parts."""
    problem, pull = objective.problem, objective.pull
    loss, count = problem.loss, problem.features * problem.loss.outputs
    Z = (
        X * problem.scaling.inverse_std[:, 0]
        - problem.fit_intercept * (problem.scaling.mean * problem.scaling.inverse_std)[:, 0]
    )

    def both(parts: np.ndarray) -> tuple[float, np.ndarray]:
        up, down = parts[: problem.size], parts[problem.size :]
        c = up - down
        margins = Z @ c[:count].reshape(problem.features, -1) + c[count:]
        slopes = plain_slopes(loss, margins, y) * weights[:, None] / weights.sum()
        g = np.concatenate([(Z.T @ slopes).ravel(), slopes.sum(axis=0)])
        value = np.average(plain_losses(loss, margins, y), weights=weights)
        value += l2 / 2 * c[:count] @ c[:count] + l1 * parts[:count].sum()
        value += l1 * down[:count].sum()
        g[:count] += l2 * c[:count]
        if pull is not None:
            value += pull.strength / 2 * np.sum((c - pull.centre) ** 2)
            g += pull.strength * (c - pull.centre)
        cost = np.where(np.arange(problem.size) < count, l1, 0.0)
        return float(value), np.concatenate([g + cost, cost - g])

    found = optimize.minimize(
        both, np.zeros(2 * problem.size), jac=True, method="L-BFGS-B", bounds=[(0, None)] * (2 * problem.size),
        options={"ftol": 1e-16, "gtol": 1e-10, "maxiter": 20000, "maxfun": 40000},
    )  # fmt: skip
    c = found.x[: problem.size] - found.x[problem.size :]
    return found.fun, c


def value_at(objective: LocalObjective, c: np.ndarray, X, y, weights, l1: float, l2: float) -> float:
    coefficients, intercepts = objective.problem.to_raw(c)
    b = objective.problem.split(c)[0]
    value = np.average(plain_losses(objective.problem.loss, X @ coefficients + intercepts, y), weights=weights)
    value += l2 / 2 * np.sum(b**2) + l1 * np.abs(b).sum()
    pull = objective.pull
    return float(value + (pull.strength / 2 * np.sum((c - pull.centre) ** 2) if pull else 0.0))


@losses
@pulls
@pytest.mark.parametrize("block_format", ["dense-float64", "sparse-float64"])
@pytest.mark.parametrize("step", [SGD(), Momentum(0.9)], ids=["sgd", "momentum"])
@pytest.mark.parametrize(("l1", "l2"), [(0.0, 0.05), (0.02, 0.03)], ids=["ridge", "elastic-net"])
def test_full_batches_lead_to_the_worker_s_optimum(loss, strength, block_format, step, l1, l2) -> None:
    X, y, weights = some_rows(loss, density=0.6)
    problem = uncentred(loss, X, weights, l1, l2)
    if block_format == "dense-float64":  # centred
        problem = replace(problem, scaling=make_problem(loss, X, weights).scaling)
    objective = LocalObjective(problem, [BLOCK_FORMATS[block_format](X, y, weights)], pull_of(problem, strength))
    solver = Descent(step, 0.5 if isinstance(step, SGD) else 0.05, batch_size=10**6)
    point, walk = solver.solve(objective, np.zeros(problem.size), None, 1000, Turn(0))
    assert walk is not None
    assert (walk.count, walk.passes) == (1000, 1000.0)
    fun, best = scipy_optimum(objective, X, y, weights, l1, l2)
    assert value_at(objective, point, X, y, weights, l1, l2) == pytest.approx(fun, abs=1e-9)
    if l1 and not strength:
        zero = problem.split(best)[0] == 0.0
        assert 0 < zero.sum() < zero.size
        np.testing.assert_array_equal(problem.split(point)[0] == 0.0, zero)


@losses
@penalties
@pulls
@pytest.mark.parametrize("name", ["sgd", "adagrad", "ftrl"])
def test_steps_over_sparse_rows_are_those_over_dense_ones(loss, l1, l2, strength, name) -> None:
    """Which touch every coordinate with every batch; features that never occur are among them."""
    X, y, weights = some_rows(loss, features=40, density=0.04)
    X[:, 5] = 0.0
    problem = uncentred(loss, X, weights, l1, l2)
    start = np.random.default_rng(1).standard_normal(problem.size)
    start[::7] = 0.0
    ends, memory = [], [None, None]
    for n, block_format in enumerate(("dense-float64", "sparse-float64")):
        objective = LocalObjective(problem, [BLOCK_FORMATS[block_format](X, y, weights)], pull_of(problem, strength))
        point = start
        for clock, steps in enumerate((0, 17, 70)):
            solver = Descent(STEPS[name](), 0.2, Inverse(), batch_size=5)
            point, memory[n] = solver.solve(objective, point, memory[n], steps, Turn(clock))
        ends.append(point)
    np.testing.assert_allclose(ends[1], ends[0], rtol=1e-10, atol=1e-12)
    for one, other in zip(memory[0].slots, memory[1].slots, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-9, atol=1e-11)


@every_step
@pytest.mark.parametrize("block_format", ["dense-float64", "sparse-float64"])
def test_small_batches_come_near_the_optimum(name: str, block_format: str) -> None:
    """With moving averages that rest over sparse rows, too."""
    loss, (l1, l2) = Logistic(), (0.02, 0.02)
    X, y, weights = some_rows(loss, rows=400)
    problem = uncentred(loss, X, weights, l1, l2)
    objective = LocalObjective(problem, [BLOCK_FORMATS[block_format](X, y, weights)])
    size = {"sgd": 1.0, "adagrad": 0.3, "adadelta": 1.0, "ftrl": 0.5}.get(name, 0.1)
    schedule = Constant() if name in ("adagrad", "adadelta", "ftrl") else Inverse(0.3)
    solver = Descent(STEPS[name](), size, schedule, batch_size=20)
    point, _ = solver.solve(objective, np.zeros(problem.size), None, 80 * 20, Turn(0))
    fun, _ = scipy_optimum(objective, X, y, weights, l1, l2)
    begun = value_at(objective, np.zeros(problem.size), X, y, weights, l1, l2)
    # of what there is to gain, all but a hundredth
    assert value_at(objective, point, X, y, weights, l1, l2) - fun <= 0.01 * (begun - fun)


@every_step
@pytest.mark.parametrize("formats", [("sparse-float64",) * 3, ("dense-float32", "sparse-float64")], ids="+".join)
def test_rows_may_lie_in_several_blocks(name: str, formats: tuple[str, ...]) -> None:
    loss = Softmax(3)
    X, y, weights = some_rows(loss)
    problem = uncentred(loss, X, weights, 0.01, 0.02)
    alone = "sparse-float64" if "dense-float32" not in formats else "dense-float64"
    solver = Descent(STEPS[name](), 0.1, batch_size=11)
    ends = [
        solver.solve(LocalObjective(problem, blocks), np.zeros(problem.size), None, 25, Turn(0))[0]
        for blocks in (spread((alone,), X, y, weights), spread(formats, X, y, weights))
    ]
    np.testing.assert_allclose(ends[1], ends[0], rtol=1e-6, atol=1e-8)


@every_step
@pytest.mark.parametrize("order", [make() for make in ORDERS.values()], ids=ORDERS.keys())
@pytest.mark.parametrize("block_format", ["dense-float64", "sparse-float64"])
def test_rows_of_weight_0_change_nothing(name: str, order, block_format: str) -> None:
    loss = Logistic()
    X, y, weights = some_rows(loss)
    problem = uncentred(loss, X, weights, 0.01, 0.02)
    build = BLOCK_FORMATS[block_format]
    noise = random_rows(np.random.default_rng(8), 40, 12)
    at = np.sort(np.random.default_rng(9).integers(0, 120, 40))
    blocks = (
        [build(X, y, weights)],
        [build(np.insert(X, at, noise, 0), np.insert(y, at, 1.0), np.insert(weights, at, 0.0))],
    )
    solver = Descent(STEPS[name](), 0.1, batch_size=7, order=order)
    ends = [solver.solve(LocalObjective(problem, b), np.zeros(13), None, 30, Turn(0))[0] for b in blocks]
    np.testing.assert_array_equal(ends[0], ends[1])


@pytest.mark.parametrize("block_format", ["dense-float64", "sparse-float64"])
def test_weight_2_is_the_row_twice(block_format: str) -> None:
    loss = Logistic()
    X, y, _ = some_rows(loss)
    counts = np.random.default_rng(4).integers(0, 4, 120)
    problem = uncentred(loss, X, np.ones(120), 0.01, 0.02)
    build = BLOCK_FORMATS[block_format]
    blocks = (
        [build(X, y, counts.astype(float))],
        [build(np.repeat(X, counts, 0), np.repeat(y, counts), np.ones(counts.sum()))],
    )
    solver = Descent(SGD(), 0.3, batch_size=1000)
    ends = [solver.solve(LocalObjective(problem, b), np.zeros(13), None, 40, Turn(0))[0] for b in blocks]
    np.testing.assert_allclose(ends[0], ends[1], rtol=1e-11)


@every_step
@pytest.mark.parametrize("block_format", ["dense-float64", "sparse-float64"])
def test_two_runs_are_bit_equal_and_memory_travels(name: str, block_format: str) -> None:
    loss = Softmax(3)
    X, y, weights = some_rows(loss)
    problem = uncentred(loss, X, weights, 0.01, 0.02)
    objective = LocalObjective(problem, [BLOCK_FORMATS[block_format](X, y, weights)])
    solver, ends = Descent(STEPS[name](), 0.1, Inverse(), batch_size=16, seed=-5), []
    start = np.random.default_rng(2).standard_normal(problem.size)
    before = start.copy()
    for travels in (False, True, False):
        point, memory = start, None
        for clock in range(3):
            point, memory = solver.solve(objective, point, memory, 11, Turn(clock, 1, 2))
            memory = unpack(pack(memory)) if travels else memory
        ends.append(point)
    np.testing.assert_array_equal(ends[0], ends[1])
    np.testing.assert_array_equal(ends[0], ends[2])
    np.testing.assert_array_equal(start, before)
    other, _ = solver.solve(objective, start, None, 11, Turn(0, 0, 2))
    assert not np.array_equal(other, solver.solve(objective, start, None, 11, Turn(0, 1, 2))[0])


def test_a_stretch_has_the_step_size_of_its_middle() -> None:
    """A pass is a stretch; the schedule goes on in the next call, and from the clock where memory was lost."""
    loss = Logistic()
    X, y, weights = some_rows(loss)
    problem = uncentred(loss, X, weights, 0.0, 0.0)
    objective = LocalObjective(problem, [BLOCK_FORMATS["dense-float64"](X, y, weights)])
    seen: list[float] = []

    class Recorded(Inverse):
        def __call__(self, passes: float) -> float:
            seen.append(passes)
            return super().__call__(passes)

    solver = Descent(SGD(), 0.1, Recorded(), batch_size=50)  # 3 steps a pass
    point, memory = solver.solve(objective, np.zeros(problem.size), None, 7, Turn(0))
    np.testing.assert_allclose(seen, [0.5, 1.5, 2.0 + 1.0 / 6.0])
    assert solver.passes(objective, 7) == pytest.approx(7 / 3)
    assert solver.passes(objective, 0) == 1.0
    solver.solve(objective, point, memory, 0, Turn(1))
    solver.solve(objective, point, None, 7, Turn(4))
    np.testing.assert_allclose(seen[3:5], [7.0 / 3.0 + 0.5, 4.0 * 7.0 / 3.0 + 0.5])
    assert memory is not None
    assert memory.count == 7


@pytest.mark.parametrize("name", ["sgd", "adam", "ftrl"])
def test_lost_memory_still_leads_to_the_optimum(name: str) -> None:
    loss, (l1, l2) = Logistic(), (0.01, 0.03)
    X, y, weights = some_rows(loss, density=0.6)
    problem = uncentred(loss, X, weights, l1, l2)
    objective = LocalObjective(problem, [BLOCK_FORMATS["dense-float64"](X, y, weights)])
    solver = Descent(STEPS[name](), 0.5 if name != "adam" else 0.1, Inverse(0.01), batch_size=500)
    point, memory = np.zeros(problem.size), None
    for clock in range(60):
        point, memory = solver.solve(objective, point, None if clock in (5, 20) else memory, 50, Turn(clock))
    fun, _ = scipy_optimum(objective, X, y, weights, l1, l2)
    assert value_at(objective, point, X, y, weights, l1, l2) == pytest.approx(fun, abs=1e-6)


@pytest.mark.parametrize("name", ["adagrad", "rmsprop", "adam"])
def test_a_coordinate_without_gradients_is_not_wiped_out(name: str) -> None:
    """Dividing by a root of 0 would let the penalty have it at once."""
    X, y, weights = some_rows(Logistic(), density=0.1)
    X[:, 4] = 0.0
    problem = uncentred(Logistic(), X, weights, 0.01, 0.01)
    objective = LocalObjective(problem, [BLOCK_FORMATS["sparse-float64"](X, y, weights)])
    point, _ = Descent(STEPS[name](), 0.01, batch_size=8).solve(objective, np.ones(13), None, 10, Turn(0))
    eager = 1.0
    for _ in range(10):
        eager = (eager - 0.01 * 0.01) / (1.0 + 0.01 * 0.01)
    assert point[4] == pytest.approx(eager, rel=1e-12)


def test_a_worker_without_rows_answers_the_start() -> None:
    X, y, weights = some_rows(Logistic())
    problem = uncentred(Logistic(), X, weights, 0.01, 0.01)
    start = np.arange(13.0)
    walk = Walk((), 3, 1.0)
    for blocks in ([], [BLOCK_FORMATS["sparse-float64"](X, y, 0.0 * weights)]):
        objective = LocalObjective(problem, blocks)
        assert Descent(SGD(), 0.1).passes(objective, 0) == 1.0
        point, memory = Descent(SGD(), 0.1).solve(objective, start, walk, 5, Turn(0))
        np.testing.assert_array_equal(point, np.arange(13.0))
        assert memory is walk


def test_settings_out_of_range_are_refused() -> None:
    with pytest.raises(ValueError, match="batch_size=0"):
        Descent(Adam(), 0.1, batch_size=0)
    with pytest.raises(ValueError, match="step_size=0"):
        Descent(Adam(), 0.0)
