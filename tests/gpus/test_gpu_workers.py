"""A worker process from task to task: what it keeps on devices, and what it gives back."""

from __future__ import annotations

import array_api_strict
import numpy as np
import pytest

from sparkdml.data.block import DenseBlock, SparseBlock
from sparkdml.placement import on_gpus as module
from sparkdml.placement.on_gpus import on_gpus
from sparkdml.problem.devices.block import DeviceBlock
from sparkdml.resources.gpus.arrays import Device

DENSE = DenseBlock(np.zeros(4), np.ones(4), 2, np.ones((4, 2)))
SPARSE = SparseBlock(np.zeros(1), np.ones(1), 2, np.array([0, 1]), np.array([0], np.int32), np.ones(1))


class Worker:
    """One process: tasks of it are granted ``addresses``, and it has an array library or not."""

    def __init__(self) -> None:
        self.addresses: tuple[str, ...] = ()
        self.library = True
        self.released: list[str] = []

    def devices(self, addresses: list[str]) -> list[Device]:
        return [self.device(address) for address in addresses] if self.library else []

    def device(self, address: str) -> Device:
        def release() -> None:
            self.released.append(address)

        return Device(f"GPU {address}", array_api_strict, np.asarray, lambda: 2**20, release=release)

    def task(self, *addresses: str, blocks=(DENSE,)) -> tuple[list, str]:
        self.addresses = addresses
        placed, where = on_gpus(blocks)
        return placed, where.split(": ", 1)[1]


@pytest.fixture
def worker(monkeypatch) -> Worker:
    process = Worker()
    monkeypatch.setattr(module, "_residents", {})
    monkeypatch.setattr(module, "addresses", lambda: process.addresses)
    monkeypatch.setattr(module, "devices", process.devices)
    return process


def test_blocks_stay_on_a_device_that_the_next_task_has_too(worker):
    (first,), where = worker.task("2")
    (again,), _ = worker.task("2")
    assert isinstance(first, DeviceBlock)
    assert first.resident is again.resident
    assert where == "GPU 2"
    assert worker.released == []


def test_a_device_that_the_next_task_does_not_have_is_given_back(worker):
    (first,), _ = worker.task("2")
    first.resident.arrays(DENSE)
    (second,), where = worker.task("0")
    assert worker.released == ["2"]
    assert first.resident.used_bytes == 0
    assert second.resident is not first.resident
    assert where == "GPU 0"


def test_one_of_two_devices_stays(worker):
    (first, other), _ = worker.task("0", "1", blocks=(DENSE, DENSE.between(0, 4)))
    (again, _), where = worker.task("1", "3", blocks=(DENSE, DENSE.between(0, 4)))
    assert again.resident is other.resident is not first.resident
    assert worker.released == ["0"]
    assert where == "GPU 1, GPU 3"


def test_it_is_told_where_numpy_computes_and_why(worker):
    assert worker.task("0", blocks=(DENSE, SPARSE))[1] == "GPU 0; numpy for 1 of 2 blocks"
    assert worker.task("0", blocks=(SPARSE,))[1] == "numpy (no dense block; GPUs granted: 0)"
    assert worker.task()[1] == "numpy (none granted; GPUs granted: none)"
    worker.library = False
    placed, where = worker.task("1")
    assert placed[0] is DENSE
    assert where == "numpy (neither cupy nor torch; GPUs granted: 1)"
