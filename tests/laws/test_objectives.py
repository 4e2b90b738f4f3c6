"""A user's objective: its gradient, whichever library finds it, and what is said of a wrong one."""

from __future__ import annotations

import pickle
import re

import numpy as np
import pytest
from scipy import sparse

from sparkdml.custom import Batch, Objective
from sparkdml.custom.libraries import function_of
from sparkdml.custom.trees import flattened, put_together
from sparkdml.problem import Examples

ROWS, FEATURES, UNITS = 40, 5, 3


def logistic(margins, labels):
    return np.logaddexp(0.0, margins) - labels * margins


def by_numpy(params, batch):
    hidden = np.tanh(batch.features @ params["hidden"]["weights"])
    margins = hidden @ params["out"][0] + params["out"][1]
    slopes = batch.weights * (1.0 / (1.0 + np.exp(-margins)) - batch.labels)
    back = np.outer(slopes, params["out"][0]) * (1.0 - hidden**2)
    gradient = {"hidden": {"weights": batch.features.T @ back}, "out": [hidden.T @ slopes, slopes.sum()]}
    return logistic(margins, batch.labels), gradient


def by_torch(params, batch):
    import torch

    hidden = torch.tanh(batch.features @ params["hidden"]["weights"])
    margins = hidden @ params["out"][0] + params["out"][1]
    return torch.nn.functional.binary_cross_entropy_with_logits(margins, batch.labels, reduction="none")


def by_jax(params, batch):
    import jax.numpy as jnp

    hidden = jnp.tanh(batch.features @ params["hidden"]["weights"])
    margins = hidden @ params["out"][0] + params["out"][1]
    return jnp.logaddexp(0.0, margins) - batch.labels * margins


def initial():
    rng = np.random.default_rng(1)
    return {"hidden": {"weights": rng.standard_normal((FEATURES, UNITS))}, "out": [rng.standard_normal(UNITS), 0.3]}


def rows(stored_sparse=False):
    rng = np.random.default_rng(2)
    X = rng.standard_normal((ROWS, FEATURES)).astype(np.float32)
    features = sparse.csr_matrix(X) if stored_sparse else X
    return Examples(features, rng.integers(0, 2, ROWS).astype(float), rng.random(ROWS) + 0.5)


def objective(library):
    if library != "numpy":
        pytest.importorskip(library, reason=f"needs {library}: pip install 'sparkdml[{library}]'")
    return Objective({"numpy": by_numpy, "torch": by_torch, "jax": by_jax}[library], initial(), library=library)


@pytest.mark.parametrize("stored_sparse", [False, True])
@pytest.mark.parametrize("library", ["numpy", "torch", "jax"])
def test_the_gradient_is_that_of_finite_differences(library, stored_sparse):
    function, examples = function_of(objective(library), FEATURES), rows(stored_sparse)
    exact = function_of(objective("numpy"), FEATURES)
    start = objective("numpy").start
    value, named = function.loss_and_gradient(function.params(start), examples)
    found = np.concatenate([np.ravel(named[path]) for path in function.shapes])
    assert value == pytest.approx(exact.loss(exact.params(start), examples), rel=1e-5)
    assert function.loss(function.params(start), examples) == pytest.approx(value, rel=1e-6)
    steps = 1e-5 * np.eye(len(start))
    expected = [
        (exact.loss(exact.params(start + e), examples) - exact.loss(exact.params(start - e), examples)) / 2e-5
        for e in steps
    ]
    np.testing.assert_allclose(found, expected, rtol=2e-4, atol=2e-4)


def test_trees_keep_their_form():
    tree = initial()
    named = flattened(tree)
    assert list(named) == ["hidden.weights", "out.0", "out.1"]
    again = put_together(tree, named.__getitem__)
    np.testing.assert_array_equal(again["hidden"]["weights"], tree["hidden"]["weights"])
    assert again["out"][1] == 0.3


def test_functions_travel_by_value():
    scale = 2.0
    made = Objective(
        lambda params, batch: (scale * batch.labels, {"w": np.zeros(1)}), {"w": np.ones(1)}, library="numpy"
    )
    again = pickle.loads(pickle.dumps(made))
    function = function_of(again, FEATURES)
    examples = rows()
    assert function.loss({"w": np.zeros(1)}, examples) == pytest.approx(2.0 * examples.labels @ examples.weights)


@pytest.mark.parametrize(
    ("loss", "words"),
    [
        (lambda params, batch: (batch.labels.mean(), params), ["shape ()", "40 rows", "one loss for each row"]),
        (lambda params, batch: batch.labels, ["numpy", "two values"]),
        (lambda params, batch: (np.log(-1.0 - batch.labels), params), ["NaN", "40 of 40"]),
        (lambda params, batch: (batch.labels, {"w": np.zeros(7)}), ["gradient", "(7,)", "(3,)"]),
    ],
)
@pytest.mark.filterwarnings("ignore:invalid value")
def test_a_wrong_loss_is_told_of(loss, words):
    function = function_of(Objective(loss, {"w": np.zeros(3)}, library="numpy"), FEATURES)
    with pytest.raises(ValueError, match=".*".join(map(re.escape, words))):
        function.loss_and_gradient({"w": np.zeros(3)}, rows())


@pytest.mark.parametrize(
    ("change", "error", "word"),
    [
        ({"library": "tensorflow"}, ValueError, "numpy, torch, jax"),
        ({"initial": {}}, ValueError, "no arrays"),
        ({"initial": {"a.b": [1.0]}}, ValueError, "dots"),
        ({"initial": {"a": "words"}}, TypeError, "initial.a"),
        ({"loss": 3}, TypeError, "loss"),
        ({"predict": 3}, TypeError, "predict"),
        ({"chunk_rows": 0}, ValueError, "chunk_rows"),
    ],
)
def test_a_wrong_objective_is_refused_at_once(change, error, word):
    with pytest.raises(error, match=word):
        Objective(**{"loss": by_numpy, "initial": {"w": np.zeros(3)}, "library": "numpy", **change})


def test_what_a_batch_is():
    seen = []

    def loss(params, batch):
        seen.append(batch)
        return batch.labels, params

    function = function_of(Objective(loss, {"w": np.zeros(3)}, library="numpy"), FEATURES)
    function.loss({"w": np.zeros(3)}, rows())
    (batch,) = seen
    assert isinstance(batch, Batch)
    assert batch.features.dtype == np.float32
    assert batch.features.shape == (ROWS, FEATURES)
    assert batch.labels.shape == batch.weights.shape == (ROWS,)
