"""Lost block files are built again from their rows, or the fit ends; a wrong sum is never returned."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from cases import ALGORITHMS, PLACEMENTS
from pyspark.sql import types as T

from sparkdml.algorithms import Problem, Scaling
from sparkdml.data import Dataset, from_dataframe, from_parquet
from sparkdml.data.dataset import InputChangedError
from sparkdml.losses import Softmax
from sparkdml.penalties import L2

#: A gang of workers takes seconds to come together.
SLOW = ("allreduce",)
every_placement = pytest.mark.parametrize(
    "placement", [pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in PLACEMENTS]
)
SCHEMA = T.StructType([T.StructField("x", T.DoubleType()), T.StructField("label", T.IntegerType())])


def fit(dataset: Dataset, placement: str, after_round=lambda number: None):
    """The final state; ``after_round`` is called with 0, 1, ..."""
    statistics = dataset.statistics
    ones = np.ones((dataset.features, 1))
    scaling = Scaling(statistics.mean[:, None], np.where(statistics.std > 0, 1.0, 0.0)[:, None])
    problem = Problem(Softmax(3), L2(0.1, ones), scaling, True, statistics.weight_sum)
    algorithm = ALGORITHMS["lbfgs"](3, 1e-12)
    trained = PLACEMENTS[placement]().train(
        algorithm,
        problem,
        algorithm.init(problem, np.zeros(problem.size)),
        dataset,
        lambda entry, state: after_round(entry.round),
    )
    assert len(trained.history.rounds) > 2
    return trained.state


def delete_blocks(dataset: Dataset, partitions: list[int]) -> None:
    for handle in dataset.rdd().collect():
        if handle.partition in partitions:
            for block in handle.blocks:
                Path(block.path).unlink()


@pytest.fixture
def prepare(spark, make_frame, table, tmp_path):
    """``prepare(route)``: the table as a data set of two partitions."""

    def by(route: str) -> Dataset:
        if route == "dataframe":
            return from_dataframe(make_frame(*table, kind="mixed"), weight="weight")
        make_frame(*table, kind="doubles").write.parquet(str(tmp_path / "table"))
        return from_parquet(spark, str(tmp_path / "table"), weight="weight")

    return by


@every_placement
@pytest.mark.parametrize(("lost", "route"), [([1], "dataframe"), ([0, 1], "parquet")], ids=str)
def test_blocks_deleted_between_two_rounds_change_no_bit(prepare, placement: str, route: str, lost: list[int]) -> None:
    with prepare(route) as dataset:
        assert dataset.partitions == 2
        expected = fit(dataset, placement)

        def after_round(number: int) -> None:
            if number == 1:
                delete_blocks(dataset, lost)

        found = fit(dataset, placement, after_round)
        assert found.objective == expected.objective
        np.testing.assert_array_equal(found.best, expected.best)


@pytest.mark.parametrize("route", ["dataframe", "parquet"])
def test_rebuilding_one_partition_leaves_the_other_alone(prepare, route: str) -> None:
    with prepare(route) as dataset:
        before = {handle.partition: handle for handle in dataset.rdd().collect()}
        dataset.rebuild([1])
        after = {handle.partition: handle for handle in dataset.rdd().collect()}
        assert after[0] == before[0]
        assert after[1].digest == before[1].digest
        assert after[1].blocks[0].path != before[1].blocks[0].path


@every_placement
def test_a_data_set_whose_every_file_vanished_before_the_fit_is_rebuilt(
    prepare, placement: str, datasets_on_disk
) -> None:
    with prepare("dataframe") as dataset:
        expected = fit(dataset, placement)
        for home in datasets_on_disk():
            shutil.rmtree(home)
        np.testing.assert_array_equal(fit(dataset, placement).best, expected.best)
    assert datasets_on_disk() == []


@pytest.mark.slow
@every_placement
def test_files_of_rebuilt_partitions_are_removed_at_the_end(prepare, placement: str, datasets_on_disk) -> None:
    """Each rebuild writes to a new directory, of which the first handles know nothing."""
    with prepare("dataframe") as dataset:
        for lost in ([0, 1], [0]):
            delete_blocks(dataset, lost)
            fit(dataset, placement)
    assert datasets_on_disk() == []


@every_placement
def test_files_that_keep_vanishing_end_the_fit_with_the_cause(
    prepare, placement: str, monkeypatch: pytest.MonkeyPatch, datasets_on_disk
) -> None:
    """Whatever deletes them is faster than every rebuild."""
    with prepare("dataframe") as dataset:
        rebuild = dataset.rebuild

        def in_vain(partitions) -> None:
            rebuild(partitions)
            dataset.rdd().count()  # builds the blocks
            for home in datasets_on_disk():
                shutil.rmtree(home)

        monkeypatch.setattr(dataset, "rebuild", in_vain)
        delete_blocks(dataset, [0])
        with pytest.raises(RuntimeError, match="vanish"):
            fit(dataset, placement)


def changing_rows(spark, kind: str, flag: Path):
    """Rows of two partitions that read otherwise once ``flag`` is there, or every time."""

    def rows(partition: int):
        changed = flag.exists() and partition == 1
        numbers = [float(i + 8 * partition) for i in range(8)]
        if kind == "random":
            numbers = [float(x) for x in os.urandom(8)]
        elif kind == "one-value" and changed:
            numbers[3] += 1.0
        elif kind == "fewer" and changed:
            numbers.pop()
        elif kind == "none-at-all" and changed:
            numbers = []
        elif kind == "bad-value" and changed:
            numbers[3] = float("nan")
        elif kind == "swapped-labels" and changed:
            numbers.reverse()
        return [(x, i % 3) for i, x in enumerate(numbers)]

    slices = spark.sparkContext.parallelize(range(2), 2).flatMap(rows)
    return spark.createDataFrame(slices, SCHEMA)


#: Other rows have another digest, and rows that cannot be read end the job: the two ways in which a gang hears of it.
HEARD = ("one-value", "bad-value")
CHANGES = ("random", "one-value", "fewer", "none-at-all", "bad-value", "swapped-labels")


@pytest.mark.parametrize(
    ("placement", "kind"),
    [
        pytest.param(name, kind, marks=pytest.mark.slow if name in SLOW else ())
        for name in PLACEMENTS
        for kind in (HEARD if name in SLOW else CHANGES)
    ],
)
def test_input_that_changed_is_an_error_and_no_other_answer(
    spark, tmp_path, placement: str, kind: str, datasets_on_disk
) -> None:
    flag = tmp_path / "changed"
    with from_dataframe(changing_rows(spark, kind, flag), ["x"]) as dataset:
        fit(dataset, placement)
        flag.touch()
        fit(dataset, placement)  # nothing is read again while the files are there
        delete_blocks(dataset, [1])
        with pytest.raises(InputChangedError, match=r"\[1\].*not deterministic"):
            fit(dataset, placement)
        # nor does a second try give another answer
        with pytest.raises(InputChangedError):
            fit(dataset, placement)
    assert datasets_on_disk() == []


@every_placement
def test_rows_in_another_order_are_the_same_rows(spark, tmp_path, placement: str) -> None:
    flag = tmp_path / "changed"

    def rows(partition: int):
        found = [(float(i + 8 * partition), i % 3) for i in range(8)]
        return found[::-1] if flag.exists() else found

    slices = spark.sparkContext.parallelize(range(2), 2).flatMap(rows)
    with from_dataframe(spark.createDataFrame(slices, SCHEMA), ["x"]) as dataset:
        expected = fit(dataset, placement)
        flag.touch()
        delete_blocks(dataset, [0, 1])
        np.testing.assert_allclose(fit(dataset, placement).best, expected.best, atol=1e-9)
