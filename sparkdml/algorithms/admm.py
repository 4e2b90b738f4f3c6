"""The alternating direction method of multipliers in consensus form."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import optimize

from sparkdml.algorithms.base import Algorithm
from sparkdml.algorithms.progress import Limits, Progress, observed
from sparkdml.core import Stop, Turn, Update
from sparkdml.data.block import Block
from sparkdml.penalties.l2 import L2
from sparkdml.problem import Problem
from sparkdml.problem.gradient import loss_and_gradient, total_loss

#: Residuals that differ by more than this factor change rho by STRIDE (Boyd et al., section 3.4.1).
IMBALANCE, STRIDE = 5.0, 2.0
#: Convergence is proved for a rho that is constant from some round on.
ADAPTIVE_ROUNDS = 100


@dataclass(frozen=True)
class ADMMState(Progress):
    """``coef`` is ``[z, rho]``. ``move`` is ``rho ||z - z_before||`` of the update that led to z.

    ``primal`` and ``dual`` are the residuals' norms at the last z of which all workers told; NaN before.
    """

    rounds: int = 0
    move: float = math.nan
    primal: float = math.nan
    dual: float = math.nan


@dataclass(frozen=True)
class Share:
    """A worker's memory: its x, the relaxed ``x + u`` that it sent, and the rho of its scaled multipliers u."""

    x: np.ndarray
    sent: np.ndarray
    rho: float


@dataclass(frozen=True)
class ADMM(Algorithm):
    """``min sum_k f_k(x_k) + penalty(z)`` subject to ``x_k = z``; ``f_k`` is worker k's part of the mean loss.

    Each round ``x_k = argmin f_k(x) + rho/2 ||x - z + u_k||^2``, then ``z = prox_{penalty / (N rho)}(mean of
    x_k + u_k)`` over the N workers that have rows, then ``u_k += x_k - z``, where ``relaxation * x_k + (1 -
    relaxation) * z`` stands for ``x_k``. The penalty, L1 part included, acts on z alone, so zeros are exact. Converged
    when the primal and the dual residual are within ``limits.tolerance``, absolute and relative (section 3.3.1). While
    ``adaptive``, rho balances the residuals (section 3.4.1), the primal one times an f_k's curvature, which makes it
    a gradient like the dual one: balancing them as they are depends on units (Wohlberg, *ADMM Penalty Parameter
    Selection by Residual Balancing*, 2017).

    Boyd, Parikh, Chu, Peleato & Eckstein, *Distributed Optimization and Statistical Learning via the ADMM* (2011),
    section 7. Convex: the optimum for every rho, also after multipliers of a worker are lost; non-convex: no
    guarantee. Not where many digits are needed fast, or local problems are as costly as the whole one.

    ``rho`` None is a tenth of the loss's curvature. ``x_k`` is found by at most ``local_iterations`` of L-BFGS.
    ``unit`` is how large coefficients are: what counts as a small residual.
    """

    limits: Limits
    rho: float | None = None
    relaxation: float = 1.6
    adaptive: bool = True
    local_iterations: int = 30
    unit: float = 1.0

    def __post_init__(self) -> None:
        if self.rho is not None and not 0.0 < self.rho < math.inf:
            raise ValueError(f"rho={self.rho:g}: it must be above 0 and finite; None lets the fit choose")
        if not 0.0 < self.relaxation < 2.0:
            raise ValueError(f"relaxation={self.relaxation:g}: it must be above 0 and below 2; 1.5 to 1.8 are usual")

    def init(self, problem: Problem, coef: np.ndarray) -> ADMMState:
        rho = 0.1 * problem.loss.curvature if self.rho is None else self.rho
        return ADMMState(coef=np.append(coef, rho), best=coef)

    def work(
        self, problem: Problem, blocks: Sequence[Block], coef: np.ndarray, memory: Share | None, turn: Turn
    ) -> tuple[Update, Share | None]:
        z, rho = coef[:-1], float(coef[-1])
        loss = total_loss(problem.loss_at(z), blocks, *problem.to_raw(z))
        if not any(block.weights.any() for block in blocks):
            return {**_residuals(None, z, rho), "loss": loss, "workers": 0.0, "sum": np.zeros(len(z))}, None
        told = _residuals(memory, z, rho)
        start, u = z, np.zeros(len(z))
        exactness = 1e-6 * self.unit
        if memory is not None:
            start, u = memory.x, (memory.sent - z) * (memory.rho / rho)
            exactness = self.exactness(memory.x - z, rho)
        x = self.local(problem, blocks, start, z - u, rho, exactness)
        sent = self.relaxation * x + (1.0 - self.relaxation) * z + u
        return {**told, "loss": loss, "workers": 1.0, "sum": sent.copy()}, Share(x, sent, rho)

    def exactness(self, apart: np.ndarray, rho: float) -> float:
        """A tenth of a percent of the last disagreement is exact enough: both vanish together."""
        return min(max(1e-3 * rho * float(np.abs(apart).max()), 1e-13 * self.unit), 1e-6 * self.unit)

    def local(
        self,
        problem: Problem,
        blocks: Sequence[Block],
        start: np.ndarray,
        target: np.ndarray,
        rho: float,
        exactness: float,
    ) -> np.ndarray:
        """``argmin f_k(x) + rho/2 ||x - target||^2``, to a gradient of at most ``exactness`` in every coordinate."""
        unpenalised = replace(problem, penalty=L2(0.0, np.zeros((problem.features, 1))))

        def evaluate(x: np.ndarray) -> tuple[float, np.ndarray]:
            sums = loss_and_gradient(problem.loss_at(x), blocks, *problem.to_raw(x))
            value, gradient = unpenalised.evaluate(x, sums)
            apart = x - target
            return value + 0.5 * rho * float(apart @ apart), gradient + rho * apart

        options = {"maxiter": self.local_iterations, "ftol": 0.0, "gtol": exactness}
        found = optimize.minimize(evaluate, start, jac=True, method="L-BFGS-B", options=options)
        return np.asarray(found.x)

    def advance(self, problem: Problem, state: ADMMState, total: Update) -> ADMMState:
        z, rho, workers = state.coef[:-1], float(state.coef[-1]), float(total["workers"])
        # objectives at z may rest for many rounds while multipliers settle: only residuals tell convergence
        state = observed(state, problem, z, float(total["loss"]), Limits(self.limits.max_iterations, -math.inf))
        following = rho
        if float(total["told"]) == workers and math.isfinite(state.move):
            primal, dual = math.sqrt(float(total["primal_squares"])), math.sqrt(workers) * state.move
            state = replace(state, primal=primal, dual=dual)
            sizes = (
                math.sqrt(max(float(total["x_squares"]), workers * float(z @ z))),
                math.sqrt(float(total["multiplier_squares"])),
            )
            state = self._judge(state, sizes, self.unit * math.sqrt(workers * len(z)))
            if self.adaptive and state.rounds < ADAPTIVE_ROUNDS:
                following = balanced(rho, problem.loss.curvature / workers * primal, dual)
        moved = self.shared(problem, np.asarray(total["sum"]) / workers, workers * rho)
        move = rho * float(np.linalg.norm(moved - z))
        return replace(state, coef=np.append(moved, following), rounds=state.rounds + 1, move=move)

    def _judge(self, state: ADMMState, sizes: tuple[float, float], root: float) -> ADMMState:
        limit, diverging = self.limits.tolerance, state.stop is not None and state.stop.reason == "diverged"
        if diverging or state.primal > limit * (root + sizes[0]) or state.dual > limit * (root + sizes[1]):
            return state
        message = f"the primal residual {state.primal:.3g} and the dual residual {state.dual:.3g} reached tol"
        return replace(state, stop=Stop("converged", message))

    def shared(self, problem: Problem, mean: np.ndarray, strength: float) -> np.ndarray:
        """``argmin_z penalty(z) + strength/2 ||z - mean||^2``; intercepts are not penalised."""
        scaled, _ = problem.split(mean)
        shrunk = problem.penalty.prox(scaled, 1.0 / strength)
        return np.concatenate([shrunk.ravel(), mean[scaled.size :]])


def balanced(rho: float, primal: float, dual: float) -> float:
    """``rho`` for the next round: larger while workers disagree more than z moves, and the other way round."""
    if primal > IMBALANCE * dual:
        return rho * STRIDE
    if dual > IMBALANCE * primal:
        return rho / STRIDE
    return rho


def _residuals(memory: Share | None, z: np.ndarray, rho: float) -> Update:
    """What the residuals at z and their tolerances are made of; zeros from a worker that knows no x yet."""
    if memory is None:
        return {"told": 0.0, "primal_squares": 0.0, "x_squares": 0.0, "multiplier_squares": 0.0}
    apart, multipliers = memory.x - z, memory.rho * (memory.sent - z)
    return {
        "told": 1.0,
        "primal_squares": float(apart @ apart),
        "x_squares": float(memory.x @ memory.x),
        "multiplier_squares": float(multipliers @ multipliers),
    }
