"""What a Python worker process does once, before its first task of ours."""

from __future__ import annotations

import functools
import gc
import os


@functools.cache
def limit_threads() -> None:
    """Hold this process's BLAS to the CPUs of one task."""
    from threadpoolctl import threadpool_limits

    threadpool_limits(task_threads(), user_api="blas")


def task_threads() -> int:
    """The CPUs of one task (``spark.task.cpus``), as Spark tells its Python workers."""
    return int(os.environ.get("OMP_NUM_THREADS", "1") or "1")


def in_task() -> bool:
    """Whether this process is one of Spark's Python workers."""
    from pyspark import TaskContext

    return TaskContext.get() is not None


@functools.cache
def settle() -> None:
    """At the end of a worker's first task: hide what it has loaded from the garbage collector."""
    hide_from_collector()


def hide_from_collector() -> None:
    """Everything alive now is never looked at again by the garbage collector.

    Spark has a worker collect garbage after every task; with numpy and numba loaded that takes about 50 ms, which is
    as long as the rest of a round.
    """
    gc.collect()
    gc.freeze()
