"""The comparison: from a config to tables, figures and a page that browsers show."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

import compare

ROOT = Path(__file__).resolve().parents[2]
DIGITS = ROOT / "conf" / "compare-digits.toml"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.fixture(autouse=True)
def _in_the_project(monkeypatch):
    monkeypatch.chdir(ROOT)


CONFIG = """
features = "pixels"
divide_by = 16.0
rows = 400
repeats = 1
[train]
path = "data/digits_train.parquet"
[test]
path = "data/digits_test.parquet"
[studies.logistic]
estimator = "LogisticRegression"
target = 0.5
[studies.logistic.params]
regParam = 1e-3
maxIter = 15
[studies.logistic.arrangements]
baseline = { library = "pyspark.ml" }
local = { placement = "local", solver = "l-bfgs" }
"server, BSP" = { placement = "server", solver = "sgd", stepSize = 0.01, miniBatchFraction = 0.2, maxIter = 1 }
"""


@pytest.fixture(scope="module")
def report(spark, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("compare")
    (folder / "compare.toml").write_text(CONFIG)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        assert compare.main(["--config", str(folder / "compare.toml"), "--set", f"output={folder}"]) == 0
    return folder


@pytest.mark.slow
def test_figures_of_every_arrangement(report):
    found = json.loads((report / "report.json").read_text())
    outcomes = {outcome["name"]: outcome for outcome in found["studies"]["logistic"]["outcomes"]}
    assert list(outcomes) == ["baseline", "local", "server, BSP"]
    for name in ("baseline", "local"):
        outcome = outcomes[name]
        assert outcome["seconds"] > 0
        assert outcome["curve"]["losses"][-1] <= 0.5
        assert outcome["accuracy"] > 0.8
        assert outcome["memory"]["driver"] > 1e6
    assert outcomes["local"]["cpu"]["driver"] > 0.0
    assert outcomes["server, BSP"]["seconds"] is None  # one pass is not enough
    assert outcomes["server, BSP"]["bytes_sent"] > 0


@pytest.mark.slow
def test_the_page_tells_what_won_and_what_did_not_arrive(report):
    page = (report / "report.html").read_text()
    assert "was first at a training loss of 0.5" in page
    assert "Not there within their rounds: server, BSP" in page
    assert page.count("<figure>") == 4


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt-get install chromium")
def test_a_browser_shows_the_page_without_complaint(report, tmp_path):
    assert CHROMIUM is not None
    command = [
        CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--enable-logging=stderr",
        "--window-size=390,844", f"--user-data-dir={tmp_path}", "--dump-dom", (report / "report.html").as_uri(),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert "One workload, many arrangements" in done.stdout
    assert done.stdout.count("<polyline") > 3
    assert "CONSOLE" not in done.stderr


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ('only=["nothing"]', ["only", "logistic regression"]),
        ("repeats=0", ["repeats"]),
        ("studies.more.target=1", ["studies.more", "missing"]),
    ],
)
def test_a_bad_config_is_refused_before_spark(override, words, capsys):
    assert compare.main(["--config", str(DIGITS), "--set", override]) == 2
    error = capsys.readouterr().err
    for word in words:
        assert word in error
