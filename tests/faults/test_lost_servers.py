"""Fits whose servers are killed: they go on from what was kept, or with a new backup."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

from sparkdml.classification import LogisticRegression

pytestmark = pytest.mark.fault
ROOT = Path(__file__).resolve().parents[2]
ESTIMATOR = LogisticRegression(
    regParam=0.05, solver="sgd", optimizer="momentum", miniBatchFraction=0.1, maxIter=8, tol=0.0, placement="server"
)


@pytest.fixture(scope="module")
def frame(make_frame):
    rng = np.random.default_rng(3)
    X = rng.standard_normal((200, 6))
    return make_frame(X, (X[:, 0] - X[:, 3] + rng.standard_normal(200) > 0).astype(float))


def numbers(model) -> np.ndarray:
    return np.append(model.coefficients.toArray(), model.intercept)


@pytest.fixture(scope="module")
def calm(frame):
    return ESTIMATOR.fit(frame)


def of_this_driver() -> list[psutil.Process]:
    found = []
    for process in psutil.Process().children():
        try:
            if "sparkdml.server" in process.cmdline():
                found.append(process)
        except psutil.Error:
            continue  # it has just ended
    return sorted(found, key=lambda process: process.pid)


@pytest.fixture(autouse=True)
def nothing_is_left(spark):
    yield
    assert not of_this_driver()
    assert not spark.sparkContext.statusTracker().getActiveJobsIds()


class Killing:
    """A callback that kills the server of some number (in the order of their beginning) after some pass."""

    def __init__(self, **passes: int) -> None:
        self.at = {number: int(name.removeprefix("server")) for name, number in passes.items()}
        self.killed: list[int] = []
        self.passes: list[int] = []

    def __call__(self, history) -> None:
        self.passes.append(len(history.rounds))
        if len(history.rounds) in self.at:
            victim = of_this_driver()[self.at.pop(len(history.rounds))].pid
            os.kill(victim, signal.SIGKILL)
            self.killed.append(victim)


@pytest.mark.parametrize("passes", [2, 5], ids=["before a checkpoint", "after one"])
def test_a_fit_with_checkpoints_outlives_a_server_to_the_last_bit(frame, calm, tmp_path, passes):
    killing = Killing(server1=passes)
    kept = ESTIMATOR.copy()._set(checkpointDir=str(tmp_path), checkpointInterval=3, numServers=2)
    model = kept.setOnRound(killing).fit(frame)
    assert len(killing.killed) == 1
    np.testing.assert_array_equal(numbers(model), numbers(calm))
    assert model.report.objective_history == calm.report.objective_history
    assert killing.passes == list(range(1, 10))  # none was told twice


def test_out_of_step_too(frame, tmp_path):
    killing = Killing(server0=5)
    kept = ESTIMATOR.copy()._set(checkpointDir=str(tmp_path), checkpointInterval=2, staleness=2, optimizer="adagrad")
    report = kept.setOnRound(killing).fit(frame).report
    assert len(killing.killed) == 1
    assert report.rounds > 5
    optimum = LogisticRegression(regParam=0.05, tol=1e-10).fit(frame).report.objective
    assert report.objective <= optimum + 0.05


def test_without_checkpoints_a_lost_server_ends_the_fit_with_the_cause(frame):
    began = time.monotonic()
    with pytest.raises(RuntimeError, match=r"parameter server 127\.0\.0\.1"):
        ESTIMATOR.copy().setOnRound(Killing(server0=4)).fit(frame)
    assert time.monotonic() - began < 60.0


@pytest.mark.parametrize("kept", [True, False], ids=["with checkpoints", "without"])
def test_an_external_server_that_comes_back_empty_is_waited_for_and_filled(frame, calm, tmp_path, kept):
    (tmp_path / "token").write_text(secrets.token_hex(32))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "sparkdml.server", "serve", "--port", str(port)]
    processes: list[subprocess.Popen] = []

    def begin() -> None:
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        words = [*command, "--token-file", str(tmp_path / "token")]
        processes.append(subprocess.Popen(words, env=environment, stdout=subprocess.PIPE))

    def end(history) -> None:
        if len(history.rounds) == 5 and len(processes) == 1:
            processes[0].kill()
            processes[0].wait()
            threading.Timer(1.0, begin).start()  # as systemd would

    estimator = ESTIMATOR.copy()._set(
        serverLaunch="external", serverAddresses=[f"127.0.0.1:{port}"], serverTokenFile=str(tmp_path / "token")
    )
    try:
        begin()
        processes[0].stdout.readline()
        if kept:
            estimator._set(checkpointDir=str(tmp_path / "kept"), checkpointInterval=2)
            np.testing.assert_array_equal(numbers(estimator.setOnRound(end).fit(frame)), numbers(calm))
        else:
            with pytest.raises(RuntimeError, match=f"parameter server 127.0.0.1:{port}"):
                estimator.setOnRound(end).fit(frame)
            deadline = time.monotonic() + 10.0
            while len(processes) < 2 and time.monotonic() < deadline:
                time.sleep(0.05)
        assert len(processes) == 2
    finally:
        for process in processes:
            process.kill()
            process.wait()
            process.stdout.close()


@pytest.mark.slow
def test_with_backups_a_fit_outlives_one_server_after_the_other(frame):
    """The first backup takes over from the primary, and the one that was begun then from that."""
    estimator = ESTIMATOR.copy()._set(replicas=1, maxIter=40)
    undisturbed = estimator.fit(frame)
    seen: list[set[int]] = []

    def killing(history) -> None:
        there = {process.pid for process in of_this_driver()}
        fresh = bool(seen) and len(there) == 2 and there != seen[-1]
        if not seen or (fresh and len(seen) == 1):
            seen.append(there)  # a new one is there when it has caught up
            os.kill(min(there), signal.SIGKILL)
        time.sleep(0.05)

    model = estimator.copy().setOnRound(killing).fit(frame)
    assert len(seen) == 2
    np.testing.assert_array_equal(numbers(model), numbers(undisturbed))
