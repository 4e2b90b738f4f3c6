"""What sparkdml asks of CuPy, on numpy: four devices of 1 GiB. For tests, with array_api_compat beside it."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np


class Device:
    mem_info = (2**30, 2**30)

    def __init__(self, number: int) -> None:
        assert 0 <= number < 4
        self.id = number

    def __enter__(self) -> Device:
        return self

    def __exit__(self, *_: object) -> None:
        pass


cuda = SimpleNamespace(
    Device=Device,
    runtime=SimpleNamespace(
        getDeviceCount=lambda: 4,
        getDeviceProperties=lambda number: {"uuid": bytes([0xA0 + number] * 16)},
    ),
)


def asnumpy(array: object) -> np.ndarray:
    return np.asarray(array)


def get_default_memory_pool() -> SimpleNamespace:
    return SimpleNamespace(free_all_blocks=lambda: None)
