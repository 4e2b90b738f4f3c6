"""The multilayer perceptron against pyspark.ml's: starts, losses and gradients as Spark computes them, fits."""

from __future__ import annotations

import numpy as np
import pytest
from frames import cached, predictions
from pyspark.ml import classification as stock
from pyspark.ml.common import _py2java
from pyspark.ml.linalg import DenseVector
from sklearn.datasets import load_iris

from sparkdml.classification import MultilayerPerceptronClassifier
from sparkdml.data.block import DenseBlock
from sparkdml.optim.network import Network
from sparkdml.problem import FunctionProblem

LAYERS = [4, 5, 4, 3]
LARGE = [60, 20, 5]


@pytest.fixture(scope="module")
def data(spark):
    X, y = load_iris(return_X_y=True)
    X = (X - X.mean(axis=0)) / X.std(axis=0)  # as in Spark's example file
    with cached(spark, X, y.astype(float), np.ones(len(y)), form="dense") as found:
        yield found


class SparksNetwork:
    """Spark's own topology, in the JVM."""

    def __init__(self, spark, layers) -> None:
        self.sc, self.jvm = spark.sparkContext, spark.sparkContext._jvm
        sizes = self.sc._gateway.new_array(self.jvm.int, len(layers))
        for n, size in enumerate(layers):
            sizes[n] = size
        self.topology = self.jvm.org.apache.spark.ml.ann.FeedForwardTopology.multiLayerPerceptron(sizes, True)

    def vector(self, values):
        return _py2java(self.sc, DenseVector(values))

    def start(self, seed: int) -> np.ndarray:
        return np.array(self.topology.model(seed).weights().toArray())

    def mean_loss_and_gradient(self, weights, X, y, classes) -> tuple[float, np.ndarray]:
        def matrix(values):  # of a column a row
            array = self.vector(np.asarray(values, float).ravel()).toArray()
            cls = getattr(self.jvm.breeze.linalg, "DenseMatrix$mcD$sp")
            return cls(values.shape[1], values.shape[0], array)

        gradient = self.vector(np.zeros(len(weights)))
        model = self.topology.model(self.vector(weights))
        loss = model.computeGradient(matrix(X), matrix(np.eye(classes)[y.astype(int)]), gradient, len(y))
        return loss, np.array(gradient.toArray())


@pytest.mark.parametrize("layers", [LAYERS, LARGE])
@pytest.mark.parametrize("seed", [0, 123, -7, 2**40])
def test_weights_start_as_sparks(spark, layers, seed) -> None:
    start = Network(tuple(layers)).start(seed)
    np.testing.assert_allclose(start, SparksNetwork(spark, layers).start(seed), rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_loss_and_gradient_are_sparks(spark, data, dtype) -> None:
    weights = np.random.default_rng(0).uniform(-2.0, 2.0, Network(tuple(LAYERS)).size)
    values = data.X.astype(np.float32)
    loss, gradient = SparksNetwork(spark, LAYERS).mean_loss_and_gradient(weights, values, data.y, 3)
    problem = FunctionProblem(Network(tuple(LAYERS), dtype=dtype), float(len(data.y)))
    block = DenseBlock(data.y, np.ones(len(data.y)), 4, values)
    found, slopes = problem.evaluate(weights, problem.sums([block], weights))
    exact = dtype is np.float64
    assert found == pytest.approx(loss, rel=1e-12 if exact else 1e-6)
    np.testing.assert_allclose(slopes, gradient, rtol=1e-10 if exact else 1e-4, atol=1e-13 if exact else 1e-7)


@pytest.mark.slow
def test_a_fit_is_as_good_as_sparks(data) -> None:
    both = {"layers": LAYERS, "seed": 1, "maxIter": 40, "tol": 1e-6}
    theirs = stock.MultilayerPerceptronClassifier(**both).fit(data.frame)
    ours = MultilayerPerceptronClassifier(**both).fit(data.frame)
    first, last = theirs.summary().objectiveHistory[0], theirs.summary().objectiveHistory[-1]
    history = ours.summary().objectiveHistory
    assert history[0] == pytest.approx(first, rel=1e-6)
    assert history[-1] < max(1.1 * last, 0.06)
    assert np.mean(predictions(ours, data.frame) == predictions(theirs, data.frame)) > 0.97
    assert np.mean(predictions(ours, data.frame) == data.y) > 0.97


def test_gradient_descent_takes_sparks_steps(data) -> None:
    # blocks of all rows of a partition: Spark averages over blocks, so they must be of like size
    both = {"layers": LAYERS, "seed": 1, "maxIter": 4, "tol": 0.0, "stepSize": 0.5, "solver": "gd", "blockSize": 75}
    theirs = stock.MultilayerPerceptronClassifier(**both).fit(data.frame)
    ours = MultilayerPerceptronClassifier(**both).fit(data.frame)
    np.testing.assert_allclose(ours.weights.toArray(), theirs.weights.toArray(), rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_initial_weights_and_models_pass_between_both(data, tmp_path) -> None:
    first = stock.MultilayerPerceptronClassifier(layers=LAYERS, seed=3, maxIter=10).fit(data.frame)
    onwards = MultilayerPerceptronClassifier(layers=LAYERS, initialWeights=first.weights, maxIter=30).fit(data.frame)
    last = first.summary().objectiveHistory[-1]
    assert onwards.report.objective_history[0] == pytest.approx(last, rel=0.1)
    assert onwards.report.objective < last
    onwards.write().save(str(tmp_path / "model"))
    loaded = stock.MultilayerPerceptronClassificationModel.load(str(tmp_path / "model"))
    assert type(loaded) is stock.MultilayerPerceptronClassificationModel
    assert loaded.getLayers() == LAYERS
    assert loaded.weights == onwards.weights
    assert np.array_equal(predictions(loaded, data.frame), predictions(onwards, data.frame))
    row = data.frame.first().features
    assert loaded.predictRaw(row) == onwards.predictRaw(row)


def test_the_summary_is_sparks(data) -> None:
    model = MultilayerPerceptronClassifier(layers=LAYERS, maxIter=20, seed=1).fit(data.frame)
    assert model.hasSummary
    summary = model.summary()
    assert summary.accuracy == pytest.approx(np.mean(predictions(model, data.frame) == data.y))
    assert summary.totalIterations == len(summary.objectiveHistory) - 1
    assert summary.history.num_rows == model.report.rounds
    assert model.evaluate(data.frame).accuracy == summary.accuracy
