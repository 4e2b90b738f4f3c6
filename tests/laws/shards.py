"""A fit by shards without Spark: what placements do with files and jobs, done with lists."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np

from sparkdml.algorithms.sharded import Lead, Sharded, add_sums, as_stored, in_coordinates
from sparkdml.algorithms.states import pack, unpack
from sparkdml.core import Turn, Update, add_updates
from sparkdml.data.block import Block
from sparkdml.problem import Objective


@dataclass
class ShardedFit:
    """The last lead, all of them, and the answer in coordinates of the features as stored."""

    leads: list[Lead]
    coefficients: np.ndarray
    intercepts: np.ndarray
    extras: np.ndarray


def fit_by_shards(
    algorithm: Sharded,
    objective: Objective,
    mean: np.ndarray,
    std: np.ndarray,
    workers: Sequence[Sequence[Block]],
    bounds: Sequence[int],
    start: np.ndarray | None = None,
    watch: Callable[[Lead], None] | None = None,
) -> ShardedFit:
    """``workers`` have rows of all features; shard s has features ``bounds[s]`` to ``bounds[s + 1]``.

    ``start`` is of the tail: intercepts, and the loss's own parameters.
    """
    ranges = [slice(a, b) for a, b in zip(bounds, bounds[1:], strict=False)]
    problems = [objective.shard(mean[r], std[r]) for r in ranges]
    tail = objective.tail()
    problems.append(tail)
    starts = [np.zeros(p.size) for p in problems[:-1]] + [np.zeros(tail.size) if start is None else start]
    begun = [algorithm.init(p, c) for p, c in zip(problems, starts, strict=True)]
    states: list[Any] = [state for state, _ in begun]
    lead = algorithm.begin(reduce(add_sums, [sums for _, sums in begun], {}))
    leads, clock, outputs = [lead], 0, objective.loss.outputs
    while lead.stop is None:
        totals: list[Update] = [{} for _ in problems]
        loss = None
        if lead.evaluate:
            coefficients, intercepts, extras = answer(problems, states, ["coef"] * len(states))
            point = np.concatenate([coefficients.ravel(), intercepts[: tail.size - len(extras)], extras])
            stored = objective.stored(len(mean))
            updates = [
                algorithm.work(stored, blocks, point, Turn(clock, n, len(workers))) for n, blocks in enumerate(workers)
            ]
            update, clock = reduce(add_updates, updates), clock + 1
            count = coefficients.size
            gradient, rest = update["gradient"][:count].reshape(-1, outputs), update["gradient"][count:]
            slope_sum = rest[:outputs] if objective.fit_intercept else np.zeros(outputs)
            totals = [
                {"gradient": in_coordinates(p, gradient[r], slope_sum)} for p, r in zip(problems, ranges, strict=False)
            ]
            totals.append({"gradient": rest})
            if "loss" in update:
                loss = update["loss"] / objective.weight_sum
                totals = [{**total, "loss": update["loss"]} for total in totals]
        done = [
            algorithm.step(p, unpack(pack(s)), lead.order, total)
            for p, s, total in zip(problems, states, totals, strict=True)
        ]
        states = [state for state, _ in done]
        lead = algorithm.lead(lead, reduce(add_sums, [sums for _, sums in done], {}), loss, states[-1])
        leads.append(lead)
        if watch:
            watch(lead)
        assert len(leads) < 20000
    return ShardedFit(leads, *answer(problems, states, [lead.answer] * len(states)))


def answer(problems, states, names):
    """Coefficients (d, K), intercepts (K,) and the loss's own parameters, by these arrays of the states."""
    outputs = problems[0].loss.outputs
    told = [as_stored(p, getattr(s, n)) for p, s, n in zip(problems[:-1], states, names, strict=False)]
    coefficients = np.concatenate([c for c, _ in told]) if told else np.zeros((0, outputs))
    last = getattr(states[-1], names[-1])
    tail = problems[-1]
    extras = last[len(last) - tail.loss.extras :]
    intercepts = np.zeros(outputs)
    if tail.fit_intercept:
        intercepts = last[:outputs] - sum(shift for _, shift in told)
    return coefficients, intercepts, extras
