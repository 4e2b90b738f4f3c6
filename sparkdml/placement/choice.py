"""Which placement a fit gets, and why."""

from __future__ import annotations

from dataclasses import dataclass

from sparkdml.comm.topologies import TOPOLOGIES
from sparkdml.data.dataset import Dataset
from sparkdml.placement.allreduce import AllReduce
from sparkdml.placement.base import Placement
from sparkdml.placement.broadcast import Broadcast
from sparkdml.placement.local import Local

#: Placements by the name that the ``placement`` parameter takes, next to ``auto``.
PLACEMENTS: dict[str, type[Placement]] = {"broadcast": Broadcast, "local": Local, "allreduce": AllReduce}


@dataclass(frozen=True)
class Choice:
    """A placement, and the reason for it."""

    placement: Placement
    reason: str


def choose(name: str, dataset: Dataset, topology: str = "auto") -> Choice:
    """The placement called ``name``; ``auto`` picks one for this data set. ``topology`` is of ``allreduce``.

    In Spark's local mode the driver's threads reach every block, on the cores that tasks would get: ``local`` does
    the same arithmetic as ``broadcast`` without a Spark job a round.
    """
    if name == AllReduce.name:
        return Choice(AllReduce(topology), "asked for")
    if name != "auto":
        return Choice(PLACEMENTS[name](), "asked for")
    if str(dataset.context.master).split("[")[0] == "local" and dataset.is_here:
        return Choice(Local(), "local mode: the driver reaches every block without a Spark job a round")
    return Choice(Broadcast(), "blocks are on executors")


def check(name: str, topology: str = "auto") -> None:
    """Raise ValueError unless :func:`choose` knows ``name`` and ``topology``, and they go together."""
    if topology != "auto" and topology not in TOPOLOGIES:
        raise ValueError(f"topology='{topology}' is not known; it can be auto, {', '.join(TOPOLOGIES)}")
    if topology != "auto" and name != AllReduce.name:
        raise ValueError(f"topology='{topology}' is for placement='allreduce', and placement is '{name}'; set both")
    if name != "auto" and name not in PLACEMENTS:
        raise ValueError(f"placement='{name}' is not known; it can be auto, {', '.join(PLACEMENTS)}")
