"""The template of every fit: check, prepare blocks, train, build the model."""

from __future__ import annotations

import logging
import math
from abc import abstractmethod
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from sparkdml import cooperation
from sparkdml.algorithms.base import Algorithm
from sparkdml.core import Stop
from sparkdml.data.columns import Features, Pairs
from sparkdml.data.dataset import Dataset
from sparkdml.data.partition import Split
from sparkdml.data.sources import from_dataframe
from sparkdml.fit.checkpoint import MAP_PREFIX, Keeping
from sparkdml.fit.prepared import Fits, Prepared, Shared
from sparkdml.fit.rows import WEIGHT, balanced, hold_back, weigh
from sparkdml.fit.running import Run
from sparkdml.fit.watch import Callback
from sparkdml.model import TrainedModel, as_it_is
from sparkdml.params import HasCheckpoint, HasFeaturesCols, HasPlacement, HasProgress, HasWorkers, PlainValues
from sparkdml.params.sidecars import LAUNCH_PARAMS, check_servers, sidecar_of
from sparkdml.placement import (
    AllReduce,
    Broadcast,
    Choice,
    Local,
    Partitioned,
    Sidecar,
    choice,
    choose,
)
from sparkdml.problem import Differentiable
from sparkdml.report.fit_report import FitReport, fit_report
from sparkdml.report.history import History
from sparkdml.resources.gpus.workers import Workers, workers_for
from sparkdml.saving import Saved

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.ml.param import Param
    from pyspark.sql import DataFrame

logger = logging.getLogger(__name__)

#: Parameters that a resumed fit may have changed: they do not decide what is learned.
INDIFFERENT = frozenset(
    ("placement", "progress", "checkpointDir", "checkpointInterval", "predictionCol", "probabilityCol",
     "rawPredictionCol", "linkPredictionCol", "threshold", "thresholds", "numWorkers", "gpusPerWorker", *LAUNCH_PARAMS)
)  # fmt: skip
#: Placements whose workers may have GPUs.
ON_GPUS = (Broadcast.name, AllReduce.name)
#: How an estimator treats a parameter that pyspark's has.
USED, IGNORED = "used", "ignored"


class BlockEstimator(HasFeaturesCols, HasPlacement, HasWorkers, HasProgress, HasCheckpoint, PlainValues, Saved):
    """What estimators that train on blocks share. ``fit`` takes a DataFrame or a prepared ``Dataset``."""

    #: Every parameter of pyspark's estimator of this name: used, ignored (accepted, without effect), or refused.
    SPARK_PARAMS: ClassVar[dict[str, str]]
    #: Least and largest value of numeric parameters.
    RANGES: ClassVar[dict[str, tuple[float, float]]]
    #: Labels are 0, 1, 2, ...
    CLASSES: ClassVar[bool]

    _on_round: Callback | None = None
    _initial_model: Any = None

    def __init__(self) -> None:
        super().__init__()
        self._setDefault(placement="auto", numWorkers=0, gpusPerWorker=0.0, progress=False, checkpointInterval=10)

    def setOnRound(self, callback: Callback | None) -> Any:
        """Call ``callback(history)`` after every round; the fit ends if it returns True. It is not saved."""
        self._on_round = callback
        return self

    def setInitialModel(self, model: Any) -> Any:
        """Start from the coefficients of ``model`` instead of 0. It is not saved."""
        self._initial_model = model
        return self

    def checkParams(self) -> None:
        """Raise ValueError for parameters that cannot be honoured; ``fit`` calls it before any job."""
        choice.check(self.getPlacement(), self._value("topology") or "auto")
        if self.getPlacement() == Partitioned.name and self._cannot_partition():
            raise ValueError(f"placement='{Partitioned.name}' is not possible: {self._cannot_partition()}")
        check_servers(self, self.getPlacement())
        self._features()
        Split(self._value("split") or "given")
        self._check_gpus()
        ranges = {"checkpointInterval": (1, math.inf), "numWorkers": (0, math.inf), "gpusPerWorker": (0, math.inf)}
        for name, (low, high) in {**self.RANGES, **ranges}.items():
            value = self.getOrDefault(name)
            if not low <= value <= high:
                allowed = f"at least {low}" if high == math.inf else f"from {low} to {high}"
                raise ValueError(f"{name}={value} is not allowed; it must be {allowed}")

    def _check_gpus(self) -> None:
        """Refuse amounts that Spark does not know, and fits of which GPUs would compute nothing."""
        gpus = self.getGpusPerWorker()
        if gpus > 1.0 and not gpus.is_integer():
            raise ValueError(f"gpusPerWorker={gpus} is not allowed; it can be from 0 to 1, or 2, 3, ...")
        if gpus <= 0.0:
            return
        if self.getPlacement() not in ("auto", *ON_GPUS):
            raise ValueError(
                f"gpusPerWorker={gpus:g}, but placement='{self.getPlacement()}' computes on CPUs; use "
                f"{' or '.join(ON_GPUS)}, or gpusPerWorker=0"
            )
        if self._cannot_use_gpus():
            raise ValueError(f"gpusPerWorker={gpus:g} has no effect: {self._cannot_use_gpus()}; set gpusPerWorker=0")

    @abstractmethod
    def _train(self, given: Prepared) -> Any:
        """The fitted model."""

    def _fit(self, dataset: DataFrame | Dataset) -> Any:
        self.checkParams()
        given = self._prepare(dataset)
        try:
            return self._train(given)
        finally:
            given.close()

    def fitMultiple(self, dataset: DataFrame | Dataset, paramMaps: Sequence[dict[Param, Any]]) -> Fits:
        """An iterator of ``(index, model)``, safe to use from several threads.

        Rows are prepared once for all maps that read the same columns.
        """
        estimators = [self.copy(dict(each)) for each in paramMaps]
        for estimator in estimators:
            estimator.checkParams()
        for index, estimator in enumerate(estimators):
            if estimator._column("checkpointDir"):
                estimator._set(checkpointDir=f"{estimator.getCheckpointDir()}/{MAP_PREFIX}{index:04d}")
        fits = [partial(_fit_shared, estimator, dataset) for estimator in estimators]
        return Fits(fits, [estimator._reads() for estimator in estimators])

    def _value(self, name: str) -> Any:
        """The value of the parameter ``name``; None if it has none."""
        return self.getOrDefault(name) if self.hasParam(name) and self.isDefined(name) else None

    def _column(self, name: str) -> Any:
        """The same for one that names something; an empty name is none."""
        value = self._value(name)
        return None if isinstance(value, str) and not value else value

    def _reads(self) -> Hashable:
        """All that decides what :meth:`_prepare` returns."""
        several = tuple(self._column("featuresCols") or ())
        names = [
            "featuresCol",
            "indicesCol",
            "valuesCol",
            "numFeatures",
            "labelCol",
            "weightCol",
            "offsetCol",
            "validationIndicatorCol",
            "classWeight",
            "split",
            "numWorkers",
            "gpusPerWorker",
        ]
        if self._value("split") not in (None, "given"):
            names.append("seed")
        wide = self.getPlacement() == Partitioned.name
        return (several, wide, *(repr(self._column(name)) for name in names))

    def _prepare(self, dataset: DataFrame | Dataset) -> Prepared:
        """Blocks of the rows to train on."""
        workers = self._workers(dataset.context if isinstance(dataset, Dataset) else dataset.sparkSession.sparkContext)
        if isinstance(dataset, Dataset):
            self._check_columns(dataset)
            return Prepared(dataset, weight=dataset.columns.weight)
        weight = self._column("weightCol")
        parts = [dataset]
        indicator = self._column("validationIndicatorCol")
        if indicator is not None:
            parts = list(hold_back(dataset, indicator))
        factors = self._column("classWeight")
        if factors is not None:
            label = self.getOrDefault("labelCol")
            if factors == "balanced":
                factors = balanced(parts[0], label, weight)
            parts = [weigh(part, label, weight, factors) for part in parts]
            weight = WEIGHT
        read: list[Dataset] = []
        try:
            for part in parts:
                # rows that are held back are not drawn from: they are for judging
                read.append(self._read(part, weight, workers, self._split if part is parts[0] else Split()))
        except BaseException:
            for blocks in read:
                blocks.close()
            raise
        held = read[1] if len(read) > 1 else None
        # Spark's summaries score a column, which pairs of columns are not
        frame = None if isinstance(self._features(), Pairs) else parts[0]
        return Prepared(read[0], sum(r.ingest_seconds for r in read), frame, weight, held, read)

    @property
    def _split(self) -> Split:
        return Split(self._value("split") or "given", self._value("seed") or 0)

    def _workers(self, sc: SparkContext) -> Workers:
        """Those of a fit; ValueError where Spark cannot give them what they are to have."""
        return workers_for(sc, self.getNumWorkers(), self.getGpusPerWorker())

    def _read(self, frame: DataFrame, weight: str | None, workers: Workers, split: Split) -> Dataset:
        label, offset = self.getOrDefault("labelCol"), self._column("offsetCol")
        wide = self.getPlacement() == Partitioned.name
        return from_dataframe(frame, self._features(), label, weight, self.CLASSES, offset, split, wide, workers)

    def _features(self) -> Features:
        """The columns of features; ValueError where parameters name them in ways that do not go together."""
        names = ("indicesCol", "valuesCol", "numFeatures")
        given = {name: self._column(name) for name in names if self._column(name) is not None}
        if not given:
            several: Features | None = self._column("featuresCols")
            return several or str(self.getOrDefault("featuresCol"))
        if len(given) < len(names):
            raise ValueError(
                f"{', '.join(given)} set without {', '.join(set(names) - given.keys())}; features by two columns of "
                "arrays need all three"
            )
        return Pairs(given["indicesCol"], given["valuesCol"], int(given["numFeatures"]))

    def _check_columns(self, dataset: Dataset) -> None:
        """A prepared data set was read from certain columns; the estimator must not ask for others."""
        prepared = dataset.columns
        features = self._features()
        several = (
            "" if isinstance(features, str) else str(features) if isinstance(features, Pairs) else ", ".join(features)
        )
        single = self._column("featuresCol") if self.isSet("featuresCol") and not several else None
        asked: dict[str, tuple[str | None, str | None]] = {
            "indicesCol, valuesCol" if isinstance(features, Pairs) else "featuresCols": (several, prepared.features),
            "featuresCol": (single, prepared.features),
            "labelCol": (self._column("labelCol") if self.isSet("labelCol") else None, prepared.label),
            "weightCol": (self._column("weightCol"), prepared.weight),
            "offsetCol": (self._column("offsetCol"), prepared.offset),
        }  # fmt: skip
        for name, (wanted, there) in asked.items():
            if wanted and wanted != there:
                raise ValueError(
                    f"{name}='{wanted}', but the data set was prepared with {there!r}; prepare it with that column, or "
                    f"leave {name} unset"
                )
        for name in ("validationIndicatorCol", "classWeight"):
            if self.hasParam(name) and self.isDefined(name) and self.getOrDefault(name):
                raise ValueError(f"{name} needs a DataFrame; a prepared data set holds its rows already as they are")
        if (self._value("split") or "given") != "given":
            raise ValueError("split needs a DataFrame; the rows of a prepared data set have been split already")
        if 0 < self.getNumWorkers() < dataset.partitions:
            raise ValueError(
                f"numWorkers={self.getNumWorkers()}, but the data set was prepared in {dataset.partitions} partitions, "
                "one for each worker; unset numWorkers, or fit the DataFrame"
            )
        if self.CLASSES and not prepared.classes:
            raise ValueError("the data set was prepared with classes=False; a classifier needs classes=True")

    def _choose(self, dataset: Dataset, outputs: int = 1) -> Choice:
        """The placement of a model of so many coefficients a feature."""
        unfit = set()
        if self._cannot_partition():
            unfit.add(Partitioned.name)
        if self._on_round or self._column("validationIndicatorCol") or self._column("checkpointDir"):
            unfit.add(AllReduce.name)  # what is done between rounds would have to wait for the gang
        workers = self._workers(dataset.context)
        if workers.gpus:
            unfit |= {Local.name, Partitioned.name}
        topology = self._value("topology") or "auto"
        chosen = choose(self.getPlacement(), dataset, topology, outputs, unfit, self._sidecar(), workers)
        return replace(chosen, reason=f"{chosen.reason}; GPUs by {workers.decision}") if workers.gpus else chosen

    def _sidecar(self) -> Sidecar | None:
        """How servers are to be used, if they are; None for an estimator that cannot."""
        if not self.hasParam("staleness"):
            return None
        return sidecar_of(self, self.getCheckpointInterval() if self._column("checkpointDir") else 0)

    def _cannot_partition(self) -> str:
        """Why ``placement='partitioned'`` is not for this estimator as it is set; empty if it is."""
        return f"{type(self).__name__} has no partitioned model"

    def _cannot_use_gpus(self) -> str:
        """Why none of this fit's arithmetic is for GPUs, as it is set; empty if some is."""
        return f"{type(self).__name__} computes on CPUs"

    def _run(
        self, algorithm: Algorithm, problem: Differentiable, start: np.ndarray, given: Prepared, solver: str
    ) -> tuple[Any, FitReport]:
        """Drive ``algorithm`` by the chosen placement: its final state, and the report."""
        run = Run(
            self._choose(given.dataset, problem.outputs),
            patience=self._value("patience") or 1,
            callback=self._on_round,
            progress=self.getProgress(),
            keeping=self._keeping(),
        )
        return run.fit(algorithm, problem, start, given, solver)

    def _keeping(self) -> Keeping | None:
        """Where checkpoints of this fit go, if there are to be any."""
        if not self._column("checkpointDir"):
            return None
        params = {p.name: repr(self.getOrDefault(p)) for p in self.params if self.isDefined(p)}
        decisive = {name: value for name, value in params.items() if name not in INDIFFERENT}
        identity = {"estimator": type(self).__name__, **decisive}
        return Keeping(self.getCheckpointDir(), self.getCheckpointInterval(), identity)

    def _report(
        self, given: Prepared, stop: Stop, objective: float, history: History, solver: str = "", placement: str = ""
    ) -> FitReport:
        stored = given.dataset.stored_bytes
        return fit_report(stop, objective, history, given.ingest_seconds, stored, solver, placement)

    def _finished(
        self, model: TrainedModel, report: FitReport, given: Prepared, summarise: Callable[[Any], Any] | None
    ) -> Any:
        """``model`` with this estimator's parameters, its report, and the way to its summary."""
        model._resetUid(self.uid)
        model.report = report
        self._copyValues(model)
        java_model: Any = model._java_obj
        if model.hasParam("solver") and model.isSet("solver") and self._value("solver") in cooperation.SOLVERS:
            model.clear(model.getParam("solver"))  # Spark's model would refuse a name that only we know
        for param in model.params:
            if model.isSet(param):  # predict and evaluate, unlike transform, do not tell the JVM's model
                java_model.set(model._make_java_param_pair(param, model.getOrDefault(param)))
        if summarise is not None and given.frame is not None:
            model._summarise = partial(summarise, as_it_is(model))
        return model

    def _vector_frame(self, frame: DataFrame | None) -> DataFrame:
        """``frame`` with the features as one column of vectors, which is what Spark's models score."""
        assert frame is not None
        from pyspark.ml.functions import array_to_vector
        from pyspark.sql import functions as F

        name = self.getOrDefault("featuresCol")
        if self._column("featuresCols"):
            columns = [F.col(f"`{column}`").cast("double") for column in self.getFeaturesCols()]
            return frame.withColumn(name, array_to_vector(F.array(*columns)))
        if frame.schema[name].dataType.typeName() == "array":
            return frame.withColumn(name, array_to_vector(F.col(f"`{name}`").cast("array<double>")))
        return frame


def _fit_shared(estimator: BlockEstimator, dataset: DataFrame | Dataset, shared: Shared) -> Any:
    def prepare() -> Prepared:
        return estimator._prepare(dataset)

    with shared.use(estimator._reads(), prepare) as given:
        return estimator._train(given)


def spark_params(names: Iterable[str], ignored: Iterable[str] = ()) -> dict[str, str]:
    """The dictionary of :attr:`BlockEstimator.SPARK_PARAMS`."""
    return {**dict.fromkeys(names, USED), **dict.fromkeys(ignored, IGNORED)}
