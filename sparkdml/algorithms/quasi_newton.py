"""What quasi-Newton methods share: corrections, the two-loop recursion, the stopping rule."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
from scipy.linalg.blas import daxpy

from sparkdml.algorithms.preconditioner import Preconditioner
from sparkdml.core import Stop

#: Spark compares the objective with the largest of the last 20 before it calls values converged.
VALUE_WINDOW = 20
#: Below this gradient norm a fit ends whatever ``tolerance`` says (as in Spark).
GRADIENT_FLOOR = 1e-8


@dataclass(frozen=True)
class Pair:
    """One correction: step ``s``, gradient change ``y``, ``1 / s'y``."""

    s: np.ndarray
    y: np.ndarray
    rho: float


@dataclass(frozen=True)
class QuasiNewtonState:
    """``coef`` is the point asked for; all else belongs to ``best``, the last accepted one.

    ``gradient`` is of the smooth part of the objective; ``gradient_norm`` of what should be 0 at the optimum.
    """

    coef: np.ndarray
    best: np.ndarray
    preconditioner: Preconditioner
    objective: float = math.inf
    gradient: np.ndarray | None = None
    gradient_norm: float = math.inf
    pairs: tuple[Pair, ...] = ()
    values: tuple[float, ...] = (math.inf,)
    first_objective: float = math.inf
    iteration: int = 0
    stop: Stop | None = None


S = TypeVar("S", bound=QuasiNewtonState)
#: Any state with the numbers that :func:`judge` reads.
Judged = TypeVar("Judged", bound=Any)


def after_step(state: S, objective: float, gradient: np.ndarray, gradient_norm: float, corrections: int) -> S:
    """``state.coef`` becomes ``best``, and the step to it the latest of at most ``corrections`` pairs."""
    assert state.gradient is not None
    s, y = state.coef - state.best, gradient - state.gradient
    curvature = float(s @ y)
    pairs = state.pairs
    if curvature > 1e-300:
        pairs = (*pairs, Pair(s, y, 1.0 / curvature))[-corrections:]
    return replace(
        state,
        best=state.coef,
        objective=objective,
        gradient=gradient,
        gradient_norm=gradient_norm,
        pairs=pairs,
        values=(*state.values, objective)[-VALUE_WINDOW:],
        iteration=state.iteration + 1,
    )


def judge(state: Judged, max_iterations: int, tolerance: float) -> Judged:
    """The state with its ``stop`` set where the fit is over.

    That is when the gradient norm is at most ``max(tolerance * |F|, 1e-8)``, the objective is within
    ``tolerance * |F_0|`` of the largest of its last 20 values, or ``max_iterations`` steps are done.
    """
    norm = state.gradient_norm
    if norm <= max(tolerance * abs(state.objective), GRADIENT_FLOOR):
        return replace(state, stop=Stop("converged", f"gradient norm {norm:.3g} reached tol"))
    gain = abs(state.objective - max(state.values))
    if gain <= tolerance * abs(state.first_objective):
        message = f"objective changed by {gain:.3g} over {VALUE_WINDOW} iterations"
        return replace(state, stop=Stop("converged", message))
    if state.iteration >= max_iterations:
        stop = Stop(
            "max_iterations",
            f"maxIter={max_iterations} reached with gradient norm {norm:.3g}",
            "raise maxIter, or tol if this is exact enough",
        )
        return replace(state, stop=stop)
    return state


def diverged(objective: float) -> Stop:
    """The start's objective or gradient is not finite."""
    return Stop(
        "diverged",
        f"the objective is {objective} at the starting point",
        "look for features of extreme size (above about 1e150) and rescale them",
    )


def stalled(gradient_norm: float) -> Stop:
    """No step is accepted, with corrections or without."""
    return Stop(
        "stalled",
        f"no step lowers the objective any more; the gradient norm is {gradient_norm:.3g}",
        "the fit is as exact as rounding allows; a larger tol ends it earlier",
    )


def inverse_hessian_times(vector: np.ndarray, pairs: tuple[Pair, ...], preconditioner: Preconditioner) -> np.ndarray:
    """The two-loop recursion; a positive definite operator, so its negative is a descent direction.

    Nocedal & Wright, *Numerical Optimization* (2006), algorithm 7.4. ``H_0`` is the preconditioner, scaled by the
    latest pair. ``daxpy`` adds in place: temporaries of this size are fresh memory each time, which costs more than
    the sums.
    """
    result = vector.copy()
    alphas = []
    for pair in reversed(pairs):
        alpha = pair.rho * float(pair.s @ result)
        result = daxpy(pair.y, result, a=-alpha)
        alphas.append(alpha)
    scale = 1.0
    if pairs:
        latest = pairs[-1]
        scale = 1.0 / (latest.rho * float(latest.y @ preconditioner.solve(latest.y)))
    result = preconditioner.solve(result)
    result *= scale
    for pair, alpha in zip(pairs, reversed(alphas), strict=True):
        result = daxpy(pair.s, result, a=alpha - pair.rho * float(pair.y @ result))
    return result


def restricted(pairs: tuple[Pair, ...], free: np.ndarray) -> tuple[Pair, ...]:
    """The corrections as the ``free`` coordinates alone see them; those without positive curvature are left out.

    With them :func:`inverse_hessian_times` approximates the inverse of the free coordinates' own part of the Hessian,
    given a vector that is 0 elsewhere and a diagonal preconditioner.
    """
    if free.all():
        return pairs
    result = []
    for pair in pairs:
        s, y = pair.s * free, pair.y * free
        curvature = float(s @ y)
        if curvature > 1e-12 * float(np.linalg.norm(s) * np.linalg.norm(y)):
            result.append(Pair(s, y, 1.0 / curvature))
    return tuple(result)
