"""Several logistic regressions that answer together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pyspark.ml import Model
from pyspark.ml import classification as spark
from pyspark.ml.param.shared import HasFeaturesCol, HasPredictionCol, HasProbabilityCol
from pyspark.ml.util import DefaultParamsReader, DefaultParamsWriter, MLReadable, MLWritable

from sparkdml.report.fit_report import FitReport
from sparkdml.saving import FORMAT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class LogisticRegressionEnsembleModel(
    Model, HasFeaturesCol, HasPredictionCol, HasProbabilityCol, MLWritable, MLReadable[Any]
):
    """The average of what its members, Spark's own models, hold probable: ``p = sum_k share_k p_k``.

    ``transform`` adds ``probabilityCol`` (a vector) and ``predictionCol`` (the most probable class; the first of
    equals). All of it runs in the JVM; loading needs sparkdml.

    Attributes
    ----------
    models, shares : the members, and their weights, which add up to 1.
    report : of the fit; None after loading.
    """

    __module__ = "sparkdml.classification"

    report: FitReport | None = None

    def __init__(self, models: Sequence[spark.LogisticRegressionModel] = (), shares: Sequence[float] = ()) -> None:
        super().__init__()
        self._setDefault(featuresCol="features", predictionCol="prediction", probabilityCol="probability")
        self.models, self.shares = list(models), [float(share) for share in shares]

    @property
    def numClasses(self) -> int:
        """Of every member."""
        return int(self.models[0].numClasses)

    @property
    def numFeatures(self) -> int:
        """Of every member."""
        return int(self.models[0].numFeatures)

    def _transform(self, dataset: DataFrame) -> DataFrame:
        from pyspark.ml.functions import array_to_vector, vector_to_array
        from pyspark.sql import functions as F

        scored, columns = dataset, []
        for number, model in enumerate(self.models):
            column = f"{self.uid} probability {number}"
            only = {"featuresCol": self.getFeaturesCol(), "probabilityCol": column, "predictionCol": ""}
            member = model.copy()
            member._set(rawPredictionCol="", **only)
            scored = member.transform(scored)
            columns.append(vector_to_array(F.col(f"`{column}`")))
        mixture = F.array(
            *[
                sum(
                    (F.lit(share) * column[label] for share, column in zip(self.shares, columns, strict=True)),
                    F.lit(0.0),
                )
                for label in range(self.numClasses)
            ]
        )
        kept = [F.col(f"`{name}`") for name in dataset.columns]
        if self.getProbabilityCol():
            kept.append(array_to_vector(mixture).alias(self.getProbabilityCol()))
        if self.getPredictionCol():
            best = F.array_position(mixture, F.array_max(mixture)) - 1
            kept.append(best.cast("double").alias(self.getPredictionCol()))
        return scored.select(*kept)

    def write(self) -> DefaultParamsWriter:
        """Writes the members as Spark's own models, beside the shares."""
        return _Writer(self)

    @classmethod
    def read(cls) -> DefaultParamsReader[Any]:
        """Reads what :meth:`write` wrote."""
        return _Reader(cls)  # type: ignore[arg-type]


class _Writer(DefaultParamsWriter):
    def saveImpl(self, path: str) -> None:
        ensemble: Any = self.instance
        extra = {"sparkdml": {"format": FORMAT, "shares": ensemble.shares}}
        DefaultParamsWriter.saveMetadata(ensemble, path, self.sparkSession, extra)
        for number, model in enumerate(ensemble.models):
            model.write().save(f"{path}/models/{number}")


class _Reader(DefaultParamsReader[Any]):
    def load(self, path: str) -> Any:
        metadata = DefaultParamsReader.loadMetadata(path, self.sparkSession)
        shares = metadata["sparkdml"]["shares"]
        members = [spark.LogisticRegressionModel.load(f"{path}/models/{number}") for number in range(len(shares))]
        instance = LogisticRegressionEnsembleModel(members, shares)
        instance._resetUid(metadata["uid"])
        DefaultParamsReader.getAndSetParams(instance, metadata)
        return instance
