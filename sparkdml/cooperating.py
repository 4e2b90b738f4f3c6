"""What estimators share whose workers can cooperate in several ways."""

from __future__ import annotations

import math
from typing import ClassVar

from sparkdml import cooperation
from sparkdml.algorithms.progress import Limits
from sparkdml.cooperation import Plan
from sparkdml.estimator import BlockEstimator
from sparkdml.optim.hogwild import AVOIDED
from sparkdml.placement import Server
from sparkdml.placement.server.methods import check as check_beside

#: What parameters of cooperation allow: least and largest value.
COOPERATION_RANGES: dict[str, tuple[float, float]] = {
    "patience": (1, math.inf),
    "stepSize": (1e-300, math.inf),
    "batchSize": (1, math.inf),
    "miniBatchFraction": (1e-12, 1),
    "blockMomentum": (-1, 1 - 1e-12),
    "elasticity": (1e-12, 1),
    "staleness": (-1, math.inf),
    "numServers": (1, 64),
    "backupWorkers": (0, math.inf),
    "replicas": (0, 1),
    "seed": (0, math.inf),
}


class CooperatingEstimator(BlockEstimator):
    """With the parameters of :class:`~sparkdml.params.HasCooperation`, if it has them."""

    #: Parameters of solvers of steps that others may have set: pyspark accepts them.
    ALWAYS: ClassVar[frozenset[str]] = frozenset()

    @property
    def _cooperates(self) -> bool:
        return self.getOrDefault("solver") in cooperation.SOLVERS

    def _check_used(self, solver: str) -> None:
        """Refuse parameters that were set and would have no effect, but for :attr:`ALWAYS`."""
        used = cooperation.USES.get(solver, frozenset()) | self.ALWAYS
        for name in sorted(cooperation.SOME_USE - used):
            if self.isSet(name):
                users = [method for method, names in cooperation.USES.items() if name in names]
                raise ValueError(
                    f"{name} is set, but solver='{solver}' does not use it; unset it, or use solver {', '.join(users)}"
                )
        optimizer = self.getOrDefault("optimizer")
        if self.isSet("schedule") and optimizer in cooperation.VARIANCE_REDUCED:
            raise ValueError(f"schedule is set, but optimizer='{optimizer}' keeps its step size; unset it")
        if solver == "hogwild" and self.isSet("batchSize") and self.getOrDefault("conflicts") != AVOIDED:
            raise ValueError(
                "batchSize is set, but solver='hogwild' steps on single rows unless it looks for conflicts among the "
                f"rows of a batch; unset it, or set conflicts='{AVOIDED}'"
            )
        if self.getOrDefault("topology") == "gossip":
            if solver != "model-averaging":
                raise ValueError(
                    f"topology='gossip' averages whole models; use solver='model-averaging' instead of '{solver}'"
                )
            if self._column("validationIndicatorCol"):
                raise ValueError("topology='gossip' has no model of all workers to validate before the fit ends")

    def _check_method(self) -> None:
        """Refuse a method by which workers cannot cooperate as they are asked to."""
        method, sidecar = self._plan().algorithm(), self._sidecar()
        if self.getPlacement() == Server.name and sidecar is not None:
            check_beside(method, sidecar)

    def _plan(self) -> Plan:
        """The parameters of a solver in which workers cooperate."""
        value = self.getOrDefault
        return Plan(
            solver=value("solver"),
            limits=Limits(value("maxIter"), value("tol")),
            optimizer=value("optimizer"),
            step_size=value("stepSize") if self.isSet("stepSize") else None,
            default_step_size=value("stepSize"),
            schedule=value("schedule"),
            batch_size=value("batchSize") if self.isSet("batchSize") else None,
            fraction=value("miniBatchFraction"),
            local_steps=value("localSteps"),
            block_momentum=value("blockMomentum"),
            elasticity=value("elasticity"),
            codec=value("codec"),
            topology=value("topology"),
            conflicts=value("conflicts"),
            seed=value("seed"),
        )
