"""One task, one core: matrix libraries must not start a thread for every core of the host."""

from __future__ import annotations

import functools
import os


@functools.cache
def limit_threads() -> None:
    """Hold this worker process's BLAS to the CPUs of one task; costs nothing after the first call."""
    from threadpoolctl import threadpool_limits

    threadpool_limits(int(os.environ.get("OMP_NUM_THREADS", "1") or "1"), user_api="blas")
