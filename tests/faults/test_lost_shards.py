"""Shards and workers on several hosts: they send one another what they need, and a fit outlives one of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.fault]
HERE = Path(__file__).parent


@pytest.mark.parametrize("when", ["within"])
def test_a_partitioned_fit_survives_the_end_of_one_of_two_executors(tmp_path, when):
    environment = {k: v for k, v in os.environ.items() if not k.startswith("SPARK_")}
    environment["PYSPARK_PYTHON"] = sys.executable
    environment["PYTHONPATH"] = os.pathsep.join([str(HERE.parents[1]), environment.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, str(HERE / "lost_shards.py"), when],
        capture_output=True, text=True, timeout=400, env=environment, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.strip().splitlines()[-1])
    assert found["killed"] == (when != "never")
    if when == "never":
        assert found["disturbed"] == pytest.approx(found["expected"], abs=1e-6)
    assert found["objective"][1] == pytest.approx(found["objective"][0], rel=1e-10)
    back = [now for before, now in zip(found["seen"], found["seen"][1:], strict=False) if now <= before]
    assert back
    assert all(rounds > 5 for rounds in back), "it began at the start again, and not from its checkpoint"
    assert found["again"] == pytest.approx(found["expected"], abs=1e-6)
    assert found["scored"] == found["correct"]
    assert found["left"] == []
