"""Race sparkdml against pyspark.ml and scikit-learn to the same objective, in one session.

With --suite cooperation: the methods by which workers cooperate, against one another; with --suite wide: models of
millions of features; with --suite small: data for which a Spark job is long; with --suite hogwild: threads that share
coefficients; with --suite server: a parameter server's messages, and workers of unlike speed beside it (--master
'local[8]'); with --suite networks: the multilayer perceptron."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

import cooperation_races
import hogwild_races
import linear_races
import network_races
import server_races
import tuning_race
import wide_races
import workloads
from config import setting
from console import launch
from contenders import Contender, loosest, run_in_turn, standings
from workloads import Workload

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LOGISTIC = ("dense", "correlated", "sparse", "mnist")
TUNING = {"cv-a9a": tuning_race.a9a, "cv-mnist": tuning_race.mnist}
WIDE = (*wide_races.RACES, *wide_races.ENDURANCE)
SMALL = ("a9a", "digits", "breast-cancer")
COOPERATION = ("a9a", "mnist", "dense", "codecs", "rounds")
ALL = (*LOGISTIC, *linear_races.RACES, *TUNING)


@dataclass(frozen=True)
class Config:
    """What to race on, and how often."""

    suite: Literal["libraries", "cooperation", "wide", "small", "hogwild", "server", "networks"] = setting(
        "against other libraries, method against method, millions of features, few rows, shared memory, or networks",
        default="libraries",
    )
    workloads: tuple[str, ...] = setting("of " + ", ".join(ALL), default=ALL)
    cooperation: tuple[str, ...] = setting("of " + ", ".join(COOPERATION), default=COOPERATION)
    wide: tuple[str, ...] = setting("of " + ", ".join(WIDE), default=WIDE)
    wide_iterations: int = setting("of each fit whose rounds are timed", default=12)
    server: tuple[str, ...] = setting("of " + ", ".join(server_races.RACES), default=server_races.RACES)
    hogwild: tuple[str, ...] = setting("of " + ", ".join(hogwild_races.RACES), default=tuple(hogwild_races.RACES))
    small: tuple[str, ...] = setting("of " + ", ".join(SMALL), default=SMALL)
    network_iterations: int = setting("of pyspark.ml, whose loss is to be reached", default=10)
    passes: int = setting("passes over the rows that each of them may make at most", default=30)
    placement: str = setting("where methods that cooperate are raced", default="allreduce")
    repeats: int = setting("timed fits of each contender, in turn, after a warm-up", default=5)
    precision: float = setting("objectives count as reached within this share of the optimum", default=1e-6)
    folder: str = setting("where workloads are kept between runs; empty: a temporary one", default="")
    data: str = setting("a folder with a9a (LIBSVM) and mnist_train.parquet", default="../shared/data")
    tuning_iterations: int = setting("maxIter of the grid searches", default=100)
    scikit_learn: bool = setting("race scikit-learn too, on one core", default=True)
    output: str = setting("a JSON file for the figures", default="")


def run(spark: SparkSession, config: Config) -> None:
    """Race on every workload and print a table for each."""
    print(machine(spark))
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(config.folder or temporary)
        suites: dict[str, tuple[tuple[str, ...], Callable[..., Any]]] = {
            "libraries": (config.workloads, run_one),
            "cooperation": (config.cooperation, run_together),
            "wide": (config.wide, run_wide),
            "small": (config.small, run_small),
            "hogwild": (config.hogwild, run_hogwild),
            "server": (config.server, run_server),
            "networks": (("mnist",), run_networks),
        }
        names, race_one = suites[config.suite]
        for name in names:
            outcome = race_one(spark, name, folder, config)
            if outcome is None:
                print(f"\n{name}: skipped, its data is not in {config.data}")
                continue
            results[name], text = outcome
            print("\n" + text, flush=True)
    if config.output:
        Path(config.output).write_text(json.dumps(results, indent=2))


def machine(spark: SparkSession) -> str:
    """What the figures depend on."""
    from sparkdml.resources.slots import task_slots

    sc = spark.sparkContext
    scala_object = getattr(getattr(sc._jvm, "org.apache.spark.ml.linalg.BLAS$"), "MODULE$")
    blas = scala_object.nativeBLAS().getClass().getSimpleName()
    loaded = "no native BLAS" if "JNI" not in blas else "a native BLAS"
    return f"Spark {sc.version}, master {sc.master}, {task_slots(sc)} slots; pyspark.ml has {loaded} ({blas})"


def run_one(spark: SparkSession, name: str, folder: Path, config: Config) -> tuple[dict[str, Any], str] | None:
    """The figures of one race and its table; None where its data is absent."""
    if name in TUNING:
        source = Path(config.data) / ("a9a" if name == "cv-a9a" else "mnist_train.parquet")
        frame = TUNING[name](spark, source)
        return None if frame is None else tuning_race.race(name.removeprefix("cv-"), frame, config.tuning_iterations)
    if name in linear_races.RACES:
        return linear_races.race(spark, name, workloads.dense(folder), config.repeats, config.precision)
    makers = {"dense": workloads.dense, "correlated": workloads.correlated, "sparse": workloads.wide_sparse}
    workload = (
        workloads.mnist(folder, Path(config.data) / "mnist_train.parquet") if name == "mnist" else makers[name](folder)
    )
    return None if workload is None else race(spark, workload, config)


def run_together(spark: SparkSession, name: str, folder: Path, config: Config) -> tuple[dict[str, Any], str] | None:
    """As :func:`run_one`, for the methods by which workers cooperate."""
    if name == "rounds":
        return cooperation_races.rounds(spark)
    if name == "codecs":
        return cooperation_races.codecs(spark, "mnist", folder, Path(config.data))
    return cooperation_races.race(spark, name, folder, Path(config.data), config.placement, config.passes)


def run_wide(spark: SparkSession, name: str, folder: Path, config: Config) -> tuple[dict[str, Any], str]:
    """As :func:`run_one`, for models of millions of features."""
    if name in wide_races.ENDURANCE:
        return wide_races.endure(spark, name, folder)
    return wide_races.race(spark, name, folder, config.wide_iterations)


def run_server(spark: SparkSession, name: str, folder: Path, config: Config) -> tuple[dict[str, Any], str]:
    """As :func:`run_one`, for workers of unlike speed beside a parameter server."""
    return server_races.race(spark, name)


def run_networks(spark: SparkSession, name: str, folder: Path, config: Config) -> tuple[dict[str, Any], str] | None:
    """As :func:`run_one`, for the multilayer perceptron."""
    source = Path(config.data) / "mnist_train.parquet"
    return network_races.race(spark, folder, source, config.network_iterations, config.repeats)


def run_hogwild(spark: SparkSession, name: str, folder: Path, config: Config) -> tuple[dict[str, Any], str]:
    """As :func:`run_one`, for threads that share coefficients."""
    return hogwild_races.race(spark, name, folder, config.repeats)


def run_small(spark: SparkSession, name: str, folder: Path, config: Config) -> tuple[dict[str, Any], str] | None:
    """As :func:`run_one`, for data that one core could do."""
    if name == "a9a":
        workload = workloads.a9a(folder, Path(config.data) / "a9a")
    else:
        workload = {"digits": workloads.digits, "breast-cancer": workloads.breast_cancer}[name](folder)
    return None if workload is None else race(spark, workload, config)


def race(spark: SparkSession, workload: Workload, config: Config) -> tuple[dict[str, Any], str]:
    """Every contender to the same objective, warm, in turn."""
    from sparkdml.data import from_dataframe, from_parquet

    cached = workload.frame(spark).cache()
    rows = cached.count()
    one_core = cached.coalesce(1)
    with (
        from_dataframe(cached) as blocks,
        from_dataframe(one_core) as one_block,
    ):
        target = ours(blocks, workload, 1e-11)[0] * (1 + config.precision)
        # every contender stops as early as its own rule lets it, once it is exact enough
        tol = loosest(lambda t: ours(blocks, workload, t)[0], target)
        stock_tol = loosest(lambda t: stock(cached, workload, t)[0], target)

        def from_files() -> tuple[float, dict[str, float]]:
            with from_parquet(spark, workload.path) as dataset:
                value, phases = ours(dataset, workload, tol)
                return value, {**phases, "ingest": dataset.ingest_seconds}

        contenders = [
            Contender("pyspark.ml, cached", lambda: stock(cached, workload, stock_tol)),
            Contender("sparkdml, cached", lambda: ours(cached, workload, tol)),
            Contender("sparkdml, prepared", lambda: ours(blocks, workload, tol)),
            Contender("sparkdml, prepared, broadcast", lambda: ours(blocks, workload, tol, "broadcast")),
            Contender("sparkdml, prepared, one core", lambda: ours(one_block, workload, tol, "broadcast")),
            Contender("pyspark.ml, files", lambda: stock(workload.frame(spark), workload, stock_tol)),
            Contender("sparkdml, files by Spark", lambda: ours(workload.frame(spark), workload, tol)),
            Contender("sparkdml, files by Arrow", from_files),
        ]
        if config.scikit_learn:
            contenders.append(reference(workload, target))
        run_in_turn(contenders, config.repeats)
        reading = read_ratio(blocks, workload)
    cached.unpersist()
    return summary(workload, rows, contenders, target, reading)


def ours(data: Any, workload: Workload, tol: float, placement: str = "auto") -> tuple[float, dict[str, float]]:
    from sparkdml.classification import LogisticRegression

    model = LogisticRegression(tol=tol, maxIter=1000, placement=placement, **workload.params).fit(data)
    return model.report.objective, {**model.report.seconds, "rounds": model.report.rounds}


def stock(frame: DataFrame, workload: Workload, tol: float) -> tuple[float, dict[str, float]]:
    from pyspark.ml.classification import LogisticRegression

    model = LogisticRegression(tol=tol, maxIter=1000, **workload.params).fit(frame)
    summary = model.summary
    return summary.objectiveHistory[-1], {"rounds": summary.totalIterations + 1}


def reference(workload: Workload, target: float) -> Contender:
    """scikit-learn on the same arrays: one process, one core, features scaled as the objective asks."""
    from sklearn.linear_model import LogisticRegression
    from threadpoolctl import threadpool_limits

    X, y, reg = workload.features, workload.labels, workload.params["regParam"]
    if workload.params.get("standardization", True):
        X = _scaled(X)

    def fit_to(tol: float) -> float:
        with threadpool_limits(1):
            model = LogisticRegression(C=1 / (reg * len(y)), tol=tol, max_iter=1000).fit(X, y)
        return _objective(X, y, model.coef_, model.intercept_, reg)

    tol = loosest(fit_to, target)

    def fit() -> tuple[float, dict[str, float]]:
        with threadpool_limits(1):
            LogisticRegression(C=1 / (reg * len(y)), tol=tol, max_iter=1000).fit(X, y)
        return reached, {}

    reached = fit_to(tol)
    return Contender("scikit-learn, one core", fit)


def _scaled(X: workloads.Matrix) -> workloads.Matrix:
    from sklearn.preprocessing import StandardScaler

    return StandardScaler(with_mean=False).fit_transform(X)


def _objective(
    X: workloads.Matrix, y: np.ndarray, coefficients: np.ndarray, intercepts: np.ndarray, reg: float
) -> float:
    margins = X @ coefficients.T + intercepts
    if coefficients.shape[0] == 1:
        losses = np.logaddexp(0.0, margins[:, 0]) - y * margins[:, 0]
    else:
        from scipy.special import logsumexp

        losses = logsumexp(margins, axis=1) - margins[np.arange(len(y)), y.astype(int)]
    return float(losses.mean() + 0.5 * reg * (coefficients**2).sum())


def read_ratio(dataset: Any, workload: Workload) -> tuple[float, float] | None:
    """Seconds that one core needs to read a partition of dense blocks once, and to evaluate loss and gradient on it.

    Of 21 pairs, the one with the median ratio.
    """
    from sparkdml.data.block import DenseBlock
    from sparkdml.data.open_blocks import MissingBlocksError, open_handle
    from sparkdml.losses import Logistic
    from sparkdml.problem.gradient import loss_and_gradient

    try:
        blocks = open_handle(dataset.handles[0])
    except MissingBlocksError:  # on another host
        return None
    if not all(isinstance(block, DenseBlock) for block in blocks) or len(np.unique(workload.labels)) > 2:
        return None
    coefficients, intercepts = np.full((dataset.features, 1), 0.01), np.zeros(1)
    words = [block.values.reshape(-1).view(np.uint64) for block in blocks]  # type: ignore[attr-defined]
    pairs = []
    for _ in range(21):  # in turn, so that both meet the same neighbours on the machine
        read = _seconds(lambda: [np.bitwise_xor.reduce(part) for part in words])
        pairs.append((read, _seconds(lambda: loss_and_gradient(Logistic(), blocks, coefficients, intercepts))))
    return sorted(pairs, key=lambda pair: pair[1] / pair[0])[len(pairs) // 2]


def _seconds(action: Callable[[], Any]) -> float:
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def summary(
    workload: Workload,
    rows: int,
    contenders: Sequence[Contender],
    target: float,
    reading: tuple[float, float] | None,
) -> tuple[dict[str, Any], str]:
    baseline = {c.name: c for c in contenders}
    standing = standings(
        contenders, target, lambda c: baseline["pyspark.ml, files" if "files" in c.name else "pyspark.ml, cached"]
    )
    lines = [
        f"{workload.name}: {rows} rows x {workload.features.shape[1]} features, {workload.params}",
        f"target objective {target:.9f}",
        standing,
    ]
    if reading is not None:
        lines.append(
            f"one evaluation on dense blocks takes {reading[1] / reading[0]:.2f} times as long as reading them once "
            f"({reading[1] * 1e3:.1f} ms, {reading[0] * 1e3:.1f} ms)"
        )
    if "scikit-learn, one core" in baseline:
        lines.append(cost(baseline))
    figures = {
        "seconds": {c.name: c.seconds for c in contenders},
        "objective": {c.name: c.objective for c in contenders},
        "reading": reading,
    }
    return figures, "\n".join(lines)


def cost(contenders: dict[str, Contender]) -> str:
    """COST (McSherry et al., 2015): how many cores we need to beat one core without a cluster."""
    single = contenders["scikit-learn, one core"].median
    for name, cores in (("sparkdml, prepared, one core", "1"), ("sparkdml, prepared", "all of them")):
        if contenders[name].median < single:
            return f"COST: cores needed to beat scikit-learn on one: {cores}"
    return "COST: more cores than this machine has are needed to beat scikit-learn on one"


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; ``--suite NAME`` is short for ``--set suite=NAME``."""
    given = list(sys.argv[1:] if argv is None else argv)
    if "--suite" in given[:-1]:
        place = given.index("--suite")
        given[place : place + 2] = ["--set", f"suite={given[place + 1]}"]
    return launch(Config, run, __doc__, given)


if __name__ == "__main__":
    sys.exit(main())
