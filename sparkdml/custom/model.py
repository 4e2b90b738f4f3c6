"""A trained objective: its parameters, its predictions, its files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.ml import Model
from pyspark.ml.linalg import VectorUDT
from pyspark.ml.param.shared import HasFeaturesCol, HasLabelCol, HasPredictionCol
from pyspark.ml.util import DefaultParamsReader, DefaultParamsWriter
from pyspark.sql import SparkSession
from pyspark.sql import types as T
from scipy import sparse

from sparkdml.custom.libraries import CustomFunction, function_of
from sparkdml.custom.objective import Objective
from sparkdml.custom.trees import Tree, put_together
from sparkdml.report.fit_report import FitReport
from sparkdml.resources.worker import limit_threads
from sparkdml.saving import FORMAT, decode, encode
from sparkdml.wide.answers import beside
from sparkdml.wide.rows import FeatureReader
from sparkdml.wide.scoring import opened
from sparkdml.wide.shards import map_in_arrow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class ObjectiveModel(Model, HasFeaturesCol, HasLabelCol, HasPredictionCol):
    """Trained parameters, and the objective they are of. ``transform`` adds what its ``predict`` says of each row.

    That column is of numbers, or of vectors where ``predict`` returns a matrix. Null and rows of another size end the
    job with a ValueError that names the column.

    Attributes
    ----------
    report : of the fit; None after loading.
    """

    __module__ = "sparkdml"  # where users find it, and what is saved with it

    report: FitReport | None = None

    def __init__(self, objective: Objective, point: np.ndarray, features: int) -> None:
        super().__init__()
        self._setDefault(predictionCol="prediction")
        self._function: CustomFunction = function_of(objective, features)
        self._point = np.asarray(point, np.float64)

    @property
    def parameters(self) -> Tree:
        """The parameters, float64, in a tree like the objective's ``initial``."""
        named = self._function.params(self._point.copy())
        return put_together(self._function.objective.initial, lambda path: named[path])

    @property
    def numFeatures(self) -> int:
        """How many numbers a row has."""
        return self._function.features

    def write(self) -> DefaultParamsWriter:
        """Writes parameters as Parquet and columns as JSON. Functions are not saved: nothing on disk is ever run."""
        return _Writer(self)

    def save(self, path: str) -> None:
        """To any file system that Spark reaches."""
        self.write().save(path)

    @classmethod
    def load(cls, path: str, objective: Objective) -> ObjectiveModel:
        """What was saved; ``objective`` has parameters of the same names and shapes."""
        spark = SparkSession.active()
        metadata = DefaultParamsReader.loadMetadata(path, spark, "sparkdml.ObjectiveModel")
        about = metadata.get("sparkdml", {})
        if about.get("format", 0) > FORMAT:
            raise ValueError(
                f"{path} has format {about['format']}, and this version of sparkdml reads up to {FORMAT}; install a "
                "newer one"
            )
        found = {row["name"]: row for row in spark.read.parquet(f"{path}/data").collect()}
        shapes = {name: tuple(row["shape"]) for name, row in found.items()}
        if shapes != objective.shapes:
            raise ValueError(
                f"{path} has parameters of shapes {shapes}, and the objective {objective.shapes}; give the objective "
                "that it was trained with"
            )
        point = np.concatenate([np.asarray(found[name]["values"], np.float64) for name in objective.shapes])
        model = cls(objective, point, about["features"])
        model._resetUid(metadata["uid"])
        model._set(**{name: decode(value) for name, value in metadata["paramMap"].items()})
        model._setDefault(**metadata["defaultParamMap"])
        return model

    def _transform(self, dataset: DataFrame) -> DataFrame:
        if self._function.objective.predict is None:
            raise ValueError("the objective has no predict; give sparkdml.Objective one: predict(params, features)")
        predict = _Predict(self._function, self._point)
        likeness = predict(np.zeros((1, self.numFeatures)))
        vectors = likeness.ndim == 2
        field = T.StructField(self.getPredictionCol(), VectorUDT() if vectors else T.DoubleType(), vectors)
        plain, reader, schema = opened(dataset, [self.getFeaturesCol()], self.numFeatures, [field])
        scored = map_in_arrow(plain, _Score(reader, predict, schema.names), schema)
        return scored.toDF(*dataset.columns, field.name)


class _Writer(DefaultParamsWriter):
    def saveImpl(self, path: str) -> None:
        model: Any = self.instance
        named = model._function.params(model._point)
        rows = [(name, list(array.shape), array.ravel().tolist()) for name, array in named.items()]
        frame = self.sparkSession.createDataFrame(rows, "name string, shape array<bigint>, values array<double>")
        frame.coalesce(1).write.parquet(f"{path}/data")
        params = {param.name: encode(value) for param, value in model._paramMap.items()}
        about = {"sparkdml": {"format": FORMAT, "features": model.numFeatures}}
        # written last: a folder with metadata is whole
        DefaultParamsWriter.saveMetadata(model, path, self.sparkSession, about, paramMap=params)


@dataclass(frozen=True)
class _Predict:
    """What the user's function says of rows, float64 (n,) or (n, k)."""

    function: CustomFunction
    point: np.ndarray

    def __call__(self, features: np.ndarray) -> np.ndarray:
        found = self.function.predict(self.function.params(self.point), features)
        if found.ndim not in (1, 2) or len(found) != len(features):
            raise ValueError(
                f"the objective's predict returned shape {found.shape} for n={len(features)} rows; return numbers, "
                "(n,), or (n, k) for a column of vectors"
            )
        return found


@dataclass(frozen=True)
class _Score:
    """Over batches of rows; sent to every task with the parameters."""

    reader: FeatureReader
    predict: _Predict
    names: list[str]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        limit_threads()
        for batch in batches:
            read = self.reader.read(batch)
            shape = (batch.num_rows, self.reader.features)
            rows = sparse.csr_matrix((read.values, read.indices, read.indptr), shape)
            yield beside(batch, [self.predict(rows.toarray())] if batch.num_rows else [np.zeros(0)], self.names)
