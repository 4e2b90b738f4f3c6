"""What all models have whose coefficients are in shards."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from pyspark.ml import Model
from pyspark.ml.linalg import DenseVector, SparseVector, Vector
from pyspark.ml.param import Param, Params, TypeConverters
from pyspark.ml.param.shared import HasFeaturesCol, HasPredictionCol
from pyspark.ml.util import DefaultParamsReader, DefaultParamsWriter, MLReadable, MLWritable
from pyspark.sql import SparkSession

from sparkdml.report.fit_report import FitReport
from sparkdml.wide import inspection, scoring
from sparkdml.wide.rows import as_pair
from sparkdml.wide.scorer import Linear, Scorer
from sparkdml.wide.shard import Chunk, Shard
from sparkdml.wide.shards import InRDD, Shards
from sparkdml.wide.storage import Reader, Writer

if TYPE_CHECKING:
    from pyspark import RDD
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructField

    from sparkdml.wide.answers import Answer


class DistributedModel(Model, HasFeaturesCol, HasPredictionCol, MLWritable, MLReadable[Any]):
    """A model whose coefficients stay in shards on the executors, however many they are.

    ``transform`` brings rows to shards and sums back (small models: coefficients to rows), and starts no job itself.
    Rows may come back in another order. Features are ``featuresCol``, a column of vectors or of arrays of numbers,
    or, where ``indicesCol`` and ``valuesCol`` are set, two columns of arrays: feature numbers in any order (values
    of one that is there twice add up) and their values. Null, rows of another size and feature numbers out of range
    end the job with a ValueError that names the column; NaN gives NaN.

    Parameters
    ----------
    chunks : RDD of ``(indices, values)``, ``indices`` int64 (n,) increasing, ``values`` float64 (n, C), rows that
        are all zero left out. Partition s is shard s. The model never persists or frees it: whoever made it does,
        and keeps it persisted while the model is used, or else it is computed whenever coefficients are needed.
    bounds : int64 (S + 1,); shard s has the features from ``bounds[s]`` to ``bounds[s + 1] - 1``.
    intercepts : (K,) added to the margins.
    columns : C, if it is not K.

    Attributes
    ----------
    report : of the fit; None after loading.
    """

    report: FitReport | None = None

    indicesCol: Param[str] = Param(
        Params._dummy(), "indicesCol", "column of arrays of feature numbers", TypeConverters.toString
    )
    valuesCol: Param[str] = Param(
        Params._dummy(), "valuesCol", "column of arrays of the values of indicesCol", TypeConverters.toString
    )

    def __init__(
        self,
        chunks: RDD[Chunk] | None = None,
        bounds: Sequence[int] | np.ndarray = (0, 0),
        intercepts: Sequence[float] | np.ndarray = (0.0,),
        columns: int | None = None,
    ) -> None:
        super().__init__()
        self._intercepts = np.array(intercepts, np.float64)
        self._shards_or_none: Shards | None = None
        self._zeros: float | None = None
        if chunks is not None:
            numbers = np.asarray(bounds, np.int64)
            if numbers[0] != 0 or (np.diff(numbers) < 0).any() or len(numbers) - 1 != chunks.getNumPartitions():
                raise ValueError(
                    f"bounds must increase from 0 and have one number more than the {chunks.getNumPartitions()} "
                    f"partitions of chunks, but they are {numbers.tolist()[:5]}... ({len(numbers)} numbers)"
                )
            self._shards_or_none = InRDD(numbers, columns or len(self._intercepts), chunks)

    # What a kind of model says about itself.

    def _scorer(self) -> Scorer:
        return Linear(self._shards.columns)

    def _answer(self, columns: bool = True) -> tuple[Answer, list[StructField]]:
        """How margins become columns, and the columns; without ``columns`` the prediction alone."""
        raise NotImplementedError

    def _spark_model(self, coefficients: np.ndarray) -> Any:
        """Spark's own model of ``coefficients`` (features, C)."""
        raise NotImplementedError

    def _described(self) -> dict[str, Any]:
        """What is saved beside shards and intercepts: plain values."""
        return {}

    def _restore(self, about: dict[str, Any]) -> None:
        """Takes what :meth:`_described` gave."""

    # The same for all.

    @property
    def _shards(self) -> Shards:
        if self._shards_or_none is None:
            raise ValueError(f"this {type(self).__name__} has no coefficients: it was built without chunks")
        return self._shards_or_none

    @property
    def numFeatures(self) -> int:
        """How many numbers a row has."""
        return self._shards.features

    @property
    def intercept(self) -> float:
        """The intercept of a model with one margin a row."""
        if len(self._intercepts) != 1:
            raise ValueError(f"this model has {len(self._intercepts)} intercepts; use interceptVector")
        return float(self._intercepts[0])

    @property
    def coefficientsRDD(self) -> RDD[Chunk]:
        """Chunks ``(indices, values)``, of shard s in partition s: see the class."""
        return self._shards.chunks

    @property
    def coefficients(self) -> Vector:
        """All coefficients of a model with one margin a row; sparse if that is smaller.

        Raises ValueError above ``COEFFICIENTS_LIMIT`` (2**24) numbers.
        """
        if self._shards.columns != 1:
            raise ValueError(f"this model has {self._shards.columns} coefficients a feature; use coefficientMatrix")
        shard = self._collect("coefficients")
        indices, values = shard.indices, shard.values[:, 0]
        if 12 * len(indices) < 8 * self.numFeatures:
            return SparseVector(self.numFeatures, indices.astype(np.int32), values)
        return DenseVector(shard.dense(self.numFeatures)[:, 0])

    def topFeatures(self, k: int) -> list[tuple[Any, ...]]:
        """The ``k`` coefficients of largest magnitude, ties by feature: ``(feature, coefficient)``.

        With C > 1 coefficients a feature ``(feature, class, coefficient)``. Fewer than ``k``, if fewer are not zero.
        """
        if k < 1:
            raise ValueError(f"k is {k}; ask for at least one feature")
        values, features, classes = (array.tolist() for array in inspection.largest(self._shards, k))
        if self._shards.columns == 1:
            return list(zip(features, values, strict=True))
        return list(zip(features, classes, values, strict=True))

    @property
    def sparsity(self) -> float:
        """The share of coefficients that are exactly 0; counted by one job, once."""
        if self._zeros is None:
            size = self._shards.features * self._shards.columns
            self._zeros = 1.0 - inspection.count_nonzero(self._shards) / max(size, 1)
        return self._zeros

    def toSpark(self) -> Any:
        """Spark's own model, with this one's parameters.

        Raises ValueError above ``COEFFICIENTS_LIMIT`` (2**24) numbers.
        """
        model = self._spark_model(self._collect("toSpark").dense(self.numFeatures))
        model._resetUid(self.uid)
        self._copyValues(model)
        for param in model.params:
            if model.isSet(param):  # predict, unlike transform, does not tell the JVM's model
                model._java_obj.set(model._make_java_param_pair(param, model.getOrDefault(param)))
        return model

    def predict(self, value: Vector | tuple[Sequence[int], Sequence[float]]) -> float:
        """The prediction for a vector, or for indices and values: by a job on the shards that it touches."""
        return float(self._answer(columns=False)[0](self._margins(value))[-1][0])

    def _margins(self, value: Vector | tuple[Sequence[int], Sequence[float]]) -> np.ndarray:
        """The margins (1, K) of one row."""
        indices, values = as_pair(value, self.numFeatures)
        features, local = np.unique(indices, return_inverse=True)
        scorer, ends = self._scorer(), np.array([0, len(indices)], np.int64)
        found = inspection.take(self._shards, features)
        return scorer.margins(scorer.partial(ends, local.astype(np.int32), values, found), self._intercepts)

    def _transform(self, dataset: DataFrame) -> DataFrame:
        answer, fields = self._answer()
        if not fields:
            return dataset
        how = scoring.Scoring(self._scorer(), self._intercepts, answer, fields)
        return scoring.transform(dataset, self._feature_columns(), self._shards, how)

    def _feature_columns(self) -> list[str]:
        pair = [name for name in ("indicesCol", "valuesCol") if self.isDefined(name) and self.getOrDefault(name)]
        if len(pair) == 1:
            raise ValueError(f"{pair[0]} is set without the other of indicesCol and valuesCol; set both or none")
        return [self.getOrDefault(name) for name in pair] or [self.getFeaturesCol()]

    def persist(self) -> Any:
        """Keeps shards where ``transform`` needs them, in memory or on disk, from the next job on; returns the model.

        Without it every transform of a large model moves all shards once.
        """
        if self._shards.placed is None:
            self._shards.placed = scoring.place(self._shards, SparkSession.active()).persist()
        return self

    def close(self) -> None:
        """Frees what :meth:`persist` keeps, for all copies of the model; it can be used, and persisted, again."""
        if self._shards.placed is not None:
            self._shards.placed.unpersist()
            self._shards.placed = None

    def setFeaturesCol(self, value: str) -> Any:
        """A column of vectors, or of arrays of numbers."""
        return self._set(featuresCol=value)

    def setPredictionCol(self, value: str) -> Any:
        """An empty name leaves the column out."""
        return self._set(predictionCol=value)

    def setIndicesCol(self, value: str) -> Any:
        """Arrays of feature numbers; with ``valuesCol`` instead of ``featuresCol``."""
        return self._set(indicesCol=value)

    def setValuesCol(self, value: str) -> Any:
        """Arrays of the values of ``indicesCol``."""
        return self._set(valuesCol=value)

    def write(self) -> DefaultParamsWriter:
        """Writes parameters as JSON, and coefficients as Parquet from the executors."""
        return Writer(self)

    @classmethod
    def read(cls) -> DefaultParamsReader[Any]:
        """Reads what :meth:`write` wrote; coefficients are read when they are first needed."""
        return Reader(cls)  # type: ignore[arg-type]

    def _collect(self, what: str) -> Shard:
        return inspection.collect(self._shards, what)
