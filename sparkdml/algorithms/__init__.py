"""How workers agree on one model: pure state machines. See :class:`sparkdml.algorithms.base.Algorithm`."""

from sparkdml.algorithms.admm import ADMM
from sparkdml.algorithms.base import Algorithm, State
from sparkdml.algorithms.bmuf import BMUF
from sparkdml.algorithms.cocoa import CoCoA
from sparkdml.algorithms.compressed import Compressed
from sparkdml.algorithms.dsvrg import DSVRG
from sparkdml.algorithms.easgd import EASGD
from sparkdml.algorithms.ensemble import Ensemble
from sparkdml.algorithms.factorization import FactorizationSGD
from sparkdml.algorithms.feature_descent import FeatureDescent
from sparkdml.algorithms.hogwild import HogwildAveraging
from sparkdml.algorithms.irls import IRLS
from sparkdml.algorithms.lbfgs import LBFGS
from sparkdml.algorithms.model_averaging import ModelAveraging, OneShotAveraging
from sparkdml.algorithms.newton import Newton
from sparkdml.algorithms.newton_cg import NewtonCG
from sparkdml.algorithms.normal import NormalEquations
from sparkdml.algorithms.owlqn import OWLQN
from sparkdml.algorithms.progress import Limits
from sparkdml.algorithms.projected import ProjectedLBFGS
from sparkdml.algorithms.sync_sgd import SyncSGD
from sparkdml.problem import Problem, Scaling

__all__ = [
    "ADMM",
    "BMUF",
    "DSVRG",
    "EASGD",
    "IRLS",
    "LBFGS",
    "OWLQN",
    "Algorithm",
    "CoCoA",
    "Compressed",
    "Ensemble",
    "FactorizationSGD",
    "FeatureDescent",
    "HogwildAveraging",
    "Limits",
    "ModelAveraging",
    "NewtonCG",
    "OneShotAveraging",
    "SyncSGD",
    "Newton",
    "NormalEquations",
    "Problem",
    "ProjectedLBFGS",
    "Scaling",
    "State",
]
