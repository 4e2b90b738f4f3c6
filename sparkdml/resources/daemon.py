"""The process that forks Python workers, with numpy and the compiled kernels already loaded.

Set ``spark.python.daemon.module=sparkdml.resources.daemon``. Without it every worker loads them itself, once.
"""

from __future__ import annotations

import importlib

from pyspark import daemon

#: Modules that start no thread when imported, which a process that forks must not have (pyarrow does).
PRELOADED = (
    "numpy",
    "numba",
    "sparkdml.optim.gradient",
    "sparkdml.losses",
    "sparkdml.penalties",
    "sparkdml.algorithms",
)


def main() -> None:
    for name in PRELOADED:
        importlib.import_module(name)
    daemon.manager()


if __name__ == "__main__":
    main()
