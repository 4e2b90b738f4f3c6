"""Run by test_fit_features.py: a driver that ends itself, without any warning, after some rounds of a fit."""

from __future__ import annotations

import os
import signal
import sys

from linear_family import iterated, rows
from pyspark.ml.linalg import Vectors

import sparkdml


def main(name: str, directory: str, placement: str, rounds: int) -> None:
    spark = sparkdml.session().master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    data = [(Vectors.dense(x.tolist()), y) for x, y in zip(*map(list, rows(2)), strict=True)]
    frame = spark.createDataFrame([(x, float(y)) for x, y in data], ["features", "label"])

    def end(history) -> None:
        if len(history.rounds) == rounds:
            os.kill(os.getpid(), signal.SIGKILL)

    iterated(name, checkpointDir=directory, checkpointInterval=2, placement=placement).setOnRound(end).fit(frame)
    print("the fit ended before the driver did", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
