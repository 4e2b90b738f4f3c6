"""The driver's own threads, shared by all fits of the process."""

from __future__ import annotations

import functools
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import TypeVar

from threadpoolctl import ThreadpoolController, threadpool_limits

_T = TypeVar("_T")

_lock = threading.Lock()
_users = 0
_limits: threadpool_limits | None = None


@functools.cache
def pool(threads: int) -> ThreadPoolExecutor:
    """``threads`` threads for kernels that run without Python's lock; fits side by side share them."""
    return ThreadPoolExecutor(threads, thread_name_prefix="sparkdml")


def each_of(items: Iterable[_T], action: Callable[[_T], None], threads: int) -> None:
    """``action`` on every item, in order, by ``threads`` threads of which each takes the next item when it is free.

    If one raises, or the caller is interrupted, no further item is begun, and those under way are waited for.
    """
    left = deque(items)

    def take() -> None:
        while True:
            try:
                item = left.popleft()
            except IndexError:
                return
            action(item)

    threads = min(threads, len(left))
    if threads <= 1:
        take()
        return
    running = [pool(threads).submit(take) for _ in range(threads)]
    try:
        for each in running:
            each.result()
    except BaseException:
        left.clear()
        wait(running)
        raise


def side_by_side(actions: Sequence[Callable[[], None]], threads: int) -> None:
    """All ``actions``, by up to ``threads`` threads; as :func:`each_of`."""
    each_of(actions, lambda action: action(), threads)


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
