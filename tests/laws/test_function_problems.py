"""A problem over any function of the rows: what a linear one is, and every method that needs no linear margins."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from cases import BLOCK_FORMATS
from problems import drive, make_problem

from sparkdml.algorithms import (
    ADMM,
    BMUF,
    DSVRG,
    EASGD,
    LBFGS,
    OWLQN,
    Algorithm,
    CoCoA,
    Compressed,
    Ensemble,
    FeatureDescent,
    HogwildAveraging,
    Limits,
    ModelAveraging,
    Newton,
    NewtonCG,
    OneShotAveraging,
    SyncSGD,
)
from sparkdml.algorithms.base import require_solvable
from sparkdml.algorithms.intervals import Fixed
from sparkdml.losses import Softmax
from sparkdml.optim.descent import Descent
from sparkdml.optim.hogwild import Hogwild
from sparkdml.optim.network import Network
from sparkdml.optim.schedules import Constant
from sparkdml.optim.steps import SGD, STEPS, Adam
from sparkdml.optim.variance_reduction import SAGA, SVRG
from sparkdml.problem import Examples, Function, FunctionProblem, Params

LIMITS = Limits(12, 0.0)
CLASSES, FEATURES = 3, 5


def rows(seed: int = 0, count: int = 240):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((count, FEATURES)).astype(np.float32).astype(float)
    X[rng.random(X.shape) < 0.2] = 0.0
    scores = np.tanh(X) @ rng.standard_normal((FEATURES, CLASSES)) * 3
    return X, scores.argmax(axis=1).astype(float), rng.integers(0, 3, count).astype(float)


def workers(kind: str = "dense-float32", count: int = 2):
    X, y, w = rows()
    return [[BLOCK_FORMATS[kind](X[n::count], y[n::count], w[n::count])] for n in range(count)]


@dataclass(frozen=True)
class Margins(Function):
    """Softmax regression, written by hand as a user may."""

    @property
    def features(self) -> int:
        return FEATURES

    @property
    def shapes(self):
        return {"coefficients": (FEATURES, CLASSES), "intercepts": (CLASSES,)}

    def loss_and_gradient(self, params: Params, rows: Examples, rng: Any = None) -> tuple[float, Params]:
        outputs = rows.features @ params["coefficients"] + params["intercepts"]
        outputs -= outputs.max(axis=1, keepdims=True)
        shares = np.exp(outputs)
        shares /= shares.sum(axis=1, keepdims=True)
        own = np.arange(len(rows.labels)), rows.labels.astype(int)
        loss = -float(rows.weights @ np.log(shares[own]))
        shares[own] -= 1.0
        shares *= rows.weights[:, None]
        return loss, {"coefficients": rows.features.T @ shares, "intercepts": shares.sum(axis=0)}


def network_problem(dropout: float = 0.0) -> FunctionProblem:
    return FunctionProblem(Network((FEATURES, 8, CLASSES), "tanh", dropout=dropout), float(rows()[2].sum()), 1e-4)


def descent(**more: Any) -> Descent:
    return Descent(Adam(), 0.02, batch_size=16, **more)


METHODS: dict[str, Algorithm[Any]] = {
    "l-bfgs": LBFGS(12, 0.0),
    "sgd": SyncSGD(Adam(), Constant(), 0.05, 0.2, LIMITS),
    "gradient-descent": SyncSGD(SGD(), Constant(), 0.5, 1.0, LIMITS),
    "model-averaging": ModelAveraging(descent(), Fixed(), LIMITS),
    "one-shot-averaging": OneShotAveraging(descent(), 6),
    "bmuf": BMUF(descent(), Fixed(), LIMITS),
    "easgd": EASGD(descent(), Fixed(), LIMITS),
    "one-bit": Compressed(ModelAveraging(descent(), Fixed(), LIMITS, absolute=False), "1-bit"),
    "low-rank": Compressed(SyncSGD(Adam(), Constant(), 0.05, 0.2, LIMITS), "low-rank:1"),
}
LINEAR: dict[str, Algorithm[Any]] = {
    "l-bfgs with a Gram matrix": LBFGS(12, 0.0, gram=True),
    "newton": Newton(12, 0.0),
    "newton-cg": NewtonCG(12, 0.0),
    "owl-qn": OWLQN(12, 0.0),
    "admm": ADMM(LIMITS),
    "cocoa": CoCoA(LIMITS),
    "svrg": DSVRG(SVRG(None), LIMITS),
    "coordinate-descent": FeatureDescent(LIMITS),
    "ensemble": Ensemble(descent(), 2),
    "hogwild": HogwildAveraging(Hogwild(SGD(), 0.1), Fixed(), LIMITS),
    "saga": ModelAveraging(SAGA(None), Fixed(), LIMITS),
    "saga, once": OneShotAveraging(SAGA(None), 2),
    "saga, compressed": Compressed(ModelAveraging(SAGA(None), Fixed(), LIMITS, absolute=False), "1-bit"),
}


@pytest.mark.parametrize("kind", BLOCK_FORMATS)
def test_a_linear_problem_written_as_a_function_is_the_same(kind) -> None:
    X, y, w = rows()
    block = BLOCK_FORMATS[kind](X, y, w)
    linear = make_problem(Softmax(CLASSES), X, w)
    function = FunctionProblem(Margins(), float(w.sum()))
    c = np.random.default_rng(1).standard_normal(function.size)
    coefficients, intercepts = function.function.params(c).values()
    there = linear.from_raw(coefficients, intercepts)
    value, gradient = function.evaluate(c, function.sums([block], c))
    expected, slopes = linear.evaluate(there, linear.sums([block], there))
    assert value == pytest.approx(expected, rel=1e-6)
    # coordinates differ: derivatives by raw intercepts are those by centred ones
    np.testing.assert_allclose(gradient[-CLASSES:], slopes[-CLASSES:], rtol=1e-4, atol=1e-6)
    assert function.loss_sum([block], c) == pytest.approx(linear.loss_sum([block], there), rel=1e-6)


def test_both_kinds_reach_the_same_optimum() -> None:
    X, _, w = rows()
    shares = workers()
    linear = make_problem(Softmax(CLASSES), X, w, fit_intercept=True)
    expected = drive(LBFGS(300, 1e-12), linear, shares)[-1].objective
    found = drive(LBFGS(300, 1e-12), FunctionProblem(Margins(), float(w.sum())), shares)[-1]
    assert found.objective == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("kind", ["dense-float32", "sparse-float64"])
@pytest.mark.parametrize("name", METHODS)
def test_every_method_that_needs_no_linear_margins_trains_a_network(name, kind) -> None:
    problem, start = network_problem(), network_problem().function.start(1)
    require_solvable(METHODS[name], problem)
    shares = workers(kind)
    final = drive(METHODS[name], problem, shares, start)[-1]
    loss = sum(problem.loss_sum(blocks, final.best) for blocks in shares)
    before = sum(problem.loss_sum(blocks, start) for blocks in shares)
    assert loss < 0.7 * before
    assert final.objective == pytest.approx(problem.objective(final.best, loss), rel=1e-6)


@pytest.mark.parametrize("name", METHODS)
def test_the_same_seed_gives_the_same_bits_with_dropout_too(name) -> None:
    problem, start = network_problem(dropout=0.3), network_problem().function.start(1)
    one, two = (drive(METHODS[name], problem, workers(), start)[-1] for _ in range(2))
    assert np.array_equal(one.best, two.best)
    plain = drive(METHODS[name], network_problem(), workers(), start)[-1]
    assert np.array_equal(one.best, plain.best) == (name == "l-bfgs")  # which sees sums alone


@pytest.mark.parametrize("rule", STEPS)
def test_every_rule_steps_along_a_networks_gradient(rule) -> None:
    problem, start, shares = network_problem(), network_problem().function.start(1), workers()
    before = problem.objective(start, sum(problem.loss_sum(blocks, start) for blocks in shares))
    size = 1.0 if rule in ("adadelta", "sgd", "ftrl") else 0.05
    for algorithm in (
        SyncSGD(STEPS[rule](), Constant(), size, 0.5, LIMITS),
        ModelAveraging(Descent(STEPS[rule](), size), Fixed(), LIMITS),
    ):
        assert drive(algorithm, problem, shares, start)[-1].objective < before


def test_synchronous_methods_do_not_depend_on_who_has_which_rows() -> None:
    start = network_problem().function.start(1)
    for name in ("l-bfgs", "gradient-descent"):
        one, three = (drive(METHODS[name], network_problem(), workers(count=n), start)[-1] for n in (1, 3))
        assert one.objective == pytest.approx(three.objective, rel=1e-4)


def test_weight_decay_is_on_every_parameter() -> None:
    problem = network_problem()
    l2, l1 = problem.strengths()
    assert (l2 == 1e-4).all()
    assert not l1.any()
    assert problem.penalty_at(np.ones(problem.size)) == pytest.approx(0.5e-4 * problem.size)


@pytest.mark.parametrize("name", LINEAR)
def test_methods_that_need_linear_margins_say_so(name) -> None:
    with pytest.raises(ValueError, match=r"linear in the coefficients.*use LBFGS"):
        require_solvable(LINEAR[name], network_problem())
    X, _, w = rows()
    require_solvable(LINEAR[name], make_problem(Softmax(CLASSES), X, w))
