"""Which device a Spark address is, in processes that see all devices, some, or some in another order."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from sparkdml.resources.gpus import arrays, granted
from sparkdml.resources.gpus.granted import DeviceError, ordinal

STAND_IN = Path(__file__).parent / "stand_in"
UUIDS = ["GPU-aaaa0000-1", "GPU-bbbb0000-2", "GPU-bbbb1111-3"]


@pytest.mark.parametrize(
    ("address", "visible", "expected"),
    [
        ("0", None, 0),
        ("2", None, 2),
        ("GPU-bbbb1111-3", None, 2),
        ("GPU-aaaa", None, 0),
        ("0", "0,1,2", 0),
        ("2", "1,2", 1),
        ("1", "1,2", 0),
        ("5", " 7 , 5", 1),
        ("GPU-bbbb0000-2", "GPU-bbbb0000-2", 0),
        ("GPU-bbbb0000-2", "GPU-aaaa,GPU-bbbb0", 1),
        ("MIG-77", "MIG-66,MIG-77", 1),
    ],
)
def test_an_address_is_a_number_by_bus_or_a_place_in_the_list(address, visible, expected):
    assert ordinal(address, visible, 3, lambda: UUIDS) == expected


@pytest.mark.parametrize(
    ("address", "visible"),
    [
        ("3", None),  # three devices are 0, 1 and 2
        ("GPU-cccc", None),
        ("GPU-", None),
        ("0", "1,2"),  # as a place it would be the device of address 1
        ("0", ""),
        ("4", "0,1,2,3,4"),  # the list names more than there are
        ("-1", "1"),
    ],
)
def test_an_address_that_stands_for_none_is_refused_and_no_other_device_taken(address, visible):
    with pytest.raises(DeviceError, match=f"granted GPU '{address}'.*sees 3 devices"):
        ordinal(address, visible, 3, lambda: UUIDS)


@pytest.mark.parametrize("visible", [None, "3,1", "1,3", "2,0,3,1"])
def test_two_workers_never_share_a_device_that_has_two_addresses(visible):
    names = ["1", "3"] if visible is None else visible.split(",")
    found = [ordinal(name, visible, 4, list) for name in names]
    assert len(set(found)) == len(found)


class FakeTorch(ModuleType):
    """What sparkdml asks of torch: two devices."""

    def __init__(self) -> None:
        super().__init__("torch")
        self.current: list[int] = []
        self.cuda = ModuleType("torch.cuda")
        self.cuda.device_count = lambda: 2
        self.cuda.get_device_properties = lambda n: ModuleType("properties")
        self.cuda.mem_get_info = lambda n: (100 + n, 1000)
        self.cuda.empty_cache = lambda: None
        self.device = lambda kind, number: f"{kind}:{number}"


@pytest.fixture
def fresh(monkeypatch):
    """As in a worker that has not computed yet."""
    for cached in (arrays.library, arrays.say):
        cached.cache_clear()
    for name in ("cupy", "torch", "array_api_compat", "array_api_compat.cupy", "array_api_compat.torch"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "FASTEST_FIRST")
    yield monkeypatch
    for cached in (arrays.library, arrays.say):
        cached.cache_clear()
    for name in [name for name in sys.modules if name.split(".")[0] in ("cupy", "array_api_compat")]:
        del sys.modules[name]


def test_cupy_computes_on_the_device_of_the_address(fresh):
    fresh.syspath_prepend(str(STAND_IN))
    fresh.setenv("CUDA_VISIBLE_DEVICES", "5,3")
    (device,) = arrays.devices(["3"])
    assert device.name == "cupy on GPU 3"
    with device.current() as current:
        assert current.id == 1
    there = device.put(np.arange(3.0))
    np.testing.assert_array_equal(device.to_numpy(there + 1.0), [1.0, 2.0, 3.0])
    assert device.free_bytes() == 2**30
    device.release()


def test_cupys_devices_are_found_by_uuid(fresh):
    fresh.syspath_prepend(str(STAND_IN))
    names = [device.name for device in arrays.devices(["GPU-a2a2a2a2-a2a2-a2a2-a2a2-a2a2a2a2a2a2", "0"])]
    assert names == ["cupy on GPU GPU-a2a2a2a2-a2a2-a2a2-a2a2-a2a2a2a2a2a2", "cupy on GPU 0"]


def test_torch_is_taken_where_there_is_no_cupy(fresh):
    fresh.setitem(sys.modules, "cupy", None)
    fresh.setitem(sys.modules, "torch", FakeTorch())
    fresh.setitem(sys.modules, "array_api_compat.torch", ModuleType("array_api_compat.torch"))
    (device,) = arrays.devices(["1"])
    assert (device.name, device.place, device.free_bytes()) == ("torch on GPU 1", "cuda:1", 101)


def test_devices_are_numbered_by_bus_before_a_library_counts_them(fresh):
    import os

    fresh.setitem(sys.modules, "cupy", None)
    fresh.setitem(sys.modules, "torch", None)
    arrays.devices(["0"])
    assert os.environ["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"


def test_without_a_library_numpy_computes_and_the_log_says_so_once(fresh, caplog):
    fresh.setitem(sys.modules, "cupy", None)
    fresh.setitem(sys.modules, "torch", None)
    with caplog.at_level(logging.WARNING):
        assert arrays.devices(["0"]) == arrays.devices(["0"]) == []
    assert len(caplog.records) == 1
    assert "cupy" in caplog.text
    assert "torch" in caplog.text


def test_without_a_grant_nothing_is_imported_and_the_log_says_so_once(fresh, caplog):
    with caplog.at_level(logging.WARNING):
        assert arrays.devices([]) == arrays.devices([]) == []
    assert [record.getMessage() for record in caplog.records] == ["no GPU is granted; this worker computes with numpy"]
    assert "cupy" not in sys.modules


def test_outside_of_a_task_nothing_is_granted():
    assert granted.addresses() == ()
