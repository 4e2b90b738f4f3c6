"""Other interpreters that tests start, each with a JVM of its own."""

from __future__ import annotations

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def environment(**more: str) -> dict[str, str]:
    """With this interpreter and this project for workers, too; nothing of the session's settings.

    These JVMs live for a minute, in which their second compiler takes more than it gives.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "CUDA_"))}
    return {
        **kept,
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join([str(ROOT), kept.get("PYTHONPATH", "")]),
        "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1",
        **more,
    }
