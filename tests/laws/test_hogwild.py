"""Threads that share coefficients: one of them is SGD, several come as close, and without conflicts all are one."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest
from cases import BLOCK_FORMATS
from oracles import plain_slopes, random_labels, random_rows
from problems import drive, make_problem
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from sparkdml.algorithms import HogwildAveraging, Limits
from sparkdml.algorithms.hogwild import Passes
from sparkdml.core import Turn
from sparkdml.data.block import Block
from sparkdml.losses import Hinge, Huber, Logistic, Loss, Softmax, Squared
from sparkdml.losses.slopes import slope_of, to_slopes
from sparkdml.optim.batches import Order, generator
from sparkdml.optim.descent import Descent, Walk
from sparkdml.optim.hogwild import AVOIDED, IGNORED, Hogwild, kernels
from sparkdml.optim.hogwild.conflicts import dealt
from sparkdml.optim.hogwild.stints import stints
from sparkdml.optim.local_solver import LocalObjective
from sparkdml.optim.schedules import Inverse
from sparkdml.optim.steps import SGD, AdaGrad, Adam, Step
from sparkdml.penalties import ElasticNet
from sparkdml.problem import Problem, Scaling
from sparkdml.problem.gradient import total_loss
from sparkdml.resources.threads import each_of

losses = pytest.mark.parametrize(
    "loss", [Logistic(), Softmax(3), Squared(0.5), Hinge()], ids=lambda loss: type(loss).__name__
)
steps = pytest.mark.parametrize("step", [SGD(), AdaGrad()], ids=["sgd", "adagrad"])
penalties = pytest.mark.parametrize(("l1", "l2"), [(0.0, 0.0), (0.0, 0.05), (0.02, 0.03)], ids=["none", "l2", "both"])
formats = pytest.mark.parametrize("block_format", ["dense-float64", "sparse-float64", "sparse-float32"])


@dataclass(frozen=True)
class Given(Order):
    """Rows in an order that is known."""

    numbers: tuple[int, ...]
    exhaustive = True

    def draw(self, rows: int, count: int, rng: np.random.Generator) -> np.ndarray:
        return np.array(self.numbers[:count])


def some_rows(loss: Loss, rows: int = 130, features: int = 40, density: float = 0.1):
    rng = np.random.default_rng(6)
    X = random_rows(rng, rows, features) * (rng.random((rows, features)) < density)
    X[7], X[21:24] = 0.0, X[20]  # a row of zeros, and a row four times
    X[:, 3] = 0.0
    y = random_labels(rng, loss, rows) if not isinstance(loss, Squared) else rng.standard_normal(rows)
    return X, y, rng.integers(1, 4, rows).astype(float)


def uncentred(loss: Loss, X: np.ndarray, weights: np.ndarray, l1: float, l2: float, vary: bool = False) -> Problem:
    problem = make_problem(loss, X, weights)
    scaling = Scaling(np.zeros_like(problem.scaling.mean), problem.scaling.inverse_std)
    factors = np.linspace(0.5, 2.0, X.shape[1])[:, None] if vary else np.ones((X.shape[1], 1))
    return replace(problem, scaling=scaling, penalty=ElasticNet(l2, factors, l1, factors))


def in_order(blocks: Sequence[Block], drawn) -> tuple[int, ...]:
    """The rows of stints, numbered through all blocks."""
    starts = np.cumsum([0, *(block.rows for block in blocks)])
    first = {id(block): start for block, start in zip(blocks, starts[:-1], strict=True)}
    return tuple(number for stint in drawn for number in (stint.rows + first[id(stint.block)]).tolist())


@losses
@steps
@penalties
@formats
def test_one_thread_takes_the_steps_of_sgd(loss, step, l1, l2, block_format) -> None:
    X, y, weights = some_rows(loss)
    problem = uncentred(loss, X, weights, l1, l2, vary=True)
    blocks = [BLOCK_FORMATS[block_format](X[a:b], y[a:b], weights[a:b]) for a, b in ((0, 50), (50, 51), (51, 130))]
    objective = LocalObjective(problem, blocks)
    start = np.random.default_rng(1).standard_normal(problem.size)
    point, expected, memory, other = start, start, None, None
    for clock, count in enumerate((0, 60, 0)):
        hogwild = Hogwild(step, 0.1, Inverse(), seed=4)
        point, memory = hogwild.solve(objective, point, memory, count, Turn(clock))
        drawn = stints(blocks, 1, count or 130, generator(4, Turn(clock)))
        sgd = Descent(step, 0.1, Inverse(), batch_size=1, order=Given(in_order(blocks, drawn)), seed=4)
        expected, other = sgd.solve(objective, expected, other, count, Turn(clock))
    np.testing.assert_allclose(point, expected, rtol=1e-8, atol=1e-10)
    assert (memory.count, memory.passes) == (other.count, pytest.approx(other.passes))
    for one, two in zip(memory.slots, other.slots, strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-8)


@steps
def test_dense_rows_may_be_centred(step: Step) -> None:
    X, y, weights = some_rows(Logistic(), density=1.0)
    problem = make_problem(Logistic(), X + 3.0, weights, 0.1)
    blocks = [BLOCK_FORMATS["dense-float64"](X + 3.0, y, weights)]
    order = Given(in_order(blocks, stints(blocks, 1, 130, generator(0, Turn(0)))))
    point, _ = Hogwild(step, 0.05).solve(LocalObjective(problem, blocks), np.zeros(problem.size), None, 0, Turn(0))
    sgd = Descent(step, 0.05, batch_size=1, order=order)
    expected, _ = sgd.solve(LocalObjective(problem, blocks), np.zeros(problem.size), None, 0, Turn(0))
    np.testing.assert_allclose(point, expected, rtol=1e-9, atol=1e-12)


def slope_at(loss: Loss, margins: np.ndarray, label: float) -> np.ndarray:
    if isinstance(loss, Squared):
        return loss.scale * (margins - label)
    if isinstance(loss, Hinge):
        return np.where((2.0 * label - 1.0) * margins < 1.0, 1.0 - 2.0 * label, 0.0)
    return plain_slopes(loss, margins[None], np.array([label]))[0]


def serial(problem: Problem, X, y, weights, batches, step: Step, size: float, start: np.ndarray) -> np.ndarray:
    """Every coordinate in every step, one row after another; intercepts after each batch."""
    loss, d = problem.loss, problem.features
    A = X * problem.scaling.inverse_std[:, 0]
    c, b = (part.copy() for part in problem.split(start))
    v, u = np.zeros_like(c), np.zeros_like(b)
    l1, l2, epsilon = problem.penalty.l1(), problem.penalty.curvature(), getattr(step, "epsilon", 0.0)
    adaptive = isinstance(step, AdaGrad)

    def rate_of(squares: np.ndarray) -> np.ndarray:
        return np.where(squares > 0.0, size / (np.sqrt(squares) + epsilon), size) if adaptive else np.asarray(size)

    for rows in batches:
        slopes = []
        for i in rows:
            slope = slope_at(loss, A[i] @ c + b, y[i]) * weights[i] / weights.mean()
            gradient = np.outer(A[i], slope)
            v += gradient**2
            rate = rate_of(v)
            moved = c - rate * gradient
            c = np.sign(moved) * np.maximum(np.abs(moved) - rate * l1, 0.0) / (1.0 + rate * l2)
            slopes.append(slope)
        mean = np.mean(slopes, axis=0)
        u += mean**2
        b = b - (rate_of(u) if adaptive else min(len(rows) * size, 1.0 / loss.curvature)) * mean
    assert c.shape == (d, loss.outputs)
    return np.concatenate([c.ravel(), b])


@losses
@steps
@penalties
def test_without_conflicts_threads_take_the_steps_of_one(loss, step, l1, l2) -> None:
    X, y, weights = some_rows(loss, density=0.03)
    problem = uncentred(loss, X, weights, l1, l2)
    block = BLOCK_FORMATS["sparse-float64"](X, y, weights)
    objective = LocalObjective(problem, [block])
    start = np.random.default_rng(1).standard_normal(problem.size)
    solver = Hogwild(step, 0.1, conflicts=AVOIDED, batch_size=16, seed=2)
    ends = [solver.solve(objective, start, None, 0, Turn(0, 0, 1, threads)) for threads in (1, 2, 3, 8)]
    for point, memory in ends[1:]:
        np.testing.assert_array_equal(point, ends[0][0])
        for one, other in zip(memory.slots, ends[0][1].slots, strict=True):
            np.testing.assert_array_equal(one, other)
    batches = [stint.rows for stint in stints([block], 16, 130, generator(2, Turn(0)))]
    assert max(map(len, batches)) == 16
    expected = serial(problem, X, y, weights, batches, step, 0.1, start)
    np.testing.assert_allclose(ends[0][0], expected, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("density", [0.0, 0.01, 0.05, 0.5])
def test_rows_that_share_a_feature_go_to_one_thread(density: float) -> None:
    X, y, weights = some_rows(Logistic(), density=density)
    block = BLOCK_FORMATS["sparse-float64"](X, y, weights)
    rows = np.random.default_rng(0).permutation(130)[:60]
    found = dealt(block, rows, 4)
    np.testing.assert_array_equal(np.sort(np.concatenate(found)), np.arange(60))
    features = [set(np.flatnonzero(X[rows[share]].any(axis=0))) for share in found]
    assert sum(map(len, features)) == len(set().union(*features))
    shared = sparse.csr_array((X[rows] != 0).astype(float))
    count, component = connected_components(shared @ shared.T)
    # no component is cut, and threads get as many as there are
    assert sum(len(set(component[share])) for share in found) == count
    assert sum(len(share) > 0 for share in found) == min(count, 4)
    assert all((np.diff(share) > 0).all() for share in found)
    assert [len(share) for share in dealt(BLOCK_FORMATS["dense-float64"](X, y, weights), rows, 2)] == [60, 0]


@steps
@pytest.mark.parametrize("conflicts", [IGNORED, AVOIDED])
@pytest.mark.parametrize("loss", [Logistic(), Softmax(3)], ids=["logistic", "softmax"])
def test_several_threads_come_as_close_as_sgd(step: Step, conflicts: str, loss: Loss) -> None:
    X, _, weights = some_rows(loss, rows=6000, features=400, density=0.05)
    rng = np.random.default_rng(5)
    scores = X @ (2.0 * rng.standard_normal((400, max(loss.outputs, 2))))
    y = np.argmax(scores + rng.gumbel(size=scores.shape), axis=1).astype(float)
    problem = uncentred(loss, X, weights, 0.0, 1e-3)
    problem = replace(problem, scaling=Scaling(np.zeros((400, 1)), np.ones((400, 1))))
    block = BLOCK_FORMATS["sparse-float64"](X, y, weights)
    objective = LocalObjective(problem, [block.between(0, 4000), block.between(4000, 6000)])
    size = 0.1

    def trained(solver, threads: int) -> float:
        point, memory = np.zeros(problem.size), None
        for clock in range(8):
            point, memory = solver.solve(objective, point, memory, 0, Turn(clock, 0, 1, threads))
        return problem.objective(point, total_loss(loss, [block], *problem.to_raw(point)))

    schedule = Inverse()  # a constant step's noise is wider than what is looked for
    reference = trained(Hogwild(step, size, schedule), 1)
    found = trained(Hogwild(step, size, schedule, conflicts, batch_size=64), 4)
    assert found <= reference * 1.01
    begun = problem.objective(
        np.zeros(problem.size), total_loss(loss, [block], *problem.to_raw(np.zeros(problem.size)))
    )
    assert reference < 0.95 * begun


@pytest.mark.parametrize("conflicts", [IGNORED, AVOIDED])
def test_the_penalty_of_each_step_is_counted_once_whoever_is_ahead(conflicts: str) -> None:
    """Margins beyond the hinge's corner, where no gradient moves anything: only the penalty does."""
    X, _, weights = some_rows(Hinge(), rows=4000, features=60, density=0.05)
    problem = replace(uncentred(Hinge(), np.abs(X), weights, 0.0, 0.1), fit_intercept=False)
    objective = LocalObjective(problem, [BLOCK_FORMATS["sparse-float64"](np.abs(X), np.ones(4000), weights)])
    start = 1e6 + np.arange(60.0)
    point, _ = Hogwild(SGD(), 1e-4, conflicts=conflicts).solve(objective, start, None, 0, Turn(0, 0, 1, 4))
    tolerance = 1e-9 if conflicts == AVOIDED else 2e-2
    np.testing.assert_allclose(np.log(point / start), -4000 * np.log1p(1e-5), rtol=tolerance)


@steps
@pytest.mark.parametrize("conflicts", [IGNORED, AVOIDED])
@formats
def test_rows_of_weight_0_change_nothing(step: Step, conflicts: str, block_format: str) -> None:
    X, y, weights = some_rows(Logistic())
    problem = uncentred(Logistic(), X, weights, 0.01, 0.02)
    build, at = BLOCK_FORMATS[block_format], np.sort(np.random.default_rng(9).integers(0, 130, 40))
    noise = random_rows(np.random.default_rng(8), 40, 40)
    blocks = (
        [build(X, y, weights)],
        [
            build(np.insert(X, at, noise, 0), np.insert(y, at, 1.0), np.insert(weights, at, 0.0)),
            build(noise, np.ones(40), np.zeros(40)),
            build(noise[:0], np.ones(0), np.zeros(0)),
        ],
    )
    solver = Hogwild(step, 0.1, conflicts=conflicts, batch_size=16)
    ends = [solver.solve(LocalObjective(problem, own), np.zeros(41), None, 0, Turn(0))[0] for own in blocks]
    np.testing.assert_array_equal(ends[0], ends[1])


def test_a_worker_without_rows_answers_the_start() -> None:
    X, y, weights = some_rows(Logistic())
    problem, start, walk = uncentred(Logistic(), X, weights, 0.01, 0.01), np.arange(41.0), Walk((), 3, 1.0)
    for blocks in ([], [BLOCK_FORMATS["sparse-float64"](X, y, 0.0 * weights)]):
        point, memory = Hogwild(SGD(), 0.1).solve(LocalObjective(problem, blocks), start, walk, 5, Turn(0, 0, 1, 2))
        np.testing.assert_array_equal(point, np.arange(41.0))
        assert memory is walk


@losses
def test_slopes_of_single_rows_are_those_of_the_loss(loss: Loss) -> None:
    rng, slope = np.random.default_rng(0), slope_of(loss)
    labels, weights = random_labels(rng, loss, 50), rng.uniform(0.1, 3.0, 50)
    margins = 30.0 * rng.standard_normal((50, loss.outputs))
    expected = np.empty_like(margins)
    loss.evaluate(margins, labels, weights, expected)
    for row, label, weight in zip(margins, labels, weights, strict=True):
        to_slopes(slope.kind, slope.scale, label, weight, row)
    np.testing.assert_allclose(margins, expected, rtol=1e-12, atol=1e-15)


def test_every_row_is_drawn_once_a_pass_and_rows_of_all_blocks_take_turns() -> None:
    X, y, weights = some_rows(Logistic(), rows=5000)
    block = BLOCK_FORMATS["sparse-float64"](X, y, weights)
    blocks = [block.between(0, 3000), block.between(3000, 5000)]
    drawn = stints(blocks, 20, 5000, np.random.default_rng(0))
    order = np.array(in_order(blocks, drawn))
    np.testing.assert_array_equal(np.sort(order), np.arange(5000))
    np.testing.assert_array_equal([stint.first for stint in drawn], np.cumsum([0, *map(_rows, drawn)])[:-1])
    late = (order >= 3000).reshape(5, 1000).mean(axis=1)
    assert 0.2 < late.min() < late.max() < 0.6
    part = stints(blocks, 20, 777, np.random.default_rng(0))
    assert in_order(blocks, part) == tuple(order[:777])


def _rows(stint) -> int:
    return len(stint.rows)


def test_an_interrupt_ends_all_threads_and_begins_nothing_more() -> None:
    begun: list[int] = []

    def act(item: int) -> None:
        begun.append(item)
        if item == 5:
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        time.sleep(0.01)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            each_of(range(1000), act, 2)
    finally:
        signal.signal(signal.SIGINT, before)
    count = len(begun)
    assert count < 100
    time.sleep(0.05)
    assert len(begun) == count


def test_an_error_of_one_thread_reaches_the_caller(monkeypatch) -> None:
    X, y, weights = some_rows(Logistic(), rows=3000)
    problem = uncentred(Logistic(), X, weights, 0.01, 0.01)
    calls: list[str] = []

    def fail(*_) -> None:
        calls.append(threading.current_thread().name)
        raise MemoryError("no room")

    monkeypatch.setattr(kernels, "take_steps", fail)
    objective = LocalObjective(problem, [BLOCK_FORMATS["sparse-float64"](X, y, weights)])
    with pytest.raises(MemoryError, match="no room"):
        Hogwild(SGD(), 0.1).solve(objective, np.zeros(41), None, 0, Turn(0, 0, 1, 2))
    assert len(calls) <= 2


def test_what_threads_cannot_share_is_refused() -> None:
    with pytest.raises(ValueError, match="step by SGD or AdaGrad, not Adam"):
        Hogwild(Adam(), 0.1)
    with pytest.raises(ValueError, match="conflicts='none' is not known; it can be ignored or avoided"):
        Hogwild(SGD(), 0.1, conflicts="none")
    with pytest.raises(ValueError, match="batch_size=0"):
        Hogwild(SGD(), 0.1, batch_size=0)
    with pytest.raises(ValueError, match="step_size=0"):
        Hogwild(SGD(), 0.0)
    with pytest.raises(ValueError, match="not of Huber"):
        slope_of(Huber())


def test_the_last_round_asks_for_the_loss_alone(monkeypatch) -> None:
    X, y, weights = some_rows(Logistic())
    problem, passes = uncentred(Logistic(), X, weights, 0.01, 0.01), []
    block = BLOCK_FORMATS["sparse-float64"](X, y, weights)
    plain = Hogwild.solve
    monkeypatch.setattr(Hogwild, "solve", lambda *given: (passes.append(given), plain(*given))[1])
    for most in (0, 3):
        passes.clear()
        algorithm = HogwildAveraging(Hogwild(SGD(), 0.1), Passes(most), Limits(most, 0.0))
        last = drive(algorithm, problem, [[block]])[-1]
        assert (last.iteration, last.stop.reason, len(passes)) == (most, "max_iterations", most)
