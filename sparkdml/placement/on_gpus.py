"""The GPUs of a worker's task, and its blocks there."""

from __future__ import annotations

import socket
from collections.abc import Sequence

from sparkdml.data.block import Block
from sparkdml.problem.devices.block import DeviceBlock, on_devices
from sparkdml.problem.devices.resident import Resident
from sparkdml.resources.gpus.arrays import devices
from sparkdml.resources.gpus.granted import addresses

#: What this process keeps on devices, by Spark's address.
_residents: dict[str, Resident] = {}


def on_gpus(blocks: Sequence[Block]) -> tuple[list[Block], str]:
    """``blocks`` as this task's GPUs compute on them, and where they are, in words; for use within a Spark task.

    What the process kept on other devices, from a task that had those, is given back first.
    """
    granted = addresses()
    for address in _residents.keys() - set(granted):
        _residents.pop(address).clear()
    new = [address for address in granted if address not in _residents]
    if new or not granted:
        found = devices(new)
        _residents.update({address: Resident(device) for address, device in zip(new, found, strict=bool(found))})
    residents = [_residents[address] for address in granted if address in _residents]
    placed = on_devices(blocks, residents)
    return placed, f"{socket.gethostname()}: {_where(placed, granted, residents)}"


def _where(placed: Sequence[Block], granted: Sequence[str], residents: Sequence[Resident]) -> str:
    dense = sum(isinstance(block, DeviceBlock) for block in placed)
    if not dense:
        why = "no dense block" if residents else "neither cupy nor torch" if granted else "none granted"
        return f"numpy ({why}; GPUs granted: {', '.join(granted) or 'none'})"
    names = ", ".join(resident.device.name for resident in residents)
    return names if dense == len(placed) else f"{names}; numpy for {len(placed) - dense} of {len(placed)} blocks"
