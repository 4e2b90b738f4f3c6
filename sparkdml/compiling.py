"""Compiling, once and at installation, what fits would otherwise compile when they first need it."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np

from sparkdml.algorithms import Algorithm, Limits
from sparkdml.algorithms.progress import Progress
from sparkdml.comm.codecs import CODECS, ErrorFeedback, codec
from sparkdml.cooperation import SOLVERS, STEPS, VARIANCE_REDUCED, Plan
from sparkdml.core import Turn
from sparkdml.daemon import two_rows, warm
from sparkdml.data.block import Block, SparseBlock
from sparkdml.data.moments import RowTotals
from sparkdml.data.routing import localised
from sparkdml.losses import Hinge, Logistic, Loss, Softmax, Squared
from sparkdml.optim.factorization import Factorized, loss_and_gradient
from sparkdml.optim.hashed_random import hashed_gaussians
from sparkdml.optim.hogwild import AVOIDED
from sparkdml.optim.java_random import java_gaussians, xor_shift_uniforms
from sparkdml.penalties import ElasticNet
from sparkdml.placement.partitioned.files import added
from sparkdml.problem import Problem, Scaling
from sparkdml.server.keys import Keys
from sparkdml.server.places import Places
from sparkdml.wide.requests import split
from sparkdml.wide.rows import SparseBatch

_LIMITS = Limits(2, 0.0)


def compile_all() -> None:
    """Run every method for a few rounds on two rows, so that numba keeps what it compiles."""
    warm()
    for block, loss in product(two_rows(), (Logistic(), Softmax(2))):
        for optimizer in (*STEPS, *VARIANCE_REDUCED):
            _run(_plan("model-averaging", optimizer).algorithm(), block, loss)
        for solver in ("sgd", "svrg", "hogwild"):
            _run(_plan(solver, "sgd").algorithm(), block, loss)
        _run(replace(_plan("hogwild", "sgd"), conflicts=AVOIDED).algorithm(), block, loss)
    for block, loss in product(two_rows(), (Logistic(), Squared(), Hinge())):
        _run(_plan("cocoa", "sgd").algorithm(), block, loss)
    start = java_gaussians(0, 3)
    xor_shift_uniforms(0, 3)
    for block, loss in product(two_rows(), (Logistic(), Squared())):
        loss_and_gradient(Factorized(loss, 1), start, [(block, 0, block.rows)])
    _compile_wide()
    array = np.linspace(-1.0, 1.0, 64).reshape(16, 4)
    for spelling, found in CODECS.items():
        number = ":1" if found.number is int else ":0.1" if found.number is float else ""
        coder = ErrorFeedback(codec(spelling + number))
        packet, memory = coder.encode(array, None)
        coder.decode(packet)
        coder.encode(array, memory)


def _compile_wide() -> None:
    """What models in shards need, on arrays that cannot be written to, as those of mapped files cannot."""
    labels = np.array([0.0, 1.0])
    for indices_type, values_type in product((np.int32, np.int64), (np.float32, np.float64)):
        indptr, indices, values = np.array([0, 1, 3]), np.array([4, 4, 70], indices_type), np.ones(3, values_type)
        for array in (indptr, indices, values):
            array.flags.writeable = False
        localised([indices], 100)
        RowTotals().add(indptr, indices, values, labels, np.ones(2))
        list(split(SparseBatch(indptr, indices, values), np.array([0, 5, 100])))
    places, sums = np.array([0, 2], np.int32), np.ones((2, 1))
    places.flags.writeable = sums.flags.writeable = False
    added(np.zeros((3, 1)), places, sums)
    hashed_gaussians(0, places.astype(np.int64), 1)
    for keys in (places.astype(np.int64), Keys(places).array):
        rows = Places()
        rows.add(keys)
        rows.find(keys)


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
