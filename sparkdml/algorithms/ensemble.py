"""Models that are kept side by side, and averaged in what they predict."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from sparkdml.algorithms.base import Algorithm
from sparkdml.algorithms.progress import Progress
from sparkdml.core import Stop, Turn, Update
from sparkdml.data.block import Block
from sparkdml.losses import Logistic, Loss, Softmax
from sparkdml.optim.local_solver import LocalObjective, LocalSolver
from sparkdml.problem import Problem
from sparkdml.problem.gradient import padded


@dataclass(frozen=True)
class EnsembleState(Progress):
    """``models`` (K, size), one a worker, and their ``shares`` (K,) of the row weights, once they are trained.

    ``best`` is their average, which is not the ensemble.
    """

    models: np.ndarray = field(default_factory=lambda: np.empty((0, 0)))
    shares: np.ndarray = field(default_factory=lambda: np.empty(0))


@dataclass(frozen=True)
class Ensemble(Algorithm):
    """``p(y | x) = sum_k W_k p_k(y | x) / sum_k W_k``: every worker trains alone, and their probabilities are averaged.

    Two rounds: training (``passes`` over own rows), and the mean log loss of the ensemble over all rows, which is the
    objective, without a penalty. Dietterich, *Ensemble Methods in Machine Learning* (2000); Zinkevich et al. (2010)
    average parameters instead. For a convex loss the ensemble is never worse than its members' average loss. Not where
    one model must be served, and not for rows sorted by label: every member then knows one label only.
    """

    solver: LocalSolver
    passes: int

    def init(self, problem: Problem, coef: np.ndarray) -> EnsembleState:
        if not isinstance(problem.loss, (Logistic, Softmax)):
            raise ValueError(f"an ensemble averages probabilities, and {type(problem.loss).__name__} has none")
        return EnsembleState(coef=coef, best=coef)

    def work(
        self, problem: Problem, blocks: Sequence[Block], coef: np.ndarray, memory: Any, turn: Turn
    ) -> tuple[Update, None]:
        if len(coef) > problem.size:
            shares, models = coef[: turn.workers], coef[turn.workers :].reshape(turn.workers, -1)
            return {"loss": _loss(problem, blocks, models, shares)}, None
        objective = LocalObjective(problem, blocks)
        models, weights = np.zeros((turn.workers, problem.size)), np.zeros(turn.workers)
        weights[turn.worker] = objective.weight_sum
        if weights[turn.worker] > 0.0:
            steps = math.ceil(self.passes / self.solver.passes(objective, 1))
            models[turn.worker], _ = self.solver.solve(objective, coef, None, steps, turn)
        return {"models": models, "weights": weights}, None

    def advance(self, problem: Problem, state: EnsembleState, total: Update) -> EnsembleState:
        if "models" in total:
            models, shares = np.asarray(total["models"]), np.asarray(total["weights"]) / problem.weight_sum
            coef = np.concatenate([shares, models.ravel()])
            return replace(state, coef=coef, best=shares @ models, models=models, shares=shares)
        value = float(total["loss"]) / problem.weight_sum
        if not math.isfinite(value):
            return replace(state, stop=Stop("diverged", f"the objective became {value:g}", "use a smaller stepSize"))
        stop = Stop("converged", f"{np.count_nonzero(state.shares)} models were trained for {self.passes} passes each")
        return replace(state, objective=value, iteration=0, stop=stop)


def _loss(problem: Problem, blocks: Sequence[Block], models: np.ndarray, shares: np.ndarray) -> float:
    """``-sum_i w_i log p(y_i | x_i)`` of the ensemble."""
    members = [(share, *problem.to_raw(model)) for share, model in zip(shares, models, strict=True) if share > 0.0]
    raw = [(share, padded(blocks, coefficients), intercepts) for share, coefficients, intercepts in members]
    value = 0.0
    for block in blocks:
        step = block.chunk_rows(problem.loss.outputs)
        for start in range(0, block.rows, step):
            stop = min(start + step, block.rows)
            labels, mixture = block.labels[start:stop], np.zeros(stop - start)
            for share, coefficients, intercepts in raw:
                mixture += share * _likelihoods(problem.loss, block, start, stop, coefficients, intercepts, labels)
            value -= float(block.weights[start:stop] @ np.log(mixture))
    return value


def _likelihoods(
    loss: Loss,
    block: Block,
    start: int,
    stop: int,
    coefficients: np.ndarray,
    intercepts: np.ndarray,
    labels: np.ndarray,
) -> np.ndarray:
    """``p_k(y_i | x_i) = exp(-loss_i)`` of one member, for rows start to stop."""
    margins = np.empty((stop - start, loss.outputs))
    block.margins(start, stop, coefficients, intercepts, margins)
    if loss.outputs == 1:
        return np.exp(-np.logaddexp(0.0, (1.0 - 2.0 * labels) * margins[:, 0]))
    margins -= margins.max(axis=1, keepdims=True)
    rows = np.arange(len(labels))
    return np.exp(margins[rows, labels.astype(int)]) / np.exp(margins).sum(axis=1)
