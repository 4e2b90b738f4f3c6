"""Step rules: how a gradient changes the parameters. See :class:`sparkdml.optim.steps.base.Step`."""

from collections.abc import Callable

from sparkdml.optim.steps.adagrad import AdaDelta, AdaGrad, RMSProp
from sparkdml.optim.steps.adam import Adam, AdamW
from sparkdml.optim.steps.base import Step
from sparkdml.optim.steps.ftrl import FTRL
from sparkdml.optim.steps.proximal import Proximal, proximal
from sparkdml.optim.steps.sgd import SGD, Momentum, Nesterov
from sparkdml.optim.steps.sgdw import SGDW

STEPS: dict[str, Callable[..., Step]] = {
    "sgd": SGD,
    "momentum": Momentum,
    "nesterov": Nesterov,
    "adagrad": AdaGrad,
    "adadelta": AdaDelta,
    "rmsprop": RMSProp,
    "adam": Adam,
    "adamw": AdamW,
    "ftrl": FTRL,
}

__all__ = [
    "FTRL", "SGD", "SGDW", "STEPS", "AdaDelta", "AdaGrad", "Adam", "AdamW", "Momentum", "Nesterov", "Proximal",
    "RMSProp", "Step", "proximal",
]  # fmt: skip
