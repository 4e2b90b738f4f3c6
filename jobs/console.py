"""What every job shares at its edges: start, stop, one line for an error, plain-text tables."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import config as configuration
from config import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")
CONF = Path(__file__).resolve().parent.parent / "conf"
log = logging.getLogger("sparkdml.jobs")


def launch(
    kind: type[T],
    run: Callable[[SparkSession, T], None],
    about: str | None,
    argv: Sequence[str] | None = None,
    check: Callable[[T], None] = lambda config: None,
) -> int:
    """Run a job from its command line, in a Spark session, and return its exit code.

    ``check`` raises for a config that is wrong in ways that its types do not say; like everything
    that is wrong with the command line, that is found before Spark starts.

    Returns:
        0; 2 after one line on standard error for a config that is wrong; 1 after one line for data
        that is. Anything else is a defect and keeps its traceback.
    """

    def start(config: T) -> None:
        check(config)
        _reach_terminal()
        from pyspark.errors import AnalysisException, IllegalArgumentException

        with _session(Path(sys.argv[0]).stem) as spark:
            try:
                run(spark, config)
            except (AnalysisException, IllegalArgumentException) as error:
                raise ValueError(str(error).partition("\n")[0]) from error

    return run_locally(kind, start, about, argv)


def run_locally(
    kind: type[T],
    run: Callable[[T], None],
    about: str | None,
    argv: Sequence[str] | None = None,
) -> int:
    """As :func:`launch`, for a job that needs no Spark."""
    try:
        run(configuration.load(kind, about or "", argv))
    except ConfigError as error:
        _complain(error)
        return 2
    except (ValueError, OSError) as error:
        log.debug("the job failed", exc_info=True)
        _complain(error)
        return 1
    return 0


@contextlib.contextmanager
def _session(name: str) -> Iterator[SparkSession]:
    """A session of our own, stopped at the end, or the one that there is."""
    from pyspark.sql import SparkSession

    import sparkdml

    running = SparkSession.getActiveSession()
    if running is not None:
        yield running
        return
    if not _under_spark_submit():
        os.environ.setdefault("SPARK_CONF_DIR", str(CONF))
    builder = sparkdml.session().appName(name)
    if not Path(os.environ.get("SPARK_CONF_DIR", ""), "log4j2.properties").exists():
        builder = builder.config("spark.log.level", "WARN")
    spark = builder.getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()


def _under_spark_submit() -> bool:
    return "PYSPARK_GATEWAY_PORT" in os.environ


@contextlib.contextmanager
def _jvm() -> Iterator[Any]:
    """The JVM that spark-submit started this job from, before a SparkContext has it."""
    from pyspark.java_gateway import launch_gateway

    gateway = launch_gateway()
    try:
        yield gateway.jvm
    finally:
        gateway.close()


def _complain(error: Exception) -> None:
    line = f"{Path(sys.argv[0]).name}: error: {' '.join(str(error).split())}"
    # spark-submit sends a job's standard error to its own standard output; sys.stderr was replaced
    # where that could be undone.
    if _under_spark_submit() and not sys.stderr.isatty():
        with _jvm() as jvm:
            jvm.System.err.println(line)
    else:
        print(line, file=sys.stderr)


def _reach_terminal() -> None:
    """Give progress bars the terminal back that spark-submit keeps for itself (Linux)."""
    if not _under_spark_submit():
        return
    with contextlib.suppress(OSError):
        descriptor = os.open(f"/proc/{os.getppid()}/fd/2", os.O_WRONLY | os.O_NOCTTY)
        if os.isatty(descriptor):
            sys.stderr = open(descriptor, "w", buffering=1, encoding="utf-8")  # noqa: SIM115
        else:
            os.close(descriptor)


def table(rows: Sequence[Sequence[str]]) -> str:
    """Rows of cells in columns, the first to the left and the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if index else cell.ljust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


def size(count: float) -> str:
    """A number of bytes for people: ``1.4 MB``."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"
