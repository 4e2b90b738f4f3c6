"""The executor that holds the parameter server ends in the middle of a fit, which goes on from its checkpoint."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from interpreters import environment

pytestmark = [pytest.mark.slow, pytest.mark.fault]
HERE = Path(__file__).parent


def test_a_fit_outlives_the_executor_of_its_server(tmp_path):
    done = subprocess.run(
        [sys.executable, str(HERE / "executor_servers.py"), str(tmp_path / "kept")],
        capture_output=True, text=True, timeout=300, env=environment(), cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.strip().splitlines()[-1])
    assert found == {"same": True, "killed": 1, "rounds": 11, "count": 300}
