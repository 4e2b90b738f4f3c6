"""Loss and gradient on an array library's device: numpy's, whatever the library."""

from __future__ import annotations

import gc
import importlib.util
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import array_api_strict
import numpy as np
import pytest

from sparkdml.data.block import Block, DenseBlock, SparseBlock
from sparkdml.losses import Hinge, Huber, Logistic, Softmax, Squared
from sparkdml.problem.devices.block import DeviceBlock, on_devices
from sparkdml.problem.devices.losses import ARRAY_LOSSES
from sparkdml.problem.devices.resident import Resident
from sparkdml.problem.gradient import loss_and_gradient, total_loss
from sparkdml.resources.gpus import arrays
from sparkdml.resources.gpus.arrays import Device

ROOT = Path(__file__).parents[2]
MEMORY = 2**30


def strict() -> Device:
    return Device("array-api-strict", array_api_strict, np.asarray, lambda: MEMORY)


def torch_on_cpu() -> Device:
    import torch
    from array_api_compat import torch as xp

    return Device("torch on the CPU", xp, lambda array: array.numpy(), lambda: MEMORY, place=torch.device("cpu"))


def first_gpu() -> Device:
    library = arrays.library()
    assert library is not None
    return library.device(0, "0")


def missing_gpu() -> str:
    """Why no real GPU can be used here; empty if one can."""
    for kind in (arrays.CuPy, arrays.Torch):
        try:
            if kind().count() > 0:
                return ""
        except Exception as error:
            reason = f"{kind.__name__}: {error}"
    return f"no GPU that CuPy or torch can use ({reason})"


def without(reason: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(bool(reason), reason=reason or "there")


DEVICES = pytest.mark.parametrize(
    "device",
    [
        strict,
        pytest.param(
            torch_on_cpu, marks=without("" if importlib.util.find_spec("torch") else "torch is not installed")
        ),
        pytest.param(first_gpu, marks=without(missing_gpu())),
    ],
)
LOSSES = pytest.mark.parametrize("loss", [Logistic(), Softmax(2), Softmax(5), Squared(), Squared(0.3)], ids=repr)


def rows(count: int, features: int, outputs: int, dtype: type = np.float64, seed: int = 0) -> DenseBlock:
    rng = np.random.default_rng(seed)
    values = rng.standard_normal((count, features)).astype(dtype)
    values.setflags(write=False)  # as mapped files are
    labels = rng.integers(0, max(outputs, 2), count).astype(np.float64)
    return DenseBlock(labels, rng.uniform(0.0, 2.0, count), features, values)


def point(features: int, outputs: int, scale: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(9)
    return scale * rng.standard_normal((features, outputs)), rng.standard_normal(outputs)


def agree(found: dict, expected: dict) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert isinstance(found[name], type(value))
        np.testing.assert_allclose(found[name], value, rtol=1e-6, atol=1e-9 * np.max(np.abs(value)), err_msg=name)
    assert found["gradient"].dtype == found["slope_sum"].dtype == np.float64


def test_every_array_loss_is_tested() -> None:
    assert set(ARRAY_LOSSES) == {Logistic, Softmax, Squared}


@DEVICES
@LOSSES
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sums_are_those_of_the_numpy_kernels(device: Callable[[], Device], loss, dtype) -> None:
    blocks = [rows(count, 7, loss.outputs, dtype, seed=count) for count in (1, 50, 333)]
    at = point(7, loss.outputs)
    placed = on_devices(blocks, [Resident(device())])
    assert all(isinstance(block, DeviceBlock) for block in placed)
    expected = loss_and_gradient(loss, blocks, *at)
    agree(loss_and_gradient(loss, placed, *at), expected)
    agree(loss_and_gradient(loss, placed, *at), expected)


@DEVICES
@LOSSES
def test_extreme_margins_stay_finite(device, loss) -> None:
    blocks = [rows(40, 3, loss.outputs)]
    at = point(3, loss.outputs, scale=1e4)
    found = loss_and_gradient(loss, on_devices(blocks, [Resident(device())]), *at)
    agree(found, loss_and_gradient(loss, blocks, *at))
    assert np.isfinite(found["loss"])


@LOSSES
def test_several_devices_share_the_blocks_and_sparse_ones_stay(loss) -> None:
    dense = [rows(count, 4, loss.outputs, seed=count) for count in (100, 60, 50, 10)]
    sparse = SparseBlock(
        np.ones(2), np.ones(2), 4, np.array([0, 1, 3]), np.array([2, 0, 3], np.int32), np.array([1.0, 2.0, 3.0])
    )
    blocks: list[Block] = [*dense[:2], sparse, *dense[2:]]
    residents = [Resident(strict()), Resident(strict())]
    placed = on_devices(blocks, residents)
    assert [block.resident for block in placed if isinstance(block, DeviceBlock)] == [
        residents[0], residents[1], residents[1], residents[0]
    ]  # fmt: skip
    assert placed[2] is sparse
    at = point(4, loss.outputs)
    agree(loss_and_gradient(loss, placed, *at), loss_and_gradient(loss, blocks, *at))


def test_losses_without_an_array_form_are_evaluated_as_ever() -> None:
    blocks = [rows(30, 3, 1)]
    placed = on_devices(blocks, [Resident(strict())])
    for loss in (Hinge(), Huber()):
        expected, found = (loss_and_gradient(loss, each, *point(3, 1)) for each in (blocks, placed))
        for name in expected:
            np.testing.assert_array_equal(found[name], expected[name])


def test_parts_of_a_block_on_a_device_are_ordinary_blocks() -> None:
    block = rows(30, 3, 1)
    (placed,) = on_devices([block], [Resident(strict())])
    assert isinstance(placed, DeviceBlock)
    for part in (placed.between(3, 9), placed.take(np.array([4, 4])), placed.joined([placed]), placed.compact()[1]):
        assert type(part) is DenseBlock
    np.testing.assert_array_equal(placed.between(3, 9).values, block.values[3:9])
    assert total_loss(Logistic(), [placed], *point(3, 1)) == total_loss(Logistic(), [block], *point(3, 1))


class Counting:
    """A namespace that counts what is copied to its device."""

    def __init__(self) -> None:
        self.copied: list[int] = []

    def __getattr__(self, name: str):
        return getattr(array_api_strict, name)

    def asarray(self, array, device=None):
        self.copied.append(array.nbytes)
        return array_api_strict.asarray(array)


def test_what_fits_the_budget_is_copied_once_and_the_rest_in_every_round() -> None:
    blocks = [rows(100, 8, 1, seed=seed) for seed in range(3)]
    size = blocks[0].values.nbytes
    xp = Counting()
    resident = Resident(Device("counting", xp, np.asarray, lambda: MEMORY), budget_bytes=2 * (size + 1600) + 100)
    counts = []
    for _ in range(3):
        xp.copied.clear()
        loss_and_gradient(Logistic(), on_devices(blocks, [resident]), *point(8, 1))
        counts.append(xp.copied.count(size))
    assert counts == [3, 1, 1]
    assert resident.used_bytes == 2 * (size + 1600)


def test_memory_comes_back_when_blocks_are_gone_and_when_it_is_cleared() -> None:
    released: list[bool] = []
    device = Device("strict", array_api_strict, np.asarray, lambda: MEMORY, release=lambda: released.append(True))
    resident, blocks = Resident(device), [rows(10, 2, 1, seed=seed) for seed in range(2)]
    for block in blocks:
        resident.arrays(block)
    both = resident.used_bytes
    del blocks[0], block
    gc.collect()
    assert resident.used_bytes == both // 2
    resident.clear()
    assert resident.used_bytes == 0
    assert released == [True]
    assert resident.arrays(blocks[0]) is resident.arrays(blocks[0])


def test_half_of_the_free_memory_is_the_budget() -> None:
    assert Resident(strict()).budget_bytes == MEMORY // 2


def test_kernels_compute_where_pyspark_cannot_be_imported() -> None:
    code = """
import sys
sys.modules["pyspark"] = sys.modules["py4j"] = None
import array_api_strict, numpy as np
from sparkdml.data.block import DenseBlock
from sparkdml.losses import Logistic
from sparkdml.problem.devices.block import on_devices
from sparkdml.problem.devices.resident import Resident
from sparkdml.problem.gradient import loss_and_gradient
from sparkdml.resources.gpus.arrays import Device
device = Device("strict", array_api_strict, np.asarray, lambda: 2**20)
block = DenseBlock(np.array([0.0, 1.0]), np.ones(2), 2, np.eye(2))
placed = on_devices([block], [Resident(device)])
print(loss_and_gradient(Logistic(), placed, np.zeros((2, 1)), np.zeros(1))["gradient"].ravel().tolist())
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, env={"PYTHONPATH": str(ROOT)}
    )
    assert done.stdout.strip() == "[0.5, -0.5]", done.stderr
