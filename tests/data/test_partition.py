"""Which worker gets which rows: every row once, by seed, in even shares."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from pyspark.ml.linalg import Vectors
from pyspark.sql import functions as F

from sparkdml.data import from_dataframe
from sparkdml.data.partition import SPLITS, Split

ROWS, PARTS = 600, 2


@pytest.fixture(scope="module")
def frame(spark):
    # sorted by label, as files often are
    rows = [(Vectors.dense(float(i), float(i % 7)), float(i * 3 // ROWS)) for i in range(ROWS)]
    made = spark.createDataFrame(rows, ["features", "label"]).repartition(5, F.col("label")).cache()
    yield made
    made.unpersist()


def shares(frame, split: Split) -> list[list[tuple[float, float]]]:
    """The first feature and the label of the rows of each worker, in their order."""
    with from_dataframe(frame, split=split) as dataset:
        workers = dataset.open_here()
        return [
            [(float(x), float(y)) for block in blocks for x, y in zip(block.values[:, 0], block.labels, strict=True)]
            for blocks in workers
        ]


@pytest.mark.parametrize("how", [name for name in SPLITS if name != "with-replacement"])
def test_every_row_goes_to_one_worker(frame, how: str) -> None:
    found = [row for share in shares(frame, Split(how, 3)) for row in share]
    assert sorted(found) == [(float(i), float(i * 3 // ROWS)) for i in range(ROWS)]


@pytest.mark.parametrize("how", [name for name in SPLITS if name != "given"])
def test_one_seed_is_one_split(frame, how: str) -> None:
    first = shares(frame, Split(how, 3))
    assert shares(frame, Split(how, 3)) == first
    assert shares(frame, Split(how, 4)) != first


@pytest.mark.parametrize("how", ["shuffled", "stratified"])
def test_the_input_s_partitions_do_not_matter(frame, how: str) -> None:
    assert shares(frame.repartition(3), Split(how, 3)) == shares(frame, Split(how, 3))


def test_shuffled_shares_are_even_and_out_of_order(frame) -> None:
    found = shares(frame, Split("shuffled", 5))
    assert len(found) == PARTS
    for share in found:
        # a binomial share: 5 standard deviations
        assert abs(len(share) - ROWS / PARTS) < 5 * np.sqrt(ROWS / 4)
        assert abs(np.corrcoef(np.arange(len(share)), [x for x, _ in share])[0, 1]) < 0.3


def test_stratified_shares_have_all_labels_alike(frame) -> None:
    for share in shares(frame, Split("stratified", 5)):
        assert Counter(label for _, label in share) == {label: ROWS // 3 // PARTS for label in (0.0, 1.0, 2.0)}


def test_draws_with_replacement_repeat_some_rows_and_are_unbiased(frame) -> None:
    counts: Counter[float] = Counter()
    draws = 12
    for seed in range(draws):
        counts.update(x for share in shares(frame, Split("with-replacement", seed)) for x, _ in share)
    mean = sum(counts.values()) / (ROWS * draws)
    assert abs(mean - 1.0) < 5 / np.sqrt(ROWS * draws)
    assert max(counts.values()) > draws
    # Poisson: the share of rows that one draw leaves out is exp(-1)
    once = {x for share in shares(frame, Split("with-replacement", 0)) for x, _ in share}
    absent = ROWS - len(once)
    assert abs(absent / ROWS - np.exp(-1)) < 0.1


def test_what_cannot_be_split_so_is_refused(frame) -> None:
    with pytest.raises(ValueError, match="split='random' is not known; it can be given, shuffled"):
        Split("random")
    with pytest.raises(ValueError, match="labels are numbers here; use 'shuffled'"):
        from_dataframe(frame, classes=False, split=Split("stratified"))


def test_bad_labels_are_found_in_any_split(spark) -> None:
    frame = spark.createDataFrame([(Vectors.dense(1.0), -3.0), (Vectors.dense(2.0), 1.0)], ["features", "label"])
    with pytest.raises(ValueError, match="label"):
        from_dataframe(frame, split=Split("stratified"))
