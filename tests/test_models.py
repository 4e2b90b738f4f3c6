"""Parameters of estimators, what models predict, and what their summaries tell."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from linear_family import ESTIMATORS, ITERATED, iterated, numbers, stock
from pyspark.ml.linalg import DenseMatrix, DenseVector
from pyspark.sql import functions as F

from sparkdml.classification import LinearSVC, LogisticRegression
from sparkdml.estimator import IGNORED, USED
from sparkdml.regression import GeneralizedLinearRegression, LinearRegression
from sparkdml.report.history import Round

ROOT = Path(__file__).resolve().parents[1]
every_estimator = pytest.mark.parametrize("cls", ESTIMATORS.values(), ids=ESTIMATORS.keys())
every_fit = pytest.mark.parametrize("name", ITERATED)
#: Without that of least squares, which a Gram matrix solves in two rounds.
every_long_fit = pytest.mark.parametrize("name", [name for name in ITERATED if name != "linear-l-bfgs"])
both_placements = pytest.mark.parametrize("placement", ["local", "broadcast"])


def arrays(frame) -> tuple[np.ndarray, np.ndarray]:
    found = frame.select("features", "label").collect()
    return np.array([row.features.toArray() for row in found]), np.array([row.label for row in found])


def log_loss(model, X: np.ndarray, y: np.ndarray) -> float:
    margins = X @ model.coefficients.toArray() + model.intercept
    return float(np.mean(np.logaddexp(0.0, margins) - y * margins))


# Parameters


@every_estimator
def test_every_parameter_of_pysparks_class_is_treated_and_no_other(spark, cls) -> None:
    theirs = {param.name for param in stock(cls.__name__)().params}
    assert set(cls.SPARK_PARAMS) == theirs
    assert set(cls.SPARK_PARAMS.values()) <= {USED, IGNORED}
    assert theirs <= {param.name for param in cls().params}


@every_estimator
def test_defaults_are_pysparks(spark, cls) -> None:
    theirs, ours = stock(cls.__name__)(), cls()
    for param in theirs.params:
        assert ours.hasDefault(param.name) == theirs.hasDefault(param), param.name
        if theirs.hasDefault(param):
            assert ours.getOrDefault(param.name) == theirs.getOrDefault(param), param.name


@every_estimator
def test_ignored_parameters_change_nothing(frames, cls) -> None:
    values = {"aggregationDepth": 5, "maxBlockSizeInMB": 0.001}
    ignored = {name for name, treated in cls.SPARK_PARAMS.items() if treated == IGNORED}
    assert ignored <= set(values)
    frame = frames[2]
    plain, told = cls(regParam=0.1).fit(frame), cls(regParam=0.1, **{name: values[name] for name in ignored}).fit(frame)
    assert numbers(told) == numbers(plain)
    assert told.report.rounds == plain.report.rounds
    assert all(told.getOrDefault(name) == values[name] for name in ignored)


# Models and summaries


@pytest.mark.parametrize("params", [{"threshold": 0.95}, {"thresholds": [0.02, 0.98]}], ids=str)
def test_a_model_predicts_single_rows_by_the_parameters_of_its_fit(frames, params) -> None:
    """``predict`` asks the JVM's model alone, before any ``transform`` could have told it its parameters."""
    estimator = iterated("l-bfgs", **params)
    model, told = estimator.fit(frames[2]), estimator.fit(frames[2])
    rows = told.transform(frames[2]).select("features", "prediction").collect()
    assert [model.predict(row.features) for row in rows] == [row.prediction for row in rows]


@pytest.mark.parametrize("params", [{"family": "poisson"}, {"family": "poisson", "link": "sqrt"}], ids=str)
def test_a_generalized_model_predicts_single_rows_by_its_link(frames, params) -> None:
    estimator = GeneralizedLinearRegression(regParam=0.1, **params)
    model, told = estimator.fit(frames[1]), estimator.fit(frames[1])
    row = told.transform(frames[1]).select("features", "prediction").first()
    assert model.predict(row.features) == row.prediction


def test_a_support_vector_machine_predicts_single_rows_by_its_threshold(frames) -> None:
    model = iterated("svc", threshold=50.0).fit(frames[2])
    assert model.predict(frames[2].first().features) == 0.0


@every_estimator
def test_a_model_evaluates_columns_of_other_names(frames, cls) -> None:
    frame = frames[2].select(F.col("features").alias("x"), F.col("label").alias("y"))
    model = cls(featuresCol="x", labelCol="y", predictionCol="p", regParam=0.1).fit(frame)
    assert model.evaluate(frame).predictionCol == "p"


def test_a_summary_is_of_the_model_as_it_was_trained(frames) -> None:
    expected = iterated("l-bfgs").fit(frames[2]).summary
    model = iterated("l-bfgs").fit(frames[2])
    model.setThreshold(0.99).setProbabilityCol("other").transform(frames[2]).collect()
    assert model.summary.accuracy == expected.accuracy
    assert model.summary.probabilityCol == "probability"
    assert model.getThreshold() == 0.99


def training_summary(model):
    return model.summary() if callable(model.summary) else model.summary


@every_fit
def test_a_summarys_history_is_a_table_with_one_line_a_round(frames, name) -> None:
    model = iterated(name).fit(frames[ITERATED[name][2]])
    table = training_summary(model).history
    assert isinstance(table, pa.Table)
    assert table.column_names == list(Round.__dataclass_fields__)
    assert table.num_rows == model.report.rounds == len(model.report.history)
    assert table["round"].to_pylist() == list(range(model.report.rounds))
    assert table["objective"].to_pylist() == [entry.objective for entry in model.report.history]


def test_one_round_is_a_history_too(frames) -> None:
    for model in (LinearRegression(solver="normal").fit(frames[0]), GeneralizedLinearRegression().fit(frames[0])):
        assert model.summary.history.num_rows == 1


@pytest.mark.parametrize("name", [name for name in ITERATED if name != "irls"])
def test_objective_history_has_a_value_before_and_one_after_each_iteration(frames, name) -> None:
    model = iterated(name).fit(frames[ITERATED[name][2]])
    summary = training_summary(model)
    objectives = summary.objectiveHistory
    assert len(objectives) == summary.totalIterations + 1 == model.report.iterations + 1
    assert objectives == model.report.objective_history
    assert objectives[-1] == model.report.objective
    assert all(later <= earlier for earlier, later in zip(objectives, objectives[1:], strict=False))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["l-bfgs", "l-bfgs-multinomial", "owl-qn", "linear-l-bfgs", "linear-owl-qn"])
def test_objective_history_starts_and_ends_where_pysparks_does(frames, name) -> None:
    estimator, params, kind = ITERATED[name]
    found = training_summary(iterated(name).fit(frames[kind])).objectiveHistory
    theirs = {key: value for key, value in params.items() if estimator != "LogisticRegression" or key != "solver"}
    expected = training_summary(stock(estimator)(**{**theirs, "tol": 1e-6}).fit(frames[kind])).objectiveHistory
    assert found[0] == pytest.approx(expected[0], rel=1e-9)
    assert found[-1] == pytest.approx(expected[-1], rel=1e-3)
    assert found[-1] <= expected[-1] * (1 + 1e-9)


@pytest.mark.parametrize("intercept", [True, False])
def test_the_first_objective_is_the_loss_before_any_step(frames, intercept) -> None:
    _, y = arrays(frames[2])
    share = y.mean()
    entropy = -(share * math.log(share) + (1 - share) * math.log(1 - share))
    model = LogisticRegression(fitIntercept=intercept, maxIter=0).fit(frames[2])
    assert model.summary.totalIterations == 0
    assert model.summary.objectiveHistory == [pytest.approx(entropy if intercept else math.log(2), rel=1e-12)]
    machine = LinearSVC(fitIntercept=intercept, maxIter=0).fit(frames[2])
    assert machine.summary().objectiveHistory == [pytest.approx(1.0, rel=1e-12)]


@pytest.mark.parametrize("limit", [0, 1, 5])
def test_there_are_as_many_iterations_as_allowed(frames, limit) -> None:
    for name in ("l-bfgs", "owl-qn", "svc", "linear-owl-qn"):
        model = iterated(name, maxIter=limit, tol=0.0).fit(frames[ITERATED[name][2]])
        assert training_summary(model).totalIterations == limit, name


def test_bounded_fits_have_summary_and_history(frames) -> None:
    model = LogisticRegression(
        regParam=0.01,
        lowerBoundsOnCoefficients=DenseMatrix(1, 4, [0.0] * 4),
        upperBoundsOnIntercepts=DenseVector([0.0]),
    ).fit(frames[2])
    assert len(model.summary.objectiveHistory) == model.summary.totalIterations + 1
    assert model.summary.history.num_rows == model.report.rounds


@pytest.mark.parametrize("name", ["l-bfgs", "svc", "linear-l-bfgs", "irls"])
def test_a_summary_draws_itself(frames, name) -> None:
    figures = pytest.importorskip("matplotlib.figure")
    model = iterated(name).fit(frames[ITERATED[name][2]])
    figure = training_summary(model).plot()
    assert isinstance(figure, figures.Figure)
    assert len(figure.axes) == (3 if name in ("l-bfgs", "svc") else 2)


def test_without_matplotlib_plot_says_what_to_install(frames, monkeypatch) -> None:
    summary = LinearRegression().fit(frames[0]).summary
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r"sparkdml\[report\]"):
        summary.plot()
