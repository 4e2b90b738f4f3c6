"""An executor ends in the middle of a fit: Spark's lineage writes its blocks again and the answer is the same."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.fault]
HERE = Path(__file__).parent


@pytest.mark.parametrize("placement", ["broadcast", "allreduce"])
def test_a_fit_survives_the_end_of_one_of_two_executors(tmp_path, placement):
    environment = {k: v for k, v in os.environ.items() if not k.startswith("SPARK_")}
    environment["PYSPARK_PYTHON"] = sys.executable
    environment["PYTHONPATH"] = os.pathsep.join([str(HERE.parents[1]), environment.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, str(HERE / "lost_executor.py"), placement],
        capture_output=True, text=True, timeout=300, env=environment, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.strip().splitlines()[-1])
    assert found["killed"] == 1
    assert found["disturbed"] == pytest.approx(found["undisturbed"], rel=1e-12)
    assert found["count"] == 400
    assert found["again"] == pytest.approx(found["undisturbed"], rel=1e-12)
    assert found["left"] == []
