"""Driver and workers must run the same Python with the same packages; say so when they do not."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark import SparkContext

#: What a worker that cannot start looks like in Spark's error.
_SYMPTOMS = re.compile(
    r"PYTHON_VERSION_MISMATCH|Cannot run program|Python worker failed to connect back|"
    r"No module named '?(sparkdml|numpy|numba|scipy|pyarrow|threadpoolctl)"
)


class InterpreterError(RuntimeError):
    """The workers' Python cannot run what the driver sends."""


def _describer() -> Callable[[], dict[str, str]]:
    # A nested function travels by value, and this one needs only the standard library: it runs where sparkdml does not.
    def describe() -> dict[str, str]:
        import sys
        from importlib.metadata import PackageNotFoundError, version

        found = {"executable": sys.executable, "python": "{}.{}".format(*sys.version_info[:2])}
        for package in ("numpy", "numba", "pyarrow", "sparkdml"):
            try:
                found[package] = version(package)
            except PackageNotFoundError:
                found[package] = "not installed"
        return found

    return describe


#: This process's interpreter and the versions that have to agree with the workers'.
describe = _describer()


def explain(sc: SparkContext, error: Exception) -> InterpreterError | None:
    """If ``error`` looks like a worker that cannot start: both interpreters, and what to set."""
    if not _SYMPTOMS.search(str(error)):
        return None
    here = describe()
    asked = sc.pythonExec
    there = _probe(sc)
    lines = [
        "the Python workers cannot run sparkdml.",
        f"driver : {_line(here)}",
        f"workers: {_line(there) if there else f'{asked} did not answer'}",
        "Give workers the driver's interpreter and packages: set PYSPARK_PYTHON (or spark.pyspark.python) to "
        f"{here['executable']} where that path exists on every node, or ship the environment with "
        "--archives. With sparkdml in --py-files, unset spark.python.daemon.module.",
    ]
    return InterpreterError("\n".join(lines))


def _line(found: dict[str, str]) -> str:
    rest = ", ".join(f"{name} {value}" for name, value in found.items() if name != "executable")
    return f"{found['executable']} ({rest})"


def _probe(sc: SparkContext) -> dict[str, str] | None:
    """What one worker says of itself."""
    ask = _describer()
    try:
        return sc.parallelize([0], 1).map(lambda _: ask()).first()
    except Exception:  # the probe itself may meet the mismatch: then only the driver's side is known
        return None
