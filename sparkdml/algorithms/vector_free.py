"""Quasi-Newton methods that meet their vectors only as inner products."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from sparkdml.algorithms.arc_search import NEAR, far_enough
from sparkdml.algorithms.inner_products import grown, two_loop
from sparkdml.algorithms.line_search import MAX_TRIALS, LineSearch
from sparkdml.algorithms.owlqn import l1_strengths, pseudo_gradient
from sparkdml.algorithms.quasi_newton import VALUE_WINDOW, diverged, judge, stalled
from sparkdml.algorithms.sharded import Lead, Sharded
from sparkdml.core import Turn, Update
from sparkdml.data.block import Block
from sparkdml.problem import Problem
from sparkdml.problem.gradient import loss_and_gradient

#: Coordinates of all vectors at once that stay in a core's cache.
STRIPE = 8192


@dataclass(frozen=True)
class ShardState:
    """A shard's part of the vectors. ``gradient`` is of the smooth part, at ``best``; ``trial`` the same at ``coef``.

    ``steps`` and ``changes`` are the corrections, in coordinates in which the preconditioner is the identity; ``slope``
    is the (pseudo-)gradient at ``best`` that directions descend.
    """

    coef: np.ndarray
    best: np.ndarray
    gradient: np.ndarray | None = None
    trial: np.ndarray | None = None
    slope: np.ndarray | None = None
    direction: np.ndarray | None = None
    steps: tuple[np.ndarray, ...] = ()
    changes: tuple[np.ndarray, ...] = ()


@dataclass(frozen=True)
class VectorFreeLead(Lead):
    """The scalars of a quasi-Newton method.

    gram : inner products of the corrections and the slope at ``best``: steps, then changes, then the slope, (2m + 1,
        2m + 1), in coordinates in which the preconditioner is the identity.
    penalty : at the point asked for. expected : ``slope'(coef - best)`` there. anew : it is a start, accepted whatever
        it is worth.
    """

    penalty: float = 0.0
    expected: float = 0.0
    anew: bool = True
    gram: np.ndarray = field(default_factory=lambda: np.zeros((1, 1)))
    values: tuple[float, ...] = (math.inf,)
    first_objective: float = math.inf
    search: LineSearch | None = None
    step: float = 1.0
    trials: int = 0


@dataclass(frozen=True)
class VectorFree(Sharded):
    """L-BFGS by inner products, and OWL-QN where the penalty has an L1 part.

    A direction is a combination of the 2m + 1 vectors that L-BFGS keeps, so the two-loop recursion needs no more than
    their inner products: shards send these, (2m + 1)^2 numbers, and get the weights of the combination. Iterates are
    those of :class:`~.lbfgs.LBFGS` by diagonal and of :class:`~.owlqn.OWLQN`, to rounding.

    An evaluation is followed by two steps of the shards: *measure*, which adds up what the point is worth and all
    inner products that would follow from accepting it, and *move*, to the next point to look at.

    Chen, Wang & Zhou, "Large-scale L-BFGS using MapReduce" (2014).
    """

    max_iterations: int
    tolerance: float
    lasso: bool = False
    corrections: int = 10

    def init(self, problem: Problem, coef: np.ndarray) -> tuple[ShardState, Update]:
        return ShardState(coef=coef, best=coef), {"penalty": problem.penalty_at(coef)}

    def work(self, problem: Problem, blocks: Sequence[Block], coef: np.ndarray, turn: Turn) -> Update:
        coefficients, intercepts = problem.to_raw(coef)
        sums = loss_and_gradient(problem.loss_at(coef), blocks, coefficients, intercepts)
        tail = [sums["slope_sum"]] if problem.fit_intercept else []
        parts = [sums["gradient"].ravel(), *tail, sums.get("extra", np.zeros(0))]
        return {"loss": sums["loss"], "gradient": np.concatenate(parts)}

    # ---- shards

    def step(
        self, problem: Problem, state: ShardState, order: dict[str, Any], total: Update
    ) -> tuple[ShardState, Update]:
        if total:
            return self._measure(problem, state, np.asarray(total["gradient"]))
        return self._move(problem, state, order)

    def _measure(self, problem: Problem, state: ShardState, sums: np.ndarray) -> tuple[ShardState, Update]:
        scaled, _ = problem.split(state.coef)
        trial = sums / problem.weight_sum
        trial[: scaled.size] += problem.penalty.gradient(scaled).ravel()
        slope = self._slope(problem, state.coef, trial)
        told: Update = {
            "broken": float(not np.isfinite(trial).all()),
            "norm2": float(slope @ slope),
            "slope": 0.0 if state.direction is None else float(trial @ state.direction),
            "curvature": 0.0,
            "gram": self._gram(problem, state, trial, slope),
        }
        if state.gradient is not None:
            told["curvature"] = float((state.coef - state.best) @ (trial - state.gradient))
        return replace(state, trial=trial), told

    def _slope(self, problem: Problem, coef: np.ndarray, gradient: np.ndarray) -> np.ndarray:
        return pseudo_gradient(coef, gradient, l1_strengths(problem)) if self.lasso else gradient

    def _gram(self, problem: Problem, state: ShardState, trial: np.ndarray, slope: np.ndarray) -> np.ndarray:
        """Rows of the inner products as they will be if ``coef`` becomes ``best``: the newest correction is the last.

        All rows where an orthant leaves coordinates out, since these change; else those of vectors that are new.
        """
        root = problem.root_curvature
        free = None
        if self.lasso:
            bent = l1_strengths(problem) > 0.0
            free = ~bent | (state.coef != 0.0) | (slope != 0.0)
        fresh = state.gradient is not None
        count = len(state.steps) + fresh
        newest = [count - 1, 2 * count - 1, 2 * count] if fresh else [2 * count]
        known = {n: vector for n, vector in enumerate(state.steps)}
        known |= {count + n: vector for n, vector in enumerate(state.changes)}
        gram = np.zeros((2 * count + 1, 2 * count + 1))
        new = np.empty((len(newest), STRIPE))
        for low in range(0, len(trial), STRIPE):
            here = slice(low, min(low + STRIPE, len(trial)))
            part = new[:, : here.stop - low]
            if state.gradient is not None:
                np.subtract(state.coef[here], state.best[here], out=part[0])
                part[0] *= root[here]
                np.subtract(trial[here], state.gradient[here], out=part[1])
                part[1] /= root[here]
            np.divide(slope[here], root[here], out=part[-1])
            if free is not None:
                part *= free[here]
                old = np.stack([vector[here] * free[here] for vector in known.values()]) if known else part[:0]
                gram[np.ix_(list(known), list(known))] += old @ old.T
                gram[np.ix_(newest, list(known))] += part @ old.T
            else:
                for n, vector in known.items():
                    gram[newest, n] += part @ vector[here]
            gram[np.ix_(newest, newest)] += part @ part.T
        if free is None:
            return gram[newest]
        gram[np.ix_(list(known), newest)] = gram[np.ix_(newest, list(known))].T
        return gram

    def _move(self, problem: Problem, state: ShardState, order: dict[str, Any]) -> tuple[ShardState, Update]:
        if order["keep"] is not None:
            state = self._accepted(problem, state, order["keep"])
        if order["weights"] is not None:
            if not order["corrections"]:
                state = replace(state, steps=(), changes=())
            state = replace(state, direction=self._direction(problem, state, order["weights"], order["near"]))
        assert state.direction is not None
        assert state.slope is not None
        coef = state.best + order["step"] * state.direction
        if self.lasso:
            orthant = np.where(state.best != 0.0, np.sign(state.best), -np.sign(state.slope))
            coef[(l1_strengths(problem) > 0.0) & (np.sign(coef) != orthant)] = 0.0
        told = {"penalty": problem.penalty_at(coef), "expected": float(state.slope @ (coef - state.best))}
        return replace(state, coef=coef), told

    def _accepted(self, problem: Problem, state: ShardState, keep: list[int]) -> ShardState:
        """``coef`` becomes ``best``; of the corrections, the newest among them, those numbered in ``keep`` stay."""
        assert state.trial is not None
        steps, changes = state.steps, state.changes
        if state.gradient is not None:
            root = problem.root_curvature
            steps = (*steps, (state.coef - state.best) * root)
            changes = (*changes, (state.trial - state.gradient) / root)
        return replace(
            state,
            best=state.coef,
            gradient=state.trial,
            slope=self._slope(problem, state.coef, state.trial),
            steps=tuple(steps[n] for n in keep),
            changes=tuple(changes[n] for n in keep),
        )

    def _direction(self, problem: Problem, state: ShardState, weights: np.ndarray, near: float) -> np.ndarray:
        """``-D^-1/2 (sum_n w_n step_n + w_{m+n} change_n + w_2m D^-1/2 slope)``, D the preconditioner's diagonal."""
        assert state.slope is not None
        root = problem.root_curvature
        strengths = l1_strengths(problem) if self.lasso else None
        vectors = [(w, v) for w, v in zip(weights, (*state.steps, *state.changes), strict=False) if w]
        direction = np.empty(len(root))
        for low in range(0, len(direction), STRIPE):
            here = slice(low, min(low + STRIPE, len(direction)))
            part = weights[-1] * state.slope[here] / root[here]
            for weight, vector in vectors:
                part += weight * vector[here]
            part /= root[here]
            if strengths is not None:
                bent = strengths[here] > 0.0
                part[bent & (state.best[here] == 0.0) & (state.slope[here] == 0.0)] = 0.0
                part[bent & (np.abs(state.best[here]) <= near) & (part * state.slope[here] <= 0.0)] = 0.0
            np.negative(part, out=direction[here])
        return direction

    # ---- the lead

    def moves(self, evaluated: bool) -> bool:
        return not evaluated

    def begin(self, sums: Update) -> VectorFreeLead:
        return VectorFreeLead(penalty=float(sums["penalty"]), gradient_norm=math.inf)

    def lead(self, lead: VectorFreeLead, sums: Update, loss: float | None, tail: Any) -> VectorFreeLead:
        if not lead.evaluate:
            return self._moved(lead, sums)
        assert loss is not None
        value = loss + lead.penalty
        norm = math.sqrt(max(float(sums["norm2"]), 0.0))
        if lead.anew:
            if sums["broken"] or not math.isfinite(value):
                return replace(lead, objective=value, gradient_norm=norm, stop=diverged(value))
            return self._accept(lead, value, norm, sums)
        if self.lasso:
            fits = far_enough(value, norm, lead.objective, lead.gradient_norm, lead.expected)
            return self._accept(lead, value, norm, sums) if fits else self._backtrack(lead)
        assert lead.search is not None
        search = lead.search.told(value, float(sums["slope"]))
        if search.accepted:
            return self._accept(lead, value, norm, sums)
        if not search.failed:
            return self._try(replace(lead, search=search), search.step)
        low = search.low
        if low.step > 0.0 and low.value < lead.objective:
            return self._try(replace(lead, anew=True), low.step)
        return self._restart(lead)

    def _accept(self, lead: VectorFreeLead, value: float, norm: float, sums: Update) -> VectorFreeLead:
        """The point becomes the best one; the end, or a new direction from there."""
        started, gram = math.isfinite(lead.objective), grown(lead.gram, np.asarray(sums["gram"]))
        count = len(gram) // 2
        keep = list(range(count))
        if lead.anew:
            keep = []
        elif not float(sums["curvature"]) > 1e-300:
            keep.pop()
        keep = keep[-self.corrections :]
        kept = [*keep, *(count + n for n in keep), 2 * count]
        lead = replace(
            lead,
            answer="coef",
            objective=value,
            gradient_norm=norm,
            values=(*lead.values, value)[-VALUE_WINDOW:],
            first_objective=lead.first_objective if started else value,
            iteration=lead.iteration + started,
            gram=gram[np.ix_(kept, kept)],
            anew=False,
        )
        lead = judge(lead, self.max_iterations, self.tolerance)
        return lead if lead.stop is not None else self._descend(lead, keep)

    def _descend(self, lead: VectorFreeLead, keep: list[int] | None) -> VectorFreeLead:
        """A new direction and its first trial."""
        weights = two_loop(lead.gram)
        search = None
        if not self.lasso:
            search = LineSearch.begin(lead.objective, -float(weights @ lead.gram[-1]), 1.0)
        lead = self._try(replace(lead, search=search, trials=1), 1.0)
        near = min(NEAR, lead.gradient_norm)
        order = {"keep": keep, "weights": weights, "corrections": len(lead.gram) > 1, "near": near}
        return replace(lead, order={**lead.order, **order})

    def _try(self, lead: VectorFreeLead, step: float) -> VectorFreeLead:
        """A step along the direction; it is looked at next."""
        return replace(lead, order={"keep": None, "weights": None, "step": step}, evaluate=False, step=step)

    def _moved(self, lead: VectorFreeLead, sums: Update) -> VectorFreeLead:
        penalty, expected = float(sums["penalty"]), float(sums["expected"])
        lead = replace(lead, penalty=penalty, expected=expected, answer="best", evaluate=True, order={})
        return self._backtrack(lead) if self.lasso and expected >= 0.0 else lead

    def _backtrack(self, lead: VectorFreeLead) -> VectorFreeLead:
        if lead.trials >= MAX_TRIALS:
            return self._restart(lead)
        shrinkage = 0.1 if lead.iteration == 0 else 0.5
        return self._try(replace(lead, trials=lead.trials + 1), lead.step * shrinkage)

    def _restart(self, lead: VectorFreeLead) -> VectorFreeLead:
        """No step along the direction will do: go on without corrections, or give up."""
        if len(lead.gram) > 1:
            return self._descend(replace(lead, gram=lead.gram[-1:, -1:]), None)
        return replace(lead, answer="best", stop=stalled(lead.gradient_norm))
