"""Iteratively reweighted least squares against scikit-learn, scipy and a plain version of itself, without Spark."""

from __future__ import annotations

import copy
import dataclasses

import numpy as np
import pytest
from cases import BLOCK_FORMATS
from problems import drive, make_problem
from scipy import optimize, stats
from sklearn import linear_model

from sparkdml.algorithms import IRLS, LBFGS
from sparkdml.core import Turn
from sparkdml.data.block import DenseBlock
from sparkdml.families import family_and_link
from sparkdml.losses import Logistic

intercept = pytest.mark.parametrize("fit_intercept", [True, False], ids=["intercept", "no-intercept"])

#: Every family with a link under which these rows have an optimum within the domain.
MODELS = {
    "gaussian-identity": {},
    "gaussian-log": {"family": "gaussian", "link": "log"},
    "binomial-logit": {"family": "binomial"},
    "binomial-probit": {"family": "binomial", "link": "probit"},
    "binomial-cloglog": {"family": "binomial", "link": "cloglog"},
    "poisson-log": {"family": "poisson"},
    "poisson-sqrt": {"family": "poisson", "link": "sqrt"},
    "poisson-identity": {"family": "poisson", "link": "identity"},
    "gamma-inverse": {"family": "gamma"},
    "gamma-log": {"family": "gamma", "link": "log"},
    "tweedie-1.5": {"family": "tweedie", "variance_power": 1.5},
    "tweedie-1.3-log": {"family": "tweedie", "variance_power": 1.3, "link_power": 0.0},
    "tweedie-2.5-power": {"family": "tweedie", "variance_power": 2.5, "link_power": 0.3},
}
every_model = pytest.mark.parametrize("model", MODELS.values(), ids=MODELS.keys())
ITERATED = {name: model for name, model in MODELS.items() if name != "gaussian-identity"}


def rows(model: dict, count: int = 400, seed: int = 7):
    """Features, labels drawn from the model and weights; linear predictors are from 0.5 to 2.5 without a shift."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(0.5, 1.5, (count, 4)) * [1.0, 4.0, 0.125, 1.0]
    X[rng.random(count) < 0.5, 3] = 0.0
    eta = X @ [0.4, 0.1, 3.0, 0.4]
    both = family_and_link(**model)
    mu = both.predict(eta)
    draw = {
        "gaussian": lambda: mu + 0.2 * rng.standard_normal(count),
        "binomial": lambda: (rng.random(count) < both.predict(eta - 1.0)).astype(float),
        "poisson": lambda: rng.poisson(mu).astype(float),
        "gamma": lambda: mu * rng.gamma(20.0, 0.05, count),
        "tweedie": lambda: mu * rng.gamma(20.0, 0.05, count),
    }
    return X, draw[both.family.name](), rng.uniform(0.2, 3.0, count)


def block_of(X, y, weights, offsets=None, block_format="dense-float64"):
    return dataclasses.replace(BLOCK_FORMATS[block_format](X, y, weights), offsets=offsets)


def fit(model, X, y, weights, offsets=None, reg_param=0.0, fit_intercept=True, max_iterations=100, tolerance=1e-10):
    problem = make_problem(Logistic(), X, weights, fit_intercept=fit_intercept)
    algorithm = IRLS(max_iterations, tolerance, family_and_link(**model), reg_param)
    last = drive(algorithm, problem, [[block_of(X, y, weights, offsets)]])[-1]
    coefficients, intercepts = problem.to_raw(last.best)
    return last, coefficients[:, 0], intercepts[0]


def design_of(X, fit_intercept):
    return np.column_stack([X, np.ones(len(X))]) if fit_intercept else X


def weighted_ridge(design, z, weights, ridge):
    """``min 1/(2 W) sum w (z - design b)^2 + sum ridge b^2 / 2`` by least squares on stacked rows."""
    stacked = np.vstack([design * np.sqrt(weights / weights.sum())[:, None], np.diag(np.sqrt(ridge))])
    target = np.concatenate([z * np.sqrt(weights / weights.sum()), np.zeros(len(ridge))])
    return np.linalg.lstsq(stacked, target, rcond=None)[0]


def plain_irls(model, X, y, weights, offsets, reg_param, fit_intercept, max_iterations, tolerance):
    """Spark's loop in plain numpy: ``(coefficients and intercept, iterations, inverse diagonal)``."""
    both = family_and_link(**model)
    family, link = both.family, both.link
    design = design_of(X, fit_intercept)
    penalised = np.append(np.ones(X.shape[1]), np.zeros(int(fit_intercept)))
    z = link.link(family.initialize(y, weights)) - offsets
    variance = np.average(X**2, axis=0, weights=weights) - np.average(X, axis=0, weights=weights) ** 2
    z_std = np.sqrt(np.average((z - np.average(z, weights=weights)) ** 2, weights=weights))
    ridge = np.append(variance * reg_param / z_std, np.zeros(int(fit_intercept)))
    b = weighted_ridge(design, z, weights, ridge)
    iteration, change = 0, np.inf
    while iteration < max_iterations and change >= tolerance:
        eta = design @ b + offsets
        mu = family.project(link.unlink(eta))
        z = eta - offsets + (y - mu) * link.derivative(mu)
        working = weights / (link.derivative(mu) ** 2 * family.variance(mu))
        before, b = b, weighted_ridge(design, z, working, reg_param * penalised)
        iteration, change = iteration + 1, np.abs(b - before).max()
    normal = design.T @ (working[:, None] * design) + working.sum() * reg_param * np.diag(penalised)
    return b, iteration, np.diagonal(np.linalg.inv(normal))


@pytest.mark.parametrize("model", ITERATED.values(), ids=ITERATED.keys())
@intercept
@pytest.mark.parametrize("reg_param", [0.0, 0.05])
def test_every_iteration_is_the_plain_versions(model, fit_intercept: bool, reg_param: float) -> None:
    X, y, weights = rows(model)
    offsets = 0.1 * np.random.default_rng(1).standard_normal(len(y))
    for max_iterations, tolerance in ((1, 1e-6), (3, 1e-6), (25, 1e-6)):
        arguments = (reg_param, fit_intercept, max_iterations, tolerance)
        last, coefficients, shift = fit(model, X, y, weights, offsets, *arguments)
        expected, iterations, inverse_diagonal = plain_irls(model, X, y, weights, offsets, *arguments)
        found = np.append(coefficients, shift) if fit_intercept else coefficients
        np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-8)
        assert last.iteration == iterations
        np.testing.assert_allclose(last.inverse_diagonal, inverse_diagonal, rtol=1e-6)
        assert last.stop.reason == ("converged" if last.gradient_norm < tolerance else "max_iterations")


@every_model
@intercept
def test_no_other_coefficients_have_a_smaller_deviance(model, fit_intercept: bool) -> None:
    X, y, weights = rows(model)
    offsets = 0.1 * np.random.default_rng(1).standard_normal(len(y))
    last, coefficients, shift = fit(model, X, y, weights, offsets, fit_intercept=fit_intercept)
    assert last.stop.reason == "converged"
    both, design = family_and_link(**model), design_of(X, fit_intercept)
    found = np.append(coefficients, shift) if fit_intercept else coefficients

    def deviance(b: np.ndarray) -> float:
        return float(weights @ both.family.deviance(y, both.link.unlink(design @ b + offsets)))

    assert last.objective == pytest.approx(deviance(found), rel=1e-9)
    oracle = optimize.minimize(deviance, found, method="BFGS", options={"gtol": 1e-6})
    assert deviance(found) <= oracle.fun + 1e-8 * abs(oracle.fun)


@pytest.mark.parametrize(
    ("model", "oracle"),
    [
        ({"family": "poisson"}, linear_model.PoissonRegressor),
        ({"family": "gamma", "link": "log"}, linear_model.GammaRegressor),
        ({"family": "tweedie", "variance_power": 1.3, "link_power": 0.0}, None),
    ],
    ids=["poisson", "gamma", "tweedie"],
)
@intercept
def test_log_links_are_scikit_learns(model, oracle, fit_intercept: bool) -> None:
    X, y, weights = rows(model)
    settings = {"alpha": 0.0, "fit_intercept": fit_intercept, "tol": 1e-10, "max_iter": 10_000}
    if oracle is None:
        oracle, settings = linear_model.TweedieRegressor, {**settings, "power": 1.3, "link": "log"}
    expected = oracle(solver="newton-cholesky", **settings).fit(X, y, weights)
    _, coefficients, shift = fit(model, X, y, weights, fit_intercept=fit_intercept)
    np.testing.assert_allclose(coefficients, expected.coef_, atol=1e-7)
    assert shift == pytest.approx(expected.intercept_, abs=1e-7)


@intercept
def test_gaussian_with_the_identity_link_is_least_squares_in_one_round(fit_intercept: bool) -> None:
    X, y, weights = rows({})
    last, coefficients, shift = fit({}, X, y, weights, fit_intercept=fit_intercept)
    root = np.sqrt(weights)
    design = design_of(X, fit_intercept)
    expected = np.linalg.lstsq(design * root[:, None], y * root, rcond=None)[0]
    np.testing.assert_allclose(coefficients, expected[:4], rtol=1e-9, atol=1e-11)
    assert last.iteration == 1
    assert last.objective == pytest.approx(weights @ (y - design @ expected) ** 2, rel=1e-9)


def test_gaussian_with_the_identity_link_is_regularised_as_spark_does_it() -> None:
    """On standardised features, by ``reg_param / std(y)``; see the class."""
    X, y, weights = rows({})
    last, coefficients, shift = fit({}, X, y, weights, reg_param=0.3)
    mean = np.average(X, axis=0, weights=weights)
    variance = np.average((X - mean) ** 2, axis=0, weights=weights)
    y_std = np.sqrt(np.average((y - np.average(y, weights=weights)) ** 2, weights=weights))
    expected = weighted_ridge(design_of(X, True), y, weights, np.append(0.3 / y_std * variance, 0.0))
    np.testing.assert_allclose(np.append(coefficients, shift), expected, rtol=1e-9)


@intercept
def test_binomial_with_the_logit_link_is_logistic_regression(fit_intercept: bool) -> None:
    model = {"family": "binomial"}
    X, y, weights = rows(model)
    problem = make_problem(Logistic(), X, weights, fit_intercept=fit_intercept)
    expected = drive(LBFGS(500, 1e-14), problem, [[block_of(X, y, weights)]])[-1]
    last, coefficients, shift = fit(model, X, y, weights, fit_intercept=fit_intercept)
    np.testing.assert_allclose(coefficients, problem.to_raw(expected.best)[0][:, 0], atol=1e-6)
    assert last.objective == pytest.approx(2.0 * weights.sum() * expected.objective, rel=1e-10)


@pytest.mark.parametrize("family", ["binomial", "poisson"])
@intercept
def test_standard_errors_are_the_textbooks(family: str, fit_intercept: bool) -> None:
    """``sqrt(diag((X' W X)^-1))``, W the variance of each label at the optimum (canonical links)."""
    X, y, weights = rows({"family": family})
    last, coefficients, shift = fit({"family": family}, X, y, weights, fit_intercept=fit_intercept)
    eta = X @ coefficients + shift
    variance = {"binomial": lambda: stats.logistic.pdf(eta), "poisson": lambda: np.exp(eta)}[family]()
    design = design_of(X, fit_intercept)
    covariance = np.linalg.inv(design.T @ ((weights * variance)[:, None] * design))
    np.testing.assert_allclose(np.sqrt(last.inverse_diagonal), np.sqrt(np.diagonal(covariance)), rtol=1e-7)


@every_model
def test_weight_2_is_the_row_twice(model) -> None:
    X, y, _ = rows(model)
    weights = np.random.default_rng(2).integers(1, 3, len(y)).astype(float)
    # a weight counts a binomial's trials, which its starting means know of; the optimum does not
    settings = {"tolerance": 1e-12} if model.get("family") == "binomial" else {"max_iterations": 2}
    at = np.repeat(np.arange(len(y)), weights.astype(int))
    last, coefficients, shift = fit(model, X, y, weights, **settings)
    other, expected, expected_shift = fit(model, X[at], y[at], np.ones(len(at)), **settings)
    np.testing.assert_allclose(coefficients, expected, rtol=1e-8)
    assert shift == pytest.approx(expected_shift, rel=1e-8)
    assert last.objective == pytest.approx(other.objective, rel=1e-9)
    np.testing.assert_allclose(last.inverse_diagonal, other.inverse_diagonal, rtol=1e-7)


@pytest.mark.parametrize("block_format", BLOCK_FORMATS)
@pytest.mark.parametrize("workers", [1, 2, 5])
def test_workers_and_storage_change_nothing(block_format: str, workers: int) -> None:
    model = {"family": "gamma", "link": "log"}
    X, y, weights = rows(model)
    X = X.astype(np.float32).astype(np.float64)
    offsets = np.linspace(-0.2, 0.3, len(y))
    whole, coefficients, _ = fit(model, X, y, weights, offsets)
    problem = make_problem(Logistic(), X, weights)
    parts = np.array_split(np.random.default_rng(0).permutation(len(y)), workers)
    shares = [[block_of(X[p], y[p], weights[p], offsets[p], block_format)] for p in parts]
    last = drive(IRLS(100, 1e-10, family_and_link(**model)), problem, [*shares, []])[-1]
    np.testing.assert_allclose(problem.to_raw(last.best)[0][:, 0], coefficients, rtol=1e-8)
    np.testing.assert_allclose(last.inverse_diagonal, whole.inverse_diagonal, rtol=1e-7)
    assert last.iteration == whole.iteration


def test_an_offset_is_a_feature_of_coefficient_1() -> None:
    model = {"family": "poisson"}
    X, y, weights = rows(model)
    offsets = np.random.default_rng(4).uniform(-0.5, 0.5, len(y))
    _, coefficients, shift = fit(model, X, y, weights, offsets)
    rate = y * np.exp(-offsets)
    oracle = linear_model.PoissonRegressor(alpha=0.0, solver="newton-cholesky", tol=1e-10, max_iter=1000)
    oracle.fit(X, rate, weights * np.exp(offsets))
    np.testing.assert_allclose(np.append(coefficients, shift), np.append(oracle.coef_, oracle.intercept_), atol=1e-7)
    _, coefficients, moved = fit(model, X, y, weights, np.full(len(y), 0.7))
    _, same, without = fit(model, X, y, weights)
    np.testing.assert_allclose(coefficients, same, atol=1e-9)
    assert moved == pytest.approx(without - 0.7, abs=1e-9)


@pytest.mark.parametrize("model", [MODELS["gaussian-identity"], MODELS["poisson-log"], MODELS["binomial-probit"]])
@intercept
def test_dependent_features_share_what_one_would_have(model, fit_intercept: bool) -> None:
    X, y, weights = rows(model)
    once, coefficients, _ = fit(model, X, y, weights, fit_intercept=fit_intercept, tolerance=1e-8)
    twice = np.column_stack([X, X[:, 0]])
    last, doubled, _ = fit(model, twice, y, weights, fit_intercept=fit_intercept, tolerance=1e-8)
    assert last.stop.reason == "converged"
    np.testing.assert_allclose(doubled[[0, 4]], coefficients[0] / 2, rtol=1e-7)
    np.testing.assert_allclose(doubled[1:4], coefficients[1:], rtol=1e-7)
    assert last.objective == pytest.approx(once.objective, rel=1e-9)
    assert len(last.inverse_diagonal) == 0


@every_model
def test_a_constant_column_gets_0_and_changes_nothing_else(model) -> None:
    X, y, weights = rows(model)
    with_constant = np.insert(X, 2, 7.0, axis=1)
    last, coefficients, shift = fit(model, with_constant, y, weights, tolerance=1e-9)
    _, expected, expected_shift = fit(model, X, y, weights, tolerance=1e-9)
    assert coefficients[2] == 0.0
    np.testing.assert_allclose(np.delete(coefficients, 2), expected, rtol=1e-7, atol=1e-9)
    assert shift == pytest.approx(expected_shift, rel=1e-7)
    assert len(last.inverse_diagonal) == 0


def test_without_features_there_is_the_intercept() -> None:
    y, weights = np.array([1.0, 0.0, 4.0, 2.0]), np.array([1.0, 2.0, 1.0, 0.5])
    offsets = np.array([0.0, 0.3, 1.0, -0.5])
    block = DenseBlock(y, weights, 0, np.zeros((4, 0)), offsets=offsets)
    problem = make_problem(Logistic(), np.zeros((4, 0)), weights)
    last = drive(IRLS(50, 1e-12, family_and_link("poisson")), problem, [[block]])[-1]
    # the score equation sum w (y - exp(b0 + offset)) = 0
    assert last.best[0] == pytest.approx(np.log(weights @ y / (weights @ np.exp(offsets))))
    np.testing.assert_allclose(last.inverse_diagonal, [1.0 / (weights @ y)], rtol=1e-9)


@pytest.mark.parametrize("name", ["gaussian-identity", "binomial-logit", "poisson-log"])
def test_means_far_from_0_lose_nothing(name: str) -> None:
    model = MODELS[name]
    X, y, weights = rows(model)
    rng = np.random.default_rng(8)
    far = rng.standard_normal(X.shape) + 1e6
    near = far - 1e6  # what is left of the digits
    last, coefficients, _ = fit(model, far, y, weights, tolerance=1e-2, max_iterations=25)
    other, expected, _ = fit(model, near, y, weights, tolerance=1e-10, max_iterations=25)
    np.testing.assert_allclose(coefficients, expected, atol=1e-7)
    np.testing.assert_allclose(last.inverse_diagonal[:4], other.inverse_diagonal[:4], rtol=1e-5)


def test_separable_rows_end_without_an_error() -> None:
    X = np.linspace(-1.0, 1.0, 50)[:, None]
    last, coefficients, _ = fit({"family": "binomial"}, X, (X[:, 0] > 0.0).astype(float), np.ones(50))
    assert np.isfinite(last.best).all()
    assert coefficients[0] > 10.0


def test_predictors_outside_the_domain_end_the_fit_with_a_remedy() -> None:
    """Labels that fall below 0 along a feature have no gamma model of power 0.3 without negative predictors."""
    X = np.linspace(0.0, 1.0, 40)[:, None]
    y = np.exp(-20.0 * X[:, 0])
    model = {"family": "tweedie", "variance_power": 1.5, "link_power": 0.7}
    last, coefficients, _ = fit(model, X, y, np.ones(40))
    assert last.stop.reason == "diverged"
    assert "link" in last.stop.remedy
    assert np.isfinite(coefficients).all()


def test_no_weight_at_all_ends_the_fit() -> None:
    X, y, weights = rows({})
    problem = make_problem(Logistic(), X, weights)
    last = drive(IRLS(5, 1e-6, family_and_link()), problem, [[block_of(X, y, 0.0 * weights)]])[-1]
    assert last.stop.reason == "diverged"


def test_no_iteration_leaves_the_starting_model() -> None:
    model = {"family": "poisson"}
    X, y, weights = rows(model)
    last, coefficients, shift = fit(model, X, y, weights, max_iterations=0)
    expected = weighted_ridge(design_of(X, True), np.log(np.maximum(y, 0.1)), weights, np.zeros(5))
    np.testing.assert_allclose(np.append(coefficients, shift), expected, rtol=1e-9)
    assert last.iteration == 0
    assert last.stop.reason == "max_iterations"


def test_work_and_advance_change_none_of_their_arguments() -> None:
    model = {"family": "poisson"}
    X, y, weights = rows(model)
    problem = make_problem(Logistic(), X, weights)
    algorithm, block = IRLS(3, 1e-12, family_and_link(**model), 0.1), block_of(X, y, weights)
    state = algorithm.init(problem, np.zeros(problem.size))
    for clock in range(4):
        kept = copy.deepcopy(state)
        total, _ = algorithm.work(problem, [block], state.coef, None, Turn(clock))
        total_before = copy.deepcopy(total)
        after = algorithm.advance(problem, state, total)
        np.testing.assert_array_equal(state.coef, kept.coef)
        for name, value in total_before.items():
            np.testing.assert_array_equal(total[name], value)
        again = algorithm.advance(problem, state, total)
        np.testing.assert_array_equal(after.coef, again.coef)
        state = after
    assert state.stop is not None
