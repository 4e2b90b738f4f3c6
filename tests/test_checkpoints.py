"""Fits that were interrupted go on where they were."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from interpreters import environment
from linear_family import ESTIMATORS, ITERATED, iterated, numbers
from pyspark.sql import functions as F

from sparkdml.fit.checkpoint import NAME

ROOT = Path(__file__).resolve().parents[1]
every_estimator = pytest.mark.parametrize("cls", ESTIMATORS.values(), ids=ESTIMATORS.keys())
every_fit = pytest.mark.parametrize("name", ITERATED)
#: Without that of least squares, which a Gram matrix solves in two rounds.
every_long_fit = pytest.mark.parametrize("name", [name for name in ITERATED if name != "linear-l-bfgs"])
both_placements = pytest.mark.parametrize("placement", ["local", "broadcast"])


class Interrupted(BaseException):
    """As KeyboardInterrupt, which no code of ours may swallow either."""


def interrupt_after(rounds: int):
    def callback(history) -> None:
        if len(history.rounds) == rounds:
            raise Interrupted

    return callback


@both_placements
@every_long_fit
def test_an_interrupted_fit_goes_on_bit_for_bit(datasets, tmp_path, name, placement) -> None:
    dataset = datasets[ITERATED[name][2]]
    straight = iterated(name, placement=placement).fit(dataset)
    assert straight.report.rounds > 3, "too few rounds to interrupt"
    estimator = iterated(name, placement=placement, checkpointDir=str(tmp_path), checkpointInterval=2)
    with pytest.raises(Interrupted):
        estimator.setOnRound(interrupt_after(4)).fit(dataset)
    assert NAME in os.listdir(tmp_path)
    seen = []
    resumed = estimator.setOnRound(lambda history: seen.append(len(history.rounds))).fit(dataset)
    assert seen[0] > 2, "it began at the start again"
    assert numbers(resumed) == numbers(straight)
    assert resumed.report.rounds == straight.report.rounds
    assert resumed.report.objective_history == straight.report.objective_history
    assert resumed.report.stop == straight.report.stop
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("every", [1, 2, 100])
def test_a_fit_may_be_interrupted_again_and_again(datasets, tmp_path, every) -> None:
    straight = iterated("owl-qn").fit(datasets[2])
    estimator = iterated("owl-qn", checkpointDir=str(tmp_path), checkpointInterval=every)
    model, attempts = None, 0
    while model is None:
        attempts += 1
        begun = []

        def callback(history, begun=begun, attempts=attempts):
            begun.append(len(history.rounds))
            if len(begun) == 3 and attempts < 4:
                raise Interrupted

        try:
            model = estimator.setOnRound(callback).fit(datasets[2])
        except Interrupted:
            assert (NAME in os.listdir(tmp_path)) == (every < 100)
    assert attempts >= 3
    assert numbers(model) == numbers(straight)
    assert model.report.objective_history == straight.report.objective_history
    assert not list(tmp_path.iterdir())


def test_a_fit_that_was_begun_under_one_placement_ends_under_another(datasets, tmp_path) -> None:
    straight = iterated("l-bfgs").fit(datasets[2])
    params = {"checkpointDir": str(tmp_path), "checkpointInterval": 1}
    with pytest.raises(Interrupted):
        iterated("l-bfgs", placement="broadcast", **params).setOnRound(interrupt_after(4)).fit(datasets[2])
    resumed = iterated("l-bfgs", placement="local", predictionCol="p", threshold=0.3, **params).fit(datasets[2])
    np.testing.assert_allclose(numbers(resumed), numbers(straight), atol=1e-7)
    assert resumed.getPredictionCol() == "p"


@both_placements
def test_early_stopping_goes_on_where_it_was(frames, tmp_path, placement) -> None:
    """The best point may lie before the interruption, and patience is not counted anew."""
    frame = frames[2].filter("not held").limit(25).union(frames[2].filter("held")).cache()
    params = {"tol": 0.0, "regParam": 0.0, "validationIndicatorCol": "held", "patience": 5, "placement": placement}
    straight = iterated("l-bfgs", **params).fit(frame)
    losses = {entry.iteration: entry.validation for entry in straight.report.history}
    best = min(losses, key=losses.get)
    after = sum(entry.iteration <= best + 2 for entry in straight.report.history)
    kept = iterated("l-bfgs", **params, checkpointDir=str(tmp_path), checkpointInterval=1)
    with pytest.raises(Interrupted):
        kept.setOnRound(interrupt_after(after + 1)).fit(frame)
    resumed = kept.setOnRound(None).fit(frame)
    assert numbers(resumed) == numbers(straight)
    assert [entry.validation for entry in resumed.report.history] == [
        entry.validation for entry in straight.report.history
    ]
    assert resumed.report.stop == straight.report.stop
    frame.unpersist()


CHANGES = {
    "regParam": ({"regParam": 0.5}, "regParam: 0.01 then, 0.5 now"),
    "tol": ({"tol": 1e-3}, "tol: 1e-10 then, 0.001 now"),
    "solver": ({"solver": "newton"}, "solver: 'l-bfgs' then, 'newton' now"),
    "fitIntercept": ({"fitIntercept": False}, "fitIntercept: True then, False now"),
}


@pytest.mark.parametrize(("change", "told"), CHANGES.values(), ids=CHANGES.keys())
def test_other_parameters_are_refused_and_named(datasets, tmp_path, change, told) -> None:
    params = {"checkpointDir": str(tmp_path), "checkpointInterval": 1}
    with pytest.raises(Interrupted):
        iterated("l-bfgs", **params).setOnRound(interrupt_after(3)).fit(datasets[2])
    with pytest.raises(ValueError, match=f"another fit.*{told}"):
        iterated("l-bfgs", **{**params, **change}).fit(datasets[2])
    assert NAME in os.listdir(tmp_path), "the refused checkpoint is still there for the fit that it belongs to"


def test_other_data_other_estimators_and_other_starts_are_refused(frames, datasets, tmp_path) -> None:
    params = {"checkpointDir": str(tmp_path), "checkpointInterval": 1}
    with pytest.raises(Interrupted):
        iterated("l-bfgs", **params).setOnRound(interrupt_after(3)).fit(datasets[2])
    changed = frames[2].withColumn("label", F.when(F.col("held"), 1 - F.col("label")).otherwise(F.col("label")))
    with pytest.raises(ValueError, match="another fit.*digest"):
        iterated("l-bfgs", **params).fit(changed)
    with pytest.raises(ValueError, match=r"another fit.*rows: 120 then, 119 now"):
        iterated("l-bfgs", **params).fit(frames[2].limit(119))
    with pytest.raises(ValueError, match="another fit.*estimator: LogisticRegression then, LinearSVC now"):
        iterated("svc", **params).fit(datasets[2])
    with pytest.raises(ValueError, match="another fit.*start"):
        iterated("l-bfgs", **params).setInitialModel(iterated("l-bfgs", maxIter=2).fit(datasets[2])).fit(datasets[2])


def test_a_file_that_is_no_checkpoint_is_refused(datasets, tmp_path) -> None:
    (tmp_path / NAME).write_bytes(b"not ours")
    with pytest.raises(ValueError):  # noqa: PT011 - numpy's message
        iterated("l-bfgs", checkpointDir=str(tmp_path)).fit(datasets[2])


def test_fits_with_several_maps_keep_their_checkpoints_apart(frames, tmp_path) -> None:
    estimator = iterated("l-bfgs", checkpointDir=str(tmp_path), checkpointInterval=1)
    maps = [{estimator.regParam: value} for value in (0.01, 0.1)]
    expected = [numbers(iterated("l-bfgs", regParam=value).fit(frames[2])) for value in (0.01, 0.1)]
    with pytest.raises(Interrupted):
        estimator.setOnRound(interrupt_after(4)).fit(frames[2], maps)
    assert [numbers(model) for model in estimator.setOnRound(None).fit(frames[2], maps)] == expected
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_driver_that_is_killed_leaves_a_fit_that_another_finishes(frames, tmp_path) -> None:
    directory, placement = tmp_path / "kept", "local"
    script = Path(__file__).with_name("killed_driver.py")
    done = subprocess.run(
        [sys.executable, str(script), "owl-qn", str(directory), placement, "5"],
        capture_output=True, text=True, timeout=240, cwd=tmp_path,
        env=environment(SPARK_LOCAL_DIRS=str(tmp_path / "scratch")),
    )  # fmt: skip
    assert done.returncode == -signal.SIGKILL, done.stdout + done.stderr[-3000:]
    assert NAME in os.listdir(directory)
    straight = iterated("owl-qn", placement=placement).fit(frames[2])
    seen = []
    estimator = iterated("owl-qn", placement=placement, checkpointDir=str(directory), checkpointInterval=2)
    resumed = estimator.setOnRound(lambda history: seen.append(len(history.rounds))).fit(frames[2])
    assert seen[0] == 5
    assert numbers(resumed) == numbers(straight)
    assert resumed.report.objective_history == straight.report.objective_history
    assert not list(directory.iterdir())
