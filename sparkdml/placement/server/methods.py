"""Which work workers do beside the server, by the algorithm."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from sparkdml.algorithms import ADMM, DSVRG, EASGD, Compressed, SyncSGD
from sparkdml.algorithms.base import Algorithm
from sparkdml.algorithms.intervals import Fixed
from sparkdml.placement.server.anchored import Anchored
from sparkdml.placement.server.consensus import Consensus
from sparkdml.placement.server.elastic import Elastic
from sparkdml.placement.server.gradients import Gradients
from sparkdml.placement.server.sidecar import ONE, Sidecar
from sparkdml.placement.server.sidework import SideWork
from sparkdml.placement.server.touched import Touched, may_be_few
from sparkdml.problem import Differentiable, Problem
from sparkdml.server.stale import AS_IT_COMES

#: Codecs of matrices: what servers hold are ranges of a vector.
_OF_MATRICES = ("low-rank", "power-sgd")


def side_work(algorithm: Algorithm, problem: Differentiable, workers: int, sidecar: Sidecar) -> SideWork:
    """What workers do; the arguments have passed :func:`check`."""
    if isinstance(algorithm, Compressed):
        exact = _exact(algorithm.algorithm, problem, workers, sidecar)
        return replace(exact, codec=algorithm.spelling, seed=algorithm.seed)
    exact = _exact(algorithm, problem, workers, sidecar)
    if isinstance(exact, Gradients) and may_be_few(exact):
        common = {each.name: getattr(exact, each.name) for each in fields(SideWork)}
        return Touched(gradients=exact, **common)
    return exact


def _exact(algorithm: Any, problem: Differentiable, workers: int, sidecar: Sidecar) -> SideWork:
    check(algorithm, sidecar)
    common: dict[str, Any] = {"limits": algorithm.limits, "workers": workers, "keep_every": sidecar.keep_every}
    if isinstance(algorithm, EASGD):
        return Elastic(algorithm=algorithm, problem=problem, **common)
    if isinstance(algorithm, DSVRG):
        assert isinstance(problem, Problem)
        return Anchored(algorithm=algorithm, problem=problem, **common)
    if isinstance(algorithm, ADMM):
        assert isinstance(problem, Problem)
        return Consensus(algorithm=algorithm, problem=problem, **common)
    assert isinstance(algorithm, SyncSGD)
    rounds = sidecar.staleness == 0
    return Gradients(
        problem=problem,
        **common,
        in_step=rounds and not sidecar.backup_workers and sidecar.groups == ONE,
        algorithm=algorithm,
        pace=sidecar.pace,
        rounds=rounds,
        heard=workers - sidecar.backup_workers,
        stale=sidecar.stale,
    )


def check(algorithm: Algorithm, sidecar: Sidecar) -> None:
    """Raise ValueError for an algorithm that has no form beside servers, or not with such ones."""
    if isinstance(algorithm, Compressed):
        if algorithm.spelling.partition(":")[0] in _OF_MATRICES:
            raise ValueError(
                f"codec='{algorithm.spelling}' is of matrices, and servers hold ranges of a vector; use another codec "
                "with placement='server', such as int8 or top-k:SHARE"
            )
        check(algorithm.algorithm, sidecar)
    elif isinstance(algorithm, SyncSGD):
        sidecar.pace.check(sidecar.staleness, sidecar.stale, algorithm.step)
    elif isinstance(algorithm, (ADMM, DSVRG)):
        _check_own_pace(algorithm, sidecar)
    elif isinstance(algorithm, EASGD):
        _check_own_pace(algorithm, sidecar)
        if not isinstance(algorithm.interval, Fixed):
            raise ValueError(
                "placement='server' has no rounds by which to choose localSteps; set it to a number, or to 'pass'"
            )
    else:
        raise ValueError(
            "placement='server' drives what workers can do at their own pace, solver='sgd', 'easgd', 'admm' or 'svrg', "
            f"and {type(algorithm).__name__} is not among them; set that, or use another placement"
        )


def _check_own_pace(algorithm: Algorithm, sidecar: Sidecar) -> None:
    name = type(algorithm).__name__
    if sidecar.staleness == 0:
        raise ValueError(
            f"staleness=0 with {name}: in step it is what placement='broadcast' does; use that, or set staleness to -1 "
            "or to a number of clocks"
        )
    if sidecar.stale != AS_IT_COMES:
        raise ValueError(f"staleGradients='{sidecar.stale}' is of solver='sgd': {name} pushes no gradients; unset it")
