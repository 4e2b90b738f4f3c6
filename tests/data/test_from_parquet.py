"""Parquet read by the tasks themselves gives the data set that the DataFrame of the same files gives."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from contents import assert_rows, assert_statistics, assert_sums

from sparkdml.data import from_dataframe, from_parquet
from sparkdml.data.reader import BadInputError

NAMES = [f"x{j}" for j in range(6)]


def arrow_table(table, kind: str) -> pa.Table:
    X, y, weights = table
    columns = {"label": pa.array(y), "weight": pa.array(weights)}
    flat = pa.array(X.ravel())
    if kind == "scalars":
        columns |= {name: pa.array(X[:, j]) for j, name in enumerate(NAMES)}
    elif kind == "fixed-size":
        columns["features"] = pa.FixedSizeListArray.from_arrays(flat, X.shape[1])
    else:
        of = {"lists": pa.list_(pa.float64()), "floats": pa.list_(pa.float32())}
        of["large"] = pa.large_list(pa.float64())
        columns["features"] = pa.array(X.tolist(), of[kind])
    return pa.table(columns)


def features_of(kind: str) -> str | list[str]:
    return NAMES if kind == "scalars" else "features"


@pytest.mark.parametrize("kind", ["lists", "floats", "large", "fixed-size", "scalars"])
def test_every_form_of_features_gives_the_same_rows_statistics_and_sums(
    spark, table, tmp_path: Path, kind: str
) -> None:
    pq.write_table(arrow_table(table, kind), tmp_path / "a.parquet", row_group_size=17)
    with from_parquet(spark, str(tmp_path), features_of(kind), weight="weight") as dataset:
        assert dataset.partitions == 2
        assert_rows(dataset, table)
        assert_statistics(dataset, table)
        assert_sums(dataset, table)


@pytest.mark.parametrize("kind", ["dense", "sparse", "mixed", "doubles", "floats", "scalars"])
def test_files_that_spark_wrote_give_what_their_dataframe_gives(
    spark, make_frame, table, tmp_path: Path, kind: str
) -> None:
    path, features = str(tmp_path / "table"), features_of(kind)
    make_frame(*table, kind=kind, partitions=3).write.parquet(path)
    with (
        from_parquet(spark, path, features, weight="weight") as direct,
        from_dataframe(spark.read.parquet(path), features, weight="weight") as through_spark,
    ):
        for dataset in (direct, through_spark):
            assert_rows(dataset, table)
            assert_statistics(dataset, table)


def test_one_row_group_over_several_tasks_uses_every_row_once(spark, tmp_path: Path) -> None:
    X = np.column_stack([np.arange(20_001.0), np.ones(20_001)])
    table = (X, np.arange(20_001.0) % 2, np.ones(20_001))
    one = arrow_table(table, "lists").drop_columns("weight")
    pq.write_table(one, tmp_path / "a.parquet", row_group_size=20_001)
    with from_parquet(spark, str(tmp_path / "a.parquet")) as dataset:
        assert dataset.partitions == 2
        assert_rows(dataset, table)
        assert_statistics(dataset, table)


def test_several_files_of_unlike_size_some_of_them_empty(spark, table, tmp_path: Path) -> None:
    whole = arrow_table(table, "lists")
    for n, (start, stop) in enumerate([(0, 0), (0, 41), (41, 42), (42, 42), (42, 60)]):
        pq.write_table(whole.slice(start, stop - start), tmp_path / f"{n}.parquet")
    with from_parquet(spark, str(tmp_path), weight="weight") as dataset:
        assert_rows(dataset, table)
        assert_statistics(dataset, table)


def test_small_integers_and_decimals_keep_their_value(spark, tmp_path: Path) -> None:
    pixels = np.random.default_rng(47).integers(0, 256, (50, 8))
    pixels[:, 0] = np.arange(50)
    columns = {
        "pixels": pa.array(pixels.tolist(), pa.list_(pa.uint8())),
        "digit": pa.array(np.arange(50) % 3, pa.int32()),
        "counted": pa.array([Decimal("1.50")] * 50, pa.decimal128(5, 2)),
    }
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    with from_parquet(spark, str(tmp_path), "pixels", "digit", "counted") as dataset:
        expected = (pixels.astype(float), np.arange(50.0) % 3, np.full(50, 1.5))
        assert_rows(dataset, expected)
        assert dataset.stored_bytes < 50 * 8 * 8


@pytest.mark.parametrize(
    ("column", "value", "words"),
    [
        ("features", None, ["'features'", "null"]),
        ("features", [1.0] * 5 + [None], ["'features'", "null"]),
        ("features", [1.0] * 5 + [float("nan")], ["'features'", "nan"]),
        ("features", [1.0] * 4, ["4 features", "6"]),
        ("label", -1.0, ["'label'", "-1"]),
        ("label", None, ["'label'", "null"]),
        ("weight", -0.5, ["'weight'", "-0.5"]),
    ],
)
@pytest.mark.parametrize("row", [3, 59])
def test_bad_values_are_named_with_their_column(
    spark, table, tmp_path: Path, column: str, value: object, words: list[str], row: int
) -> None:
    good = arrow_table(table, "lists").to_pydict()
    good[column][row] = value
    bad = pa.table(good, arrow_table(table, "lists").schema)
    pq.write_table(bad, tmp_path / "a.parquet")
    with pytest.raises(ValueError) as raised:  # noqa: PT011
        from_parquet(spark, str(tmp_path), weight="weight")
    assert not [word for word in words if word not in str(raised.value)]


def test_null_in_one_of_several_columns_is_named(spark, table, tmp_path: Path) -> None:
    good = arrow_table(table, "scalars").to_pydict()
    good["x2"][7] = None
    pq.write_table(pa.table(good), tmp_path / "a.parquet")
    with pytest.raises(BadInputError, match="x2.*null"):
        from_parquet(spark, str(tmp_path), NAMES)


@pytest.mark.parametrize(
    "change",
    [
        lambda t: t.drop_columns("label"),
        lambda t: t.drop_columns("label").append_column("label", pa.array(["a"] * t.num_rows)),
    ],
    ids=["absent", "of-another-type"],
)
def test_a_column_that_a_later_file_lacks_is_named_before_any_job(
    spark, table, tmp_path: Path, jobs_started, change
) -> None:
    good = arrow_table(table, "lists")
    pq.write_table(good, tmp_path / "a.parquet")
    pq.write_table(change(good), tmp_path / "b.parquet")
    with pytest.raises((ValueError, TypeError), match="'label'") as raised:
        from_parquet(spark, str(tmp_path))
    assert "b.parquet" in str(raised.value)
    assert jobs_started() == 0


def test_wrong_paths_and_columns_are_refused_before_any_job(spark, table, tmp_path: Path, jobs_started) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere"):
        from_parquet(spark, str(tmp_path / "nowhere"))
    pq.write_table(arrow_table(table, "lists"), tmp_path / "a.parquet")
    with pytest.raises(ValueError, match="'no' is not in"):
        from_parquet(spark, str(tmp_path), weight="no")
    pq.write_table(arrow_table(table, "lists").slice(0, 0), tmp_path / "a.parquet")
    with pytest.raises(ValueError, match="empty"):
        from_parquet(spark, str(tmp_path))
    assert jobs_started() == 0
