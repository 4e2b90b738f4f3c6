"""Where the model's parameters live. See :class:`sparkdml.placement.base.Placement`."""

from sparkdml.placement.base import Placement, Trained
from sparkdml.placement.broadcast import Broadcast

#: Placements by the name that the ``placement`` parameter takes.
PLACEMENTS: dict[str, type[Placement]] = {"broadcast": Broadcast}

__all__ = ["PLACEMENTS", "Broadcast", "Placement", "Trained"]
