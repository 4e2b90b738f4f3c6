"""The benchmark of servers runs, and says what it measured."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_the_benchmark_prints_its_tables() -> None:
    sizes = ["--sizes", "1000", "--clients", "1", "--repeats", "5", "--transports", "bare sockets", "wire"]
    rows = ["--shards", "1", "--seconds", "0.1", "--rounds", "1"]
    done = subprocess.run(
        [sys.executable, ROOT / "jobs" / "server_bench.py", *sizes, *rows],
        env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for name in ("exchange", "push, pull", "bare sockets", "wire", "rows a second"):
        assert name in done.stdout
