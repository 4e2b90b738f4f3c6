"""How many workers a fit has, and what each of them has."""

from __future__ import annotations

from pyspark.ml.param import Param, Params, TypeConverters


class HasWorkers(Params):
    numWorkers: Param[int] = Param(
        Params._dummy(),
        "numWorkers",
        "at most so many workers share the rows; 0 stands for as many as Spark has slots",
        typeConverter=TypeConverters.toInt,
    )
    gpusPerWorker: Param[float] = Param(
        Params._dummy(),
        "gpusPerWorker",
        "GPUs of each worker, by Spark's resource scheduling: 0 (none), a share (0.5: two workers on each GPU), 1, 2, "
        "...",
        typeConverter=TypeConverters.toFloat,
    )

    def getNumWorkers(self) -> int:
        """The largest number of workers; 0 if it follows from Spark's slots."""
        return int(self.getOrDefault(self.numWorkers))

    def getGpusPerWorker(self) -> float:
        """GPUs of each worker."""
        return float(self.getOrDefault(self.gpusPerWorker))
