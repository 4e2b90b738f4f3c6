"""Train on Spark with pyspark.ml's estimators, and choose where the model lives."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sparkdml.builder import session
    from sparkdml.custom import Batch, Estimator, Objective, ObjectiveModel

__version__ = "0.1.0"
__all__ = ["Batch", "Estimator", "Objective", "ObjectiveModel", "session"]


def __getattr__(name: str) -> Any:
    # Spark is imported when a session is asked for, so that kernels and algorithms load without it.
    if name == "session":
        from sparkdml.builder import session

        return session
    if name in ("Batch", "Estimator", "Objective", "ObjectiveModel"):
        from sparkdml import custom

        return getattr(custom, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
