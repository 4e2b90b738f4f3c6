"""Fixtures of the whole suite: one Spark session, real data where it is there, frames from arrays."""

from __future__ import annotations

import gc
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import settings
from threadpoolctl import threadpool_limits

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sparkdml.data.dataset import Dataset

ROOT = Path(__file__).resolve().parents[1]
#: What the JVM leaves if native code ends it.
CRASH_LOG = Path(tempfile.gettempdir()) / f"sparkdml-tests-{os.getpid()}-jvm.log"

#: Files that take more than ten seconds even so.
LONG = {
    "test_admm.py", "test_cooperating_methods.py", "test_cooperation.py", "test_networks.py", "test_partitioned.py",
    "test_partitioned_checkpoints.py", "test_partitioned_ends.py", "test_partitioned_surroundings.py", "test_saving.py",
    "test_server_launch.py", "test_server_placement.py", "test_server_processes.py", "test_server_resume.py",
    "test_sharded.py", "test_side_work.py", "test_sync_sgd.py", "test_tuning.py", "test_wide_storage.py",
    "test_wide_transform.py",
}  # fmt: skip

# On a busy machine, BLAS threads of an oracle that wait for one another take minutes for seconds of work.
threadpool_limits(1)

# The same examples in every run: a suite that passes by chance says nothing.
settings.register_profile("sparkdml", deadline=None, derandomize=True)
settings.load_profile("sparkdml")


@pytest.fixture(scope="session")
def local_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the session's executors keep their scratch files, block files among them."""
    return tmp_path_factory.mktemp("spark-local")


def jvm_exit_code() -> int | None:
    """With what code the JVM of the session has ended; None while it runs, or never ran."""
    spark_context = getattr(sys.modules.get("pyspark"), "SparkContext", None)
    process = getattr(getattr(spark_context, "_gateway", None), "proc", None)
    return None if process is None else process.poll()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Without the JVM all further tests would fail, each without the cause: end here, and tell how it went."""
    told = yield
    code = jvm_exit_code()
    if code is not None:
        crash = CRASH_LOG.read_text()[:4000] if CRASH_LOG.exists() else "and left no crash report"
        item.session.shouldfail = f"after {item.nodeid} the JVM of the session had ended with code {code} {crash}"
    return told


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of a law that takes Spark jobs the first case that is not slow by itself stays fast, and the others are slow.

    So it is with all tests of the files in :data:`LONG`.

    Those that wait much, which are marked ``fault``, go first: other tests run beside them, and none after all others.
    """
    begun: set[str] = set()
    for item in items:
        if item.path.name in LONG and not item.get_closest_marker("slow"):
            if item.path.name in begun:
                item.add_marker(pytest.mark.slow)
            begun.add(item.path.name)
        if "spark" in getattr(item, "fixturenames", ()) and not item.get_closest_marker("slow"):
            law = item.nodeid.partition("[")[0]
            if law in begun:
                item.add_marker(pytest.mark.slow)
            begun.add(law)
    items.sort(key=lambda item: item.get_closest_marker("fault") is None)


def pytest_collection_finish() -> None:
    """What is loaded by now stays: tests that collect garbage need not look at it each time."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def spark(local_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """One session of two slots. Its end checks that no test left a block file behind."""
    import sparkdml

    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("PYSPARK_PYTHON", sys.executable)
        environment.setenv("PYTHONPATH", str(ROOT), prepend=os.pathsep)
        # would win over spark.local.dir
        environment.delenv("SPARK_LOCAL_DIRS", raising=False)
        session = (
            sparkdml.session()
            .master("local[2,4]")
            .appName("sparkdml tests")
            .config("spark.driver.memory", "2g")
            .config("spark.ui.enabled", "false")
            .config("spark.sql.shuffle.partitions", "4")
            # a suite has ten thousands of jobs, and nobody looks at the past ones
            .config("spark.ui.retainedJobs", "50")
            .config("spark.ui.retainedStages", "50")
            .config("spark.ui.retainedTasks", "500")
            .config("spark.sql.ui.retainedExecutions", "20")
            .config("spark.driver.extraJavaOptions", f"-XX:ErrorFile={CRASH_LOG}")
            .config("spark.local.dir", str(local_dir))
            .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
            .getOrCreate()
        )
        session.sparkContext.setLogLevel("ERROR")
        try:
            yield session
            left = stored_datasets(local_dir)
            assert not left, f"block files outlived their data sets: {left}"
        finally:
            if jvm_exit_code() is None:
                session.stop()


def stored_datasets(local_dir: Path) -> list[Path]:
    """The directories of data sets that have files on disk."""
    return sorted(local_dir.rglob("sparkdml-*"))


@pytest.fixture
def datasets_on_disk(spark: SparkSession, local_dir: Path) -> Callable[[], list[Path]]:
    """A function that looks which data sets, made since the test began, have files on disk."""
    before = set(stored_datasets(local_dir))
    return lambda: [path for path in stored_datasets(local_dir) if path not in before]


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Real data sets beside the project, for whoever has them."""
    path = ROOT.parent / "shared" / "data"
    if not path.is_dir():
        pytest.skip(f"no real data at {path}")
    return path


@pytest.fixture(scope="session")
def make_frame(spark: SparkSession) -> Callable[..., DataFrame]:
    """``make_frame(X, y, weights=None, kind="dense", partitions=2)``: numpy arrays as a DataFrame.

    ``kind`` is how the features are stored: ``dense``, ``sparse`` or ``mixed`` vectors, ``doubles`` or ``floats``
    (arrays), or ``scalars`` (columns ``x0``, ``x1``, ...); else the column is ``features``. Labels are in ``label``
    and weights, where given, in ``weight``. Rows keep their order over ``partitions`` slices.
    """
    from pyspark.ml.linalg import Vectors, VectorUDT
    from pyspark.sql import types as T

    def sparse(row: np.ndarray) -> object:
        at = np.flatnonzero(row)
        return Vectors.sparse(len(row), at.tolist(), row[at].tolist())

    def dense(row: np.ndarray) -> object:
        return Vectors.dense(row.tolist())

    feature_types = {
        "dense": VectorUDT(),
        "sparse": VectorUDT(),
        "mixed": VectorUDT(),
        "doubles": T.ArrayType(T.DoubleType()),
        "floats": T.ArrayType(T.FloatType()),
    }

    def features_of(kind: str, i: int, row: np.ndarray) -> list[object]:
        if kind == "scalars":
            return list(row.tolist())
        if kind in ("doubles", "floats"):
            return [row.tolist()]
        is_sparse = kind == "sparse" or (kind == "mixed" and i % 2 == 1)
        return [sparse(row) if is_sparse else dense(row)]

    def make(
        X: np.ndarray,
        y: np.ndarray,
        weights: np.ndarray | None = None,
        kind: str = "dense",
        partitions: int = 2,
    ) -> DataFrame:
        X = np.asarray(X, np.float64)
        if kind == "scalars":
            fields = [T.StructField(f"x{j}", T.DoubleType()) for j in range(X.shape[1])]
        else:
            fields = [T.StructField("features", feature_types[kind])]
        fields.append(T.StructField("label", T.DoubleType()))
        rows = [
            [*features_of(kind, i, row), label]
            for i, (row, label) in enumerate(zip(X, np.asarray(y, float).tolist(), strict=True))
        ]
        if weights is not None:
            fields.append(T.StructField("weight", T.DoubleType()))
            for row, weight in zip(rows, np.asarray(weights, float).tolist(), strict=True):
                row.append(weight)
        # rows given as a list reach the JVM without a Python worker, in as many slices as there are slots
        as_list = partitions == spark.sparkContext.defaultParallelism
        slices = rows if as_list else spark.sparkContext.parallelize(rows, partitions)
        return spark.createDataFrame(slices, T.StructType(fields), verifySchema=False)

    return make


@pytest.fixture(scope="module")
def frames(make_frame: Callable[..., DataFrame]) -> dict[int, DataFrame]:
    """Frames of rows of every kind, with a column ``held`` that is true for a third of them."""
    from linear_family import rows
    from pyspark.sql import functions as F

    return {kind: make_frame(*rows(kind)).withColumn("held", F.rand(4) < 0.33).cache() for kind in range(4)}


@pytest.fixture(scope="module")
def datasets(frames: dict[int, DataFrame]) -> Iterator[dict[int, Dataset]]:
    """The same as blocks."""
    from sparkdml.data import from_dataframe

    made = {kind: from_dataframe(frame, classes=kind > 1) for kind, frame in frames.items()}
    yield made
    for dataset in made.values():
        dataset.close()
