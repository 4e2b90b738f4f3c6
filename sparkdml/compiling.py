"""Compiling, once and at installation, what fits would otherwise compile when they first need it."""

from __future__ import annotations

from itertools import product

import numpy as np

from sparkdml.algorithms import Algorithm, Limits
from sparkdml.algorithms.progress import Progress
from sparkdml.comm.codecs import CODECS, ErrorFeedback, codec
from sparkdml.cooperation import SOLVERS, STEPS, VARIANCE_REDUCED, Plan
from sparkdml.core import Turn
from sparkdml.daemon import two_rows, warm
from sparkdml.data.block import Block, SparseBlock
from sparkdml.losses import Hinge, Logistic, Loss, Softmax, Squared
from sparkdml.optim.factorization import Factorized, loss_and_gradient
from sparkdml.optim.java_random import java_gaussians
from sparkdml.penalties import ElasticNet
from sparkdml.problem import Problem, Scaling

_LIMITS = Limits(2, 0.0)


def compile_all() -> None:
    """Run every method for a few rounds on two rows, so that numba keeps what it compiles."""
    warm()
    for block, loss in product(two_rows(), (Logistic(), Softmax(2))):
        for optimizer in (*STEPS, *VARIANCE_REDUCED):
            _run(_plan("model-averaging", optimizer).algorithm(), block, loss)
        for solver in ("sgd", "svrg"):
            _run(_plan(solver, "sgd").algorithm(), block, loss)
    for block, loss in product(two_rows(), (Logistic(), Squared(), Hinge())):
        _run(_plan("cocoa", "sgd").algorithm(), block, loss)
    start = java_gaussians(0, 3)
    for block, loss in product(two_rows(), (Logistic(), Squared())):
        loss_and_gradient(Factorized(loss, 1), start, [(block, 0, block.rows)])
    array = np.linspace(-1.0, 1.0, 64).reshape(16, 4)
    for spelling, found in CODECS.items():
        number = ":1" if found.number is int else ":0.1" if found.number is float else ""
        coder = ErrorFeedback(codec(spelling + number))
        packet, memory = coder.encode(array, None)
        coder.decode(packet)
        coder.encode(array, memory)


def _plan(solver: str, optimizer: str) -> Plan:
    assert solver in SOLVERS
    return Plan(solver, _LIMITS, optimizer, None, 0.1, "constant", 1, 0.5, "pass", -1.0, 0.9, "identity", "auto", 0)


def _run(algorithm: Algorithm, block: Block, loss: Loss) -> None:
    centre = np.zeros((1, 1)) if isinstance(block, SparseBlock) else np.full((1, 1), 0.5)
    ones = np.ones((1, 1))
    problem = Problem(loss, ElasticNet(0.1, ones, 0.01, ones), Scaling(centre, ones), True, 2.0)
    state: Progress = algorithm.init(problem, np.zeros(problem.size))
    memory = None
    for clock in range(3):
        update, memory = algorithm.work(problem, [block], state.coef, memory, Turn(clock))
        state = algorithm.advance(problem, state, update)


if __name__ == "__main__":
    compile_all()
