"""What workers do beside servers: in step it is what rounds do, at any pace it comes as near to the optimum."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from types import SimpleNamespace

import numpy as np
import pytest
from parameter_servers import SECURITY, client, servers
from side_fits import beside_servers, optimum, parts_of, problem_of, rows, together

from sparkdml.algorithms import ADMM, DSVRG, EASGD, OWLQN, Compressed, Limits, ModelAveraging, SyncSGD
from sparkdml.algorithms.base import Algorithm
from sparkdml.algorithms.intervals import Fixed
from sparkdml.core import Turn
from sparkdml.optim.descent import Descent
from sparkdml.optim.schedules import Constant, InverseSquareRoot
from sparkdml.optim.steps import FTRL, SGD, AdaGrad, Momentum, Step
from sparkdml.optim.variance_reduction import SVRG
from sparkdml.placement.server import Pace, Sidecar, work
from sparkdml.placement.server.anchored import Anchored
from sparkdml.placement.server.consensus import Consensus
from sparkdml.placement.server.elastic import Elastic
from sparkdml.placement.server.sidework import Done, Draft, SideWork
from sparkdml.placement.ship import Inline
from sparkdml.server.client import Push
from sparkdml.server.wire import ServerTimeoutError

X, Y = rows()
PROBLEM = problem_of(X)
BEST = optimum(PROBLEM, X, Y)
LIMITS = Limits(12, 0.0)
ADAGRAD = SyncSGD(AdaGrad(), Constant(), 0.3, 0.1, LIMITS)
EAMSGD = EASGD(Descent(Momentum(), 0.02, Constant(), batch_size=32), Fixed(0), LIMITS)
METHODS: dict[str, tuple[Algorithm, Sidecar]] = {
    "downpour": (ADAGRAD, Sidecar(staleness=-1, pace=Pace(2, 4))),
    "downpour, momentum": (SyncSGD(Momentum(), Constant(), 0.02, 0.1, LIMITS), Sidecar(staleness=2, pace=Pace(3, 3))),
    "easgd": (
        EASGD(Descent(SGD(), 0.3, InverseSquareRoot(), batch_size=16), Fixed(4), LIMITS), Sidecar(staleness=-1)
    ),
    "eamsgd": (EAMSGD, Sidecar(staleness=1)),
    "admm": (ADMM(Limits(4, 0.0)), Sidecar(staleness=-1)),
    "svrg": (DSVRG(SVRG(batch_rows=16), LIMITS), Sidecar(staleness=-1)),
}  # fmt: skip


@pytest.mark.parametrize("workers", [1, 2, 4])
@pytest.mark.parametrize("method", METHODS)
def test_at_their_own_pace_workers_come_near_the_optimum(method: str, workers: int) -> None:
    state, _ = beside_servers(*METHODS[method][:1], PROBLEM, parts_of(X, Y, workers), METHODS[method][1], shards=2)
    assert BEST - 1e-9 <= state.objective <= BEST + 1e-2


@pytest.mark.parametrize(
    ("method", "staleness"), [(ADMM(Limits(9, 0.0)), 1), (DSVRG(SVRG(), Limits(20, 0.0)), -1)], ids=["admm", "svrg"]
)
def test_what_is_exact_is_so_where_workers_have_unlike_rows(method: Algorithm, staleness: int) -> None:
    """Rows are sorted by label; coefficients of no use are exactly 0."""
    order, problem = np.argsort(Y), problem_of(X, 0.02, 0.03)
    parts = parts_of(X[order], Y[order], 3)
    expected = together(OWLQN(200, 1e-12), problem, parts)
    found, _ = beside_servers(method, problem, parts, Sidecar(staleness=staleness), shards=2)
    assert found.objective == pytest.approx(expected.objective, abs=1e-5)
    np.testing.assert_array_equal(found.coef == 0.0, expected.best == 0.0)


@pytest.mark.parametrize(
    ("kind", "method"), [(Consensus, ADMM(Limits(9, 0.0))), (Anchored, DSVRG(SVRG(), Limits(15, 0.0)))]
)
def test_a_worker_that_begins_anew_replaces_its_share(kind, method, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = kind.before
    monkeypatch.setattr(
        kind,
        "before",
        lambda self, blocks, memory, turn: whole(self, blocks, memory if turn.clock % 7 else None, turn),
    )
    found, _ = beside_servers(method, PROBLEM, parts_of(X, Y, 2), Sidecar(staleness=-1), shards=2)
    assert found.objective == pytest.approx(BEST, abs=1e-4)


def test_in_step_one_local_step_is_a_round_of_all() -> None:
    parts = parts_of(X, Y, 2)
    found, _ = beside_servers(ADAGRAD, PROBLEM, parts, Sidecar(pace=Pace(1, 1)))
    np.testing.assert_array_equal(found.coef, together(ADAGRAD, PROBLEM, parts).best)


def test_in_step_plain_local_steps_are_averaged_models() -> None:
    """Without a penalty both move to the mean of where local steps have led."""
    problem, steps = problem_of(X, l2=0.0), 5
    gradients = SyncSGD(SGD(), Constant(), 0.3, 1.0, Limits(4, 0.0))
    alone = ModelAveraging(Descent(SGD(), 0.3, Constant(), batch_size=len(X)), Fixed(steps), Limits(4, 0.0))
    parts = parts_of(X, Y, 2)
    found, _ = beside_servers(gradients, problem, parts, Sidecar(pace=Pace(steps, steps)))
    np.testing.assert_allclose(found.coef, together(alone, problem, parts).best, rtol=1e-9)


def test_messages_are_as_many_as_the_pace_says() -> None:
    method, pushes, pulls = replace(ADAGRAD, limits=Limits(4, 0.0)), [], []
    for pace in (Pace(), Pace(5, 10)):
        _, told = beside_servers(method, PROBLEM, parts_of(X, Y, 1), Sidecar(staleness=-1, pace=pace))
        pushes.append(told["0"]["pushes_total{apply}"])
        pulls.append(told["0"]["pulls_total"])
    assert pulls[0] >= pushes[0]
    assert 2 * (pulls[1] - 1) <= pushes[1] + 1


def test_what_is_lost_with_a_worker_is_made_up_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every fifth turn begins without memory."""
    whole = Elastic.before
    monkeypatch.setattr(
        Elastic,
        "before",
        lambda self, blocks, memory, turn: whole(self, blocks, memory if turn.clock % 5 else None, turn),
    )
    state, _ = beside_servers(EAMSGD, PROBLEM, parts_of(X, Y, 2), Sidecar(staleness=-1))
    assert state.objective <= BEST + 1e-2


SPARSE, LABELS = rows(density=0.01, features=500, count=300)


@pytest.mark.parametrize(
    ("step", "fraction"), [(SGD(), 0.1), (AdaGrad(), 0.1), (AdaGrad(), 1.0), (FTRL(), 0.1), (Momentum(), 0.1)]
)
@pytest.mark.parametrize(("l2", "l1"), [(0.0, 0.0), (0.02, 0.001)])
def test_in_step_features_that_travel_are_those_of_the_sample(
    step: Step, fraction: float, l2: float, l1: float
) -> None:
    """Momentum decays where nothing travels: it is left whole."""
    problem, parts = problem_of(SPARSE, l2, l1), parts_of(SPARSE, LABELS, 3, "sparse-float32")
    method = SyncSGD(step, Constant(), 0.3, fraction, Limits(3, 0.0))
    found, told = beside_servers(method, problem, parts, Sidecar(), shards=2)
    expected = together(method, problem, parts).best
    if l2 or isinstance(step, FTRL):
        np.testing.assert_allclose(found.coef, expected, rtol=1e-9, atol=1e-13)
    else:
        np.testing.assert_array_equal(found.coef, expected)
    a_push = told["0"]["received_bytes_total"] / told["0"]["pushes_total{apply}"]
    # half of the features are on the first server; those of all rows are too many
    few = step.rests and fraction < 1.0
    assert a_push < 0.4 * 8 * 250 if few else a_push >= 8 * 250


@pytest.mark.parametrize("workers", [1, 3])
def test_at_their_own_pace_few_features_travel_too(workers: int) -> None:
    problem = problem_of(SPARSE)
    method = SyncSGD(AdaGrad(), Constant(), 0.1, 0.05, LIMITS)
    found, told = beside_servers(
        method, problem, parts_of(SPARSE, LABELS, workers, "sparse-float64"), Sidecar(staleness=-1)
    )
    assert found.objective <= optimum(problem, SPARSE, LABELS) + 1e-2
    numbers = told["0"]
    assert numbers["sent_bytes_total"] / numbers["pulls_total"] < 8 * 500 / 2


def test_keys_of_all_rows_travel_once() -> None:
    one = SPARSE[:20]
    problem, parts = problem_of(one), parts_of(one, LABELS[:20], 1, "sparse-float64")
    method = SyncSGD(SGD(), Constant(), 0.3, 1.0, Limits(8, 0.0))
    _, told = beside_servers(method, problem, parts, Sidecar())
    touched = np.count_nonzero(one.any(axis=0))
    assert touched <= 125
    assert told["0"]["received_bytes_total"] <= 8 * (8 * (touched + 1) + 8 * touched / 8 + 64)


@dataclass(frozen=True, kw_only=True)
class Counting(SideWork):
    """Each push adds 1 to a coefficient of the worker's own: what is pulled tells whose pushes it has."""

    staleness: int
    pipe: bool

    @property
    def pipelined(self) -> bool:
        return self.pipe

    def rule(self, penalised):
        return {"name": "add"}

    def before(self, blocks, memory, turn):
        return Draft(self.whole, None)

    def work(self, blocks, own, pulled, turn):
        counts = pulled["coefficients"]
        assert counts.min() >= turn.clock - self.staleness or self.staleness < 0
        assert counts[turn.worker] == (max(turn.clock - 1, 0) if self.pipe else turn.clock)
        time.sleep(0.002 * (turn.worker == turn.clock % turn.workers))
        return Done(self.parts(np.append(np.eye(turn.workers)[turn.worker], 0.0)), None, 1.0 / turn.workers)


@pytest.mark.parametrize("pipe", [False, True])
@pytest.mark.parametrize("staleness", [1, 3, -1])
def test_values_are_no_older_than_staleness_allows(staleness: int, pipe: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    inputs, labels = rows(features=4, count=40)
    counting = Counting(problem=problem_of(inputs), limits=Limits(25, -1.0), workers=4, staleness=staleness, pipe=pipe)
    monkeypatch.setattr("side_fits.side_work", lambda *_: counting)
    state, told = beside_servers(ADAGRAD, PROBLEM, parts_of(inputs, labels, 4), Sidecar(staleness=staleness))
    assert state.iteration == 25
    assert all(told[str(worker)]["pushes_total{apply}"] >= 20 for worker in range(4)) or staleness < 0


@dataclass(frozen=True, kw_only=True)
class Failing(Counting):
    """One worker's turn raises."""

    error: type[Exception]

    def work(self, blocks, own, pulled, turn):
        if turn == Turn(5, 1, 2):
            raise self.error("of its own making", "", "")
        return super().work(blocks, own, pulled, turn)


@pytest.mark.parametrize("error", [RuntimeError, ServerTimeoutError])
@pytest.mark.parametrize("pipe", [False, True])
def test_a_worker_that_raises_lets_the_others_go(error, pipe: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    inputs, labels = rows(features=4, count=40)
    parts = parts_of(inputs, labels, 2)
    problem = problem_of(inputs[:, :2])
    # that who is lost is not waited for is what this is about: others may get further than staleness allows
    failing = Failing(problem=problem, limits=Limits(25, -1.0), workers=2, staleness=-1, pipe=pipe, error=error)
    monkeypatch.setattr(work, "open_handle", lambda handle: parts[handle.partition])
    with servers(1, 2, 1) as of, client(of) as driver, ThreadPoolExecutor(2) as threads:
        orders = work.Orders(Inline(failing), (0, 1), (of[0].listening.address,), SECURITY, "")
        failing.create(driver)
        driver.assign({"control": Push(np.array([0.0, 0.0, -1.0, 1.0, 1.0]))})
        ended = [threads.submit(work._served, orders, [SimpleNamespace(partition=n)], 0) for n in range(2)]
        if error is RuntimeError:
            assert "of its own making" in ended[1].result(20.0)[1]
        else:
            with pytest.raises(ServerTimeoutError):
                ended[1].result(20.0)
            driver.assign({"control": Push(np.array([1.0, 0.0, -1.0, 1.0, 1.0]))})  # as the driver does
            driver.lose(1)
        assert ended[0].result(20.0) == ("done", None)


def test_values_a_clock_older_lead_as_near() -> None:
    sidecar = Sidecar(staleness=1, pace=Pace(pipeline=True))
    found, _ = beside_servers(ADAGRAD, PROBLEM, parts_of(X, Y, 4), sidecar, shards=2)
    assert found.objective <= BEST + 1e-2


@pytest.mark.parametrize("spelling", ["float16", "int8", "top-k:0.3", "1-bit", "sparse-or-dense"])
def test_in_step_packets_are_those_of_other_placements(spelling: str) -> None:
    parts, method = parts_of(X, Y, 2), Compressed(ADAGRAD, spelling, 1)
    found, _ = beside_servers(method, PROBLEM, parts, Sidecar())
    np.testing.assert_array_equal(found.coef, together(method, PROBLEM, parts).best)


@pytest.mark.parametrize("method", [ADAGRAD, EAMSGD], ids=["sgd", "easgd"])
@pytest.mark.parametrize("spelling", ["float16", "int8"])
def test_with_packets_workers_come_as_near(spelling: str, method: Algorithm) -> None:
    found, _ = beside_servers(
        Compressed(method, spelling, 1), PROBLEM, parts_of(X, Y, 2), Sidecar(staleness=-1), shards=2
    )
    assert found.objective <= BEST + 1e-2


def test_packets_are_smaller_than_what_they_stand_for() -> None:
    wide, labels = rows(features=2000, count=60)
    problem, parts = problem_of(wide), parts_of(wide, labels, 1)
    limits = Limits(2, 0.0)
    told = {
        spelling: beside_servers(
            Compressed(SyncSGD(AdaGrad(), Constant(), 0.1, 0.2, limits), spelling),
            problem,
            parts,
            Sidecar(staleness=-1),
        )[1]["0"]
        for spelling in ("identity", "float16", "int8")
    }
    each = {
        name: (
            numbers["received_bytes_total"] / numbers["pushes_total{apply}"],
            numbers["sent_bytes_total"] / numbers["pulls_total"],
        )
        for name, numbers in told.items()
    }
    assert each["float16"][0] < each["identity"][0] / 3.5
    assert each["int8"][0] < each["identity"][0] / 7
    assert each["float16"][1] < each["identity"][1] / 3.5  # pulls too
    assert each["int8"][1] == pytest.approx(each["identity"][1])
