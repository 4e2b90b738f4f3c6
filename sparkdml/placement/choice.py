"""Which placement a fit gets, and why."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from sparkdml.comm.topologies import TOPOLOGIES
from sparkdml.data.dataset import Dataset
from sparkdml.placement.allreduce import AllReduce
from sparkdml.placement.base import Placement
from sparkdml.placement.broadcast import Broadcast
from sparkdml.placement.cost import Work, memory_bytes, seconds
from sparkdml.placement.local import Local
from sparkdml.placement.partitioned import Partitioned
from sparkdml.placement.server import Server, Sidecar
from sparkdml.resources.gpus.workers import ANY, Workers
from sparkdml.resources.slots import setting, task_slots

#: Placements that drive any algorithm which sees all coefficients, by the name that the ``placement`` parameter takes.
PLACEMENTS: dict[str, type[Placement]] = {"broadcast": Broadcast, "local": Local, "allreduce": AllReduce}
#: All of its values, next to ``auto``.
NAMES = (*PLACEMENTS, Partitioned.name, Server.name)


@dataclass(frozen=True)
class Choice:
    """A placement, and the reason for it. ``fits_driver``: the model may be put together there afterwards."""

    placement: Placement | Partitioned
    reason: str
    fits_driver: bool = True

    @property
    def partitioned(self) -> bool:
        return isinstance(self.placement, Partitioned)


def choose(
    name: str,
    dataset: Dataset,
    topology: str = "auto",
    outputs: int = 1,
    unfit: Collection[str] = (Partitioned.name,),
    sidecar: Sidecar | None = None,
    workers: Workers = ANY,
) -> Choice:
    """The placement called ``name``; ``auto`` takes the cheapest by :mod:`~sparkdml.placement.cost`.

    ``topology`` is of ``allreduce``, ``sidecar`` of ``server``, which ``auto`` never takes; ``outputs`` coefficients a
    feature; ``unfit`` are placements that ``auto`` must not take for this fit; ``workers`` are how many and what they
    have.

    Raises ValueError where ``auto`` finds none.
    """
    if name == AllReduce.name:
        return Choice(AllReduce(topology, workers), "asked for")
    if name == Server.name:
        return Choice(Server(sidecar), "asked for")
    if name == Partitioned.name:
        return Choice(Partitioned(), "asked for", fits_driver=False)
    if name != "auto":
        return Choice(PLACEMENTS[name](workers=workers), "asked for")
    work = work_of(dataset, outputs)
    costs = {found: cost for found, cost in seconds(work).items() if found not in unfit}
    if setting(dataset.context, "spark.dynamicAllocation.enabled", "false").lower() == "true":
        costs.pop(AllReduce.name, None)  # a gang needs its slots all at once
    if not costs:
        raise ValueError(
            f"the model has {work.features} x {work.outputs} coefficients, with which the driver would hold "
            f"{work.on_driver / 2**30:.1f} GiB, more than half of spark.driver.memory ({work.driver_bytes / 2**30:.1f} "
            "GiB), and with these parameters it cannot be partitioned; raise that setting, name a placement, or use "
            "solver='auto' or 'sgd' without bounds and validation rows, which can be partitioned"
        )
    best = min(costs, key=lambda found: costs[found])
    told = ", ".join(f"{found} {cost:.2g} s" for found, cost in sorted(costs.items(), key=lambda item: item[1]))
    reason = f"the cheapest by estimate ({told})"
    if not work.fits_driver:
        reason = f"the driver would hold {work.on_driver / 2**30:.1f} GiB, more than half of spark.driver.memory"
    if best == Partitioned.name:
        return Choice(Partitioned(), reason, work.fits_driver)
    return Choice(PLACEMENTS[best](workers=workers), reason)


def work_of(dataset: Dataset, outputs: int) -> Work:
    """What a fit of so many coefficients a feature has to do."""
    driver_memory = setting(dataset.context, "spark.driver.memory", "1g")
    return Work(
        dataset.features,
        outputs,
        dataset.stored_values,
        dataset.stored_bytes,
        dataset.partitions,
        task_slots(dataset.context),
        memory_bytes(driver_memory),
        str(dataset.context.master).split("[")[0] == "local" and dataset.is_here,
    )


def check(name: str, topology: str = "auto") -> None:
    """Raise ValueError unless :func:`choose` knows ``name`` and ``topology``, and they go together."""
    if topology != "auto" and topology not in TOPOLOGIES:
        raise ValueError(f"topology='{topology}' is not known; it can be auto, {', '.join(TOPOLOGIES)}")
    if topology != "auto" and name != AllReduce.name:
        raise ValueError(f"topology='{topology}' is for placement='allreduce', and placement is '{name}'; set both")
    if name != "auto" and name not in NAMES:
        raise ValueError(f"placement='{name}' is not known; it can be auto, {', '.join(NAMES)}")
