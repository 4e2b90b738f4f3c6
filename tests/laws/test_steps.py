"""Every step rule is its paper's recurrence, and rests exactly at the optimum of loss + penalty."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest
from cases import PENALTIES
from oracles import plain_losses, plain_slopes, random_rows
from problems import make_problem
from scipy import optimize

from sparkdml.losses import Logistic, Loss, Softmax
from sparkdml.optim.local_solver import Pull
from sparkdml.optim.steps import FTRL, SGD, STEPS, AdaGrad, Adam, AdamW, Momentum, Nesterov, Proximal, Step, proximal
from sparkdml.penalties import ElasticNet

every_step = pytest.mark.parametrize("name", STEPS)
every_penalty = pytest.mark.parametrize("make_penalty", PENALTIES.values(), ids=PENALTIES.keys())
pulls = pytest.mark.parametrize("strength", [0.0, 0.4], ids=["free", "pulled"])


def some_proximal(make_penalty, strength: float, outputs: int = 2, features: int = 40) -> tuple[Proximal, object]:
    """The operator of a problem with an intercept, and its penalty."""
    rng = np.random.default_rng(0)
    loss = Softmax(outputs) if outputs > 1 else Logistic()
    penalty = make_penalty(rng.uniform(0.0, 3.0, features))
    problem = replace(make_problem(loss, rng.standard_normal((9, features)), np.ones(9)), penalty=penalty)
    pull = Pull(strength, 2.0 * rng.standard_normal(problem.size)) if strength else None
    return proximal(problem, pull), penalty


@every_penalty
@pytest.mark.parametrize("outputs", [1, 3])
def test_the_operator_is_the_penalty_s_and_leaves_intercepts(make_penalty, outputs: int) -> None:
    prox, penalty = some_proximal(make_penalty, 0.0, outputs)
    rng = np.random.default_rng(1)
    point, rates = rng.standard_normal((2, 41 * outputs))
    rates = np.abs(rates)
    for rate in (0.7, rates):
        by_feature = rate if np.isscalar(rate) else rate[: 40 * outputs].reshape(40, outputs)
        expected = penalty.prox(point[: 40 * outputs].reshape(40, outputs), by_feature)
        found = prox(point, rate)
        np.testing.assert_allclose(found[: 40 * outputs].reshape(40, outputs), expected, rtol=1e-13)
        np.testing.assert_array_equal(found[40 * outputs :], point[40 * outputs :])


@every_penalty
@pulls
def test_the_operator_minimises_its_objective(make_penalty, strength: float) -> None:
    prox, _ = some_proximal(make_penalty, strength)
    point = 3.0 * np.random.default_rng(2).standard_normal(len(prox.l2))
    rate = np.linspace(0.1, 3.0, len(point))
    found = prox(point, rate)
    centre = np.broadcast_to(prox.centre, point.shape)

    def objective(x: np.ndarray) -> np.ndarray:
        penalty = prox.l2 / 2 * x**2 + prox.l1 * np.abs(x) + prox.strength / 2 * (x - centre) ** 2
        return penalty + (x - point) ** 2 / (2 * rate)

    for step in (1e-3, -1e-3):
        assert (objective(found) <= objective(found + step)).all()


@every_penalty
@pulls
def test_many_applications_are_as_many_in_turn(make_penalty, strength: float) -> None:
    prox, _ = some_proximal(make_penalty, strength)
    rng = np.random.default_rng(3)
    point = np.where(rng.random(len(prox.l2)) < 0.2, 0.0, 5.0 * rng.standard_normal(len(prox.l2)))
    times = rng.integers(0, 60, len(point))
    for rate in (0.05, rng.uniform(0.0, 0.5, len(point))):
        expected = point
        crossed = np.zeros(len(point), bool)
        for n in range(60):
            following = np.where(times > n, prox(expected, rate), expected)
            crossed |= following * point < 0.0
            expected = following
        np.testing.assert_allclose(prox.repeated(point, rate, times), expected, rtol=1e-11, atol=1e-13)
        assert crossed.any() == (strength > 0.0)


@every_penalty
@pulls
def test_the_origin_of_a_point_leads_to_it(make_penalty, strength: float) -> None:
    prox, _ = some_proximal(make_penalty, strength)
    rng = np.random.default_rng(4)
    rate = rng.uniform(0.1, 2.0, len(prox.l2))
    point = 2.0 * rng.standard_normal(len(rate))
    result = prox(point, rate)
    np.testing.assert_allclose(prox.origin(result, rate, point), point, rtol=1e-12, atol=1e-13)
    other = rng.standard_normal(len(rate))
    result[::3] = 0.0
    np.testing.assert_allclose(prox(prox.origin(result, rate, other), rate), result, rtol=1e-12, atol=1e-12)


def test_a_part_of_the_operator_is_the_operator_of_the_part() -> None:
    prox, _ = some_proximal(PENALTIES["elastic-net"], 0.4)
    places = np.array([3, 10, 11, 40, 80, 81])
    point = np.random.default_rng(5).standard_normal(len(prox.l2))
    np.testing.assert_array_equal(prox.of(places)(point[places], 0.3), prox(point, 0.3)[places])


def textbook(name: str, x: float, gradients: list[float], eta: float) -> Iterator[float]:
    """The papers' recurrences for one coordinate, without a penalty."""
    u = v = d = m = z = n = 0.0
    for t, g in enumerate(gradients, 1):
        if name == "sgd":
            x -= eta * g
        elif name in ("momentum", "nesterov"):
            u = 0.9 * u + g
            x -= eta * (u if name == "momentum" else g + 0.9 * u)
        elif name == "adagrad":
            v += g**2
            x -= eta * g / (v**0.5 + 1e-10)
        elif name == "rmsprop":
            v = 0.9 * v + 0.1 * g**2
            x -= eta * g / (v**0.5 + 1e-8)
        elif name == "adadelta":
            v = 0.95 * v + 0.05 * g**2
            change = -eta * ((d + 1e-6) / (v + 1e-6)) ** 0.5 * g
            d = 0.95 * d + 0.05 * change**2
            x += change
        elif name in ("adam", "adamw"):
            m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
            x -= eta * (m / (1 - 0.9**t)) / ((v / (1 - 0.999**t)) ** 0.5 + 1e-8)
        elif name == "ftrl":
            sigma = ((n + g**2) ** 0.5 - n**0.5) / eta
            if t == 1:  # the paper starts at 0
                z = -x / eta
            z, n = z + g - sigma * x, n + g**2
            x = -z / ((1.0 + n**0.5) / eta)
        else:
            raise AssertionError(name)
        yield x


@every_step
def test_without_a_penalty_it_is_the_paper_s_recurrence(name: str) -> None:
    rng = np.random.default_rng(6)
    gradients = rng.standard_normal((12, 7))
    start = rng.standard_normal(7)
    step, prox = STEPS[name](), Proximal(*np.zeros((2, 7)), 0.0, np.zeros(1), 0)
    point, slots, found = start, step.slots(7), []
    for count, gradient in enumerate(gradients, 1):
        point, slots = step.update(point, gradient, slots, 0.1, count, prox)
        found.append(point)
    expected = np.transpose([list(textbook(name, start[i], list(gradients[:, i]), 0.1)) for i in range(7)])
    np.testing.assert_allclose(found, expected, rtol=1e-11)


@every_step
def test_nothing_that_is_given_is_changed(name: str) -> None:
    prox, _ = some_proximal(PENALTIES["elastic-net"], 0.4)
    step, size = STEPS[name](), len(prox.l2)
    rng = np.random.default_rng(7)
    given = [rng.standard_normal(size), rng.standard_normal(size), tuple(rng.random((len(step.slots(1)), size)))]
    before = copy.deepcopy(given)
    step.update(*given, 0.1, 3, prox)
    step.rest(given[0], given[2], 0.1, 3, np.arange(size) % 4, prox)
    for now, then in zip(given[:2], before[:2], strict=True):
        np.testing.assert_array_equal(now, then)
    np.testing.assert_array_equal(given[2], before[2])


@pytest.mark.parametrize("name", [name for name in STEPS if name != "adadelta"])
def test_steps_without_a_gradient_are_rest(name: str) -> None:
    """Where a rule has no moving averages; those are at rest too if they are 0, but for AdaDelta's of changes."""
    exact = name in ("sgd", "adagrad", "ftrl")
    prox, _ = some_proximal(PENALTIES["elastic-net"], 0.4)
    step, size = STEPS[name](), len(prox.l2)
    rng = np.random.default_rng(8)
    point, slots = rng.standard_normal(size), step.slots(size)
    if exact:
        for count in (1, 2, 3):
            point, slots = step.update(point, rng.standard_normal(size), slots, 0.1, count, prox)
    missed = np.full(size, 5)
    rested, rested_slots = step.rest(point, slots, 0.1, 8, missed, prox)
    for count in range(4, 9):
        point, slots = step.update(point, np.zeros(size), slots, 0.1, count, prox)
    np.testing.assert_allclose(rested, point, rtol=1e-12, atol=1e-14)
    for one, other in zip(rested_slots, slots, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-14)


class Smooth:
    """A logistic or softmax objective in standardised columns, without the problem's code."""

    def __init__(self, loss: Loss, l1: float, l2: float) -> None:
        rng = np.random.default_rng(17)
        X = random_rows(rng, 300, 6, density=0.7)
        X[:, 1] += 0.7 * X[:, 0]
        self.Z = (X - X.mean(axis=0)) / X.std(axis=0)
        scores = self.Z[:, 0] - 0.5 * self.Z[:, 1] + 0.3 + rng.logistic(size=300)
        self.y = np.digitize(scores, [0.0, 1.5][: max(loss.outputs - 1, 1)]).astype(float)
        self.loss, self.l1, self.l2 = loss, l1, l2
        self.count = 6 * loss.outputs
        problem = make_problem(loss, self.Z, np.ones(300), l2)
        factors = np.ones((6, 1))
        self.prox = proximal(replace(problem, penalty=ElasticNet(l2, factors, l1, factors)))
        self.size = problem.size

    def margins(self, c: np.ndarray) -> np.ndarray:
        return self.Z @ c[: self.count].reshape(6, -1) + c[self.count :]

    def gradient(self, c: np.ndarray) -> np.ndarray:
        """Of the loss alone."""
        slopes = plain_slopes(self.loss, self.margins(c), self.y) / 300
        return np.concatenate([(self.Z.T @ slopes).ravel(), slopes.sum(axis=0)])

    def objective(self, c: np.ndarray) -> float:
        b = c[: self.count]
        mean = plain_losses(self.loss, self.margins(c), self.y).mean()
        return float(mean + self.l2 / 2 * b @ b + self.l1 * np.abs(b).sum())

    def optimum(self) -> np.ndarray:
        """By L-BFGS-B over positive and negative parts, which makes exact zeros of its bounds."""

        def both(parts: np.ndarray) -> tuple[float, np.ndarray]:
            c = np.concatenate([parts[: self.count] - parts[self.count : 2 * self.count], parts[2 * self.count :]])
            g = self.gradient(c)
            by_b = g[: self.count] + self.l2 * c[: self.count]
            return self.objective_of(parts, c), np.concatenate([by_b + self.l1, self.l1 - by_b, g[self.count :]])

        bounds = [(0, None)] * (2 * self.count) + [(None, None)] * (self.size - self.count)
        options = {"ftol": 1e-16, "gtol": 1e-10, "maxiter": 20000, "maxfun": 40000}
        start = np.zeros(2 * self.count + self.size - self.count)
        found = optimize.minimize(both, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options).x
        return np.concatenate([found[: self.count] - found[self.count : 2 * self.count], found[2 * self.count :]])

    def objective_of(self, parts: np.ndarray, c: np.ndarray) -> float:
        b = c[: self.count]
        mean = plain_losses(self.loss, self.margins(c), self.y).mean()
        return float(mean + self.l2 / 2 * b @ b + self.l1 * parts[: 2 * self.count].sum())


#: From a name to the rule's step size at step t.
SIZES: dict[str, Callable[[int], float]] = {
    "sgd": lambda t: 1.0,
    "momentum": lambda t: 0.1,
    "nesterov": lambda t: 0.1,
    "adagrad": lambda t: 0.3,
    "adadelta": lambda t: 1.0,
    "rmsprop": lambda t: 0.1 / (1.0 + 0.02 * t),
    "adam": lambda t: 0.1 / (1.0 + 0.02 * t),
    "adamw": lambda t: 0.1 / (1.0 + 0.02 * t),
    "ftrl": lambda t: 1.0,
}


@every_step
@pytest.mark.parametrize("loss", [Logistic(), Softmax(3)], ids=["logistic", "softmax"])
@pytest.mark.parametrize(("l1", "l2"), [(0.0, 0.03), (0.03, 0.02)], ids=["ridge", "elastic-net"])
def test_full_gradients_lead_to_the_optimum(name: str, loss: Loss, l1: float, l2: float) -> None:
    smooth, step = Smooth(loss, l1, l2), STEPS[name]()
    point, slots = np.zeros(smooth.size), step.slots(smooth.size)
    for count in range(1, 3001):
        size = SIZES[name](count)
        point, slots = step.update(point, smooth.gradient(point), slots, size, count, smooth.prox)
    best = smooth.optimum()
    assert abs(smooth.objective(point) - smooth.objective(best)) <= 1e-6
    zero = best[: smooth.count] == 0.0
    assert zero.any() == (l1 > 0.0)
    assert (point[: smooth.count][zero] == 0.0).all()


@pytest.mark.parametrize("step", [SGD(), Momentum(0.95), Nesterov(0.5), AdaGrad(), Adam(), FTRL()], ids=repr)
def test_the_optimum_is_a_fixed_point(step: Step) -> None:
    """Once the rule has seen the optimum's gradient for long."""
    smooth = Smooth(Logistic(), 0.03, 0.02)
    best = smooth.optimum()
    point, slots, gradient = best, step.slots(smooth.size), smooth.gradient(best)
    for count in range(1, 401):
        _, slots = step.update(best, gradient, slots, 0.05, count, smooth.prox)
    point, _ = step.update(best, gradient, slots, 0.05, 401, smooth.prox)
    np.testing.assert_allclose(point[:-1], best[:-1], atol=1e-7)
    np.testing.assert_array_equal(point[:-1] == 0.0, best[:-1] == 0.0)


def test_ftrl_is_the_leader_of_its_definition() -> None:
    rng = np.random.default_rng(9)
    gradients, (l1, l2), eta = rng.standard_normal((9, 5)), (0.4, 0.2), 0.7
    prox = Proximal(np.full(5, l2), np.full(5, l1), 0.0, np.zeros(1), 0)
    step = FTRL()
    points, slots = [np.zeros(5)], step.slots(5)
    for count, gradient in enumerate(gradients, 1):
        point, slots = step.update(points[-1], gradient, slots, eta, count, prox)
        points.append(point)
        roots = 1.0 + np.sqrt(np.cumsum(np.vstack([np.zeros(5), gradients[:count] ** 2]), axis=0))
        sigmas = np.diff(roots, axis=0) / eta

        for i in range(5):

            def leader(x: float, i: int = i, count: int = count, sigmas: np.ndarray = sigmas) -> float:
                near = sum(sigmas[s, i] * (x - points[s][i]) ** 2 for s in range(count)) + x**2 / eta
                return gradients[:count, i].sum() * x + count * (l1 * abs(x) + l2 / 2 * x**2) + near / 2

            found = optimize.minimize_scalar(leader, bounds=(-5, 5), method="bounded", options={"xatol": 1e-10})
            assert point[i] == pytest.approx(found.x, abs=1e-6)
    assert any((point == 0.0).any() and (point != 0.0).any() for point in points[1:])


def test_ftrl_goes_on_from_where_others_moved_it() -> None:
    """With a ridge it is ``x - (g + l2 x) / (Q + t l2)``, from any x."""
    rng = np.random.default_rng(10)
    prox, step, slots, eta = Proximal(np.full(5, 0.3), np.zeros(5), 0.0, np.zeros(1), 0), FTRL(), None, 0.7
    slots, squares = step.slots(5), np.zeros(5)
    for count in range(1, 8):
        moved, gradient = rng.standard_normal((2, 5))
        squares += gradient**2
        point, slots = step.update(moved, gradient, slots, eta, count, prox)
        expected = moved - (gradient + 0.3 * moved) / ((1.0 + np.sqrt(squares)) / eta + count * 0.3)
        np.testing.assert_allclose(point, expected, rtol=1e-11)


def test_weight_decay_is_decoupled_and_spares_intercepts() -> None:
    prox = Proximal(*np.zeros((2, 4)), 0.0, np.zeros(1), 1)
    point, gradient = np.random.default_rng(11).standard_normal((2, 4))
    plain, _ = Adam().update(point, gradient, Adam().slots(4), 0.1, 1, prox)
    decayed, _ = AdamW(weight_decay=0.5).update(point, gradient, Adam().slots(4), 0.1, 1, prox)
    np.testing.assert_allclose(decayed, plain - 0.1 * 0.5 * point * [1, 1, 1, 0], rtol=1e-14)


def test_shares_outside_their_range_are_refused() -> None:
    with pytest.raises(ValueError, match="momentum=1.0"):
        Momentum(1.0)
    with pytest.raises(ValueError, match="beta2=-0.1"):
        Adam(beta2=-0.1)
    with pytest.raises(ValueError, match="beta=0"):
        FTRL(beta=0.0)
