"""Factorization machines: margins, gradients, and the steps that train them."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import pytest
from cases import BLOCK_FORMATS
from hypothesis import given, settings
from hypothesis import strategies as st
from test_algorithm_states import assert_same_state

from sparkdml.algorithms import FactorizationSGD
from sparkdml.algorithms.factorization import FactorizationShards
from sparkdml.algorithms.progress import Limits
from sparkdml.algorithms.sharded import add_sums
from sparkdml.algorithms.states import pack, unpack
from sparkdml.core import Turn, add_updates
from sparkdml.losses import Logistic, Squared
from sparkdml.optim.factorization import Factorized, loss_and_gradient, total_loss
from sparkdml.optim.java_random import java_gaussians
from sparkdml.optim.schedules import Constant, InverseSquareRoot
from sparkdml.optim.steps import SGDW, AdamW, Proximal
from sparkdml.penalties import L2
from sparkdml.problem import Problem, Scaling

LOSSES = {"logistic": Logistic(), "squared": Squared(2.0)}
every_format = pytest.mark.parametrize("block_format", BLOCK_FORMATS)
every_loss = pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES.keys())
DESCENTS = {"adamW": (AdamW(0.02), Constant(), 0.2), "gd": (SGDW(0.02), InverseSquareRoot(), 0.1)}
every_descent = pytest.mark.parametrize("descent", DESCENTS.values(), ids=DESCENTS.keys())


def some_rows(rows: int = 90, features: int = 6, seed: int = 4, density: float = 0.6):
    """Features that float32 holds exactly, labels 0 and 1, weights with a 0 among them."""
    rng = np.random.default_rng(seed)
    X = (rng.integers(-8, 9, (rows, features)) / 4.0) * (rng.random((rows, features)) < density)
    weights = rng.uniform(0.2, 2.0, rows)
    weights[: rows // 10] = 0.0
    return X, rng.integers(0, 2, rows).astype(float), weights


def naive_margins(X: np.ndarray, coefficients: np.ndarray, intercept: float) -> np.ndarray:
    """By the definition: a sum over all pairs of features."""
    margins = intercept + X @ coefficients[:, 0]
    for i in range(X.shape[1]):
        for j in range(i + 1, X.shape[1]):
            margins = margins + coefficients[i, 1:] @ coefficients[j, 1:] * X[:, i] * X[:, j]
    return margins


def naive_loss(loss, X, y, weights, coefficients, intercept) -> float:
    margins = naive_margins(X, coefficients, intercept)
    losses = np.logaddexp(0.0, margins) - y * margins if isinstance(loss, Logistic) else (margins - y) ** 2
    return float(weights @ losses)


def a_point(factors: int, features: int = 6, intercept: bool = True, seed: int = 9) -> np.ndarray:
    return 0.5 * np.random.default_rng(seed).standard_normal(features * (1 + factors) + intercept)


def a_problem(loss, weights: np.ndarray, factors: int, features: int, intercept=True, strength=0.02) -> Problem:
    ones = np.ones((features, 1))
    scaling = Scaling(np.zeros((features, 1)), ones)
    return Problem(Factorized(loss, factors, intercept), L2(strength, ones), scaling, False, float(weights.sum()))


@every_loss
@every_format
@pytest.mark.parametrize("factors", [1, 3, 8])
@pytest.mark.parametrize("intercept", [True, False])
def test_losses_are_those_of_a_double_sum_over_features(loss, block_format, factors, intercept) -> None:
    X, y, weights = some_rows()
    point = a_point(factors, intercept=intercept)
    block = BLOCK_FORMATS[block_format](X, y, weights)
    coefficients = point[: 6 * (1 + factors)].reshape(6, -1)
    expected = naive_loss(loss, X, y, weights, coefficients, point[-1] if intercept else 0.0)
    machine = Factorized(loss, factors, intercept)
    parts = [(block, 0, 50), (block, 50, 50), (block, 50, 90)]
    assert total_loss(machine, point, parts) == pytest.approx(expected, rel=1e-12)
    assert loss_and_gradient(machine, point, parts)[0] == pytest.approx(expected, rel=1e-12)


@settings(max_examples=40)
@given(
    st.sampled_from(list(BLOCK_FORMATS)),
    st.sampled_from(list(LOSSES)),
    st.integers(1, 5),
    st.integers(1, 9),
    st.integers(1, 23),
    st.booleans(),
    st.floats(0.0, 1.0),
    st.integers(0, 2**16),
)
def test_gradients_are_the_finite_differences_of_the_double_sum(
    block_format, loss_name, factors, features, rows, intercept, density, seed
) -> None:
    loss = LOSSES[loss_name]
    X, y, weights = some_rows(rows, features, seed, density)
    point = a_point(factors, features, intercept, seed)
    block = BLOCK_FORMATS[block_format](X, y, weights)
    found = loss_and_gradient(Factorized(loss, factors, intercept), point, [(block, 0, rows)])[1]

    def at(moved: np.ndarray) -> float:
        coefficients = moved[: features * (1 + factors)].reshape(features, -1)
        return naive_loss(loss, X, y, weights, coefficients, moved[-1] if intercept else 0.0)

    width = 1e-5
    expected = [(at(point + width * e) - at(point - width * e)) / (2.0 * width) for e in np.eye(len(point))]
    scale = 1.0 + float(weights.sum()) * (1.0 + np.abs(X).max(initial=0.0)) ** 4
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-8 * scale)


@every_format
def test_what_is_summed_does_not_depend_on_how_rows_are_cut(block_format) -> None:
    X, y, weights = some_rows(4000, 5)
    point, machine = a_point(4, 5), Factorized(Logistic(), 4)
    block = BLOCK_FORMATS[block_format](X, y, weights)
    whole = loss_and_gradient(machine, point, [(block, 0, 4000)])
    cuts = [0, 1, 3, 7, 1500, 3999, 4000]
    parts = loss_and_gradient(machine, point, [(block, a, b) for a, b in zip(cuts, cuts[1:], strict=False)])
    assert parts[0] == pytest.approx(whole[0], rel=1e-12)
    np.testing.assert_allclose(parts[1], whole[1], rtol=1e-11, atol=1e-11)


@every_format
def test_rows_of_one_feature_leave_factors_alone(block_format) -> None:
    """Exactly: a rule that divides by the gradient's size would make a step of any remainder."""
    rng = np.random.default_rng(2)
    X = np.zeros((31, 4))
    X[np.arange(31), np.arange(31) % 4] = rng.standard_normal(31).astype(np.float32)
    block = BLOCK_FORMATS[block_format](X, rng.integers(0, 2, 31).astype(float), np.ones(31))
    gradient = loss_and_gradient(Factorized(Logistic(), 3), a_point(3, 4), [(block, 0, 31)])[1]
    coefficients = gradient[:-1].reshape(4, 4)
    assert (coefficients[:, 1:] == 0.0).all()
    assert (coefficients[:, 0] != 0.0).all()


def test_a_loss_of_linear_margins_is_refused() -> None:
    machine = Factorized(Logistic(), 2)
    with pytest.raises(AssertionError, match="factorization"):
        machine.evaluate(np.zeros((4, machine.outputs)), np.zeros(4), np.ones(4), np.zeros((4, machine.outputs)))


def test_start_is_what_java_draws() -> None:
    # new java.util.Random(42).nextGaussian(), documented widely; and the sequence is a prefix of a longer one
    draws = java_gaussians(42, 5)
    assert draws[0] == pytest.approx(1.1419053154730547, rel=1e-15)
    assert draws[1] == pytest.approx(0.9194079489827879, rel=1e-15)
    np.testing.assert_array_equal(java_gaussians(42, 4), draws[:4])
    many = java_gaussians(-3, 200_000)
    assert abs(many.mean()) < 0.01
    assert abs(many.std() - 1.0) < 0.01


@pytest.mark.parametrize("length", [0.0, 0.3])
def test_sgdw_is_a_gradient_step_on_loss_and_ridge(length) -> None:
    rng = np.random.default_rng(1)
    x, g = rng.standard_normal((2, 7))
    free = Proximal(np.zeros(7), np.zeros(7), 0.0, np.zeros(1), 2)
    found, slots = SGDW(0.4).update(x, g, (), length, 1, free)
    decayed = np.where(np.arange(7) < 5, 0.4 * x, 0.0)
    np.testing.assert_allclose(found, x - length * (g + decayed), rtol=1e-14)
    assert slots == ()
    np.testing.assert_array_equal(SGDW(0.4).rest(x, (), length, 3, np.full(7, 2), free)[0], x)


def descending(descent, limits: Limits, fraction: float = 1.0, **more) -> FactorizationSGD:
    step, schedule, size = descent
    return FactorizationSGD(step, schedule, size, fraction, limits, ridge=0.02, **more)


def asked(algorithm, problem, workers, coef, clock):
    updates = [algorithm.work(problem, w, coef, None, Turn(clock, n, len(workers)))[0] for n, w in enumerate(workers)]
    total = updates[0]
    for update in updates[1:]:
        total = add_updates(total, update)
    return total


def fit(algorithm, problem, workers, start):
    states = [algorithm.init(problem, start)]
    while states[-1].stop is None:
        total = asked(algorithm, problem, workers, states[-1].coef, len(states) - 1)
        states.append(algorithm.advance(problem, states[-1], total))
    return states


def among(block_format, X, y, weights, workers: int):
    build, cuts = BLOCK_FORMATS[block_format], np.linspace(0, len(X), workers + 1).astype(int)
    shares = [[build(X[a:b], y[a:b], weights[a:b])] for a, b in zip(cuts, cuts[1:], strict=False)]
    return [*shares, []] if workers > 1 else shares


@every_descent
@every_loss
@pytest.mark.parametrize("intercept", [True, False])
def test_steps_are_those_of_the_papers(descent, loss, intercept) -> None:
    """Written out in numpy, with the gradient by finite differences of the double sum."""
    X, y, weights = some_rows()
    factors, count = 2, 4
    problem = a_problem(loss, weights, factors, 6, intercept)
    x = start = a_point(factors, intercept=intercept)
    algorithm = descending(descent, Limits(count, 0.0))
    states = fit(algorithm, problem, among("dense-float64", X, y, weights, 2), start)

    def objective(c, strength=0.02):
        coefficients = c[: 6 * (1 + factors)].reshape(6, -1)
        loss_sum = naive_loss(loss, X, y, weights, coefficients, c[-1] if intercept else 0.0)
        return loss_sum / weights.sum() + strength / 2.0 * c @ c

    mean, squares = np.zeros((2, len(x)))
    for t in range(1, count + 1):
        assert states[t].objective == pytest.approx(objective(x), rel=1e-7)
        g = np.array([(objective(x + e, 0.0) - objective(x - e, 0.0)) / 2e-5 for e in 1e-5 * np.eye(len(x))])
        if isinstance(descent[0], AdamW):
            mean, squares = 0.9 * mean + 0.1 * g, 0.999 * squares + 0.001 * g * g
            unbiased = mean / (1.0 - 0.9**t), np.sqrt(squares / (1.0 - 0.999**t))
            x = x - 0.2 * unbiased[0] / (unbiased[1] + 1e-8) - 0.2 * 0.02 * x
        else:
            x = x - 0.1 / np.sqrt(t) * (g + 0.02 * x)
        np.testing.assert_allclose(states[t].coef, x, rtol=1e-6, atol=1e-6)
    last = states[-1]
    assert (last.stop.reason, last.iteration, last.count, len(states)) == ("max_iterations", count, count, count + 2)
    assert last.objective == pytest.approx(objective(last.best), rel=1e-9)
    assert last.best is last.coef


@every_descent
def test_the_answer_does_not_depend_on_how_rows_are_spread(descent) -> None:
    X, y, weights = some_rows()
    problem = a_problem(Logistic(), weights, 3, 6)
    algorithm = descending(descent, Limits(40, 0.0))
    ends = [
        fit(algorithm, problem, among(form, X, y, weights, workers), a_point(3))[-1]
        for form, workers in (("dense-float64", 1), ("sparse-float32", 2), ("dense-float32", 7))
    ]
    for end in ends[1:]:
        np.testing.assert_allclose(end.coef, ends[0].coef, rtol=1e-8, atol=1e-9)
        assert end.objective == pytest.approx(ends[0].objective, rel=1e-9)


@every_descent
@pytest.mark.parametrize("fraction", [0.2, 1.0])
def test_two_runs_are_bit_equal_states_travel_and_nothing_is_changed(descent, fraction) -> None:
    X, y, weights = some_rows()
    problem = a_problem(Logistic(), weights, 3, 6)
    workers = among("sparse-float64", X, y, weights, 3)
    algorithm = descending(descent, Limits(4, 0.0), fraction, seed=-4)
    states, again = fit(algorithm, problem, workers, a_point(3)), algorithm.init(problem, a_point(3))
    for clock, expected in enumerate(states[1:]):
        before = copy.deepcopy(again)
        after = algorithm.advance(problem, again, asked(algorithm, problem, workers, again.coef, clock))
        assert_same_state(again, before)
        assert_same_state(after, expected)
        again = unpack(pack(after))


def test_samples_are_unbiased_and_the_last_objective_is_over_all_rows() -> None:
    X, y, weights = some_rows(400)
    y[:] = 1.0
    problem = a_problem(Logistic(), weights, 3, 6)
    workers, point = among("sparse-float64", X, y, weights, 3), a_point(3)
    algorithm = descending(DESCENTS["gd"], Limits(400, 0.0), 0.1)
    samples = [asked(algorithm, problem, workers, point, clock) for clock in range(400)]
    full = asked(replace(algorithm, fraction=1.0), problem, workers, point, 0)
    for name in ("gradient", "loss"):
        drawn = np.array([np.atleast_1d(sample[name]) for sample in samples])
        error = drawn.std(axis=0, ddof=1) / np.sqrt(len(drawn))
        assert (np.abs(drawn.mean(axis=0) - full[name]) <= 5.0 * error).all()
        assert error.min() > 0.0
    last = asked(algorithm, problem, workers, point, 400)
    assert last["loss"] == pytest.approx(full["loss"], rel=1e-12)
    assert not last["gradient"].any()


def test_a_held_linear_term_stays_at_0() -> None:
    X, y, weights = some_rows()
    problem = a_problem(Logistic(), weights, 3, 6)
    start = a_point(3)
    problem.split(start)[0][:, 0] = 0.0
    algorithm = descending(DESCENTS["adamW"], Limits(20, 0.0), fit_linear=False)
    end = fit(algorithm, problem, among("dense-float64", X, y, weights, 2), start)[-1]
    coefficients = problem.split(end.best)[0]
    assert (coefficients[:, 0] == 0.0).all()
    assert (coefficients[:, 1:] != 0.0).all()


def test_it_stops_when_a_step_is_short() -> None:
    X, y, weights = some_rows()
    problem = a_problem(Squared(2.0), weights, 2, 6)
    algorithm = descending(DESCENTS["gd"], Limits(500, 1e-3))
    states = fit(algorithm, problem, among("dense-float64", X, y, weights, 1), 0.1 * a_point(2))
    assert states[-1].stop.reason == "converged"
    steps = [
        np.linalg.norm(b.coef - a.coef) / max(np.linalg.norm(b.coef), 1.0)
        for a, b in zip(states, states[1:-1], strict=False)
    ]
    assert steps[-1] < 1e-3
    assert min(steps[1:-1]) >= 1e-3


def test_the_first_step_never_ends_a_fit() -> None:
    X, y, weights = some_rows()
    problem = a_problem(Squared(2.0), weights, 2, 6)
    algorithm = descending((SGDW(), InverseSquareRoot(), 1e-12), Limits(50, 1e-3))
    last = fit(algorithm, problem, among("dense-float64", X, y, weights, 1), 0.1 * a_point(2))[-1]
    assert (last.stop.reason, last.count) == ("converged", 2)


def test_steps_that_are_far_too_long_are_seen_to_diverge() -> None:
    X, y, weights = some_rows()
    problem = a_problem(Squared(2.0), weights, 2, 6)
    algorithm = descending((SGDW(), Constant(), 1e6), Limits(500, 0.0))
    last = fit(algorithm, problem, among("dense-float64", X, y, weights, 1), a_point(2))[-1]
    assert last.stop.reason == "diverged"


def test_no_iterations_leave_the_start() -> None:
    X, y, weights = some_rows()
    problem, start = a_problem(Logistic(), weights, 2, 6), a_point(2)
    states = fit(descending(DESCENTS["gd"], Limits(0, 0.0)), problem, among("dense-float64", X, y, weights, 1), start)
    assert len(states) == 2
    np.testing.assert_array_equal(states[-1].best, start)


def test_settings_that_make_no_sense_are_refused() -> None:
    for fraction, size in ((0.0, 1.0), (1.1, 1.0), (0.5, 0.0)):
        with pytest.raises(ValueError, match="must be more than 0"):
            FactorizationSGD(SGDW(), Constant(), size, fraction, Limits(1, 0.0))


@every_descent
@pytest.mark.parametrize("tolerance", [0.0, 0.03])
def test_shards_take_the_steps_of_the_whole(descent, tolerance) -> None:
    """Element-wise: features in three shards and the intercept in a tail give the same states, and stop with it."""
    X, y, weights = some_rows()
    factors = 2
    problem = a_problem(Logistic(), weights, factors, 6)
    workers, start = among("sparse-float64", X, y, weights, 2), a_point(factors)
    algorithm = descending(descent, Limits(40, tolerance))
    whole = fit(algorithm, problem, workers, start)

    cuts = [0, 3 * 1, 3 * 2, 3 * 6, 19]
    parts = [a_problem(Logistic(), weights, factors, n, n == 0) for n in (1, 1, 4, 0)]
    sharded = FactorizationShards(algorithm)
    begun = [sharded.init(p, start[a:b]) for p, a, b in zip(parts, cuts, cuts[1:], strict=False)]
    states, sums = [state for state, _ in begun], {}
    for _, part in begun:
        sums = add_sums(sums, part)
    lead, clock = sharded.begin(sums), 0
    while lead.stop is None:
        point = np.concatenate([state.coef for state in states])
        total = asked(algorithm, problem, workers, point, clock)
        stepped = [
            sharded.step(p, s, lead.order, {"gradient": total["gradient"][a:b], "loss": total["loss"]})
            for p, s, a, b in zip(parts, states, cuts, cuts[1:], strict=False)
        ]
        states, sums = [state for state, _ in stepped], {}
        for _, part in stepped:
            sums = add_sums(sums, part)
        lead, clock = sharded.lead(lead, sums, None, states[-1]), clock + 1
        assert lead.objective == pytest.approx(whole[clock].objective, rel=1e-12)
        assert len({state.stop for state in states}) == 1
    assert clock == len(whole) - 1
    assert lead.stop.reason == whole[-1].stop.reason == ("converged" if tolerance else "max_iterations")
    np.testing.assert_array_equal(np.concatenate([state.best for state in states]), whole[-1].best)
