"""Networks: derivatives against finite differences, sums over rows, coordinates, starts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from cases import BLOCK_FORMATS
from oracles import finite_difference
from scipy.special import expit, log_softmax

from sparkdml.optim.activations import ACTIVATIONS
from sparkdml.optim.heads import CrossEntropy, Head, SquaredError
from sparkdml.optim.java_random import murmur3, xor_shift_uniforms
from sparkdml.optim.network import Network, Standard
from sparkdml.problem import Examples, FunctionProblem

ROWS, LAYERS = 7, (4, 6, 5, 3)
HEADS: dict[str, tuple[Head, int]] = {"cross-entropy": (CrossEntropy(), 3), "squared-error": (SquaredError(), 1)}
VALUES = {
    "sigmoid": expit,
    "tanh": np.tanh,
    "relu": lambda m: np.where(m > 0, m, 0.0),
}
every_activation = pytest.mark.parametrize("activation", ACTIVATIONS)
every_format = pytest.mark.parametrize("make", BLOCK_FORMATS.values(), ids=BLOCK_FORMATS.keys())


def data(rows: int = ROWS, seed: int = 0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((rows, 4)).astype(np.float32).astype(float)
    X[rng.random(X.shape) < 0.3] = 0.0
    return X, rng.integers(0, 3, rows).astype(float), rng.random(rows)


def point(network: Network, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-1.0, 1.0, network.size)


def exact(activation: str = "sigmoid", head: str = "cross-entropy", **more) -> Network:
    found, outputs = HEADS[head]
    return Network((*LAYERS[:-1], outputs), activation, found, dtype=np.float64, **more)


def plain_outputs(activation: str, layers, c: np.ndarray, X: np.ndarray) -> np.ndarray:
    """By Spark's layout: for each layer a matrix of (out, in), column by column, then the biases."""
    first, values = 0, X
    for number, (inputs, outputs) in enumerate(zip(layers[:-1], layers[1:], strict=True)):
        A = c[first : first + inputs * outputs].reshape((outputs, inputs), order="F")
        first += inputs * outputs
        values = values @ A.T + c[first : first + outputs]
        first += outputs
        if number < len(layers) - 2:
            values = VALUES[activation](values)
    return values


@every_activation
@pytest.mark.parametrize("head", HEADS)
def test_the_loss_is_the_plain_formula(activation, head) -> None:
    X, y, w = data()
    network = exact(activation, head)
    c = point(network)
    outputs = plain_outputs(activation, network.layers, c, X)
    losses = 0.5 * (outputs[:, 0] - y) ** 2
    if head == "cross-entropy":
        losses = -log_softmax(outputs, axis=1)[np.arange(ROWS), y.astype(int)]
    found = network.loss(network.params(c), Examples(X, y, w))
    assert found == pytest.approx(w @ losses, rel=1e-12)
    assert found == pytest.approx(network.loss_and_gradient(network.params(c), Examples(X, y, w))[0], rel=1e-14)


@every_activation
@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("standard", [None, Standard(np.array([0.3, -1.0, 0.0, 2.0]), np.array([1.0, 3.0, 0.5, 0.0]))])
@every_format
def test_the_gradient_is_the_finite_difference_of_the_objective(activation, head, standard, make) -> None:
    problem = FunctionProblem(exact(activation, head, standard=standard), 3.0, ridge=0.2)
    blocks, c = [make(*data())], point(exact(activation, head))
    value, gradient = problem.evaluate(c, problem.sums(blocks, c))
    assert value == pytest.approx(problem.objective(c, problem.loss_sum(blocks, c)), rel=1e-12)
    numeric = finite_difference(lambda x: problem.objective(x, problem.loss_sum(blocks, x)), c, 1e-6)
    np.testing.assert_allclose(gradient, numeric, rtol=1e-6, atol=1e-8)


@every_activation
def test_the_gradient_under_dropout_is_that_of_the_same_draws(activation) -> None:
    network, rows, c = exact(activation, dropout=0.4), Examples(*data()), point(exact(activation))

    def loss(x: np.ndarray) -> float:
        return network.loss_and_gradient(network.params(x), rows, np.random.default_rng(5))[0]

    _, slopes = network.loss_and_gradient(network.params(c), rows, np.random.default_rng(5))
    gradient = np.concatenate([np.ravel(slopes[name]) for name in network.shapes])
    np.testing.assert_allclose(gradient, finite_difference(loss, c, 1e-6), rtol=1e-6, atol=1e-8)
    assert loss(c) != network.loss(network.params(c), rows)


def test_dropout_leaves_the_mean_of_hidden_values() -> None:
    network = exact(dropout=0.3)
    rows, c = Examples(*data()), np.zeros(network.size)
    c[-18:] = 1.0  # a sum of values that are all 1/2: each draw scales it
    params, rng = network.params(c), np.random.default_rng(0)
    losses = [network.loss_and_gradient(params, rows, rng)[1]["W_3"].mean(axis=1) for _ in range(4000)]
    plain = network.loss_and_gradient(params, rows)[1]["W_3"].mean(axis=1)
    np.testing.assert_allclose(np.mean(losses, axis=0), plain, atol=3e-3)


@every_format
def test_sums_do_not_depend_on_chunks_and_weights_count_rows(make) -> None:
    X, y, _ = data(200)
    w = np.random.default_rng(2).integers(0, 3, 200).astype(float)
    network = Network(LAYERS)
    c = point(network)
    whole = FunctionProblem(network, 1.0).sums([make(X, y, w)], c)
    again = np.repeat(np.arange(200), w.astype(int))
    repeated = FunctionProblem(network, 1.0).sums([make(X[again], y[again], np.ones(len(again)))], c)
    small = Network(LAYERS)
    object.__setattr__(small, "chunk_rows", 3)
    cut = FunctionProblem(small, 1.0).sums([make(X, y, w)], c)
    for other in (repeated, cut):
        assert other["loss"] == pytest.approx(whole["loss"], rel=1e-6)
        np.testing.assert_allclose(other["gradient"], whole["gradient"], rtol=1e-4, atol=1e-4)


def test_single_precision_is_near_double() -> None:
    X, y, w = data(500)
    block, c = BLOCK_FORMATS["dense-float32"](X, y, w), point(exact())
    single = FunctionProblem(replace(exact(), dtype=np.float32), 1.0).sums([block], c)
    double = FunctionProblem(exact(), 1.0).sums([block], c)
    assert single["gradient"].dtype == np.float64
    assert single["loss"] == pytest.approx(double["loss"], rel=1e-7)
    np.testing.assert_allclose(single["gradient"], double["gradient"], rtol=1e-5, atol=1e-5)


def test_losses_are_the_same_bit_by_bit_for_any_number_of_threads() -> None:
    problem = FunctionProblem(Network(LAYERS), 1.0)
    block, c = BLOCK_FORMATS["dense-float32"](*data(5000)), point(Network(LAYERS))
    assert problem.loss_sum([block], c, 3) == problem.loss_sum([block], c)


def test_extreme_margins_stay_finite() -> None:
    network = Network((1, 1, 2))
    c = np.array([1e6, 0.0, 1e6, -1e6, 0.0, 0.0])
    with np.errstate(all="raise", under="ignore"):
        loss, slopes = network.loss_and_gradient(
            network.params(c), Examples(np.array([[1.0], [-1.0]], np.float32), np.array([1.0, 0.0]), np.ones(2))
        )
    assert loss == pytest.approx(2e6 + np.log(2.0), rel=1e-6)
    assert all(np.isfinite(each).all() for each in slopes.values())


def test_weights_for_features_as_given_say_the_same() -> None:
    X, _, _ = data(50)
    standard = Standard(X.mean(axis=0), 1.0 / X.std(axis=0))
    network = exact(standard=standard)
    c = point(network)
    scaled = exact().margins(network.params(c), (X - standard.shift) * standard.scale)
    np.testing.assert_allclose(network.margins(network.params(c), X), scaled, rtol=1e-12)
    np.testing.assert_allclose(exact().margins(exact().params(network.to_raw(c)), X), scaled, rtol=1e-12)
    np.testing.assert_allclose(network.from_raw(network.to_raw(c)), c, rtol=1e-12)


@every_activation
def test_starts_depend_on_the_seed_alone_and_stay_within_reach(activation) -> None:
    network = Network((30, 20, 4), activation)
    start = network.start(3)
    assert np.array_equal(start, network.start(3))
    assert not np.array_equal(start, network.start(4))
    params, reach = network.params(start), ACTIVATIONS[activation].reach
    assert 0.9 * reach(30, 20) < np.abs(params["W_1"]).max() <= reach(30, 20)
    assert 0.5 * reach(20, 4) < np.abs(params["W_2"]).max() <= reach(20, 4)
    assert (activation == "sigmoid") == params["b_1"].any()


def test_hashes_are_those_of_the_reference_implementation() -> None:
    # MurmurHash3_x86_32 by its author, as its users publish it
    assert murmur3(b"", 0) == 0
    assert murmur3(b"test", 0) == 0xBA6BD213
    assert murmur3(b"test", 0x9747B28C) == 0x704B81DC


def test_uniforms_are_uniform() -> None:
    drawn = xor_shift_uniforms(-5, 20_000)
    assert drawn.min() >= 0.0
    assert drawn.max() < 1.0
    counts, _ = np.histogram(drawn, 20, (0.0, 1.0))
    assert (np.abs(counts - 1000) < 150).all()
