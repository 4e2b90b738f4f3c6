"""What computes on a GPU: CuPy or else torch, whichever this worker can import, behind Python's array API standard."""

from __future__ import annotations

import functools
import importlib
import logging
import os
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np

from sparkdml.resources.gpus.granted import VISIBLE, order_by_bus, ordinal

logger = logging.getLogger(__name__)


def _nothing() -> None:
    pass


@dataclass(frozen=True)
class Device:
    """Where arrays lie, and the array API's functions for them.

    xp : the namespace. place : what its ``asarray`` takes as ``device``. to_numpy : an array of it as numpy's.
    free_bytes : memory that is left. current : a context in which the library works on this device. release : give
    memory that no array uses back to the device.
    """

    name: str
    xp: Any
    to_numpy: Callable[[Any], np.ndarray]
    free_bytes: Callable[[], int]
    place: Any = None
    current: Callable[[], AbstractContextManager[Any]] = nullcontext
    release: Callable[[], None] = _nothing

    def put(self, array: np.ndarray) -> Any:
        """A copy of ``array`` there."""
        with warnings.catch_warnings():
            # torch warns of arrays that cannot be written to, as mapped files are; nobody writes to them
            warnings.filterwarnings("ignore", message=".*not writable.*")
            return self.xp.asarray(np.asarray(array, order="C"), device=self.place)


class Library(ABC):
    """An array library that knows GPUs."""

    @abstractmethod
    def count(self) -> int:
        """Devices that it sees."""

    @abstractmethod
    def uuids(self) -> Sequence[str]:
        """Their names, such as ``GPU-8f3c...``."""

    @abstractmethod
    def device(self, number: int, address: str) -> Device:
        """The one of this number, which is Spark's ``address``."""


class CuPy(Library):
    """Raises ImportError where it is not installed."""

    def __init__(self) -> None:
        self._cupy = importlib.import_module("cupy")
        self._xp = importlib.import_module("array_api_compat.cupy")

    def count(self) -> int:
        return int(self._cupy.cuda.runtime.getDeviceCount())

    def uuids(self) -> list[str]:
        found = [self._cupy.cuda.runtime.getDeviceProperties(i)["uuid"] for i in range(self.count())]
        return [_written(bytes(each)) for each in found]

    def device(self, number: int, address: str) -> Device:
        device = self._cupy.cuda.Device(number)
        return Device(
            name=f"cupy on GPU {address}",
            xp=self._xp,
            to_numpy=self._cupy.asnumpy,
            free_bytes=lambda: int(device.mem_info[0]),
            current=lambda: self._cupy.cuda.Device(number),
            release=self._cupy.get_default_memory_pool().free_all_blocks,
        )


class Torch(Library):
    """Raises ImportError where it is not installed."""

    def __init__(self) -> None:
        self._torch = importlib.import_module("torch")
        self._xp = importlib.import_module("array_api_compat.torch")

    def count(self) -> int:
        return int(self._torch.cuda.device_count())

    def uuids(self) -> list[str]:
        found = [str(self._torch.cuda.get_device_properties(i).uuid) for i in range(self.count())]
        return [uuid if uuid.startswith("GPU-") else f"GPU-{uuid}" for uuid in found]

    def device(self, number: int, address: str) -> Device:
        cuda = self._torch.cuda
        return Device(
            name=f"torch on GPU {address}",
            xp=self._xp,
            to_numpy=lambda array: array.cpu().numpy(),
            free_bytes=lambda: int(cuda.mem_get_info(number)[0]),
            place=self._torch.device("cuda", number),
            current=lambda: cuda.device(number),
            release=cuda.empty_cache,
        )


def _written(uuid: bytes) -> str:
    digits = uuid.hex()
    return "GPU-" + "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:32]))


@functools.cache
def library() -> Library | None:
    """The first that can be imported, CuPy before torch; None without one, which the log then says."""
    order_by_bus()
    reasons = []
    for kind in (CuPy, Torch):
        try:
            return kind()
        except ImportError as error:
            reasons.append(str(error))
    say(f"GPUs are granted, but nothing computes on them ({'; '.join(reasons)}): install 'sparkdml[gpu]' or torch")
    return None


@functools.cache
def say(message: str) -> None:
    """Put ``message`` into this worker's log, once."""
    logger.warning("%s; this worker computes with numpy", message)


def device_of(library: Library, address: str) -> Device:
    """The device of one of Spark's addresses. Raises DeviceError where this process does not see it."""
    number = ordinal(address, os.environ.get(VISIBLE), library.count(), library.uuids)
    return library.device(number, address)


def devices(addresses: Sequence[str]) -> list[Device]:
    """The devices of a task's addresses; none where none was granted, or nothing computes on them."""
    if not addresses:
        say("no GPU is granted")
        return []
    found = library()
    return [] if found is None else [device_of(found, address) for address in addresses]
