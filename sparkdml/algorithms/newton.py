"""Newton's method as a state machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from sparkdml.algorithms.lbfgs import LBFGS, LBFGSState
from sparkdml.algorithms.preconditioner import hessian_preconditioner
from sparkdml.core import Turn, Update
from sparkdml.data.block import Block
from sparkdml.optim.hessian import loss_gradient_and_hessian
from sparkdml.problem import Differentiable, Problem


@dataclass(frozen=True)
class Newton(LBFGS):
    """Newton's method: the exact Hessian at every point, for losses of one margin and few features.

    Each round's update is the loss, the gradient and the (d, d) Hessian of all rows. The line search and the stopping
    rule are those of :class:`LBFGS`; near the optimum full steps converge quadratically. For a canonical generalised
    linear model such as logistic regression this is iteratively reweighted least squares with a line search.

    Nocedal & Wright, *Numerical Optimization* (2006), section 3.3.
    """

    @property
    def solves(self) -> type[Differentiable]:
        return Problem

    def work(
        self, problem: Differentiable, blocks: Sequence[Block], coef: np.ndarray, memory: None, turn: Turn
    ) -> tuple[Update, None]:
        assert isinstance(problem, Problem)
        coefficients, intercepts = problem.to_raw(coef)
        return loss_gradient_and_hessian(problem.loss, blocks, coefficients, intercepts, problem.centre), None

    def advance(self, problem: Differentiable, state: LBFGSState, total: Update) -> LBFGSState:
        assert isinstance(problem, Problem)
        return super().advance(problem, replace(state, preconditioner=hessian_preconditioner(problem, total)), total)

    def _inverse_hessian_times(self, vector: np.ndarray, state: LBFGSState) -> np.ndarray:
        return state.preconditioner.solve(vector)
