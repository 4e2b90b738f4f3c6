"""Run by test_wide_storage.py in a fresh interpreter: loads a saved model, scores rows, prints a line of JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path


def main(saved: Path) -> None:
    sys.modules["pandas"] = None  # type: ignore[assignment]  # as if it were not installed
    import sparkdml
    from sparkdml.wide import DistributedLogisticRegressionModel, scoring

    builder = sparkdml.session().master("local[1]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.sql.shuffle.partitions", "1").getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    model = DistributedLogisticRegressionModel.load(str(saved / "model"))
    scoring.REPLICATED_BYTES = 0
    rows = model.transform(spark.read.parquet(str(saved / "rows"))).collect()
    found = sorted([row.id, *row.rawPrediction.toArray().tolist(), row.prediction] for row in rows)
    print(json.dumps(found), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
