"""Inputs at the edge of what can be trained on, over every estimator: the same law, or the same refusal, for all."""

from __future__ import annotations

import functools
import math
from functools import partial

import numpy as np
import pytest
from pyspark.ml import classification as stock_classification
from pyspark.ml import regression as stock_regression
from pyspark.ml.linalg import Vectors
from pyspark.sql import functions as F

from sparkdml.classification import LinearSVC, LogisticRegression
from sparkdml.regression import GeneralizedLinearRegression, LinearRegression

pytestmark = pytest.mark.slow
PENALISED = {"regParam": 0.1}
#: Every solver of every estimator, all of which can train on labels 0 and 1.
ESTIMATORS = {
    "logistic-newton": partial(LogisticRegression, solver="newton", tol=1e-12),
    "logistic-l-bfgs": partial(LogisticRegression, solver="l-bfgs", tol=1e-12),
    "logistic-owl-qn": partial(LogisticRegression, regParam=0.01, elasticNetParam=0.5, tol=1e-12),
    "multinomial": partial(LogisticRegression, family="multinomial", tol=1e-12),
    "svc": partial(LinearSVC, regParam=0.1),
    "linear-normal": partial(LinearRegression, solver="normal"),
    "linear-l-bfgs": partial(LinearRegression, solver="l-bfgs", tol=1e-12),
    "huber": partial(LinearRegression, loss="huber", epsilon=3.0, tol=1e-12),
    "gaussian": GeneralizedLinearRegression,
    "poisson": partial(GeneralizedLinearRegression, family="poisson", tol=1e-10),
    "binomial": partial(GeneralizedLinearRegression, family="binomial", tol=1e-10),
}
#: One for each class.
CLASSES = ("logistic-newton", "svc", "linear-normal", "poisson")

every_estimator = pytest.mark.parametrize("name", ESTIMATORS)
every_class = pytest.mark.parametrize("name", CLASSES)


def some_rows(rows: int = 60, seed: int = 0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((rows, 3))
    return X, (X[:, 0] + rng.standard_normal(rows) > 0).astype(float)


@pytest.fixture(scope="module")
def frame(make_frame):
    X, y = some_rows()
    frame = make_frame(X, y, np.random.default_rng(1).integers(0, 3, len(y))).cache()
    yield frame
    frame.unpersist()


def coefficients(model) -> np.ndarray:
    """Shape (1 or K, features)."""
    logistic = isinstance(model, stock_classification.LogisticRegressionModel)
    return np.atleast_2d((model.coefficientMatrix if logistic else model.coefficients).toArray())


def numbers(model) -> np.ndarray:
    """Coefficients and then intercepts, flat."""
    logistic = isinstance(model, stock_classification.LogisticRegressionModel)
    return np.append(coefficients(model), model.interceptVector.toArray() if logistic else model.intercept)


def assert_same_model(found, expected, atol: float = 1e-7) -> None:
    np.testing.assert_allclose(numbers(found), numbers(expected), rtol=0, atol=atol)


@pytest.fixture(scope="module")
def plain(make_frame):
    """The model of each estimator on ``some_rows()``, as (K, features) coefficients."""
    X, y = some_rows()
    rows = make_frame(X, y).cache()
    yield functools.cache(lambda name: coefficients(ESTIMATORS[name]().fit(rows)))
    rows.unpersist()


@pytest.fixture(scope="module")
def weighted(frame):
    """The numbers of each estimator's model on ``frame`` with its weights."""
    return functools.cache(lambda name: numbers(ESTIMATORS[name](weightCol="weight").fit(frame)))


# Features


@every_estimator
@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_constant_and_empty_columns_have_coefficient_0_and_change_nothing(make_frame, plain, name, kind):
    X, y = some_rows()
    wider = np.column_stack([X[:, :1], np.full(len(y), 3.7), X[:, 1:], np.zeros(len(y))])
    found = coefficients(ESTIMATORS[name]().fit(make_frame(wider, y, kind=kind)))
    assert not found[:, [1, 4]].any()
    np.testing.assert_allclose(found[:, [0, 2, 3]], plain(name), atol=1e-7)


@every_class
def test_without_intercept_a_constant_column_is_no_substitute_for_one(make_frame, name):
    """Its coefficient is 0, as in Spark, which takes columns that do not vary for columns that tell nothing."""
    X, y = some_rows()
    model = ESTIMATORS[name](fitIntercept=False).fit(make_frame(np.column_stack([X, np.ones(len(y))]), y))
    assert model.coefficients[3] == 0.0
    assert model.intercept == 0.0


@every_estimator
def test_a_column_far_from_0_has_the_coefficient_that_it_has_near_0(make_frame, plain, name):
    X, y = some_rows()
    found = coefficients(ESTIMATORS[name]().fit(make_frame(X + [0.0, 1e6, 0.0], y)))
    np.testing.assert_allclose(found, plain(name), atol=1e-3 if name == "svc" else 1e-6)


@every_class
def test_features_that_are_null_are_refused(frame, name):
    rows = frame.withColumn("features", F.when(F.col("label") == 1.0, F.col("features")))
    with pytest.raises(ValueError, match="column 'features' has null in row"):
        ESTIMATORS[name]().fit(rows)


@pytest.mark.parametrize(
    ("name", "value", "kind"),
    [*((name, math.nan, "dense") for name in CLASSES), *((name, -math.inf, "sparse") for name in CLASSES[:2])],
)
def test_features_that_are_no_numbers_are_refused(make_frame, name, value, kind):
    X, y = some_rows(8)
    rows = make_frame(np.vstack([X, [1.0, value, 0.0]]), np.append(y, 1.0), kind=kind)
    with pytest.raises(ValueError, match=f"column 'features' has the value {value} in row . of partition 1"):
        ESTIMATORS[name]().fit(rows)


@pytest.mark.parametrize(
    ("name", "partitions", "said"),
    [
        *((name, 1, "2 features where earlier rows have 3 in row 9") for name in CLASSES),
        (CLASSES[0], 2, "3 features in partition 0 and 2 in partition 1"),
    ],
)
def test_a_last_vector_of_another_size_is_refused(spark, make_frame, name, partitions, said):
    X, y = some_rows(9)
    odd = spark.createDataFrame([(Vectors.dense(1.0, 2.0), 1.0)], ["features", "label"]).coalesce(1)
    with pytest.raises(ValueError, match=f"column 'features' has {said}"):
        ESTIMATORS[name]().fit(make_frame(X, y, partitions=1).union(odd).coalesce(partitions))


def test_more_features_than_rows_with_a_penalty_are_sparks_models(make_frame):
    rng = np.random.default_rng(4)
    X, y = rng.standard_normal((5, 8)), np.array([0.0, 1.0, 0.0, 1.0, 1.0])
    rows = make_frame(X, y).cache()
    for ours, stock in (
        (LogisticRegression, stock_classification.LogisticRegression),
        (LinearRegression, stock_regression.LinearRegression),
        (GeneralizedLinearRegression, stock_regression.GeneralizedLinearRegression),
    ):
        found, expected = (each(**PENALISED).fit(rows) for each in (ours, stock))
        assert_same_model(found, expected, atol=1e-4)
    rows.unpersist()


@pytest.mark.parametrize("name", ["linear-normal", "linear-l-bfgs", "gaussian", "poisson"])
@pytest.mark.parametrize("intercept", [True, False])
def test_more_features_than_rows_without_a_penalty_meet_every_label(make_frame, name, intercept):
    """Infinitely many models do; which one is found depends on the solver, in Spark as well."""
    rng = np.random.default_rng(4)
    X, y = rng.standard_normal((5, 8)), rng.uniform(1.0, 3.0, 5)
    rows = make_frame(X, y)
    model = ESTIMATORS[name](fitIntercept=intercept).fit(rows)
    predictions = [row.prediction for row in model.transform(rows).collect()]
    np.testing.assert_allclose(predictions, y, atol=1e-5)


# Rows and partitions


@every_class
def test_an_empty_frame_is_refused(frame, name):
    with pytest.raises(ValueError, match="the data set is empty"):
        ESTIMATORS[name]().fit(frame.limit(0))


@every_class
def test_one_row_that_explains_nothing_gives_sparks_answer(make_frame, name):
    """Every column is constant, so its coefficient is 0, and the intercept alone says the label."""
    model = ESTIMATORS[name]().fit(make_frame([[1.0, 2.0]], [1.0]))
    assert not model.coefficients.toArray().any()
    # Spark's LinearSVC says 2.04, where its line search came to rest: every intercept from 1 on has a loss of 0
    expected = {"logistic-newton": math.inf, "svc": 1.0, "linear-normal": 1.0, "poisson": 0.0}
    assert model.intercept == pytest.approx(expected[name], abs=1e-9)


@every_class
def test_one_row_without_intercept_gives_zeros(make_frame, name):
    model = ESTIMATORS[name](fitIntercept=False).fit(make_frame([[1.0, 2.0]], [1.0]))
    assert not numbers(model).any()


@every_estimator
def test_sorted_labels_in_partitions_some_of_which_are_empty_change_nothing(make_frame, name):
    """Ten rows: every label has partitions of its own, and of eight some have no rows."""
    X, y = some_rows(10, seed=3)
    order = np.argsort(y)
    params = {} if name == "logistic-owl-qn" else PENALISED
    whole = ESTIMATORS[name](**params).fit(make_frame(X, y, partitions=1))
    rows = make_frame(X[order], y[order], partitions=8)
    rows = rows.where("label < 0").union(rows).union(rows.where("label < 0"))
    assert_same_model(ESTIMATORS[name](**params).fit(rows), whole, atol=1e-3 if name == "svc" else 1e-6)


# Weights


@every_class
def test_rows_that_all_weigh_0_are_an_empty_data_set(frame, name):
    with pytest.raises(ValueError, match="no rows of non-zero weight"):
        ESTIMATORS[name](weightCol="nothing").fit(frame.withColumn("nothing", F.lit(0.0)))


@pytest.mark.parametrize(
    ("name", "weight", "said"),
    [*((name, -1.0, "-1") for name in CLASSES), (CLASSES[0], math.nan, "nan"), (CLASSES[1], None, "null")],
)
def test_weights_that_are_no_amounts_are_refused(frame, name, weight, said):
    rows = frame.withColumn("weight", F.when(F.col("label") == 1.0, F.lit(weight).cast("double")).otherwise(1.0))
    with pytest.raises(ValueError, match=rf"column 'weight' has .*{said}"):
        ESTIMATORS[name](weightCol="weight").fit(rows)


@every_estimator
def test_a_row_of_weight_0_is_absent(frame, weighted, name):
    without = ESTIMATORS[name](weightCol="weight").fit(frame.where("weight > 0"))
    np.testing.assert_allclose(numbers(without), weighted(name), atol=1e-3 if name == "svc" else 1e-8)


@pytest.mark.parametrize("name", [name for name in ESTIMATORS if name not in ("svc", "logistic-owl-qn")])
def test_weight_2_is_the_row_twice(frame, weighted, name):
    """Without a penalty: with one, deviations of weighted rows differ in their last term, as in Spark.

    LinearSVC's objectives are compared beside Spark's, for its coefficients have few digits.
    """
    repeated = frame.where("weight > 0").withColumn("copy", F.explode(F.expr("sequence(1, int(weight))")))
    np.testing.assert_allclose(numbers(ESTIMATORS[name]().fit(repeated)), weighted(name), atol=1e-6)


# Labels


@every_class
@pytest.mark.parametrize("label", ["null", "nan", "-1", "0.5"])
def test_stray_labels_are_refused_by_column_and_value(frame, name, label):
    """Regression takes every finite number, but for what its family forbids."""
    value = F.lit(None) if label == "null" else F.lit(float(label))
    rows = frame.withColumn("label", F.when(F.col("label") == 1.0, value.cast("double")).otherwise(0.0))
    allowed = {"linear-normal": ("-1", "0.5"), "poisson": ("0.5",)}
    if label in allowed.get(name, ()):
        assert np.isfinite(numbers(ESTIMATORS[name]().fit(rows))).all()
    else:
        with pytest.raises(ValueError, match=rf"column 'label'.* {label}\b"):
            ESTIMATORS[name]().fit(rows)


def test_labels_1_and_3_are_four_classes(frame):
    rows = frame.withColumn("label", F.col("label") * 2 + 1)
    found, expected = (
        each(**PENALISED).fit(rows) for each in (LogisticRegression, stock_classification.LogisticRegression)
    )
    assert found.numClasses == expected.numClasses == 4
    np.testing.assert_allclose(found.coefficientMatrix.toArray(), expected.coefficientMatrix.toArray(), atol=1e-3)
    predicted = {row.prediction for row in found.transform(rows).select("prediction").distinct().collect()}
    assert predicted == {1.0, 3.0}
    with pytest.raises(ValueError, match="largest label is 3"):
        LinearSVC().fit(rows)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *((name, kind) for name in CLASSES for kind in ("byte", "long", "decimal(10,2)")),
        *(("linear-l-bfgs", kind) for kind in ("short", "int", "float")),
    ],
)
def test_numeric_types_of_label_and_weight_give_the_model_of_doubles(frame, weighted, name, kind):
    rows = frame.select("features", F.col("label").cast(kind), F.col("weight").cast(kind))
    model = ESTIMATORS[name](weightCol="weight").fit(rows)
    np.testing.assert_array_equal(numbers(model), weighted(name))
    assert dict(model.transform(rows).dtypes)["prediction"] == "double"


@every_class
@pytest.mark.parametrize("column", ["label", "weight"])
@pytest.mark.parametrize("kind", ["string", "boolean"])
def test_types_that_are_no_numbers_are_refused(frame, name, column, kind):
    rows = frame.withColumn(column, F.col(column).cast("int").cast(kind))
    with pytest.raises(TypeError, match=f"{column} column '{column}' is {kind}"):
        ESTIMATORS[name](weightCol="weight").fit(rows)


def test_offsets_are_checked_like_weights(frame):
    glm = GeneralizedLinearRegression(offsetCol="offset")
    with pytest.raises(TypeError, match="offset column 'offset' is string"):
        glm.fit(frame.withColumn("offset", F.lit("1")))
    with pytest.raises(ValueError, match="column 'offset' has null"):
        glm.fit(frame.withColumn("offset", F.lit(None).cast("double")))


@pytest.mark.parametrize(
    ("params", "label"),
    [
        ({"family": "poisson"}, -1),
        ({"family": "gamma"}, 0),
        ({"family": "binomial"}, 2),
        ({"family": "tweedie", "variancePower": 1.5}, -1),
        ({"family": "tweedie", "variancePower": 2.5}, 0),
    ],
    ids=str,
)
def test_labels_outside_the_domain_of_the_family_are_refused_by_name(frame, params, label):
    rows = frame.withColumn("label", F.when(F.col("label") == 1.0, float(label)).otherwise(1.0))
    with pytest.raises(ValueError, match=f"column 'label': the {params['family']} family .* there is {label}$"):
        GeneralizedLinearRegression(**params).fit(rows)


CONSTANT = ("linear-normal", "linear-l-bfgs", "huber", "gaussian")


@pytest.mark.parametrize("name", CONSTANT)
@pytest.mark.parametrize("reg", [0.0, 0.1])
def test_a_constant_target_is_the_intercept(frame, name, reg):
    model = ESTIMATORS[name](regParam=reg).fit(frame.withColumn("label", F.lit(3.0)))
    np.testing.assert_allclose(numbers(model), [0.0, 0.0, 0.0, 3.0], atol=1e-9)
    assert getattr(model, "scale", 1.0) == 1.0


@pytest.mark.parametrize("name", ["linear-normal", "linear-l-bfgs", "gaussian"])
def test_a_constant_target_without_intercept_is_least_squares(frame, name):
    X, _ = some_rows()
    model = ESTIMATORS[name](fitIntercept=False).fit(frame.withColumn("label", F.lit(3.0)))
    best = np.linalg.lstsq(X, np.full(len(X), 3.0), rcond=None)[0]
    np.testing.assert_allclose(model.coefficients.toArray(), best, atol=1e-6)


@pytest.mark.parametrize("solver", ["auto", "normal", "l-bfgs"])
@pytest.mark.parametrize("share", [0.0, 0.5])
def test_a_constant_target_without_intercept_takes_no_penalty(frame, solver, share):
    """Labels cannot be scaled. Spark refuses it as well, but does not say which parameters are to blame."""
    estimator = LinearRegression(fitIntercept=False, elasticNetParam=share, solver=solver, **PENALISED)
    with pytest.raises(ValueError, match="every label is 3.*regParam=0.1.*fitIntercept"):
        estimator.fit(frame.withColumn("label", F.lit(3.0)))


@pytest.mark.parametrize("name", ["huber", "gaussian", "poisson"])
def test_where_labels_are_not_scaled_a_penalty_needs_no_intercept(frame, name):
    """Spark refuses these too, though nothing in them is divided by the labels' deviation; ours are finite."""
    model = ESTIMATORS[name](fitIntercept=False, **PENALISED).fit(frame.withColumn("label", F.lit(3.0)))
    assert np.isfinite(numbers(model)).all()
    assert model.coefficients.toArray().any()


@pytest.mark.parametrize("name", ["linear-normal", "linear-l-bfgs", "huber", "gaussian"])
@pytest.mark.parametrize("params", [{}, {"fitIntercept": False, **PENALISED}], ids=str)
def test_a_target_of_zeros_gives_zeros(frame, name, params):
    model = ESTIMATORS[name](**params).fit(frame.withColumn("label", F.lit(0.0)))
    np.testing.assert_allclose(numbers(model), 0.0, atol=1e-12)


def test_one_class(frame):
    """A binomial GLM stops at Spark's bound on probabilities, LinearSVC needs both labels to be possible."""
    ones, zeros = (frame.withColumn("label", F.lit(label)) for label in (1.0, 0.0))
    assert LogisticRegression().fit(ones).intercept == math.inf
    svc = LinearSVC().fit(ones)
    assert svc.transform(ones).where("prediction = 1").count() == 60
    with pytest.raises(ValueError, match="largest label is 0"):
        LinearSVC().fit(zeros)
    assert 10 < GeneralizedLinearRegression(family="binomial").fit(ones).intercept < 100


# Thresholds


def test_thresholds_decide_as_in_spark_also_in_ties(spark, make_frame):
    """The largest p/t wins, of equals the first; a threshold of 0 wins wherever p is above 0."""
    X, y = some_rows()
    train = make_frame(X, (y + (X[:, 1] > 0.5)).astype(float))
    model = LogisticRegression(**PENALISED).fit(train)
    rows = make_frame(np.vstack([X, np.zeros(3)]), np.zeros(len(X) + 1)).cache()
    p = np.array([row.probability.toArray() for row in model.transform(rows).collect()])
    np.testing.assert_allclose(p.sum(axis=1), 1.0)
    saved = stock_classification.LogisticRegressionModel(model._java_obj)
    # the last row's own probabilities as thresholds: all of its ratios are 1
    for thresholds in ([0.9, 0.05, 0.3], [0.0, 0.5, 0.5], p[-1].tolist()):
        predicted = [
            [row.prediction for row in each.copy({each.thresholds: thresholds}).transform(rows).collect()]
            for each in (model, saved)
        ]
        assert predicted[0] == predicted[1]
        with np.errstate(divide="ignore"):
            assert predicted[0] == (p / thresholds).argmax(axis=1).tolist()


def test_a_probability_equal_to_the_threshold_is_label_0(make_frame):
    """Without features to tell rows apart, every probability is one half to the last bit."""
    rows = make_frame([[1.0], [1.0]], [0.0, 1.0])
    model = LogisticRegression(threshold=0.5).fit(rows)
    scored = model.transform(rows).first()
    assert scored.probability.toArray().tolist() == [0.5, 0.5]
    assert scored.prediction == 0.0


@pytest.mark.parametrize(
    "params",
    [{"thresholds": [0.0, 0.0]}, {"thresholds": [-0.1, 0.5]}, {"thresholds": [0.2, 0.3, 0.5]}, {"threshold": 1.5}],
    ids=str,
)
def test_thresholds_that_no_model_could_use_are_refused(frame, params):
    with pytest.raises(ValueError, match=next(iter(params))):
        LogisticRegression(**params).fit(frame)


def test_threshold_and_thresholds_must_not_contradict_each_other():
    with pytest.raises(ValueError, match="inconsistent values for threshold"):
        LogisticRegression(threshold=0.3, thresholds=[0.5, 0.5])
