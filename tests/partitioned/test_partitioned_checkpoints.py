"""Checkpoints of models in shards: an interrupted fit, run again, goes on where it was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.ml.linalg import DenseVector

from sparkdml.classification import FMClassifier, LogisticRegression
from sparkdml.data import from_dataframe
from sparkdml.fit.checkpoint import NAME, Checkpoint
from sparkdml.fit.shard_checkpoint import SHARDS_PREFIX
from sparkdml.placement.partitioned import checkpoints, rounds

D = 40
STEPS = {"solver": "sgd", "miniBatchFraction": 0.5, "maxIter": 4, "tol": 0.0, "regParam": 0.01, "stepSize": 0.1}
FITS: dict[str, Any] = {
    "l-bfgs": LogisticRegression(regParam=0.01, solver="l-bfgs", maxIter=6, tol=0.0),
    "owl-qn": LogisticRegression(regParam=0.02, elasticNetParam=0.4, maxIter=6, tol=0.0),
    "adagrad": LogisticRegression(optimizer="adagrad", **STEPS),
    "adam": LogisticRegression(optimizer="adam", **STEPS),
    "ftrl": LogisticRegression(optimizer="ftrl", elasticNetParam=0.5, **STEPS),
    "factors": FMClassifier(factorSize=2, maxIter=7, miniBatchFraction=0.5, seed=1, tol=0.0),
}


class Interrupted(BaseException):
    """As KeyboardInterrupt, which no code of ours may swallow either."""


def made_rows() -> tuple[np.ndarray, np.ndarray]:
    """Sparse rows; feature 7 never occurs, and the last 20 are rare."""
    rng = np.random.default_rng(6)
    X = rng.standard_normal((90, D)) * (rng.random((90, D)) < np.where(np.arange(D) < 20, 0.5, 0.08))
    X[:, 7] = 0.0
    return X, (X[:, 0] - X[:, 30] + rng.standard_normal(90) > 0).astype(float)


@pytest.fixture(scope="module")
def frame(make_frame):
    return make_frame(*made_rows(), kind="sparse").cache()


@pytest.fixture(scope="module")
def data(frame):
    with from_dataframe(frame, classes=True, wide=True) as dataset:
        yield dataset


@pytest.fixture(autouse=True)
def nothing_is_left(spark, data, local_dir):
    before = spark.sparkContext._jsc.getPersistentRDDs().size()
    yield
    assert spark.sparkContext._jsc.getPersistentRDDs().size() <= before
    assert not list(local_dir.rglob("sparkdml-*/shard-*"))


def fitted(estimator: Any, data: Any, on_round: Any = None, **params: Any) -> tuple[np.ndarray, Any]:
    """Coefficients by feature, then intercepts, and the report; the model's shards are freed."""
    estimator = estimator.copy().setPlacement("partitioned").setOnRound(on_round)
    model = estimator._set(**params).fit(data)
    found = np.zeros((D, model._shards.columns))
    for features, values in model.coefficientsRDD.collect():
        found[features] = values
    model.coefficientsRDD.unpersist()
    return np.append(found.ravel(), model._intercepts), model.report


def kept(directory: Path, every: int = 2) -> dict[str, Any]:
    return {"checkpointDir": str(directory), "checkpointInterval": every}


def interrupted(estimator: Any, data: Any, directory: Path, after: int = 5, every: int = 2) -> None:
    def interrupt(history: Any) -> None:
        if len(history.rounds) == after:
            raise Interrupted

    with pytest.raises(Interrupted):
        fitted(estimator, data, interrupt, **kept(directory, every))


def folders(directory: Path) -> list[Path]:
    return sorted(directory.glob(f"{SHARDS_PREFIX}*"))


def shape(report: Any) -> tuple[Any, ...]:
    return report.objective_history, report.rounds, report.stop, [entry.iteration for entry in report.history]


@pytest.mark.parametrize("name", FITS)
def test_an_interrupted_fit_goes_on_bit_for_bit(data, tmp_path, name: str) -> None:
    straight, undisturbed = fitted(FITS[name], data)
    assert undisturbed.rounds > 5, "too few rounds to interrupt"
    interrupted(FITS[name], data, tmp_path)
    assert (tmp_path / NAME).exists()
    (folder,) = folders(tmp_path)
    assert len(list(folder.glob("*.parquet"))) == 2, "a file for each shard"
    seen: list[int] = []
    found, report = fitted(FITS[name], data, lambda history: seen.append(len(history.rounds)), **kept(tmp_path))
    assert seen[0] == 5, "it began at the start again"
    np.testing.assert_array_equal(found, straight)
    assert shape(report) == shape(undisturbed)
    assert not list(tmp_path.iterdir())


def test_other_partitions_and_rows_stored_otherwise_go_on_where_it_was(make_frame, data, tmp_path, monkeypatch) -> None:
    """Feature 7 occurs in dense rows, where all do, and has no state yet. Arrays are read one by one."""
    straight, undisturbed = fitted(FITS["l-bfgs"], data)
    interrupted(FITS["l-bfgs"], data, tmp_path)
    monkeypatch.setattr(checkpoints, "READ_BYTES", 1)
    seen: list[int] = []
    other = make_frame(*made_rows(), kind="dense", partitions=1)
    found, report = fitted(FITS["l-bfgs"], other, lambda history: seen.append(len(history.rounds)), **kept(tmp_path))
    assert seen[0] == 5
    np.testing.assert_allclose(found, straight, rtol=0.0, atol=1e-6)
    np.testing.assert_allclose(report.objective_history, undisturbed.objective_history, rtol=1e-8)


def test_what_is_not_of_this_fit_is_refused_and_stays(data, frame, tmp_path) -> None:
    interrupted(FITS["ftrl"], data, tmp_path, after=3)
    before = sorted(tmp_path.rglob("*"))
    for estimator, rows, told in (
        (FITS["ftrl"].copy().setRegParam(0.5), data, "regParam: 0.01 then, 0.5 now"),
        (FITS["ftrl"], frame.limit(89), "rows: 90 then, 89 now"),
        (FITS["ftrl"].copy().setInitialModel(_Start()), data, "start: "),
    ):
        with pytest.raises(ValueError, match=f"another fit.*{told}"):
            fitted(estimator, rows, **kept(tmp_path))
    with pytest.raises(ValueError, match="algorithm: ElementWise then, SyncSGD now"):
        FITS["ftrl"].copy().setPlacement("local")._set(**kept(tmp_path)).fit(data)
    assert sorted(tmp_path.rglob("*")) == before


class _Start:
    """Stands in for a model to start from."""

    coefficients = DenseVector(np.ones(D))
    interceptVector = DenseVector([0.0])


@pytest.mark.parametrize("placement", ["partitioned", "local"])
def test_a_directory_that_cannot_be_written_is_refused_before_the_first_round(data, tmp_path, placement: str) -> None:
    (tmp_path / "file").write_text("not a directory")
    calls: list[Any] = []
    estimator = FITS["l-bfgs"].copy().setPlacement(placement).setOnRound(calls.append)
    with pytest.raises(ValueError, match=f"checkpointDir='{tmp_path}/file/below' cannot be written .*directory"):
        estimator._set(**kept(tmp_path / "file" / "below")).fit(data)
    assert calls == []


def test_half_a_checkpoint_is_ignored(data, tmp_path, monkeypatch) -> None:
    straight, _ = fitted(FITS["ftrl"], data)
    write, written = Checkpoint.write, []

    def failing(self: Checkpoint, state: Any) -> None:
        written.append(state)
        if len(written) == 2:
            raise Interrupted  # all shards' states are there, and the file names the older ones
        write(self, state)

    monkeypatch.setattr(Checkpoint, "write", failing)
    with pytest.raises(Interrupted):
        fitted(FITS["ftrl"], data, **kept(tmp_path))
    assert len(folders(tmp_path)) == 2
    seen: list[int] = []
    found, _ = fitted(FITS["ftrl"], data, lambda history: seen.append(len(history.rounds)), **kept(tmp_path, every=50))
    assert seen[0] == 3
    np.testing.assert_array_equal(found, straight)
    assert not list(tmp_path.iterdir())


def test_a_checkpoint_without_all_of_its_files_is_refused(data, tmp_path) -> None:
    interrupted(FITS["ftrl"], data, tmp_path, after=3)
    (folder,) = folders(tmp_path)
    next(folder.glob("*.parquet")).unlink()
    with pytest.raises(ValueError, match=rf"{folder} is not whole: 2 files.*remove {tmp_path} to fit from the start"):
        fitted(FITS["ftrl"], data, **kept(tmp_path))


def test_files_that_other_hosts_keep_to_themselves_are_told_of(data, tmp_path, monkeypatch) -> None:
    """What the driver does not see, no other executor will."""

    def elsewhere(anchor: Any, layout: Any, position: Any, path: str) -> None:
        Path(path).mkdir()

    monkeypatch.setattr(rounds, "write_states", elsewhere)
    with pytest.raises(ValueError, match="2 tasks wrote a file each.*the driver finds 0.*that all hosts share"):
        fitted(FITS["ftrl"], data, **kept(tmp_path))


def test_there_is_one_checkpoint_at_a_time_and_none_in_the_end(data, tmp_path) -> None:
    found: list[list[str]] = []

    def look(history: Any) -> None:
        found.append([path.name for path in sorted(tmp_path.glob("map-0000/[!.]*"))])

    estimator = FITS["ftrl"].copy().setPlacement("partitioned").setOnRound(look)
    estimator._set(checkpointDir=f"file://{tmp_path}", checkpointInterval=1)
    (model,) = estimator.fit(data, [{estimator.regParam: 0.1}])
    model.coefficientsRDD.unpersist()
    assert found[0] == []
    assert len(found) > 3
    for number, names in enumerate(found[1:], 1):
        assert [name[: len(SHARDS_PREFIX) + 6] for name in names] == [NAME, f"{SHARDS_PREFIX}{number:06d}"]
    assert not list(tmp_path.iterdir())
