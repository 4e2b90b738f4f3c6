"""Block files live as long as their data set, and no longer."""

from __future__ import annotations

import numpy as np
import pytest
from cases import ALGORITHMS, PLACEMENTS
from contents import rows_of
from pyspark.sql import functions as F

from sparkdml.algorithms import Problem, Scaling
from sparkdml.data import from_dataframe, from_parquet
from sparkdml.losses import Softmax
from sparkdml.penalties import L2

ROUTES = ["dataframe", "parquet"]


@pytest.fixture
def prepare(spark, make_frame, table, tmp_path):
    """``prepare(route)``: the table as a data set."""

    def by(route: str):
        df = make_frame(*table, kind="doubles", partitions=2)
        if route == "dataframe":
            return from_dataframe(df, weight="weight")
        df.write.parquet(str(tmp_path / "table"))
        return from_parquet(spark, str(tmp_path / "table"), weight="weight")

    return by


@pytest.mark.parametrize("route", ROUTES)
def test_closing_removes_every_file(prepare, datasets_on_disk, route: str) -> None:
    dataset = prepare(route)
    (home,) = datasets_on_disk()
    files = [path for path in home.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) >= dataset.stored_bytes > 0
    dataset.close()
    assert datasets_on_disk() == []
    dataset.close()  # a second time does nothing


@pytest.mark.parametrize("route", ROUTES)
def test_leaving_the_with_block_removes_every_file_after_an_error_too(prepare, datasets_on_disk, route: str) -> None:
    def fail_within() -> None:
        with prepare(route):
            assert datasets_on_disk()
            raise KeyError("of the user")

    with pytest.raises(KeyError, match="of the user"):
        fail_within()
    assert datasets_on_disk() == []


def test_closing_frees_what_spark_keeps(spark, prepare) -> None:
    persisted = spark.sparkContext._jsc.getPersistentRDDs
    before = len(persisted())
    with prepare("dataframe"):
        assert len(persisted()) == before + 1
    assert len(persisted()) == before


def test_closing_one_data_set_spares_another(prepare, make_frame, table, datasets_on_disk) -> None:
    kept = prepare("dataframe")
    prepare("dataframe").close()
    assert len(datasets_on_disk()) == 1
    np.testing.assert_array_equal(rows_of(kept)[0], table[0])
    kept.close()


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_a_closed_data_set_says_so(prepare, placement: str) -> None:
    dataset = prepare("dataframe")
    dataset.close()
    with pytest.raises(ValueError, match="closed"):
        dataset.rdd()
    scaling = Scaling(dataset.statistics.mean[:, None], np.ones((6, 1)))
    problem = Problem(Softmax(3), L2(0.0, np.ones((6, 1))), scaling, True, 1.0)
    algorithm = ALGORITHMS["lbfgs"](5, 1e-6)
    with pytest.raises(ValueError, match="closed"):
        PLACEMENTS[placement]().train(algorithm, problem, algorithm.init(problem, np.zeros(problem.size)), dataset)


@pytest.mark.parametrize("bad_row", [1.0, 60.0], ids=["first-partition", "last-partition"])
@pytest.mark.parametrize("route", ROUTES)
def test_an_ingest_that_is_refused_leaves_no_file(
    spark, make_frame, table, tmp_path, datasets_on_disk, route: str, bad_row: float
) -> None:
    """The good partition's task has written its blocks by then."""
    df = make_frame(*table, kind="scalars", partitions=2)
    df = df.withColumn("label", F.when(F.col("x0") == bad_row, -1.0).otherwise(F.col("label")))
    df.write.parquet(str(tmp_path / "table"))
    ingest = {
        "dataframe": lambda: from_dataframe(df, ["x0", "x1"]),
        "parquet": lambda: from_parquet(spark, str(tmp_path / "table"), ["x0", "x1"]),
    }
    with pytest.raises(ValueError, match="'label' has the value -1"):
        ingest[route]()
    assert datasets_on_disk() == []


def test_an_ingest_whose_job_fails_leaves_no_file(make_frame, table, datasets_on_disk) -> None:
    """Here by the user's own expression, in one of two tasks."""
    df = make_frame(*table, kind="scalars", partitions=2)
    broken = F.when(F.col("x0") == 60.0, F.raise_error(F.lit("of the user's own"))).otherwise(1.0)
    with pytest.raises(Exception, match="of the user's own"):
        from_dataframe(df.withColumn("x1", broken), ["x0", "x1"])
    assert datasets_on_disk() == []
