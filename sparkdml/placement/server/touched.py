"""Gradients of a few features each: workers pull and push those that their sample touches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sparkdml.algorithms.sync_sgd import SyncSGDState
from sparkdml.core import Turn
from sparkdml.data.block import Block, Part
from sparkdml.data.routing import touching
from sparkdml.optim.batches import generator
from sparkdml.optim.schedules import Constant
from sparkdml.placement.server.gradients import Gradients
from sparkdml.placement.server.sidework import COEFFICIENTS, REST, Done, Draft, SideWork
from sparkdml.problem import Problem
from sparkdml.problem.batch_gradient import BatchGradient
from sparkdml.server.client import Client, Push
from sparkdml.server.keys import Keys
from sparkdml.server.stale import AS_IT_COMES

#: Of the features, that a sample may touch: naming and gathering rows costs more than a range of as many.
SHARE = 0.25


@dataclass(frozen=True)
class Sample:
    """Rows over ``columns`` (int64) alone, what their sum is multiplied by, and the rows of the table."""

    columns: np.ndarray
    parts: list[Part]
    scale: float
    keys: Keys


@dataclass(frozen=True)
class TouchesMost:
    """A worker's memory: its samples touch more than :data:`SHARE` of the features."""


@dataclass(frozen=True, kw_only=True)
class Touched(SideWork):
    """``gradients``, with what travels cut down to the features that the turn's rows touch, where these are few. Rules
    are lazy at servers (:meth:`~sparkdml.optim.steps.base.Step.rest`), so a push is a step of all other features too.

    In step it finds what whole gradients do: bit by bit without a penalty, else to the rounding of the closed form for
    steps that a feature had no part in (and of FTRL's way from sums to parameters). A sample of all rows is cut once,
    and named by a digest from then on.
    """

    problem: Problem
    gradients: Gradients

    @property
    def rounds_of_pass(self) -> int:
        return self.gradients.rounds_of_pass

    @property
    def pipelined(self) -> bool:
        return self.gradients.pipelined

    def rule(self, penalised: bool) -> Mapping[str, Any]:
        return self.gradients.rule(penalised)

    def put(self, client: Client, state: SyncSGDState) -> None:
        self.gradients.put(client, state)

    def take(self, client: Client, state: SyncSGDState) -> SyncSGDState:
        return self.gradients.take(client, state)

    def before(self, blocks: Sequence[Block], memory: Sample | TouchesMost | None, turn: Turn) -> Draft:
        if memory is None:
            memory = self._sample(blocks, turn)
        if isinstance(memory, TouchesMost):
            return Draft(self.whole, memory)
        return Draft({**self.whole, COEFFICIENTS: memory.keys}, memory)

    def work(
        self, blocks: Sequence[Block], own: Sample | TouchesMost, pulled: Mapping[str, np.ndarray], turn: Turn
    ) -> Done:
        if isinstance(own, TouchesMost):
            return self.gradients.work(blocks, None, pulled, turn)._replace(memory=own)
        gradient = BatchGradient.of(self.problem).over(own.columns)(self.joined(pulled), own.parts) * own.scale
        size = self.gradients.size(turn.clock)
        some, rest = np.split(gradient * self.gradients.scale, [len(own.keys)])
        updates = {COEFFICIENTS: Push(some, own.keys, size)}
        if REST in self.parameters:
            updates[REST] = Push(rest, step_size=size)
        all_rows = self.gradients.algorithm.fraction == 1.0
        return Done(updates, own if all_rows else None, self.gradients.read)

    def _sample(self, blocks: Sequence[Block], turn: Turn) -> Sample | TouchesMost:
        drawn, scale = self.gradients.algorithm.sample(
            self.problem, blocks, generator(self.gradients.algorithm.seed, turn)
        )
        parts = list(drawn)
        distinct = {id(block): block for block, _, _ in parts}
        found = touching(list(distinct.values()), self.problem.features)
        if len(found.columns) > SHARE * self.problem.features:
            return TouchesMost()
        over = dict(zip(distinct, found.blocks, strict=True))
        outputs = self.problem.outputs
        keys = Keys((found.columns[:, None] * outputs + np.arange(outputs)).ravel())
        return Sample(found.columns, [(over[id(block)], start, stop) for block, start, stop in parts], scale, keys)


def may_be_few(gradients: Gradients) -> bool:
    """Whether :class:`Touched` finds what ``gradients`` do, as far as these can tell without the rows.

    In step, steps along 0 must be rests of the rule. Penalties are made up for in steps of one size, as all pushes are.
    """
    algorithm, penalty = gradients.algorithm, gradients.rule(penalised=True)
    one_size = isinstance(algorithm.schedule, Constant) or not (penalty["l1"] or penalty["l2"])
    rests = algorithm.step.rests or not gradients.rounds
    plain = gradients.pace.single and gradients.stale == AS_IT_COMES
    problem = gradients.problem
    by_feature = isinstance(problem, Problem) and BatchGradient.of(problem).by_feature
    return plain and one_size and rests and by_feature
