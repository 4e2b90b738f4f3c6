"""Files that vanish, workers that raise or die during a partitioned fit: the same model, or a clear end."""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from pyspark import cloudpickle

import sparkdml.linear
from sparkdml.algorithms.vector_free import VectorFree
from sparkdml.classification import LogisticRegression
from sparkdml.data import from_dataframe
from sparkdml.data.dataset import MAX_REBUILDS, FilesVanishError
from sparkdml.placement.partitioned import founding, rounds

# workers cannot import a test module
cloudpickle.register_pickle_by_value(sys.modules[__name__])

pytestmark = pytest.mark.fault
ESTIMATOR = LogisticRegression(regParam=0.01, tol=1e-12, maxIter=9, solver="l-bfgs", placement="partitioned")


@pytest.fixture(scope="module")
def frame(make_frame):
    rng = np.random.default_rng(4)
    X = rng.standard_normal((80, 12)) * (rng.random((80, 12)) < 0.4)
    y = (X[:, 0] - X[:, 5] + rng.standard_normal(80) > 0).astype(float)
    return make_frame(X, y, kind="sparse")


@pytest.fixture
def data(frame):
    with from_dataframe(frame, wide=True) as dataset:
        yield dataset


def fit(data, on_round=None, **params) -> np.ndarray:
    """The coefficients; the model's shards are freed."""
    model = ESTIMATOR.copy().setOnRound(on_round)._set(**params).fit(data)
    found = np.append(model.coefficients.toArray(), model.intercept)
    model.coefficientsRDD.unpersist()
    return found


@pytest.fixture(scope="module")
def calm(spark, frame) -> np.ndarray:
    """Of a fit that nothing happened to."""
    return fit(frame)


@pytest.fixture(autouse=True)
def nothing_is_left(spark, frame, calm, datasets_on_disk):
    before = spark.sparkContext._jsc.getPersistentRDDs().size()
    yield
    assert spark.sparkContext._jsc.getPersistentRDDs().size() <= before + 1  # the data set, which goes after this


def newest(directory: Path, prefix: str) -> list[Path]:
    """The file of the last generation."""
    found = [path for path in directory.iterdir() if path.name.startswith(prefix)]
    return sorted(found, key=lambda path: int(path.name.split("-")[-1] if "-" in path.name else path.name[9:]))[-1:]


def shards(local_dir: Path) -> list[Path]:
    found = sorted(local_dir.rglob("sparkdml-*/shard-*"))
    assert len(found) == 2
    return found


def parts(local_dir: Path) -> list[Path]:
    found = sorted(local_dir.rglob("sparkdml-*/part-*"))
    assert len(found) >= 2
    return found


#: From the executors' directory to the files that are lost.
LOSSES = {
    "state": lambda root: newest(shards(root)[1], "state-"),
    "published": lambda root: newest(shards(root)[0], "published-"),
    "arrays": lambda root: [path for path in shards(root)[0].iterdir() if path.name.startswith("array-")],
    "places": lambda root: [shards(root)[1] / "places"],
    "statics": lambda root: [shards(root)[0] / "statics"],
    "one shard": lambda root: [shards(root)[1]],
    "all shards": lambda root: [shards(root)[0].parent],
    "routing tables": lambda root: [path / "routing" for path in parts(root)],
    "statistics": lambda root: [path / "statistics" for path in parts(root)],
    "blocks": lambda root: list(parts(root)[0].glob("block-*")),
    "one partition": lambda root: [parts(root)[0]],
    "routing tables and a shard": lambda root: [*(path / "routing" for path in parts(root)), shards(root)[0]],
    "statistics and a shard": lambda root: [*(path / "statistics" for path in parts(root)), shards(root)[0]],
    "all": lambda root: [parts(root)[0].parent, shards(root)[0].parent],
}


def remove(paths: list[Path]) -> None:
    assert paths
    for path in paths:
        assert path.exists()
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


class Losing:
    """A callback that removes files once, after ``at`` rounds."""

    def __init__(self, what, root: Path, at: int) -> None:
        self.what, self.root, self.at, self.done = what, root, at, False

    def __call__(self, history) -> None:
        if len(history.rounds) == self.at and not self.done:
            self.done = True
            remove(self.what(self.root))


@pytest.mark.parametrize("name", LOSSES)
def test_files_that_vanish_between_rounds_change_no_digit(data, calm, local_dir, name: str) -> None:
    losing = Losing(LOSSES[name], local_dir, 3)
    np.testing.assert_allclose(fit(data, losing), calm, rtol=0.0, atol=1e-8)
    assert losing.done


@pytest.mark.parametrize(("name", "said"), [("state", "going on after round 3"), ("one shard", "starting again")])
def test_a_fit_goes_back_no_further_than_it_must(data, calm, local_dir, caplog, monkeypatch, name, said) -> None:
    monkeypatch.setattr(rounds, "KEEP_EVERY", 4)
    losing = Losing(LOSSES[name], local_dir, 6)
    np.testing.assert_allclose(fit(data, losing), calm, rtol=0.0, atol=1e-8)
    assert said in caplog.text


@pytest.mark.parametrize(
    ("at", "said"),
    [(6, "going on after round 3, from the checkpoint"), (4, "going on after round 1, from the checkpoint")],
    ids=["after it was written", "while it is written"],
)
def test_a_fit_that_lost_shards_goes_on_from_its_checkpoint(data, calm, local_dir, tmp_path, caplog, at, said) -> None:
    losing = Losing(LOSSES["one shard"], local_dir, at)
    params = {"checkpointDir": str(tmp_path), "checkpointInterval": 4 if at > 4 else 2}
    np.testing.assert_array_equal(fit(data, losing, **params), calm)
    assert losing.done
    assert said in caplog.text
    assert not list(tmp_path.iterdir())


def test_a_fit_that_lost_its_checkpoint_too_starts_again(data, calm, local_dir, tmp_path, caplog) -> None:
    kept = Losing(lambda _: list(tmp_path.glob("sparkdml-shards-*/*.parquet"))[:1], local_dir, 5)
    lost = Losing(LOSSES["one shard"], local_dir, 5)

    def losing(history) -> None:
        kept(history)
        lost(history)

    np.testing.assert_allclose(
        fit(data, losing, checkpointDir=str(tmp_path), checkpointInterval=2), calm, rtol=0.0, atol=1e-8
    )
    assert "starting again" in caplog.text
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["parcels", "state", "one partition", "places"])
def test_files_that_vanish_within_a_round_change_no_digit(data, calm, local_dir, monkeypatch, name: str) -> None:
    """After workers left their gradients, before shards read them."""
    step, calls = rounds._Fit._step, []

    def losing(self, *args):
        calls.append(self)
        if len(calls) == 5:
            paths = LOSSES[name](local_dir) if name in LOSSES else list(local_dir.rglob("part-*/parcel-*"))
            remove(paths)
        return step(self, *args)

    monkeypatch.setattr(rounds._Fit, "_step", losing)
    np.testing.assert_allclose(fit(data), calm, rtol=0.0, atol=1e-8)
    assert len(calls) > 5


def test_losses_between_which_a_fit_gets_on_may_be_many(data, calm, local_dir, monkeypatch) -> None:
    """Once in every round, of which there are more than a fit tries to get out of one."""
    monkeypatch.setattr(rounds, "KEEP_EVERY", 2)
    step, lost = rounds._Fit._step, set()

    def losing(self, here, told, tail_gradient):
        if told is not None and told.clock not in lost:
            lost.add(told.clock)
            remove(list(local_dir.rglob("part-*/parcel-*")))
        return step(self, here, told, tail_gradient)

    monkeypatch.setattr(rounds._Fit, "_step", losing)
    np.testing.assert_allclose(fit(data), calm, rtol=0.0, atol=1e-8)
    assert len(lost) > MAX_REBUILDS


@pytest.mark.parametrize("name", ["routing tables", "statistics", "one partition"])
def test_files_that_vanish_before_shards_begin_are_made_again(data, calm, local_dir, monkeypatch, name: str) -> None:
    bounds, calls = founding.shard_bounds, []

    def losing(*args):
        calls.append(args)
        if len(calls) == 1:
            remove(LOSSES[name](local_dir))
        return bounds(*args)

    monkeypatch.setattr(founding, "shard_bounds", losing)
    np.testing.assert_allclose(fit(data), calm, rtol=0.0, atol=1e-8)
    assert calls


@pytest.mark.parametrize("name", ["state", "one shard"])
def test_a_shard_that_vanishes_after_the_last_round_is_trained_again(data, local_dir, name: str) -> None:
    def ending(history) -> bool:
        return len(history.rounds) >= 4

    expected = fit(data, ending)
    losing = Losing(LOSSES[name], local_dir, 4)

    def losing_and_ending(history) -> bool:
        losing(history)
        return ending(history)

    np.testing.assert_allclose(fit(data, losing_and_ending), expected, rtol=0.0, atol=1e-8)
    assert losing.done


@pytest.mark.parametrize("name", ["state", "one shard"])
def test_files_that_vanish_in_every_round_end_the_fit(frame, calm, local_dir, datasets_on_disk, name: str) -> None:
    calls = []

    def losing(history) -> None:
        calls.append(len(history.rounds))
        remove(LOSSES[name](local_dir))

    with pytest.raises(FilesVanishError, match="keep spark.local.dir out of reach"):
        fit(frame, losing)
    assert MAX_REBUILDS <= len(calls) <= 2 * MAX_REBUILDS + 2
    assert datasets_on_disk() == []
    np.testing.assert_array_equal(fit(frame), calm)


def test_blocks_that_vanish_in_every_round_are_built_each_time(data, calm, local_dir) -> None:
    calls = []

    def losing(history) -> None:
        calls.append(history)
        remove(LOSSES["one partition"](local_dir))

    np.testing.assert_allclose(fit(data, losing), calm, rtol=0.0, atol=1e-8)
    assert len(calls) > MAX_REBUILDS


@dataclass(frozen=True)
class Failing(VectorFree):
    """Does something to a worker's process where ``flag`` exists, in ``work`` or in ``step``; ``die`` is once."""

    flag: str = ""
    where: str = "work"
    deed: str = "raise"

    def _do(self, where: str) -> None:
        if where != self.where or not os.path.exists(self.flag):
            return
        if self.deed == "raise":
            raise ArithmeticError("planted failure")
        try:
            os.unlink(self.flag)
        except FileNotFoundError:
            return  # the other task was first
        os._exit(3)

    def work(self, problem, blocks, coef, turn):
        self._do("work")
        return super().work(problem, blocks, coef, turn)

    def step(self, problem, state, order, total):
        # the driver steps, too, for the tail, which has no features
        if problem.features:
            self._do("step")
        return super().step(problem, state, order, total)


@pytest.fixture
def failing(monkeypatch, tmp_path):
    """``failing(where, deed)``: a callback after which, from round 3 on, tasks fail."""

    def planted(where: str, deed: str):
        flag = tmp_path / "flag"
        how = {"flag": str(flag), "where": where, "deed": deed}
        monkeypatch.setattr(sparkdml.linear, "VectorFree", lambda *args: Failing(*args, **how))
        planted.flag, done = flag, []

        def plant(history) -> None:
            if len(history.rounds) == 3 and not done:
                done.append(history)
                flag.touch()

        return plant

    return planted


@pytest.mark.parametrize("where", ["work", "step"])
def test_a_raise_on_a_worker_reaches_the_user_and_leaves_the_session_usable(
    frame, calm, failing, datasets_on_disk, where: str
) -> None:
    plant = failing(where, "raise")
    with pytest.raises(Exception, match="planted failure"):
        fit(frame, plant)
    assert datasets_on_disk() == []
    failing.flag.unlink()
    np.testing.assert_array_equal(fit(frame), calm)


@pytest.mark.parametrize("where", ["work", "step"])
def test_a_worker_that_dies_once_is_retried_by_spark(data, calm, failing, where: str) -> None:
    np.testing.assert_array_equal(fit(data, failing(where, "die")), calm)
    assert not failing.flag.exists()


def test_an_interrupted_fit_leaves_nothing_behind(spark, frame, datasets_on_disk) -> None:
    before = spark.sparkContext._jsc.getPersistentRDDs().size()

    class Interrupt(KeyboardInterrupt):
        pass

    def interrupt(history):
        raise Interrupt

    with pytest.raises(Interrupt):
        fit(frame, interrupt)
    assert datasets_on_disk() == []
    assert spark.sparkContext._jsc.getPersistentRDDs().size() == before
