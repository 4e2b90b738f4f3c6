"""What estimators of networks share: their checks, start and solvers."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from sparkdml import cooperation
from sparkdml.algorithms import Algorithm, Limits, SyncSGD
from sparkdml.algorithms.element_wise import ElementWise
from sparkdml.algorithms.sharded import Sharded
from sparkdml.algorithms.vector_free import VectorFree
from sparkdml.cooperation import Plan
from sparkdml.data.dataset import Dataset
from sparkdml.fit.prepared import Prepared
from sparkdml.fit.sharded import ShardedRun
from sparkdml.function import METHODS, FunctionEstimator
from sparkdml.network.shards import NetworkShards
from sparkdml.optim.activations import ACTIVATIONS
from sparkdml.optim.heads import Head
from sparkdml.optim.network import Network, Standard
from sparkdml.optim.schedules import Constant
from sparkdml.optim.steps import SGD
from sparkdml.placement import Choice
from sparkdml.problem import inverse_of
from sparkdml.report.fit_report import FitReport

#: Values of ``solver`` that pyspark has, and all.
SPARK_SOLVERS = ("l-bfgs", "gd")
SOLVERS = (*SPARK_SOLVERS, *METHODS)
#: Those by which the first layer's weights may be spread over shards.
SHARDED = (*SPARK_SOLVERS, "sgd")


class NetworkEstimator(FunctionEstimator):
    """An estimator of feed-forward networks, with :class:`~sparkdml.params.HasNetwork`'s parameters."""

    RANGES: ClassVar = {**FunctionEstimator.RANGES, "blockSize": (1, math.inf), "dropout": (0, 1 - 1e-12)}
    OWN_SOLVERS = SPARK_SOLVERS
    #: In pyspark they may be set whatever the solver is.
    ALWAYS = frozenset(("stepSize",))
    #: What outputs are compared with labels by.
    HEAD: ClassVar[Head]

    def checkParams(self) -> None:
        super().checkParams()
        self._check_layers()
        activation = self.getOrDefault("activation")
        if activation not in ACTIVATIONS:
            raise ValueError(f"activation='{activation}' is not known; it can be {', '.join(ACTIVATIONS)}")

    def _check_solver(self, solver: str) -> None:
        super()._check_solver(solver)
        if solver == "l-bfgs" and self.getOrDefault("dropout") > 0.0:
            raise ValueError(
                f"dropout={self.getOrDefault('dropout')} makes each gradient another one, and solver='l-bfgs' compares "
                f"them; use dropout=0.0, or one of {', '.join(SOLVERS[1:])}"
            )

    def _check_layers(self) -> None:
        layers = self._value("layers")
        if layers is None:
            raise ValueError("layers is not set; give the units of each layer, such as [features, 100, outputs]")
        if len(layers) < 2 or min(layers) < 1:
            raise ValueError(
                f"layers={list(layers)} is not allowed; give at least 2 layers (features and outputs) of 1 unit or more"
            )
        start, size = self._column("initialWeights"), self._network().size
        if start is not None and len(start) != size:
            raise ValueError(
                f"initialWeights has {len(start)} numbers, but layers={list(layers)} have {size}: (in + 1) * out for "
                "each two that follow one another; change one of them"
            )

    def _check_rows(self, dataset: Dataset) -> None:
        """Raise ValueError for rows that do not fit the layers."""
        first = self.getOrDefault("layers")[0]
        if first != dataset.features:
            raise ValueError(
                f"layers begins with {first} units, but rows have {dataset.features} features; begin it with "
                f"{dataset.features}"
            )

    def _network(self, dataset: Dataset | None = None) -> Network:
        """In the coordinates that suit ``dataset``.

        Spark's start and steps are for features as given; others are for features in units of their root mean square.
        """
        value, standard = self.getOrDefault, None
        if dataset is not None and value("standardization"):
            standard = Standard(dataset.statistics.mean, inverse_of(dataset.statistics.std))
        elif dataset is not None and value("activation") != "sigmoid":
            unit = math.sqrt(float(np.mean(dataset.statistics.mean**2 + dataset.statistics.std**2)))
            standard = Standard(np.zeros(dataset.features), np.full(dataset.features, 1.0 / (unit or 1.0)))
        return Network(tuple(value("layers")), value("activation"), self.HEAD, value("dropout"), standard)

    def _function(self, dataset: Dataset) -> Network:
        return self._network(dataset)

    def _trained(self, given: Prepared) -> tuple[np.ndarray, FitReport]:
        """The weights for features as given, in Spark's order, and the report."""
        self._check_rows(given.dataset)
        network = self._network(given.dataset)
        chosen = self._choose(given.dataset, -(-network.size // network.features))
        if chosen.partitioned:
            return self._sharded(chosen, given, network)
        _, point, report = self._minimised(given)
        return network.to_raw(point), report

    def _cannot_partition(self) -> str:
        value = self.getOrDefault
        if value("solver") not in SHARDED:
            return f"solver='{value('solver')}' must see all weights; use one of {', '.join(SHARDED)}"
        if value("regParam") > 0.0 or value("dropout") > 0.0:
            return "regParam or dropout is above 0, which only networks in one place have; set both to 0.0"
        if self._column("validationIndicatorCol"):
            return "validationIndicatorCol is set, and what it does needs all weights; unset it"
        if value("codec") != cooperation.EXACT:
            return f"codec='{value('codec')}' is for whole models; use codec='{cooperation.EXACT}'"
        return ""

    def _sharded(self, chosen: Choice, given: Prepared, network: Network) -> tuple[np.ndarray, FitReport]:
        value, name = self.getOrDefault, f"{self.getOrDefault('solver')}: asked for"
        algorithm: Sharded = VectorFree(value("maxIter"), value("tol"))
        if value("solver") != "l-bfgs":
            algorithm = ElementWise(self._algorithm())
        unit = 1.0 if network.standard is None or value("standardization") else float(network.standard.scale[0])
        run = ShardedRun(chosen, self._on_round, value("progress"), self._keeping())
        shards = NetworkShards(replace(network, standard=None), value("standardization"), unit)
        return shards.fit(run, algorithm, network.to_raw(self._start(network)), given, name)

    def _algorithm(self) -> Algorithm[Any]:
        value = self.getOrDefault
        if value("solver") == "gd":
            limits = Limits(value("maxIter"), value("tol"))
            return SyncSGD(SGD(), Constant(), value("stepSize"), 1.0, limits, value("seed"))
        return super()._algorithm()

    def _plan(self) -> Plan:
        plan = super()._plan()
        return plan if self.isSet("batchSize") else replace(plan, batch_size=self.getOrDefault("blockSize"))

    def _start(self, network: Network) -> np.ndarray:
        """The initial model's weights, or ``initialWeights``, or those of the seed."""
        model = self._initial_model
        given = self._column("initialWeights") if model is None else model.weights
        if given is None:
            return network.start(self.getOrDefault("seed"))
        weights = np.asarray(given.toArray(), np.float64)
        if len(weights) != network.size:
            raise ValueError(
                f"the initial model has {len(weights)} weights, but layers={list(network.layers)} have {network.size}; "
                "give a model of such layers"
            )
        return network.from_raw(weights)
