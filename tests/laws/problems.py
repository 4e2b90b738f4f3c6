"""Problems from arrays, their objective in plain numpy, and a fit without Spark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from oracles import plain_losses, plain_slopes, weighted_std

from sparkdml.algorithms import Algorithm, Problem, Scaling
from sparkdml.core import Turn, add_updates
from sparkdml.data.block import Block
from sparkdml.losses import Loss
from sparkdml.penalties import L2


def make_problem(
    loss: Loss,
    X: np.ndarray,
    weights: np.ndarray,
    strength: float = 0.0,
    standardization: bool = True,
    fit_intercept: bool = True,
) -> Problem:
    std = weighted_std(X, weights)[:, None]
    inverse = np.divide(1.0, std, out=np.zeros_like(std), where=std > 0)
    factors = np.ones_like(std) if standardization else inverse**2
    scaling = Scaling(np.average(X, axis=0, weights=weights)[:, None], inverse)
    return Problem(loss, L2(strength, factors), scaling, fit_intercept, float(weights.sum()))


def plain_objective(
    loss: Loss,
    X: np.ndarray,
    y: np.ndarray,
    weights: np.ndarray,
    strength: float,
    standardization: bool,
    coefficients: np.ndarray,
    intercepts: np.ndarray,
) -> float:
    """``1/W sum_i w_i loss_i + strength/2 sum_j (std_j c_j)^2``, or ``c_j^2`` without standardization."""
    losses = plain_losses(loss, X @ coefficients + intercepts, y)
    std = weighted_std(X, weights)[:, None] if standardization else 1.0
    return np.average(losses, weights=weights) + strength / 2 * np.sum((std * coefficients) ** 2)


def plain_gradient(
    loss: Loss,
    X: np.ndarray,
    y: np.ndarray,
    weights: np.ndarray,
    strength: float,
    standardization: bool,
    coefficients: np.ndarray,
    intercepts: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """The derivatives of :func:`plain_objective`."""
    slopes = plain_slopes(loss, X @ coefficients + intercepts, y)
    slopes *= weights[:, None] / weights.sum()
    variance = weighted_std(X, weights)[:, None] ** 2 if standardization else 1.0
    return X.T @ slopes + strength * variance * coefficients, slopes.sum(axis=0)


def drive(
    algorithm: Algorithm,
    problem: Problem,
    workers: Sequence[Sequence[Block]],
    start: np.ndarray | None = None,
    max_rounds: int = 2000,
) -> list[Any]:
    """Every state of a fit; each worker has some blocks, and updates are added as a placement adds them."""
    state = algorithm.init(problem, np.zeros(problem.size) if start is None else start)
    states, memories = [state], [None] * len(workers)
    while state.stop is None:
        assert len(states) <= max_rounds
        clock = len(states) - 1
        updates = []
        for number, blocks in enumerate(workers):
            turn = Turn(clock, number, len(workers))
            update, memories[number] = algorithm.work(problem, blocks, state.coef, memories[number], turn)
            updates.append(update)
        total = updates[0]
        for update in updates[1:]:
            total = add_updates(total, update)
        state = algorithm.advance(problem, state, total)
        states.append(state)
    return states
