"""What a worker keeps of the values that it read."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from sparkdml.server.clocks import Verdict


@dataclass(frozen=True)
class Cache:
    """The values last read, and on top the worker's own changes since (read-my-writes).

    ``clock`` is what ``Ledger.minimum`` was when they were read: they hold all updates of clocks below. A read is
    served from here while nobody could tell by the rule of SSP: this is what makes its reads cheap (Ho et al., *More
    effective distributed ML via a stale synchronous parallel parameter server*, NIPS 2013, section 3).
    """

    staleness: int
    values: np.ndarray | None = None
    clock: int = 0

    def fresh_enough(self, clock: int) -> bool:
        """Whether a read at this clock of the worker's may be served from here: ``self.clock >= clock - staleness``.

        Never without a bound (``staleness=-1``): the server does not let such a read wait, and without it a worker
        would never hear of the others again.
        """
        return self.values is not None and self.staleness >= 0 and self.clock >= clock - self.staleness

    def refreshed(self, values: np.ndarray, clock: int) -> Cache:
        """With values just read, which hold all that the worker has pushed. They are kept, not copied."""
        return replace(self, values=values, clock=clock)

    def pushed(self, change: np.ndarray, verdict: Verdict) -> Cache:
        """After a push was answered: with its ``change`` to the values, for reads until the next refresh.

        Empty if it was not applied: when another attempt was faster, the values may hold the change already or not.
        """
        if verdict is not Verdict.APPLY:
            return Cache(self.staleness)
        if self.values is None or change.shape != self.values.shape:
            raise ValueError(
                f"a change of shape {change.shape} to values of shape "
                f"{None if self.values is None else self.values.shape}; read first, and add what has their shape"
            )
        return replace(self, values=self.values + change)
