"""A network trained by shards: its first matrix is spread over them, and all other layers are their tail."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from sparkdml.algorithms.sharded import Sharded
from sparkdml.algorithms.starts import Whole
from sparkdml.data.dataset import Dataset
from sparkdml.fit.prepared import Prepared
from sparkdml.fit.sharded import ShardedRun
from sparkdml.optim.network import Network
from sparkdml.optim.upper_layers import UpperLayers
from sparkdml.problem import Objective, Problem
from sparkdml.report.fit_report import FitReport
from sparkdml.wide.inspection import COEFFICIENTS_LIMIT, collect
from sparkdml.wide.shards import InRDD


@dataclass(frozen=True)
class _NetworkObjective(Objective):
    """First steps are those of :class:`~sparkdml.problem.FunctionProblem`, to which all weights are alike: whatever the
    unit of the first layer's.
    """

    def tail(self) -> Problem:
        assert isinstance(self.loss, UpperLayers)
        return replace(super().tail(), loss=replace(self.loss, curvature=1.0))


@dataclass(frozen=True)
class NetworkShards:
    """``network`` in coordinates for features as given, or, if ``standardization``, of mean 0 and variance 1; else all
    in the same ``unit``.
    """

    network: Network
    standardization: bool
    unit: float

    def fit(
        self, run: ShardedRun, algorithm: Sharded, start: np.ndarray, given: Prepared, solver: str
    ) -> tuple[np.ndarray, FitReport]:
        """Weights for features as given, in Spark's order, as ``start`` has them, and the report."""
        inputs, units = self.network.layers[:2]
        if inputs * units > COEFFICIENTS_LIMIT:
            raise ValueError(
                f"layers begins with {inputs} and {units} units: that matrix has {inputs * units} weights, and no more "
                f"than {COEFFICIENTS_LIMIT} are put together on the driver for the model; use fewer units, or hashed "
                "features"
            )
        first, tail = start[: inputs * units].reshape(inputs, units), start[inputs * units :]
        trained, report = run.fit(algorithm, self._objective(given.dataset), tail, given, solver, Whole(first))
        found = collect(InRDD(trained.bounds, units, trained.chunks), "fit").dense(inputs)
        trained.chunks.unpersist()
        statistics = given.dataset.statistics
        never = (statistics.mean == 0.0) & (statistics.std == 0.0)
        found[never] = first[never]  # no shard has features that occur in no row
        return np.concatenate([found.ravel(), trained.intercepts, trained.tail[units:]]), report

    def _objective(self, dataset: Dataset) -> Objective:
        return _NetworkObjective(
            UpperLayers(self.network, curvature=self.unit**-2),
            ridge=0.0,
            lasso=0.0,
            standardization=True,
            fit_intercept=True,
            weight_sum=dataset.totals.weight_sum,
            centred=self.standardization,
            scaled=self.standardization,
            unit=self.unit,
            constant=not self.standardization,
        )
