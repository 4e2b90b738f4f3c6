"""A network is its upper layers over the first one's margins."""

from __future__ import annotations

import numpy as np
import pytest

from sparkdml.optim.network import Network
from sparkdml.optim.upper_layers import UpperLayers
from sparkdml.problem import Examples


@pytest.mark.parametrize("layers", [(4, 3), (4, 5, 3), (4, 5, 6, 3)])
@pytest.mark.parametrize("activation", ["sigmoid", "tanh", "relu"])
def test_loss_and_derivatives_are_the_networks(layers, activation):
    rng = np.random.default_rng(8)
    network = Network(layers, activation, dtype=np.float64)
    X, y, weights = rng.normal(size=(20, 4)), rng.integers(0, 3, 20).astype(float), rng.uniform(0.5, 2.0, 20)
    c = network.start(1)
    params = network.params(c)
    loss, gradient = network.loss_and_gradient(params, Examples(X, y, weights))
    upper = UpperLayers(network)
    assert (upper.outputs, upper.extras) == (layers[1], network.size - 4 * layers[1] - layers[1])
    upper = upper.at(c[network.size - upper.extras :])
    margins = X @ params["W_1"] + params["b_1"]
    before, slopes = margins.copy(), np.empty_like(margins)
    assert upper.evaluate(margins, y, weights, slopes) == pytest.approx(loss, rel=1e-12)
    np.testing.assert_array_equal(margins, before)
    np.testing.assert_allclose(X.T @ slopes, gradient["W_1"], atol=1e-12)
    np.testing.assert_allclose(slopes.sum(axis=0), gradient["b_1"], atol=1e-12)
    above = [gradient[name].ravel() for name in list(network.shapes)[2:]]
    np.testing.assert_allclose(
        upper.extra_slopes(margins, y, weights), np.concatenate([np.zeros(0), *above]), atol=1e-12
    )
