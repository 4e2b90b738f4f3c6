"""What workers of separate Spark jobs remember from one round to the next: files beside their blocks."""

from __future__ import annotations

import contextlib
import logging
import os
from pathlib import Path
from typing import Any

from sparkdml.algorithms.states import pack, unpack
from sparkdml.data.dataset import Dataset
from sparkdml.data.handle import Handle

logger = logging.getLogger(__name__)


def recall(handle: Handle, fit: str, clock: int) -> Any:
    """What the worker of these rows left in the round before ``clock``; None if it left nothing, or it is gone."""
    try:
        return unpack(_path(handle, fit, clock - 1).read_bytes())
    except OSError:
        return None


def keep(handle: Handle, fit: str, clock: int, memory: Any) -> None:
    """Leave ``memory`` for the round after ``clock``.

    The round before it keeps its own until then, so that a task that is run twice finds the same twice.
    """
    path = _path(handle, fit, clock)
    # another attempt of this task may write at the same time
    draft = path.with_suffix(f".{os.getpid()}")
    draft.write_bytes(pack(memory))
    draft.replace(path)
    with contextlib.suppress(OSError):
        _path(handle, fit, clock - 2).unlink()


def forget(handle: Handle, fit: str) -> None:
    """Remove all that a fit left beside these blocks."""
    for path in _path(handle, fit, 0).parent.glob(f"memory-{fit}-*"):
        with contextlib.suppress(OSError):
            path.unlink()


def forget_all(dataset: Dataset, fit: str) -> None:
    """The same for all partitions of ``dataset``, wherever they are; what cannot be removed goes with the data set."""
    try:
        if dataset.is_here:
            for handle in dataset.handles:
                forget(handle, fit)
        else:
            dataset.rdd().foreach(lambda handle: forget(handle, fit))
    except Exception as error:
        logger.warning("workers' memories stay until the data set is closed: %s", error)


def _path(handle: Handle, fit: str, clock: int) -> Path:
    return Path(handle.blocks[0].path).parent / f"memory-{fit}-{clock}.npz"
