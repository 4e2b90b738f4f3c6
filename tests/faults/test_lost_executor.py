"""An executor ends in the middle of a fit: Spark's lineage writes its blocks again and the answer is the same.

Shards and workers on several hosts send one another what they need, and a fit outlives one of them.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from interpreters import environment

pytestmark = [pytest.mark.slow, pytest.mark.fault]
HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def told(tmp_path_factory) -> dict[str, Any]:
    """By placement, what one application tells of its fits."""
    done = subprocess.run(
        [sys.executable, str(HERE / "lost_executor.py")],
        capture_output=True, text=True, timeout=900, env=environment(), cwd=tmp_path_factory.mktemp("lost"),
    )  # fmt: skip
    found: dict[str, Any] = {"end": (done.returncode, done.stderr[-3000:])}
    for line in done.stdout.splitlines():
        if line.startswith("{"):
            found.update(json.loads(line))
    return found


@pytest.mark.parametrize("placement", ["broadcast", "allreduce"])
def test_a_fit_survives_the_end_of_one_of_two_executors(told, placement):
    assert placement in told, told["end"]
    found = told[placement]
    assert found["killed"] == 1
    assert found["disturbed"] == pytest.approx(found["undisturbed"], rel=1e-12)
    assert found["count"] == 400
    assert found["again"] == pytest.approx(found["undisturbed"], rel=1e-12)
    assert found["left"] == []


def test_a_partitioned_fit_survives_the_end_of_one_of_two_executors(told):
    assert "partitioned" in told, told["end"]
    found = told["partitioned"]
    assert found["killed"] == 1
    assert found["objective"][1] == pytest.approx(found["objective"][0], rel=1e-10)
    back = [now for before, now in zip(found["seen"], found["seen"][1:], strict=False) if now <= before]
    assert back
    assert all(rounds > 5 for rounds in back), "it began at the start again, and not from its checkpoint"
    assert found["again"] == pytest.approx(found["expected"], abs=1e-2)
    assert found["scored"] == found["correct"]
    assert found["left"] == []


def test_the_application_ends(told):
    assert told["end"][0] == 0, told["end"]
