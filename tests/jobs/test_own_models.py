"""Example jobs with models of one's own learn what they are to learn."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import convolve
import factorise

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_factors_explain_ratings_that_were_held_back(spark, capsys):
    argv = ["--set", "users=60", "--set", "items=40", "--set", "ratings=2400", "--set", "factors=3"]
    assert factorise.main([*argv, "--set", "placement=local", "--set", "iterations=80"]) == 0
    error = float(re.search(r"held-out error ([\d.]+)", capsys.readouterr().out)[1])
    assert error < 0.3  # of ratings whose deviation is 1.7


@pytest.mark.slow
def test_a_convolutional_network_learns_digits(spark, capsys, monkeypatch):
    pytest.importorskip("torch", reason="needs torch: pip install 'sparkdml[torch]'")
    monkeypatch.chdir(ROOT)
    assert convolve.main(["--set", "placement=local", "--set", "passes=8"]) == 0
    assert float(re.search(r"accuracy on the test rows ([\d.]+)", capsys.readouterr().out)[1]) > 0.9
