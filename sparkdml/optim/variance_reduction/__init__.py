"""Steps along a few rows' gradients whose variance falls to 0 at the optimum: no step size has to decay."""

from sparkdml.optim.variance_reduction.saga import SAG, SAGA
from sparkdml.optim.variance_reduction.svrg import SVRG

__all__ = ["SAG", "SAGA", "SVRG"]
