"""Steps of single rows by several threads that share one array of coefficients."""

from sparkdml.optim.hogwild.solver import AVOIDED, CONFLICTS, IGNORED, Hogwild

__all__ = ["AVOIDED", "CONFLICTS", "IGNORED", "Hogwild"]
