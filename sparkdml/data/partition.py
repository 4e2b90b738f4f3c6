"""Which worker gets which rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


@dataclass(frozen=True)
class Split:
    """``how`` is one of ``SPLITS``. One seed gives one split of the same rows; see each for what else decides."""

    how: str = "given"
    seed: int = 0

    def __post_init__(self) -> None:
        if self.how not in SPLITS:
            raise ValueError(f"split='{self.how}' is not known; it can be {', '.join(SPLITS)}")

    def apply(self, frame: DataFrame, parts: int, label: str) -> DataFrame:
        """The rows of ``frame`` in ``parts`` partitions; ``label`` is its column of classes."""
        return SPLITS[self.how](frame, parts, label, self.seed)


def _given(frame: DataFrame, parts: int, label: str, seed: int) -> DataFrame:
    """As they come: partitions are grouped, nothing moves."""
    # more tasks than slots would cost every later round
    return frame.coalesce(parts)


def _shuffled(frame: DataFrame, parts: int, label: str, seed: int) -> DataFrame:
    """By a hash of seed and row, in its order: the same however the input is partitioned. Equal rows stay together."""
    from pyspark.sql import functions as F

    order = _hash(frame, seed)
    # the upper half of the bits places a row, all of them order it: so that no partition is one stretch of hashes
    return frame.repartition(parts, F.shiftright(order, 32)).sortWithinPartitions(order)


def _with_replacement(frame: DataFrame, parts: int, label: str, seed: int) -> DataFrame:
    """As many rows as there are, drawn with replacement by Spark (Poisson, by input partition), then shuffled."""
    return _shuffled(frame.sample(withReplacement=True, fraction=1.0, seed=seed), parts, label, seed)


def _stratified(frame: DataFrame, parts: int, label: str, seed: int) -> DataFrame:
    """Every partition gets the same number of rows of each label, give or take one: dealt in the order of a hash."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    order = _hash(frame, seed)
    place = "partition of this row"
    window = Window.partitionBy(label).orderBy(order)
    # labels begin their deal one after another, so that what does not divide evenly does not pile up in the first
    turn = F.pmod(F.row_number().over(window) + F.coalesce(F.col(f"`{label}`").cast("long"), F.lit(0)), F.lit(parts))
    salts = F.array(*[F.lit(salt) for salt in _salts(frame, parts)])
    dealt = frame.withColumn(place, F.element_at(salts, turn.cast("int") + 1))
    return dealt.repartition(parts, F.col(f"`{place}`")).sortWithinPartitions(order).drop(place)


def _hash(frame: DataFrame, seed: int) -> Column:
    from pyspark.sql import functions as F

    return F.xxhash64(F.lit(seed), *[F.col(f"`{name}`") for name in frame.columns])


def _salts(frame: DataFrame, parts: int) -> list[int]:
    """One int for each partition, which Spark's hash partitioning puts there."""
    from pyspark.sql import functions as F

    number = F.col("id").cast("int")
    candidates = frame.sparkSession.range(64 * parts, numPartitions=1)
    rows = candidates.select(number.alias("salt"), F.pmod(F.hash(number), F.lit(parts)).alias("place")).collect()
    found = {row["place"]: row["salt"] for row in rows}
    return [found[place] for place in range(parts)]


#: Ways to split, by name.
SPLITS: dict[str, Callable[[DataFrame, int, str, int], DataFrame]] = {
    "given": _given,
    "shuffled": _shuffled,
    "with-replacement": _with_replacement,
    "stratified": _stratified,
}
