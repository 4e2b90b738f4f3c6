"""Newton-CG: Hessian-vector products, the inner solver, and the optimum in few steps."""

from __future__ import annotations

import numpy as np
import pytest
from cases import BLOCK_FORMATS
from oracles import plain_slopes
from problems import make_problem, plain_objective
from test_algorithm_states import assert_same_state
from test_model_averaging import by_first_column, dealt, run, standard_rows
from test_optimum import rows, scipy_optimum
from test_owlqn import elastic_problem

from sparkdml.algorithms import LBFGS
from sparkdml.algorithms.newton_cg import ConjugateGradients, NewtonCG
from sparkdml.algorithms.preconditioner import Diagonal
from sparkdml.algorithms.states import pack, unpack
from sparkdml.core import Turn
from sparkdml.losses import Hinge, Huber, Logistic, Loss, Softmax, Squared
from sparkdml.optim.hessian_vector import hessian_vector

losses = pytest.mark.parametrize("loss", [Logistic(), Softmax(4)], ids=["binomial", "multinomial"])
intercept = pytest.mark.parametrize("fit_intercept", [True, False], ids=["intercept", "no-intercept"])
formats = pytest.mark.parametrize("block_format", BLOCK_FORMATS)


@losses
@formats
def test_products_are_finite_differences_of_gradients(loss: Loss, block_format: str) -> None:
    """In plain numpy: ``X' (slopes(m + h dm) - slopes(m - h dm)) / 2h``."""
    X, y, weights = rows(loss)
    X = X.astype(np.float32).astype(np.float64)
    rng = np.random.default_rng(5)
    shape = (X.shape[1], loss.outputs)
    scale = X.std(axis=0)[:, None]
    at, along = rng.standard_normal((2, *shape)) / scale
    a, v = rng.standard_normal((2, loss.outputs))
    builder = BLOCK_FORMATS[block_format]
    blocks = [builder(X[:150], y[:150], weights[:150]), builder(X[150:], y[150:], weights[150:])]
    found = hessian_vector(loss, blocks, at, a, along, v)

    def slopes(step: float) -> np.ndarray:
        return weights[:, None] * plain_slopes(loss, X @ (at + step * along) + a + step * v, y)

    change = (slopes(1e-5) - slopes(-1e-5)) / 2e-5
    np.testing.assert_allclose(found["product"] * scale, X.T @ change * scale, atol=1e-6 * np.abs(X.T @ change).max())
    np.testing.assert_allclose(found["product_sum"], change.sum(axis=0), atol=1e-6 * weights.sum())


def test_products_of_squared_errors_are_those_of_the_gram_matrix() -> None:
    X, y, weights = rows(Logistic())
    rng = np.random.default_rng(2)
    at, along, (a,), (v,) = *rng.standard_normal((2, 6, 1)), rng.standard_normal(1), rng.standard_normal(1)
    block = BLOCK_FORMATS["sparse-float64"](X, y, weights)
    found = hessian_vector(Squared(0.5), [block], at, np.array([a]), along, np.array([v]))
    change = 0.5 * weights * ((X @ along)[:, 0] + v)
    np.testing.assert_allclose(found["product"][:, 0], X.T @ change, rtol=1e-10)
    np.testing.assert_allclose(found["product_sum"], [change.sum()], rtol=1e-10)


def test_no_rows_give_zeros_and_unknown_curvature_is_refused() -> None:
    zeros = np.zeros((3, 4)), np.zeros(4)
    found = hessian_vector(Softmax(4), [], *zeros, *zeros)
    assert found["product"].shape == (3, 4)
    assert not found["product"].any()
    assert not found["product_sum"].any()
    block = BLOCK_FORMATS["dense-float64"](np.ones((2, 1)), np.ones(2), np.ones(2))
    one = np.zeros((1, 1)), np.zeros(1)
    with pytest.raises(NotImplementedError, match="second derivatives"):
        hessian_vector(Hinge(), [block], *one, *one)


def test_conjugate_gradients_solve_a_positive_definite_system() -> None:
    rng = np.random.default_rng(9)
    root, gradient = rng.standard_normal((30, 20)), 1e-9 * rng.standard_normal(20)
    matrix, preconditioner = root.T @ root, Diagonal(rng.uniform(5.0, 50.0, 20))
    inner = ConjugateGradients.begin(gradient, preconditioner, 60)
    while not inner.over:
        inner = inner.told(matrix @ inner.direction, preconditioner)
        # it keeps track of its residual, and p is a direction of descent
        np.testing.assert_allclose(inner.residual, matrix @ inner.p + gradient, atol=1e-20)
        assert inner.p @ gradient < 0.0
    norm = np.linalg.norm(gradient)
    assert np.linalg.norm(inner.residual) <= min(0.5, np.sqrt(norm)) * norm
    np.testing.assert_allclose(
        inner.p, -np.linalg.solve(matrix, gradient), rtol=1e-2, atol=1e-4 * np.abs(inner.p).max()
    )
    assert inner.products > 2
    short = ConjugateGradients.begin(gradient, preconditioner, 2)
    first = short.told(matrix @ short.direction, preconditioner)
    assert not first.over
    assert first.told(matrix @ first.direction, preconditioner).over


def test_negative_curvature_ends_the_search_with_a_direction_of_descent() -> None:
    gradient, preconditioner = np.array([1.0, 2.0, -1.0]), Diagonal(np.array([1.0, 2.0, 1.0]))
    first = ConjugateGradients.begin(gradient, preconditioner, 9)
    at_once = first.told(-first.direction, preconditioner)
    assert at_once.over
    np.testing.assert_array_equal(at_once.p, -gradient / [1.0, 2.0, 1.0])
    matrix = np.diag([1.0, 3.0, -0.5])
    second = first.told(matrix @ first.direction, preconditioner)
    assert not second.over
    last = second.told(-np.eye(3) @ second.direction, preconditioner)
    assert last.over
    np.testing.assert_array_equal(last.p, second.p)
    assert last.p @ gradient < 0.0


@losses
@intercept
@pytest.mark.parametrize("strength", [0.0, 1e-3, 0.1])
def test_the_optimum_is_reached_in_few_steps(loss: Loss, fit_intercept: bool, strength: float) -> None:
    X, y, weights = standard_rows(loss)
    problem = make_problem(loss, X, weights, strength, True, fit_intercept)
    block = BLOCK_FORMATS["dense-float64"](X, y, weights)
    last = run(NewtonCG(50, 0.0), problem, [[block]])[-1]
    best = scipy_optimum(loss, X, y, weights, strength, True, fit_intercept)
    quasi = run(LBFGS(500, 0.0), problem, [[block]])[-1]
    assert last.stop.reason == "converged"
    assert last.gradient_norm <= 1e-8
    assert last.objective == pytest.approx(best.fun, rel=1e-9)
    assert last.objective == pytest.approx(quasi.objective, rel=1e-9)
    assert last.iteration <= 8
    assert last.iteration < quasi.iteration
    reached = plain_objective(loss, X, y, weights, strength, True, *problem.to_raw(last.best))
    assert last.objective == pytest.approx(reached, rel=1e-12)


@losses
@pytest.mark.parametrize("bounds", [[100], [0, 10, 50, 400]], ids=str)
def test_the_answer_does_not_depend_on_how_rows_are_spread(loss: Loss, bounds: list[int]) -> None:
    X, y, weights = by_first_column(*rows(loss))
    problem = make_problem(loss, X, weights, 1e-3)
    alone, spread = (run(NewtonCG(50, 0.0), problem, dealt(X, y, weights, part))[-1] for part in ([], bounds))
    np.testing.assert_allclose(spread.best, alone.best, atol=1e-7)
    assert spread.objective == pytest.approx(alone.objective, rel=1e-11)


@losses
def test_objectives_never_rise_from_a_far_start_and_runs_are_bit_equal(loss: Loss) -> None:
    X, y, weights = standard_rows(loss)
    problem = make_problem(loss, X, weights, 0.01)
    workers = dealt(X, y, weights, [150])
    once, again = (run(NewtonCG(50, 1e-9), problem, workers) for _ in range(2))
    for one, other in zip(once, again, strict=True):
        assert_same_state(one, other)
        assert_same_state(unpack(pack(one)), one)
    algorithm = NewtonCG(60, 1e-9)
    state, values = algorithm.init(problem, 6.0 * np.random.default_rng(0).standard_normal(problem.size)), []
    for clock in range(400):
        if state.stop is not None:
            break
        updates = [
            algorithm.work(problem, worker, state.coef, None, Turn(clock, n, 2))[0] for n, worker in enumerate(workers)
        ]
        state = algorithm.advance(problem, state, {name: updates[0][name] + updates[1][name] for name in updates[0]})
        values.append(state.objective)
    assert state.stop.reason == "converged"
    assert (np.diff(values) <= 1e-12).all()
    assert values[-1] == pytest.approx(once[-1].objective, rel=1e-9)


@pytest.mark.parametrize("standardization", [True, False])
def test_features_as_they_are_stored_and_constant_ones(standardization: bool) -> None:
    loss = Softmax(3)
    X, y, weights = rows(loss)
    X = np.insert(X, 2, 7.0, axis=1)
    problem = make_problem(loss, X, weights, 0.01, standardization)
    last = run(NewtonCG(50, 1e-10), problem, [[BLOCK_FORMATS["sparse-float64"](X, y, weights)]])[-1]
    coefficients, _ = problem.to_raw(last.best)
    assert not coefficients[2].any()
    best = scipy_optimum(loss, np.delete(X, 2, axis=1), y, weights, 0.01, standardization, True)
    assert last.objective == pytest.approx(best.fun, rel=1e-8)


def test_what_newton_cg_cannot_train_is_refused() -> None:
    X, y, weights = rows(Logistic())
    with pytest.raises(ValueError, match="L1 penalty"):
        NewtonCG(10, 0.0).init(elastic_problem(Logistic(), X, weights, 0.1), np.zeros(7))
    # no strength, no kink
    NewtonCG(10, 0.0).init(elastic_problem(Logistic(), X, weights, 0.0), np.zeros(7))
    with pytest.raises(ValueError, match="Huber"):
        NewtonCG(10, 0.0).init(make_problem(Huber(), X, weights), np.zeros(8))


def test_a_start_that_is_not_finite_diverges() -> None:
    X, y, weights = rows(Logistic())
    problem = make_problem(Logistic(), X, weights)
    algorithm = NewtonCG(10, 0.0)
    state = algorithm.init(problem, np.zeros(problem.size))
    total, _ = algorithm.work(problem, dealt(X, y, weights, [])[0], state.coef, None, Turn(0))
    assert algorithm.advance(problem, state, {**total, "loss": np.inf}).stop.reason == "diverged"


def test_no_acceptable_step_stalls_at_the_best_point() -> None:
    X, y, weights = standard_rows(Logistic())
    problem = make_problem(Logistic(), X, weights, 0.01)
    algorithm = NewtonCG(100, 0.0)
    worker = dealt(X, y, weights, [])[0]
    state = next(s for s in run(algorithm, problem, [worker]) if s.search is not None)
    best = state.best
    for _ in range(40):
        if state.stop is not None:
            break
        total, _ = algorithm.work(problem, worker, state.coef, None, Turn(0))
        state = algorithm.advance(problem, state, {**total, "loss": 1e9})
    assert state.stop.reason == "stalled"
    np.testing.assert_array_equal(state.best, best)
