"""The elastic net that pyspark.ml documents, written out in numpy."""

from __future__ import annotations

import numpy as np
from oracles import weighted_std


def elastic_net(
    X: np.ndarray,
    w: np.ndarray,
    coefficients: np.ndarray,
    params: dict,
    l2_scale: float = 1.0,
    std: np.ndarray | None = None,
) -> float:
    """``regParam * sum(elasticNetParam * |c| + (1 - elasticNetParam) / 2 * l2_scale * c^2)``, c = std * coefficient.

    ``coefficients``: (K, d) or (d,). ``std`` takes the place of sample deviations.
    """
    strength, share = params.get("regParam", 0.0), params.get("elasticNetParam", 0.0)
    if params.get("standardization", True):
        coefficients = coefficients * (weighted_std(X, w) if std is None else std)
    lasso, ridge = np.abs(coefficients).sum(), 0.5 * l2_scale * (coefficients**2).sum()
    return float(strength * (share * lasso + (1.0 - share) * ridge))
