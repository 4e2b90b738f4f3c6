"""Workers with GPUs on a real cluster of two executors, whose GPUs a discovery script of ours invents."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from interpreters import environment

pytestmark = pytest.mark.slow
HERE = Path(__file__).parent
ROOT = HERE.parents[1]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What gpu_cluster.py saw: one cluster for all of these tests."""
    # executors compute with a CuPy that is numpy, the driver has none
    workers_path = os.pathsep.join([str(HERE / "stand_in"), environment()["PYTHONPATH"]])
    done = subprocess.run(
        [sys.executable, str(HERE / "gpu_cluster.py")],
        capture_output=True, text=True, timeout=600, cwd=tmp_path_factory.mktemp("cluster"),
        env=environment(WORKERS_PYTHONPATH=workers_path),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    result: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return result


def test_each_workers_task_has_the_address_that_its_executor_was_granted(found):
    assert found["slots"] == 2
    assert found["tasks"] == found["executors"]
    assert sorted(found["tasks"].values()) == [["1"], ["3"]]
    assert found["equal profiles are one"]


@pytest.mark.parametrize("workers", ["broadcast 1", "broadcast 0.5", "allreduce 1"])
def test_a_fit_on_devices_is_the_fit_on_cpus_and_tells_where_it_ran(found, workers):
    difference, devices = found[workers]
    assert difference < 1e-6
    assert found["plain"] == []
    assert {told.split(": ")[1] for told in devices} == {"cupy on GPU 1", "cupy on GPU 3"}
    assert len(devices) == 2


def test_linear_regression_takes_rounds_and_as_many_workers_as_it_may(found):
    difference, devices, solver = found["linear"]
    assert abs(difference) < 1e-9  # of objectives
    assert len(devices) == 1
    assert solver == "l-bfgs: on GPUs"


def test_auto_leaves_the_driver_out(found):
    assert found["auto"].startswith(("broadcast", "allreduce"))
    assert "GPUs by a profile for its tasks: on the application's executors" in found["auto"]


def test_more_than_an_executor_has_is_refused_at_once(found):
    assert "gpusPerWorker=2, but an executor has 1" in found["too many"]


def test_an_amount_for_tasks_in_local_mode_is_refused_where_it_would_hang(found):
    for message in found["local"]:
        assert "spark.task.resource.gpu.amount=1 with master 'local[1]'" in message
