"""The template of every fit: check, prepare blocks, train, build the model."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from sparkdml.algorithms.base import Algorithm
from sparkdml.algorithms.problem import Problem
from sparkdml.data.dataset import Dataset
from sparkdml.data.sources import from_dataframe
from sparkdml.params import HasFeaturesCols, HasPlacement, HasProgress, PlainValues
from sparkdml.placement import Trained, choice
from sparkdml.report.fit_report import FitReport, fit_report
from sparkdml.report.progress import progress_bar

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

logger = logging.getLogger(__name__)


class BlockEstimator(HasFeaturesCols, HasPlacement, HasProgress, PlainValues):
    """What estimators that train on blocks share. ``fit`` takes a DataFrame or a prepared ``Dataset``."""

    def __init__(self) -> None:
        super().__init__()
        self._setDefault(placement="auto", progress=False)

    def setFeaturesCols(self, value: list[str]) -> Any:
        """Sets :py:attr:`featuresCols`."""
        return self._set(featuresCols=value)

    def setPlacement(self, value: str) -> Any:
        """Sets :py:attr:`placement`."""
        return self._set(placement=value)

    def setProgress(self, value: bool) -> Any:
        """Sets :py:attr:`progress`."""
        return self._set(progress=value)

    def checkParams(self) -> None:
        """Raise ValueError for parameters that cannot be honoured; ``fit`` calls it before any job."""
        choice.check(self.getPlacement())

    @abstractmethod
    def _train(self, dataset: Dataset, ingest_seconds: float) -> Any:
        """The fitted model."""

    def _fit(self, dataset: DataFrame | Dataset) -> Any:
        self.checkParams()
        with self._prepared(dataset) as (blocks, seconds):
            return self._train(blocks, seconds)

    @contextmanager
    def _prepared(self, dataset: DataFrame | Dataset) -> Iterator[tuple[Dataset, float]]:
        """Blocks, and the seconds that this fit spent on preparing them."""
        if isinstance(dataset, Dataset):
            self._check_columns(dataset)
            yield dataset, 0.0
            return
        several = self.getOrDefault("featuresCols") if self.isSet("featuresCols") else None
        features: Any = several or self.getOrDefault("featuresCol")
        weight = self.getOrDefault("weightCol") if self.isDefined("weightCol") else None
        label: str = self.getOrDefault("labelCol")
        with from_dataframe(dataset, features, label, weight or None) as blocks:
            yield blocks, blocks.ingest_seconds

    def _check_columns(self, dataset: Dataset) -> None:
        """A prepared data set was read from certain columns; the estimator must not ask for others."""
        prepared = dataset.columns
        several = self.getOrDefault("featuresCols") if self.isSet("featuresCols") else None
        asked = {
            "featuresCol": (", ".join(several) if several else None, prepared.features),
            "labelCol": (self.getOrDefault("labelCol") if self.isSet("labelCol") else None, prepared.label),
            "weightCol": (self.getOrDefault("weightCol") if self.isSet("weightCol") else None, prepared.weight),
        }
        if not several and self.isSet("featuresCol"):
            asked["featuresCol"] = (self.getOrDefault("featuresCol"), prepared.features)
        for name, (wanted, there) in asked.items():
            if wanted and wanted != there:
                raise ValueError(
                    f"{name}='{wanted}', but the data set was prepared with {there!r}; prepare it with that column, or "
                    f"leave {name} unset"
                )
        if not prepared.classes:
            raise ValueError("the data set was prepared with classes=False; a classifier needs classes=True")

    def _run(self, algorithm: Algorithm, problem: Problem, start: np.ndarray, dataset: Dataset) -> Trained:
        """Drive ``algorithm`` by the chosen placement."""
        chosen = choice.choose(self.getPlacement(), dataset)
        logger.info("placement %s: %s", chosen.placement.name, chosen.reason)
        with progress_bar(self.getProgress()) as on_round:
            return chosen.placement.train(algorithm, problem, algorithm.init(problem, start), dataset, on_round)


def report_of(trained: Trained, dataset: Dataset, ingest_seconds: float) -> FitReport:
    """The model's report after :meth:`BlockEstimator._run`."""
    return fit_report(
        trained.state.stop,
        trained.state.objective,
        trained.history,
        ingest_seconds,
        dataset.stored_bytes,
    )
