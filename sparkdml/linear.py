"""What estimators of linear models share: their objective in Spark's terms."""

from __future__ import annotations

import logging
import math

import numpy as np

from sparkdml.data.dataset import Dataset
from sparkdml.estimator import BlockEstimator
from sparkdml.losses import Loss
from sparkdml.penalties import L2, ElasticNet, Penalty
from sparkdml.placement import choice
from sparkdml.problem import Problem, Scaling
from sparkdml.resources.slots import task_slots

logger = logging.getLogger(__name__)

#: What linear models allow, by parameter: least and largest value.
LINEAR_RANGES: dict[str, tuple[float, float]] = {
    "regParam": (0, math.inf),
    "tol": (0, math.inf),
    "maxIter": (0, math.inf),
    "aggregationDepth": (2, math.inf),
    "maxBlockSizeInMB": (0, math.inf),
}


class LinearEstimator(BlockEstimator):
    """An estimator of coefficients by a loss of margins and a penalty."""

    def _problem(
        self,
        dataset: Dataset,
        loss: Loss,
        penalty: Penalty | None = None,
        centred: bool = True,
        std: np.ndarray | None = None,
    ) -> Problem:
        """The objective in the data set's own scale.

        Without ``centred``, coordinates keep 0 where it is; ``std`` (d,) takes the place of sample deviations.
        """
        statistics = dataset.statistics
        inverse_std = inverse_of(statistics.std if std is None else std)[:, None]
        mean = statistics.mean[:, None]
        if not self.getOrDefault("fitIntercept") and np.any((inverse_std == 0) & (mean != 0)):
            logger.warning("some features are constant and fitIntercept is False: their coefficients are 0")
        scaling = Scaling(mean if centred else np.zeros_like(mean), inverse_std)
        penalty = self._penalty(inverse_std) if penalty is None else penalty
        return Problem(loss, penalty, scaling, self.getOrDefault("fitIntercept"), statistics.weight_sum)

    def _warm_start(self, problem: Problem) -> np.ndarray:
        """Where a model of one output starts: at 0, or at the initial model."""
        model = self._initial_model
        if model is None:
            return np.zeros(problem.size)
        coefficients = model.coefficients.toArray()
        if len(coefficients) != problem.features:
            raise ValueError(
                f"the initial model has {len(coefficients)} features, but the data have {problem.features}; give a "
                "model of such data"
            )
        return problem.from_raw(coefficients[:, None], np.array([model.intercept]))

    def _penalty(self, inverse_std: np.ndarray, l2_scale: float = 1.0, scale: float = 1.0) -> Penalty:
        """The elastic net of Spark's parameters, on coefficients of unit-variance features; ``inverse_std`` (d, 1).

        All of it is multiplied by ``scale``, its L2 part also by ``l2_scale``.
        """
        strength = self.getOrDefault("regParam")
        share = self.getOrDefault("elasticNetParam") if self.hasParam("elasticNetParam") else 0.0
        factors = np.ones_like(inverse_std) if self.getOrDefault("standardization") else inverse_std
        ridge, lasso = scale * strength * (1.0 - share) * l2_scale, scale * strength * share
        return ElasticNet(ridge, factors**2, lasso, factors) if lasso else L2(ridge, factors**2)

    def _cost(self, dataset: Dataset) -> tuple[int, int, float, int, float]:
        """Rows, features, non-zeros, workers and seconds of latency: what cost formulas ask for."""
        latency = choice.choose(self.getPlacement(), dataset).placement.latency_seconds
        nonzeros = float(dataset.statistics.nonzeros.sum())
        return dataset.rows, dataset.features, nonzeros, task_slots(dataset.context), latency


def inverse_of(std: np.ndarray) -> np.ndarray:
    """``1 / std``, and 0 for constant features."""
    return np.divide(1.0, std, out=np.zeros_like(std), where=std > 0)
