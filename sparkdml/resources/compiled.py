"""How kernels are compiled."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import numba

logger = logging.getLogger(__name__)


def compiled(fastmath: set[str] | bool = False) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorate a kernel: compiled on its first call, without Python's lock, kept on disk between processes.

    ``fastmath`` names the liberties that the compiler may take, as ``numba.njit`` does. Where nothing on disk can be
    written (a read-only installation, no home directory), kernels are compiled anew in every process.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        options: dict[str, Any] = {"nogil": True, "fastmath": fastmath, "error_model": "numpy"}
        try:
            return numba.njit(cache=True, **options)(function)
        except RuntimeError as error:
            logger.info("%s is compiled in every process: %s", function.__name__, error)
            return numba.njit(**options)(function)

    return decorate
