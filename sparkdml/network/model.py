"""Networks that Spark has no class for: their scoring, and their files."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.ml import Model
from pyspark.ml.linalg import DenseVector
from pyspark.ml.param.shared import HasFeaturesCol, HasLabelCol, HasPredictionCol
from pyspark.ml.util import DefaultParamsReader, DefaultParamsWriter, MLReadable, MLWritable
from scipy import sparse

from sparkdml.data.block import DENSE_SHARE
from sparkdml.optim.network import Network
from sparkdml.report.fit_report import FitReport
from sparkdml.resources.worker import limit_threads
from sparkdml.saving import FORMAT, decode, encode
from sparkdml.wide.answers import Answer, beside
from sparkdml.wide.rows import FeatureReader, as_pair
from sparkdml.wide.scoring import opened
from sparkdml.wide.shards import map_in_arrow

if TYPE_CHECKING:
    from pyspark.ml.linalg import Vector
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructField


class NetworkModel(Model, HasFeaturesCol, HasLabelCol, HasPredictionCol, MLWritable, MLReadable[Any]):
    """A feed-forward network. ``featuresCol`` is a column of vectors or of arrays of numbers.

    ``transform`` starts no job itself. Null and rows of another size end the job with a ValueError that names the
    column; NaN gives NaN.

    Attributes
    ----------
    report : of the fit; None after loading.
    """

    report: FitReport | None = None

    def __init__(self, network: Network | None = None, weights: np.ndarray | None = None) -> None:
        super().__init__()
        self._network = network or Network((1, 1))
        self._weights = np.zeros(self._network.size) if weights is None else np.asarray(weights, np.float64)
        assert len(self._weights) == self._network.size

    @abstractmethod
    def _answer(self, columns: bool = True) -> tuple[Answer, list[StructField]]:
        """How margins become columns, and the columns; without ``columns`` all that there can be, of one row."""

    @property
    def layers(self) -> list[int]:
        """How many units each layer has."""
        return list(self._network.layers)

    @property
    def activation(self) -> str:
        """Of hidden units."""
        return self._network.activation

    @property
    def weights(self) -> Vector:
        """Of all layers, in Spark's order: for each a matrix (in, out), row by row, then ``out`` biases."""
        return DenseVector(self._weights)

    @property
    def numFeatures(self) -> int:
        """How many numbers a row has."""
        return self._network.layers[0]

    def predict(self, value: Vector) -> float:
        """The prediction for one row."""
        return float(self._of(value)[-1][0])

    def setFeaturesCol(self, value: str) -> Any:
        """A column of vectors, or of arrays of numbers."""
        return self._set(featuresCol=value)

    def setPredictionCol(self, value: str) -> Any:
        """An empty name leaves the column out."""
        return self._set(predictionCol=value)

    def write(self) -> DefaultParamsWriter:
        """Writes parameters as JSON, and weights as Parquet."""
        return _Writer(self)

    @classmethod
    def read(cls) -> DefaultParamsReader[Any]:
        """Reads what :meth:`write` wrote."""
        return _Reader(cls)  # type: ignore[arg-type]

    def _of(self, value: Vector) -> list[np.ndarray]:
        """What is answered to one row."""
        indices, values = as_pair(value, self.numFeatures)
        row = np.zeros((1, self.numFeatures))
        np.add.at(row[0], indices, values)
        return self._answer(columns=False)[0](_margins(self._network, self._weights, row))

    def _transform(self, dataset: DataFrame) -> DataFrame:
        answer, fields = self._answer()
        if not fields:
            return dataset
        plain, reader, schema = opened(dataset, [self.getFeaturesCol()], self.numFeatures, fields)
        scored = map_in_arrow(plain, _Score(reader, self._network, self._weights, answer, schema.names), schema)
        return scored.toDF(*dataset.columns, *[field.name for field in fields])


@dataclass(frozen=True)
class _Score:
    """Over batches of rows; sent to every task with the weights."""

    reader: FeatureReader
    network: Network
    weights: np.ndarray
    answer: Answer
    names: list[str]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        limit_threads()
        for batch in batches:
            read = self.reader.read(batch)
            shape = (batch.num_rows, self.reader.features)
            rows = sparse.csr_matrix((read.values, read.indices, read.indptr), shape)
            features = rows.toarray() if len(read.values) > DENSE_SHARE * shape[0] * shape[1] else rows
            yield beside(batch, self.answer(_margins(self.network, self.weights, features)), self.names)


def _margins(network: Network, weights: np.ndarray, features: Any) -> np.ndarray:
    exact = replace(network, dtype=np.float64)
    return exact.margins(exact.params(weights), features)


class _Writer(DefaultParamsWriter):
    def saveImpl(self, path: str) -> None:
        model: Any = self.instance
        about = {"format": FORMAT, "layers": model.layers, "activation": model.activation}
        params = {param.name: encode(value) for param, value in model._paramMap.items()}
        self.sparkSession.createDataFrame([(model.weights,)], ["weights"]).coalesce(1).write.parquet(f"{path}/data")
        # written last: a folder with metadata is whole
        DefaultParamsWriter.saveMetadata(model, path, self.sparkSession, {"sparkdml": about}, paramMap=params)


class _Reader(DefaultParamsReader[Any]):
    def load(self, path: str) -> Any:
        metadata = DefaultParamsReader.loadMetadata(path, self.sparkSession)
        about = metadata.get("sparkdml", {})
        cls: Any = self.cls
        if about.get("format", 0) > FORMAT:
            raise ValueError(
                f"{path} has format {about['format']}, and this version of sparkdml reads up to {FORMAT}; install a "
                "newer one"
            )
        if metadata["class"].split(".")[-1] != cls.__name__:
            raise ValueError(f"{path} holds a {metadata['class']}, not a {cls.__name__}; load it with that class")
        row = self.sparkSession.read.parquet(f"{path}/data").first()
        assert row is not None
        network: Any = Network(tuple(about["layers"]), about["activation"])
        model: Any = cls(network, row["weights"].toArray())
        model._resetUid(metadata["uid"])
        model._set(**{name: decode(value) for name, value in metadata["paramMap"].items()})
        model._setDefault(**metadata["defaultParamMap"])
        return model
