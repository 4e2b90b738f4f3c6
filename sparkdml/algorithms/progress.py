"""How methods without a line search keep track: the objective so far, the best point, and when to stop."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sparkdml.core import Stop
from sparkdml.problem import Differentiable

#: A fit has converged when so many objectives in a row brought less than the tolerance together.
PATIENCE = 5


@dataclass(frozen=True)
class Limits:
    """At most ``max_iterations`` objectives after the first; ``tolerance`` is a share of the first one."""

    max_iterations: int
    tolerance: float


@dataclass(frozen=True)
class Progress:
    """The part of a state that all such methods have. ``lowest`` holds the lowest objective after each evaluation.

    ``iteration`` counts evaluations after the first, which is of the start. The gradient is not known (NaN).
    """

    coef: np.ndarray
    best: np.ndarray
    objective: float = math.inf
    gradient_norm: float = math.nan
    iteration: int = -1
    stop: Stop | None = None
    first: float = math.nan
    lowest: tuple[float, ...] = ()


def check_sampled_steps(fraction: float, step_size: float) -> None:
    """Raise ValueError unless steps of that size can follow gradients over that share of the rows."""
    if not 0.0 < fraction <= 1.0:
        raise ValueError(f"fraction={fraction}, but it must be more than 0 and at most 1")
    if not step_size > 0.0:
        raise ValueError(f"step_size={step_size}, but it must be more than 0")


def observed(state: Any, problem: Differentiable, point: np.ndarray, loss_sum: float, limits: Limits) -> Any:
    """``state`` (a :class:`Progress`) after all workers told their loss at ``point``, with a stop if it is time."""
    value = problem.objective(point, loss_sum)
    better = value < state.objective
    lowest = min(value, state.objective)
    state = replace(
        state,
        best=point if better else state.best,
        objective=lowest,
        iteration=state.iteration + 1,
        first=value if state.iteration < 0 else state.first,
        lowest=(*state.lowest, lowest)[-PATIENCE - 1 :],
    )
    return replace(state, stop=_judge(state, value, limits))


def _judge(state: Progress, value: float, limits: Limits) -> Stop | None:
    if not math.isfinite(value) or value > 1e6 * max(abs(state.first), 1.0):
        return Stop(
            "diverged", f"the objective became {value:g}", "use a smaller stepSize, or standardize the features"
        )
    enough = limits.tolerance * abs(state.first)
    if len(state.lowest) > PATIENCE and state.lowest[0] - state.lowest[-1] <= enough:
        if value - state.objective > max(enough, 1e-3 * abs(state.objective)):
            return Stop(
                "stalled",
                f"{PATIENCE} evaluations brought nothing, and the last is {value - state.objective:.3g} above the best",
                "use a smaller stepSize, or a schedule that falls",
            )
        return Stop("converged", f"{PATIENCE} evaluations gained at most tol * {abs(state.first):.6g}")
    if state.iteration >= limits.max_iterations:
        return Stop("max_iterations", f"maxIter={limits.max_iterations} reached", "raise maxIter, or tol")
    return None
