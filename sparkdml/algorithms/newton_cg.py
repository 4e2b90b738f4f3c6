"""Newton's method by Hessian-vector products, as a state machine."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from sparkdml.algorithms.base import Algorithm
from sparkdml.algorithms.line_search import LineSearch
from sparkdml.algorithms.preconditioner import Preconditioner, diagonal_preconditioner
from sparkdml.algorithms.quasi_newton import VALUE_WINDOW, QuasiNewtonState, diverged, judge, stalled
from sparkdml.core import Turn, Update
from sparkdml.data.block import Block
from sparkdml.optim.hessian_vector import hessian_vector
from sparkdml.problem import Problem
from sparkdml.problem.gradient import loss_and_gradient


@dataclass(frozen=True)
class ConjugateGradients:
    """Preconditioned conjugate gradients for ``H p = -g``, told one product ``H direction`` at a time.

    ``residual`` is ``H p + g``. It is over when the residual's norm is at most ``bound``, after ``most`` products, or
    at a direction without positive curvature: p is then what it was, or the first direction if there is no p yet.
    """

    p: np.ndarray
    residual: np.ndarray
    direction: np.ndarray
    bound: float
    most: int
    products: int = 0
    over: bool = False

    @classmethod
    def begin(cls, gradient: np.ndarray, preconditioner: Preconditioner, most: int) -> ConjugateGradients:
        norm = float(np.linalg.norm(gradient))
        bound = min(0.5, math.sqrt(norm)) * norm
        return cls(np.zeros_like(gradient), gradient, -preconditioner.solve(gradient), bound, most)

    def told(self, product: np.ndarray, preconditioner: Preconditioner) -> ConjugateGradients:
        curvature = float(self.direction @ product)
        if not curvature > 0.0:
            return replace(self, p=self.p if self.products else self.direction, products=self.products + 1, over=True)
        before = float(self.residual @ preconditioner.solve(self.residual))
        step = before / curvature
        residual = self.residual + step * product
        solved = preconditioner.solve(residual)
        return replace(
            self,
            p=self.p + step * self.direction,
            residual=residual,
            direction=float(residual @ solved) / before * self.direction - solved,
            products=self.products + 1,
            over=float(np.linalg.norm(residual)) <= self.bound or self.products + 1 >= self.most,
        )


@dataclass(frozen=True)
class NewtonCGState(QuasiNewtonState):
    """``coef`` is ``[point, vector, 1 if the Hessian there times that vector is asked for]``.

    Between two line searches ``inner`` looks for the next ``direction``. ``products`` counts all products.
    """

    inner: ConjugateGradients | None = None
    direction: np.ndarray | None = None
    search: LineSearch | None = None
    products: int = 0


@dataclass(frozen=True)
class NewtonCG(Algorithm):
    """Line search Newton-CG: inexact Newton directions, each round being one evaluation or one product ``H v``.

    Nocedal & Wright, *Numerical Optimization* (2006), algorithm 7.1, with its forcing sequence
    ``min(1/2, sqrt(||g||))`` and a strong Wolfe search; preconditioned by the problem's curvature diagonal. The
    stopping rule is that of :class:`~.lbfgs.LBFGS`. Convex: superlinear convergence to the optimum; non-convex: a
    stationary point. For features too many for a (d, d) Hessian. Every product is a round: not where a round costs
    much more than its arithmetic, and not with an L1 penalty.
    """

    max_iterations: int
    tolerance: float
    max_products: int = 200

    def init(self, problem: Problem, coef: np.ndarray) -> NewtonCGState:
        """Raises ValueError for an L1 penalty, and for losses with parameters of their own."""
        strengths = problem.penalty.l1()
        if strengths is not None and np.any(strengths):
            raise ValueError("Newton-CG needs second derivatives, which an L1 penalty has not: use OWLQN or ADMM")
        if problem.loss.extras:
            raise ValueError(f"Newton-CG cannot train the own parameters of {type(problem.loss).__name__}: use LBFGS")
        preconditioner = diagonal_preconditioner(problem)
        return NewtonCGState(coef=_evaluation(coef), best=coef, preconditioner=preconditioner)

    def work(
        self, problem: Problem, blocks: Sequence[Block], coef: np.ndarray, memory: None, turn: Turn
    ) -> tuple[Update, None]:
        point, vector = coef[: problem.size], coef[problem.size : -1]
        if not coef[-1]:
            return loss_and_gradient(problem.loss, blocks, *problem.to_raw(point)), None
        sums = hessian_vector(problem.loss, blocks, *problem.to_raw(point), *problem.to_raw(vector))
        # one layout for both questions: placements agree on names and shapes only when these change
        return {"loss": 0.0, "gradient": sums["product"], "slope_sum": sums["product_sum"]}, None

    def advance(self, problem: Problem, state: NewtonCGState, total: Update) -> NewtonCGState:
        if state.inner is not None:
            # products take the same way into the problem's coordinates as gradients; the penalty is quadratic
            product = problem.evaluate(state.inner.direction, total)[1]
            return self._products(state, state.inner.told(product, state.preconditioner))
        point = state.coef[: problem.size]
        value, gradient = problem.evaluate(point, total)
        if state.search is None or state.direction is None:
            if not (math.isfinite(value) and np.isfinite(gradient).all()):
                return replace(state, objective=value, stop=diverged(value))
            return self._accept(state, point, value, gradient)
        search = state.search.told(value, float(gradient @ state.direction))
        if search.accepted:
            return self._accept(state, point, value, gradient)
        if not search.failed:
            trial = state.best + search.step * state.direction
            return replace(state, search=search, coef=_evaluation(trial))
        if search.low.step > 0.0 and search.low.value < state.objective:
            trial = state.best + search.low.step * state.direction
            return replace(state, search=None, coef=_evaluation(trial))
        return replace(state, search=None, coef=_evaluation(state.best), stop=stalled(state.gradient_norm))

    def _accept(self, state: NewtonCGState, point: np.ndarray, value: float, gradient: np.ndarray) -> NewtonCGState:
        """``point`` becomes the best; a new direction is sought from there unless the fit is over."""
        started = math.isfinite(state.first_objective)
        state = replace(
            state,
            coef=_evaluation(point),
            best=point,
            objective=value,
            gradient=gradient,
            gradient_norm=float(np.linalg.norm(gradient)),
            values=(*state.values, value)[-VALUE_WINDOW:],
            first_objective=state.first_objective if started else value,
            iteration=state.iteration + started,
            search=None,
            direction=None,
        )
        state = judge(state, self.max_iterations, self.tolerance)
        if state.stop is not None:
            return state
        return self._products(state, ConjugateGradients.begin(gradient, state.preconditioner, self.max_products))

    def _products(self, state: NewtonCGState, inner: ConjugateGradients) -> NewtonCGState:
        """Ask for the next product, or search along the direction that is found."""
        if not inner.over:
            return replace(state, inner=inner, coef=np.concatenate([state.best, inner.direction, [1.0]]))
        assert state.gradient is not None
        slope = float(inner.p @ state.gradient)
        state = replace(state, inner=None, products=state.products + inner.products)
        if not slope < 0.0:
            return replace(state, coef=_evaluation(state.best), stop=stalled(state.gradient_norm))
        search = LineSearch.begin(state.objective, slope, 1.0)
        return replace(state, direction=inner.p, search=search, coef=_evaluation(state.best + inner.p))


def _evaluation(point: np.ndarray) -> np.ndarray:
    return np.concatenate([point, np.zeros(len(point) + 1)])
