"""The driver's own threads, shared by all fits of the process."""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from threadpoolctl import ThreadpoolController, threadpool_limits

_lock = threading.Lock()
_users = 0
_limits: threadpool_limits | None = None


@functools.cache
def pool(threads: int) -> ThreadPoolExecutor:
    """``threads`` threads for kernels that run without Python's lock; fits side by side share them."""
    return ThreadPoolExecutor(threads, thread_name_prefix="sparkdml")


@functools.cache
def _libraries() -> ThreadpoolController:
    # looking for loaded libraries takes milliseconds
    return ThreadpoolController()


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """BLAS keeps to the calling thread until the last of the contexts that overlap ends.

    Several calls run side by side in :func:`pool`, each on a core of its own; and for vectors, as algorithms have
    them, waking BLAS's own threads costs many times what they save.
    """
    global _users, _limits
    with _lock:
        _users += 1
        if _users == 1:
            _limits = _libraries().limit(limits=1, user_api="blas")
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if _users == 0 and _limits is not None:
                _limits.restore_original_limits()
                _limits = None
