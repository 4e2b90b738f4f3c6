"""Write the predictions of a saved model, as Parquet that needs no Spark to be read."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import tables
from config import ConfigError, setting
from console import launch
from models import check_model, input_width, load_model
from places import Output, check_input, check_output
from tables import Features, Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class Config:
    """Which model predicts what, and where the predictions go."""

    model: str = setting("the folder that the model was saved to")
    input: Table = setting("the rows to predict for")
    features: Features | None = setting(tables.MODEL_FEATURES, default=None)
    columns: tuple[str, ...] | None = setting(
        "what is written, of the input's columns and the model's; default: those of the model",
        default=None,
    )
    output: Output = setting("the predictions, as Parquet; default path: predictions", default_factory=Output)

    @property
    def predictions_path(self) -> str:
        """Where the predictions go."""
        return self.output.path or "predictions"


def check(config: Config) -> None:
    """Refuse what can be known to be wrong without Spark."""
    check_model(config.model)
    check_input(config.input, "input")
    check_output(config.output, config.predictions_path)


def run(spark: SparkSession, config: Config) -> None:
    """Predict and write."""
    check_output(config.output, config.predictions_path, spark)
    model = load_model(spark, config.model)
    frame = tables.read(spark, config.input, input_width(model))
    predicted, added = predict(model, frame, config.features)
    columns = config.columns or added
    tables.require(predicted, columns, "columns")
    mode = "overwrite" if config.output.overwrite else "errorifexists"
    plain_columns(predicted.select(*columns)).write.mode(mode).parquet(config.predictions_path)
    print(f"predictions  {config.predictions_path}")


def predict(model: Any, frame: DataFrame, features: Features | None) -> tuple[DataFrame, tuple[str, ...]]:
    """``frame`` with the model's columns, and the names of those."""
    from pyspark.ml.param.shared import HasFeaturesCol

    where = {}
    if isinstance(model, HasFeaturesCol):
        features = tables.model_features(frame, model, features)
        frame, vector = tables.with_vector(frame, features)
        where = {model.featuresCol: vector}
    elif features is not None:
        raise ConfigError(f"features: a {type(model).__name__} chooses its own columns; leave out")
    predicted = model.transform(frame, where)
    return predicted, tuple(name for name in predicted.columns if name not in frame.columns)


def plain_columns(frame: DataFrame) -> DataFrame:
    """``frame`` with arrays of doubles in place of Spark's vectors."""
    from pyspark.ml.functions import vector_to_array
    from pyspark.ml.linalg import VectorUDT
    from pyspark.sql import functions as F

    return frame.select(
        *(
            vector_to_array(F.col(field.name)).alias(field.name)
            if isinstance(field.dataType, VectorUDT)
            else F.col(field.name)
            for field in frame.schema
        )
    )


def main(argv: Sequence[str] | None = None) -> int:
    """The command line."""
    return launch(Config, run, __doc__, argv, check)


if __name__ == "__main__":
    sys.exit(main())
