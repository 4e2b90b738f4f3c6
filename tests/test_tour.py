"""The tour runs from its first cell to its last, and says what its text promises."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

pytestmark = pytest.mark.slow


def test_the_tour_runs(spark, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(ROOT)
    names: dict[str, object] = {"__name__": "tour"}
    exec(compile((ROOT / "docs" / "tour.py").read_text(), "docs/tour.py", "exec"), names)
    told = capsys.readouterr().out
    assert "pyspark.ml.classification" in told
    assert "no better validation loss" in told
    accuracy = float(told.split("test accuracy ")[1].split()[0])
    assert accuracy > 0.9
