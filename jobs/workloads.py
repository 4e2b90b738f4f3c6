"""Data to race on: each workload is made once, written as Parquet, and read back as users' data would be."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from scipy import sparse

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: float64 (rows, columns): an array or scipy.sparse.csr_matrix.
Matrix = Any
FILES = 4


@dataclass(frozen=True)
class Workload:
    """A name, where its Parquet files are, and the same rows as arrays for scikit-learn."""

    name: str
    path: str
    features: Matrix
    labels: np.ndarray
    params: dict[str, Any]

    def frame(self, spark: SparkSession) -> DataFrame:
        """Rows with a vector column ``features`` and a column ``label``."""
        return spark.read.parquet(self.path)


def dense(folder: Path, rows: int = 400_000, columns: int = 100) -> Workload:
    """Independent normal features and labels drawn from a logistic model."""
    rng = np.random.default_rng(1)
    features = rng.standard_normal((rows, columns))
    scores = features @ (0.2 * rng.standard_normal(columns))
    labels = (rng.random(rows) < 1 / (1 + np.exp(-scores))).astype(np.float64)
    params = {"regParam": 1e-3, "standardization": False}
    # for regressions: with outliers, and counts
    outliers = np.where(rng.random(rows) < 0.05, 20.0, 1.0)
    more = {
        "target": 5.0 + 3.0 * scores + outliers * rng.standard_normal(rows),
        "count": rng.poisson(np.exp(0.3 * scores)).astype(np.float64),
    }
    return _written("dense", folder, features, labels, params, more)


def correlated(folder: Path, rows: int = 400_000, columns: int = 100) -> Workload:
    """Features that depend on one another, of unlike scale and offset: what tables look like."""
    rng = np.random.default_rng(2)
    mixing = np.linalg.qr(rng.standard_normal((columns, columns)))[0] * np.logspace(0, -1.5, columns)
    mixing = mixing @ np.linalg.qr(rng.standard_normal((columns, columns)))[0]
    features = rng.standard_normal((rows, columns)) @ mixing
    features /= features.std(axis=0)
    scores = features @ (0.2 * rng.standard_normal(columns))
    features = features * np.exp(rng.standard_normal(columns)) + rng.standard_normal(columns)
    labels = (rng.random(rows) < 1 / (1 + np.exp(-scores))).astype(np.float64)
    return _written("correlated", folder, features, labels, {"regParam": 1e-3})


def wide_sparse(folder: Path, rows: int = 200_000, columns: int = 100_000, row_nonzeros: int = 40) -> Workload:
    """Hashed features: few non-zeros, frequent ones and many rare ones."""
    rng = np.random.default_rng(3)
    # squaring a uniform number makes low indices frequent, as words are
    picked = (rng.random((rows, row_nonzeros)) ** 2 * columns).astype(np.int32)
    picked.sort(axis=1)
    kept = np.ones(picked.shape, bool)
    kept[:, 1:] = picked[:, 1:] != picked[:, :-1]
    indptr = np.concatenate([[0], np.cumsum(kept.sum(axis=1))])
    values = rng.standard_normal(int(indptr[-1]))
    features = sparse.csr_matrix((values, picked[kept], indptr), shape=(rows, columns))
    scores = features @ (0.5 * rng.standard_normal(columns))
    labels = (rng.random(rows) < 1 / (1 + np.exp(-scores))).astype(np.float64)
    return _written("sparse", folder, features, labels, {"regParam": 1e-4})


def power_law(folder: Path, rows: int, columns: int, row_nonzeros: int = 40) -> Workload:
    """Rows whose features are ever rarer: feature j occurs about as often as 1/j, up to many millions of them."""
    name = f"power-law-{rows}-{columns}"
    if not (folder / name).exists():
        rng = np.random.default_rng(4)
        picked = np.minimum(np.exp(rng.random((rows, row_nonzeros)) * np.log(columns)), columns - 1).astype(np.int32)
        picked.sort(axis=1)
        kept = np.ones(picked.shape, bool)
        kept[:, 1:] = picked[:, 1:] != picked[:, :-1]
        indptr = np.concatenate([[0], np.cumsum(kept.sum(axis=1))])
        values = rng.standard_normal(int(indptr[-1])).astype(np.float32).astype(np.float64)
        features = sparse.csr_matrix((values, picked[kept], indptr), shape=(rows, columns))
        # effects by a hash of the feature's number, which is never an array of all of them
        effects = ((features.indices.astype(np.int64) * 2654435761 % 1000) / 500.0 - 1.0) * features.data
        scores = np.add.reduceat(effects, features.indptr[:-1])
        labels = (rng.random(rows) < 1 / (1 + np.exp(-scores))).astype(np.float64)
        _written(name, folder, features, labels, {})
    return Workload(name, str(folder / name), None, np.zeros(0), {"regParam": 1e-4, "standardization": True})


def mnist(folder: Path, source: Path, most_rows: int | None = None) -> Workload | None:
    """Handwritten digits (the first of them), pixels from 0 to 1; None where the file is not there."""
    if not source.exists():
        return None
    table = pq.read_table(source).slice(0, most_rows)
    pixels = table["pixels"].combine_chunks().values.to_numpy(zero_copy_only=False)
    features = sparse.csr_matrix(pixels.reshape(table.num_rows, -1).astype(np.float64) / 255.0)
    labels = table["label"].to_numpy().astype(np.float64)
    name = "mnist" if most_rows is None else f"mnist-{most_rows}"
    return _written(name, folder, features, labels, {"regParam": 1e-3, "standardization": False})


def digits(folder: Path) -> Workload:
    """1,797 handwritten digits of 8 x 8 pixels, from 0 to 1."""
    from sklearn.datasets import load_digits

    found = load_digits()
    params = {"regParam": 1e-3, "standardization": False}
    return _written("digits", folder, found.data / 16.0, found.target.astype(np.float64), params)


def breast_cancer(folder: Path) -> Workload:
    """569 tumours by 30 measurements, in deviations from their mean."""
    from sklearn.datasets import load_breast_cancer

    found = load_breast_cancer()
    features = (found.data - found.data.mean(axis=0)) / found.data.std(axis=0)
    params = {"regParam": 1e-3, "standardization": False}
    return _written("breast-cancer", folder, features, found.target.astype(np.float64), params)


def a9a(folder: Path, source: Path) -> Workload | None:
    """Adults' incomes, 123 binary features, labels -1 and 1 as 0 and 1; None where the file is not there."""
    from sklearn.datasets import load_svmlight_file

    if not source.exists():
        return None
    features, labels = load_svmlight_file(str(source), n_features=123)
    return _written(
        "a9a", folder, features, (labels > 0).astype(np.float64), {"regParam": 1e-3, "standardization": False}
    )


def _written(
    name: str,
    folder: Path,
    features: Matrix,
    labels: np.ndarray,
    params: dict[str, Any],
    more: dict[str, np.ndarray] | None = None,
) -> Workload:
    target = folder / name
    if not target.exists():
        target.mkdir(parents=True)
        for part, rows in enumerate(_parts(len(labels))):
            columns = {"label": labels, **(more or {})}
            table = _vector_table(
                features[rows.start : rows.stop], {name: c[rows.start : rows.stop] for name, c in columns.items()}
            )
            pq.write_table(table, target / f"part-{part}.parquet")
    return Workload(name, str(target), features, labels, params)


def _parts(rows: int) -> Iterator[range]:
    for part in range(FILES):
        yield range(rows * part // FILES, rows * (part + 1) // FILES)


def _vector_table(features: Matrix, columns: dict[str, np.ndarray]) -> pa.Table:
    """Rows as Spark itself writes a vector column, so that it reads them back as vectors."""
    from pyspark.ml.linalg import VectorUDT
    from pyspark.sql.types import DoubleType, StructField, StructType

    rows = features.shape[0]
    if sparse.issparse(features):
        kind, size = np.zeros(rows, np.int8), np.full(rows, features.shape[1], np.int32)
        offsets = pa.array(features.indptr.astype(np.int32))
        indices = pa.ListArray.from_arrays(offsets, pa.array(features.indices.astype(np.int32)))
        values = pa.ListArray.from_arrays(offsets, pa.array(features.data))
        fields = [pa.array(kind), pa.array(size), indices, values]
    else:
        width = features.shape[1]
        offsets = pa.array(np.arange(0, rows * width + 1, width, dtype=np.int32))
        values = pa.ListArray.from_arrays(offsets, pa.array(np.ravel(features)))
        absent = pa.nulls(rows, pa.int32())
        fields = [
            pa.array(np.ones(rows, np.int8)), absent, pa.nulls(rows, pa.list_(pa.int32())), values,
        ]  # fmt: skip
    vectors = pa.StructArray.from_arrays(fields, names=["type", "size", "indices", "values"])
    schema = StructType([StructField("features", VectorUDT()), *(StructField(name, DoubleType()) for name in columns)])
    return pa.table({"features": vectors, **columns}).replace_schema_metadata(
        {"org.apache.spark.sql.parquet.row.metadata": schema.json()}
    )
