"""The entry points: from a TOML file to a table, a model and predictions; one line and code 2 for a bad config."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import evaluate
import predict
import prepare
import train

ROOT = Path(__file__).resolve().parents[2]
DIGITS = ROOT / "conf" / "digits.toml"


@pytest.fixture(autouse=True)
def _in_the_project(monkeypatch):
    monkeypatch.chdir(ROOT)


def overrides(**values: object) -> list[str]:
    return [part for key, value in values.items() for part in ("--set", f"{key.replace('__', '.')}={value}")]


@pytest.mark.slow
def test_train_evaluate_predict(spark, tmp_path, capsys):
    model, scored = tmp_path / "model", tmp_path / "scored"
    argv = ["--config", str(DIGITS), *overrides(output__path=model, params__maxIter=40)]
    assert train.main(argv) == 0
    printed = capsys.readouterr().out
    for word in ("accuracy", "log-loss", "rounds", "ingest", "compute", "aggregate", "driver", "stored", str(model)):
        assert word in printed

    test_path = "data/digits_test.parquet"
    assert evaluate.main(overrides(model=model, input__path=test_path, features="pixels")) == 0
    rows = dict(line.split() for line in capsys.readouterr().out.splitlines() if line.startswith("accuracy"))
    assert float(rows["accuracy"]) > 0.9

    assert predict.main(overrides(model=model, input__path=test_path, features="pixels", output__path=scored)) == 0
    table = spark.read.parquet(str(scored))
    assert "prediction" in table.columns
    assert table.count() == pq.read_metadata(test_path).num_rows


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--config", "conf/none.toml"], ["conf/none.toml"]),
        (["--config", str(DIGITS), *overrides(nonsense=1)], ["nonsense", "allowed"]),
        (["--config", str(DIGITS), *overrides(params__maxIterations=3)], ["maxIterations", "maxIter"]),
        (["--config", str(DIGITS), *overrides(params__regParam=-1)], ["regParam"]),
        (["--config", str(DIGITS), *overrides(params__placement="cloud")], ["placement", "broadcast"]),
        (["--config", str(DIGITS), *overrides(train__format="excel")], ["train.format", "parquet"]),
        (["--config", str(DIGITS), *overrides(test_fraction=2)], ["test_fraction"]),
        (["--nonsense"], ["--nonsense"]),
    ],
)
def test_a_bad_config_is_one_line_and_code_2(argv, words, capsys):
    assert train.main(argv) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1
    for word in words:
        assert word in lines[0]


@pytest.mark.parametrize("job", [train, predict, evaluate])
def test_help_lists_the_keys(job, capsys):
    with pytest.raises(SystemExit) as ended:
        job.main(["--help"])
    assert ended.value.code == 0
    assert "--set" in capsys.readouterr().out


def test_data_that_is_wrong_is_one_line_and_code_1(spark, tmp_path, capsys):
    bad = tmp_path / "bad.csv"
    bad.write_text("label,a,b\n0,1.0,2.0\n1,NaN,1.0\n")
    argv = overrides(train__path=bad, train__format="csv", output__path=tmp_path / "model")
    argv += ["--set", 'train.options={header = "true", inferSchema = "true"}']
    assert train.main(argv) == 1
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1
    assert "nan" in lines[0].lower()
    assert not (tmp_path / "model").exists()


def test_libsvm_with_labels_of_minus_one(spark, tmp_path, capsys):
    rows = tmp_path / "rows.libsvm"
    rows.write_text("".join(f"{1 if i % 3 else -1} 1:{i % 5} 2:{i % 3}\n" for i in range(60)))
    argv = overrides(
        train__path=rows,
        train__format="libsvm",
        positive_label=1,
        output__path=tmp_path / "model",
        params__regParam=0.1,
    )
    assert train.main(argv) == 0
    assert "accuracy" in capsys.readouterr().out


def test_prepared_data_is_what_is_committed(tmp_path, monkeypatch):
    """``jobs/prepare.py`` writes the rows that are in ``data/`` again."""
    committed = {name: pq.read_table(ROOT / "data" / name) for name in ("digits_train.parquet", "digits_test.parquet")}
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    assert prepare.main(overrides(folder=tmp_path / "data")) == 0
    for name, table in committed.items():
        assert pq.read_table(tmp_path / "data" / name).equals(table)


@pytest.mark.slow
def test_spark_submit_by_itself(tmp_path):
    """As a user runs it from an activated environment: no PYTHONPATH, no SPARK_CONF_DIR."""
    binaries = Path(sys.executable).parent
    submit = shutil.which("spark-submit", path=str(binaries))
    if submit is None:
        pytest.skip("spark-submit is not beside this interpreter")
    if not any(distribution.name == "sparkdml" for distribution in metadata.distributions()):
        pytest.skip("sparkdml is not installed in this environment")
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("SPARK_", "PYSPARK_", "PYTHONPATH"))}
    environment |= {"PATH": f"{binaries}{os.pathsep}{environment['PATH']}", "PYSPARK_PYTHON": sys.executable}
    command = [submit, "jobs/train.py", "--config", str(DIGITS)]
    command += overrides(output__path=tmp_path / "model", params__maxIter=5)
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, env=environment, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "accuracy" in done.stdout
    assert (tmp_path / "model" / "metadata").is_dir()
