"""Models in shards on disk, and what can be asked of their coefficients."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from pyspark.ml import Pipeline, PipelineModel
from pyspark.ml.feature import SQLTransformer
from pyspark.ml.linalg import DenseVector, SparseVector
from wide_cases import (
    BOUNDS,
    FEATURES,
    MODELS,
    chunks_of,
    coefficients_of,
    frame,
    in_order,
    logistic,
    matrix,
    multinomial,
)

from sparkdml.wide import DistributedLinearRegressionModel, DistributedLogisticRegressionModel, inspection

ROOT = Path(__file__).resolve().parents[2]


def scores(model, df) -> list:
    return in_order(model.transform(df).collect())


def edit_metadata(path: Path, edit) -> None:
    (part,) = (path / "metadata").glob("part-*")
    metadata = json.loads(part.read_text())
    edit(metadata)
    part.write_text(json.dumps(metadata))
    for checksum in (path / "metadata").glob(".*.crc"):
        checksum.unlink()


@pytest.mark.parametrize("name", MODELS)
def test_saved_models_come_back(spark, tmp_path, name) -> None:
    model, df, path = MODELS[name](spark), frame(spark, matrix(9)), str(tmp_path / "model")
    model.setPredictionCol("p").write().save(path)
    loaded = type(model).load(path)
    assert type(loaded) is type(model)
    assert (loaded.uid, loaded.getPredictionCol(), loaded.report) == (model.uid, "p", None)
    assert scores(loaded, df) == scores(model, df)


def test_loaded_models_can_be_saved(spark, tmp_path, routed) -> None:
    model, df = multinomial(spark), frame(spark, matrix())
    model.save(str(tmp_path / "model"))
    DistributedLogisticRegressionModel.load(str(tmp_path / "model")).save(str(tmp_path / "again"))
    twice = DistributedLogisticRegressionModel.load(str(tmp_path / "again"))
    assert scores(twice, df) == scores(model, df)
    assert (twice.sparsity, twice.topFeatures(5)) == (model.sparsity, model.topFeatures(5))
    assert (twice.numClasses, twice.interceptVector) == (3, model.interceptVector)


def test_loading_starts_no_job_over_the_coefficients(spark, tmp_path, jobs_run) -> None:
    logistic(spark).write().save(str(tmp_path / "model"))
    before = jobs_run()
    loaded = DistributedLogisticRegressionModel.load(str(tmp_path / "model"))
    after = jobs_run()
    assert after - before <= 1  # metadata, as pyspark reads them
    loaded.transform(frame(spark, matrix()))
    assert loaded.coefficientsRDD.getNumPartitions() == len(BOUNDS) - 1
    assert jobs_run() == after


def test_chunks_of_a_loaded_model_are_in_their_partitions_and_in_order(spark, tmp_path) -> None:
    coefficients, path = coefficients_of(2), tmp_path / "model"
    DistributedLogisticRegressionModel(chunks_of(spark, coefficients), BOUNDS, [0.0, 0.0]).save(str(path))
    files = sorted((path / "coefficients").glob("*.parquet"))
    assert len(files) >= 4  # shards that have rows
    # names of files decide the order of reading: turn it around
    for number, file in enumerate(files):
        file.rename(file.with_name(f"{9 - number}.parquet"))
        file.with_name(f".{file.name}.crc").unlink()
    loaded = DistributedLogisticRegressionModel.load(str(path))
    for shard, chunks in enumerate(loaded.coefficientsRDD.glom().collect()):
        found = np.concatenate([indices for indices, _ in chunks]) if chunks else np.zeros(0)
        low, high = BOUNDS[shard : shard + 2]
        np.testing.assert_array_equal(found, low + np.flatnonzero(coefficients[low:high].any(axis=1)))
        for indices, values in chunks:
            np.testing.assert_array_equal(values, coefficients[indices])


def test_files_are_plain_parquet(spark, tmp_path) -> None:
    logistic(spark).save(str(tmp_path / "model"))
    table = pq.read_table(tmp_path / "model" / "coefficients")
    assert table.column_names == ["shard", "feature", "values"]
    coefficients = np.zeros(FEATURES)
    coefficients[table["feature"].to_numpy()] = [values[0] for values in table["values"].to_pylist()]
    np.testing.assert_array_equal(coefficients, coefficients_of()[:, 0])


def test_existing_paths_are_refused_and_overwritten_on_demand(spark, tmp_path) -> None:
    model, path = logistic(spark), str(tmp_path / "model")
    multinomial(spark).save(path)
    with pytest.raises(FileExistsError, match="already exists; use write"):
        model.save(path)
    model.write().overwrite().save(path)
    loaded = DistributedLogisticRegressionModel.load(path)
    assert loaded.numClasses == 2
    with pytest.raises(ValueError, match="are read from .*; save to another path"):
        loaded.write().overwrite().save(f"file://{path}")
    assert loaded.sparsity == model.sparsity


def test_damaged_and_newer_models_are_refused(spark, tmp_path) -> None:
    path = tmp_path / "model"
    logistic(spark).save(str(path))
    with pytest.raises(ValueError, match="holds a sparkdml.classification.DistributedLogisticRegressionModel"):
        DistributedLinearRegressionModel.load(str(path))
    next((path / "coefficients").glob("*.parquet")).unlink()
    with pytest.raises(ValueError, match=r"coefficients has \d files of .* were saved; copy the model again"):
        DistributedLogisticRegressionModel.load(str(path))
    (path / "coefficients").rename(path / "elsewhere")
    with pytest.raises(ValueError, match="coefficients has 0 files"):
        DistributedLogisticRegressionModel.load(str(path))
    edit_metadata(path, lambda metadata: metadata["sparkdml"].update(format=99))
    with pytest.raises(ValueError, match="has format 99, and this version of sparkdml reads up to"):
        DistributedLogisticRegressionModel.load(str(path))


@pytest.fixture
def found_beside_sparks(monkeypatch) -> None:
    cls = DistributedLogisticRegressionModel
    monkeypatch.setattr(importlib.import_module(cls.__module__), cls.__name__, cls, raising=False)


def test_pipelines_hold_them(spark, tmp_path, found_beside_sparks) -> None:
    df = frame(spark, matrix())
    stages = [SQLTransformer(statement="SELECT *, id + 1 AS next FROM __THIS__"), logistic(spark)]
    pipeline = Pipeline(stages=stages).fit(df)
    pipeline.save(str(tmp_path / "pipeline"))
    loaded = PipelineModel.load(str(tmp_path / "pipeline"))
    assert isinstance(loaded.stages[1], DistributedLogisticRegressionModel)
    assert scores(loaded, df) == scores(pipeline, df)


@pytest.mark.parametrize("columns", [1, 3])
def test_top_features(spark, columns) -> None:
    coefficients = np.round(coefficients_of(columns), 1)  # with ties
    model = DistributedLogisticRegressionModel(chunks_of(spark, coefficients), BOUNDS, np.zeros(columns))
    entries = [(-abs(c), j, k, c) for (j, k), c in np.ndenumerate(coefficients) if c]
    want = [(j, k, c) if columns > 1 else (j, c) for _, j, k, c in sorted(entries)]
    for k in (1, 4, 13, 1000):
        assert model.topFeatures(k) == want[:k]
    with pytest.raises(ValueError, match="k is 0"):
        model.topFeatures(0)


def test_sparsity_is_counted_once(spark, jobs_run) -> None:
    model = multinomial(spark)
    assert model.sparsity == pytest.approx(np.mean(coefficients_of(3) == 0))
    before = jobs_run()
    assert model.sparsity > 0
    assert jobs_run() == before


def test_coefficients_dense_or_sparse_and_refused_where_too_many(spark, monkeypatch) -> None:
    model, few = logistic(spark), np.zeros((FEATURES, 3))
    few[5, 1], few[30, 2] = 2.0, -1.0
    assert isinstance(model.coefficients, DenseVector)
    np.testing.assert_array_equal(model.coefficients.toArray(), coefficients_of()[:, 0])
    np.testing.assert_array_equal(model.coefficientMatrix.toArray(), coefficients_of().T)
    assert (model.intercept, model.numFeatures, model.numClasses) == (0.3, FEATURES, 2)
    chunks = chunks_of(spark, few)
    sparse = DistributedLogisticRegressionModel(chunks, BOUNDS, [0.0] * 3)
    np.testing.assert_array_equal(sparse.coefficientMatrix.toArray(), few.T)
    assert type(sparse.coefficientMatrix).__name__ == "SparseMatrix"
    assert sparse.coefficientMatrix == sparse.toSpark().coefficientMatrix
    with pytest.raises(ValueError, match="use coefficientMatrix"):
        _ = sparse.coefficients
    with pytest.raises(ValueError, match="use interceptVector"):
        _ = sparse.intercept
    single = DistributedLinearRegressionModel(chunks_of(spark, few[:, 1:2]), BOUNDS, [0.0])
    assert single.coefficients == SparseVector(FEATURES, [5], [2.0])
    monkeypatch.setattr(inspection, "COEFFICIENTS_LIMIT", 3 * FEATURES - 1)
    for ask in (lambda: sparse.coefficientMatrix, sparse.toSpark):
        with pytest.raises(ValueError, match="40 features x 3 = 120 numbers to the driver, more than 119"):
            ask()
