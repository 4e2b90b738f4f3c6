"""Every algorithm reaches the optimum that scipy and scikit-learn find, without Spark."""

from __future__ import annotations

import numpy as np
import pytest
from cases import ALGORITHMS, BLOCK_FORMATS
from oracles import random_labels, random_rows
from problems import drive, make_problem, plain_gradient, plain_objective
from scipy import optimize
from sklearn.linear_model import LogisticRegression

from sparkdml.losses import Logistic, Loss, Softmax

every_algorithm = pytest.mark.parametrize("make_algorithm", ALGORITHMS.values(), ids=ALGORITHMS.keys())
losses = pytest.mark.parametrize("loss", [Logistic(), Softmax(4)], ids=["binomial", "multinomial"])
strengths = pytest.mark.parametrize("strength", [0.0, 1e-4, 0.1])
standard = pytest.mark.parametrize("standardization", [True, False], ids=["standardized", "as-given"])
intercept = pytest.mark.parametrize("fit_intercept", [True, False], ids=["intercept", "no-intercept"])


def rows(loss: Loss):
    """Noisy labels, so that the optimum is finite without a penalty too; columns of unlike scale."""
    rng = np.random.default_rng(17)
    X = random_rows(rng, 400, 6, density=0.7) * [1.0, 1.0, 20.0, 0.05, 3.0, 1.0]
    X[:, 2] += 30.0
    y = random_labels(rng, loss, 400)
    y[X[:, 0] > 0.3] = 1.0
    y[::5] = random_labels(rng, loss, 80)
    return X, y, rng.uniform(0.2, 3.0, 400)


def scipy_optimum(loss: Loss, X, y, weights, strength, standardization, fit_intercept, gtol=1e-9):
    """scipy's result; ``fun`` is the objective and ``nfev`` how often it was evaluated."""
    shape = (X.shape[1], loss.outputs)
    size = shape[0] * shape[1]
    # as scipy sees it, columns are of one scale and centred: the optimum is the same, and easier to reach
    scale, centre = X.std(axis=0)[:, None], fit_intercept * X.mean(axis=0)

    def unpack(c: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        coefficients = c[:size].reshape(shape) / scale
        shift = c[size:] if fit_intercept else np.zeros(loss.outputs)
        return coefficients, shift - centre @ coefficients

    def both(c: np.ndarray) -> tuple[float, np.ndarray]:
        at = (loss, X, y, weights, strength, standardization, *unpack(c))
        by_coefficients, by_intercepts = plain_gradient(*at)
        by_coefficients = (by_coefficients - np.outer(centre, by_intercepts)) / scale
        tail = by_intercepts if fit_intercept else []
        return plain_objective(*at), np.concatenate([by_coefficients.ravel(), tail])

    start = np.zeros(size + fit_intercept * loss.outputs)
    found = optimize.minimize(
        both, start, jac=True, method="L-BFGS-B",
        options={"ftol": 0.0, "gtol": gtol, "maxiter": 5000, "maxfun": 10000},
    )  # fmt: skip
    assert np.abs(found.jac).max() < 1e-5
    return found


@every_algorithm
@losses
@strengths
@standard
@intercept
def test_objective_is_within_1e_8_of_scipys_optimum(
    make_algorithm, loss: Loss, strength: float, standardization: bool, fit_intercept: bool
) -> None:
    X, y, weights = rows(loss)
    problem = make_problem(loss, X, weights, strength, standardization, fit_intercept)
    block = BLOCK_FORMATS["dense-float64"](X, y, weights)
    last = drive(make_algorithm(500, 1e-12), problem, [[block]])[-1]
    assert last.stop.reason in ("converged", "stalled")
    reached = plain_objective(loss, X, y, weights, strength, standardization, *problem.to_raw(last.best))
    assert last.objective == pytest.approx(reached, rel=1e-10)
    best = scipy_optimum(loss, X, y, weights, strength, standardization, fit_intercept)
    assert reached == pytest.approx(best.fun, abs=1e-8)


@every_algorithm
@losses
@intercept
def test_coefficients_are_scikit_learns(make_algorithm, loss: Loss, fit_intercept: bool) -> None:
    X, y, weights = rows(loss)
    strength = 0.02
    oracle = LogisticRegression(
        C=1.0 / (strength * weights.sum()), fit_intercept=fit_intercept,
        solver="newton-cg", tol=1e-10, max_iter=1000,
    ).fit(X, y, weights)  # fmt: skip
    problem = make_problem(loss, X, weights, strength, False, fit_intercept)
    block = BLOCK_FORMATS["sparse-float64"](X, y, weights)
    last = drive(make_algorithm(500, 1e-12), problem, [[block]])[-1]
    coefficients, intercepts = problem.to_raw(last.best)
    np.testing.assert_allclose(coefficients.T, oracle.coef_, atol=1e-5)
    # adding one number to every intercept changes no probability
    shift = intercepts.mean() if loss.outputs > 1 else 0.0
    expected = oracle.intercept_ - (oracle.intercept_.mean() if loss.outputs > 1 else 0.0)
    np.testing.assert_allclose(intercepts - shift, expected, atol=1e-4)


@every_algorithm
@losses
@pytest.mark.parametrize("strength", [0.0, 0.1])
def test_rounds_are_not_many_more_than_scipys_evaluations(make_algorithm, loss: Loss, strength: float) -> None:
    """To the same norm of the gradient, from the same start, in the same coordinates."""
    X, y, weights = rows(loss)
    problem = make_problem(loss, X, weights, strength)
    block = BLOCK_FORMATS["dense-float64"](X, y, weights)
    states = drive(make_algorithm(500, 1e-12), problem, [[block]])
    rounds = next(n for n, state in enumerate(states) if state.gradient_norm <= 1e-6)
    oracle = scipy_optimum(loss, X, y, weights, strength, True, True, gtol=1e-6)
    assert rounds <= 1.5 * oracle.nfev


@every_algorithm
@losses
def test_the_optimum_does_not_depend_on_the_start(make_algorithm, loss: Loss) -> None:
    X, y, weights = rows(loss)
    problem = make_problem(loss, X, weights, 0.01)
    block = BLOCK_FORMATS["dense-float64"](X, y, weights)
    far = 5.0 * np.random.default_rng(0).standard_normal(problem.size)
    ends = [drive(make_algorithm(500, 1e-12), problem, [[block]], at)[-1] for at in (None, far)]
    assert ends[0].objective == pytest.approx(ends[1].objective, abs=1e-8)


@every_algorithm
def test_a_constant_column_gets_0_and_changes_nothing_else(make_algorithm) -> None:
    loss = Softmax(3)
    X, y, weights = rows(loss)
    with_constant = np.insert(X, 2, 7.0, axis=1)
    models = []
    for matrix in (X, with_constant):
        problem = make_problem(loss, matrix, weights, 0.01)
        block = BLOCK_FORMATS["dense-float64"](matrix, y, weights)
        last = drive(make_algorithm(500, 1e-12), problem, [[block]])[-1]
        models.append(problem.to_raw(last.best))
    assert not models[1][0][2].any()
    np.testing.assert_allclose(np.delete(models[1][0], 2, axis=0), models[0][0], atol=1e-6)
    np.testing.assert_allclose(models[1][1], models[0][1], atol=1e-5)


@every_algorithm
def test_objectives_never_rise(make_algorithm) -> None:
    X, y, weights = rows(Softmax(4))
    problem = make_problem(Softmax(4), X, weights, 1e-4)
    block = BLOCK_FORMATS["dense-float64"](X, y, weights)
    values = [s.objective for s in drive(make_algorithm(200, 1e-10), problem, [[block]])[1:]]
    assert len(values) > 5
    assert (np.diff(values) <= 1e-13).all()
