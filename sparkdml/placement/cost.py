"""What a fit would cost under each placement: rough figures, good enough to tell factors apart."""

from __future__ import annotations

import re
from dataclasses import dataclass

#: Values a second that one core evaluates, read from memory in order.
VALUE_RATE = 7e8
#: Bytes a second of: sums over arrays by one thread; coefficients through Spark (broadcast, results, shuffle), to and
#: from each worker; a link between two workers; files that workers and shards leave for one another.
MEMORY_RATE, SPARK_RATE, LINK_RATE, FILE_RATE = 8e9, 1.2e8, 1e9, 4e8
#: Seconds of a round without rows: a Spark job; three of them; a message; nothing. And of starting workers once.
JOB, THREE_JOBS, MESSAGE, CALL, GANG = 0.05, 0.11, 0.001, 0.0002, 1.5
#: Rounds that a fit is expected to take.
ROUNDS = 50
#: Vectors as long as the model that L-BFGS passes over in a round, and that it keeps.
PASSES, ARRAYS = 42, 26
#: The share of the driver's memory that a model and its history may take.
DRIVER_SHARE = 0.5
#: Rows of so many bytes are brought to the driver, if that is where they are worked on.
FETCH_BYTES = 16 * 2**20


@dataclass(frozen=True)
class Work:
    """What is to be done, and with what.

    features, outputs : of the model. nonzeros, stored_bytes : of the rows. partitions : that have rows. here : whether
    their files are within the driver's reach.
    """

    features: int
    outputs: int
    nonzeros: float
    stored_bytes: int
    partitions: int
    slots: int
    driver_bytes: float
    here: bool

    @property
    def model_bytes(self) -> float:
        return 8.0 * self.features * self.outputs

    @property
    def on_driver(self) -> float:
        """Bytes that the driver would hold: the model with its history, and three numbers a feature of statistics."""
        return ARRAYS * self.model_bytes + 24.0 * self.features

    @property
    def fits_driver(self) -> bool:
        return self.on_driver <= DRIVER_SHARE * self.driver_bytes

    @property
    def workers(self) -> int:
        return max(min(self.partitions, self.slots), 1)

    @property
    def arithmetic(self) -> float:
        """Seconds of a round's arithmetic on rows, on all workers."""
        return self.nonzeros * self.outputs / (VALUE_RATE * self.workers)

    @property
    def touched_bytes(self) -> float:
        """Of the coefficients that a worker's rows touch, at most."""
        return 8.0 * self.outputs * min(self.nonzeros / self.workers, self.features)


def seconds(work: Work) -> dict[str, float]:
    """Of a fit of :data:`ROUNDS` rounds, by placement; those that cannot be are left out.

    - local: ``arithmetic + passes``, once ``stored / SPARK_RATE`` if rows are elsewhere
    - broadcast: ``job + arithmetic + passes + 2 workers model / SPARK_RATE``
    - allreduce: ``message + arithmetic + passes + 2 model / LINK_RATE``, and the start of a gang
    - partitioned: ``3 jobs + arithmetic + passes / slots + 2 touched / FILE_RATE``

    passes are those of L-BFGS over the model, ``PASSES model / MEMORY_RATE``.
    """
    passes = PASSES * work.model_bytes / MEMORY_RATE
    found = {}
    if work.fits_driver:
        if work.here:
            found["local"] = ROUNDS * (CALL + work.arithmetic + passes)
        elif work.stored_bytes <= FETCH_BYTES:
            alone = work.arithmetic * work.workers
            found["local"] = JOB + work.stored_bytes / SPARK_RATE + ROUNDS * (CALL + alone + passes)
        sent = 2.0 * work.workers * work.model_bytes / SPARK_RATE
        found["broadcast"] = ROUNDS * (JOB + work.arithmetic + passes + sent)
        found["allreduce"] = GANG + ROUNDS * (MESSAGE + work.arithmetic + passes + 2 * work.model_bytes / LINK_RATE)
    moved = 2.0 * work.touched_bytes / FILE_RATE
    found["partitioned"] = ROUNDS * (THREE_JOBS + work.arithmetic + passes / work.slots + moved)
    return found


def memory_bytes(setting: str) -> float:
    """``spark.driver.memory`` in bytes: ``1g``, ``512m``, or a number of MiB."""
    found = re.fullmatch(r"\s*(\d+)\s*(b|[kmgtp]?b?)\s*", setting.lower())
    if found is None:
        return float(2**30)
    return float(found[1]) * 1024.0 ** {"b": 0, "": 2, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5}[found[2][:1]]
