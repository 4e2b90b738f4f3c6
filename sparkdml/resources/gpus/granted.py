"""Which of the devices that a process sees Spark gave to its task.

Spark hands out the addresses that its discovery script printed; array libraries count the devices that they see. With
``CUDA_VISIBLE_DEVICES`` unset (a bare machine, or a container or cgroup that shows only its own devices to script and
library alike) address n is device n by PCI bus. Where it is set, libraries count along its list, and an address is an
entry of that list: its place is the device. An address that is not in the list stands for none: to take it for a place
would give two workers one device.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

#: CUDA's own order is by speed; nvidia-smi's, which addresses come from, by bus.
ORDER = "CUDA_DEVICE_ORDER"
VISIBLE = "CUDA_VISIBLE_DEVICES"


class DeviceError(RuntimeError):
    """Spark granted a GPU that this process cannot find."""


def addresses() -> tuple[str, ...]:
    """The GPUs of the Spark task that this runs in; none outside of a task."""
    from pyspark import TaskContext

    context = TaskContext.get()
    found = context.resources().get("gpu") if context is not None else None
    return tuple(found.addresses) if found is not None else ()


def order_by_bus() -> None:
    """Have CUDA number devices as nvidia-smi does: before a library of this process first asks for them."""
    os.environ[ORDER] = "PCI_BUS_ID"


def ordinal(address: str, visible: str | None, count: int, uuids: Callable[[], Sequence[str]]) -> int:
    """The number by which libraries know the device of ``address``.

    visible : ``CUDA_VISIBLE_DEVICES``, None if unset. count, uuids : of the devices that the library sees.

    Raises DeviceError where there is none.
    """
    place: int | None = None
    if visible is not None:
        names = [name.strip() for name in visible.split(",")]
        place = next((i for i, name in enumerate(names) if name and _same(address, name)), None)
    elif address.isdecimal():
        place = int(address)
    else:
        place = next((i for i, uuid in enumerate(uuids()) if _same(address, uuid)), None)
    if place is not None and place < count:
        return place
    limits = f"{VISIBLE}={visible}" if visible is not None else f"{VISIBLE} is unset"
    raise DeviceError(
        f"Spark granted GPU '{address}', but this worker sees {count} devices and {limits}; the discovery script must "
        f"print addresses as workers see them: entries of that list, or numbers below {count} (conf/gpu-discovery.sh "
        "does, run in the workers' environment)"
    )


def _same(address: str, name: str) -> bool:
    """UUIDs may be cut short, as CUDA allows it."""
    if address == name:
        return True
    short, long = sorted((address, name), key=len)
    return short.startswith("GPU-") and len(short) > len("GPU-") and long.startswith(short)
