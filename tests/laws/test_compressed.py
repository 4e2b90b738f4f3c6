"""Algorithms with a codec in between: nothing is lost for good."""

from __future__ import annotations

import numpy as np
import pytest
from cases import BLOCK_FORMATS
from problems import drive, make_problem

from sparkdml.algorithms import LBFGS, Compressed, Limits, ModelAveraging, SyncSGD
from sparkdml.algorithms.compressed import Sent
from sparkdml.algorithms.intervals import Fixed
from sparkdml.algorithms.states import pack, unpack
from sparkdml.comm.packets import Packets
from sparkdml.core import Turn, add_updates
from sparkdml.losses import Softmax
from sparkdml.optim.descent import Descent
from sparkdml.optim.schedules import Constant
from sparkdml.optim.steps import SGD

LIMITS = Limits(60, 0.0)
METHODS = {
    "full-gradient": SyncSGD(SGD(), Constant(), 0.5, 1.0, LIMITS),
    "averaging": ModelAveraging(Descent(SGD(), 0.1, batch_size=20), Fixed(2), LIMITS, absolute=False),
}
CODECS = ["float16", "bfloat16", "int8", "1-bit", "top-k:0.3", "threshold:0.001", "low-rank:1", "power-sgd:1"]


def task():
    rng = np.random.default_rng(3)
    X = rng.standard_normal((90, 8))
    y = np.argmax(X @ rng.standard_normal((8, 3)) + rng.gumbel(size=(90, 3)), axis=1).astype(float)
    problem = make_problem(Softmax(3), X, np.ones(90), 0.1)
    make = BLOCK_FORMATS["dense-float64"]
    return problem, [[make(X[a:b], y[a:b], np.ones(b - a))] for a, b in ((0, 30), (30, 90))]


@pytest.mark.parametrize("method", METHODS)
def test_lossless_codecs_change_no_bit(method: str) -> None:
    problem, workers = task()
    plain = drive(METHODS[method], problem, workers)[-1]
    for codec in ("identity", "sparse-or-dense"):
        coded = drive(Compressed(METHODS[method], codec), problem, workers)[-1]
        np.testing.assert_allclose(coded.best, plain.best, rtol=1e-12)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("method", METHODS)
def test_lossy_codecs_reach_the_same_objective(method: str, codec: str) -> None:
    problem, workers = task()
    plain = drive(METHODS[method], problem, workers)[-1]
    coded = drive(Compressed(METHODS[method], codec), problem, workers)[-1]
    assert coded.objective == pytest.approx(plain.objective, rel=2e-3)


def test_what_a_packet_lost_is_in_the_next_ones() -> None:
    """Sent so far and still to be sent are together what plain updates sum to (they start from one point)."""
    problem, workers = task()
    coded, plain = Compressed(METHODS["full-gradient"], "top-k:0.1"), METHODS["full-gradient"]
    memory, sent, due = None, np.zeros(problem.size), np.zeros(problem.size)
    for clock in range(5):
        point = np.full(problem.size, 0.01 * clock)
        update, memory = coded.work(problem, workers[0], point, memory, Turn(clock))
        due += plain.work(problem, workers[0], point, None, Turn(clock))[0]["gradient"]
        sent += np.concatenate([update["gradient"].total().ravel(), update["gradient, the rest"]])
    assert isinstance(memory, Sent)
    left = np.zeros(problem.size)
    left[:24] = memory.lost["gradient"].residual.ravel()
    np.testing.assert_allclose(sent + left, due, atol=1e-13)
    assert np.abs(left).max() > 0.0


def test_memory_can_be_written_and_read() -> None:
    problem, workers = task()
    for codec in ("1-bit", "power-sgd:1"):
        coded = Compressed(METHODS["averaging"], codec)
        state = coded.init(problem, np.zeros(problem.size))
        _, memory = coded.work(problem, workers[0], state.coef, None, Turn(0))
        again = unpack(pack(memory))
        one, _ = coded.work(problem, workers[0], state.coef, memory, Turn(1))
        other, _ = coded.work(problem, workers[0], state.coef, again, Turn(1))
        np.testing.assert_array_equal(one["change"].total(), other["change"].total())


def test_updates_add_up_in_any_order() -> None:
    problem, workers = task()
    coded = Compressed(METHODS["full-gradient"], "1-bit")
    state = coded.init(problem, np.zeros(problem.size))

    def update(worker: int):
        found, _ = coded.work(problem, workers[worker], state.coef, None, Turn(0, worker, 2))
        assert isinstance(found["gradient"], Packets)
        return found

    ends = [coded.advance(problem, state, add_updates(update(a), update(b))).coef for a, b in ((0, 1), (1, 0))]
    np.testing.assert_allclose(ends[0], ends[1], rtol=1e-14)


def test_methods_that_need_exact_sums_are_refused() -> None:
    with pytest.raises(ValueError, match="codec='1-bit' may alter what is sent, and LBFGS needs exact sums"):
        Compressed(LBFGS(10, 1e-6), "1-bit")
    with pytest.raises(ValueError, match="unknown codec 'zip'"):
        Compressed(METHODS["averaging"], "zip")
