"""Hogwild: a pass over a worker's rows by threads that share its coefficients."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from sparkdml.core import Turn
from sparkdml.data.block import Block, DenseBlock, SparseBlock
from sparkdml.losses.slopes import Slope, slope_of
from sparkdml.optim.batches import Rows, generator
from sparkdml.optim.descent import Walk
from sparkdml.optim.hogwild import kernels
from sparkdml.optim.hogwild.conflicts import dealt
from sparkdml.optim.hogwild.stints import Stint, stints
from sparkdml.optim.hogwild.table import Table
from sparkdml.optim.local_solver import LocalObjective, LocalSolver
from sparkdml.optim.schedules import Constant, Schedule
from sparkdml.optim.steps import SGD, AdaGrad, Step
from sparkdml.resources.threads import each_of, side_by_side

#: What becomes of rows that share a feature: nothing is done about it, or one thread gets them.
CONFLICTS = IGNORED, AVOIDED = "ignored", "avoided"
#: Of so many stints a pass has at least, so that threads end together, and the most rows of one.
LEAST_STINTS, MOST_ROWS = 256, 1024


@dataclass(frozen=True)
class Hogwild(LocalSolver):
    """A step for each row, taken by ``turn.threads`` threads on one array of coefficients, without locks.

    ``x <- prox(x - rate w_i / (mean weight) grad loss_i(x), rate)``, where row i touches only its own features: the
    penalty of the others is made up for when they are next met. Each pass has all rows in a new order
    (:func:`~.stints.stints`). The step size is constant within a pass or, if that is shorter, a call.

    - ``conflicts="ignored"``: Niu, Recht, Re & Wright, "Hogwild!: A lock-free approach to parallelizing stochastic
      gradient descent" (2011). Threads read what others are about to write; additions may be lost. Convex, sparse:
      nearly the rate of one thread. One thread takes the steps of SGD, the same in each run; several do not. Each
      thread tells the others of its own changes of the intercept after some rows.
    - ``"avoided"``: Pan, Lam, Tu, Papailiopoulos, Zhang, Jordan, Ramchandran, Re & Recht, "CYCLADES: Conflict-free
      asynchronous machine learning" (2016). Rows are taken ``batch_size`` at a time, and those of a batch that share a
      feature go to one thread, in their order: the answer is the same, bit by bit, for any number of threads. The
      intercept, which all rows share, stays during a batch and then takes a step along the mean of its slopes, for
      plain steps as long as the steps of all its rows, or ``1 / curvature`` if that is less.

    Not for rows of mostly the same features, dense ones among them: threads then wait for one another's cache lines,
    and with conflicts avoided one thread gets all rows.
    """

    step: Step
    step_size: float
    schedule: Schedule = field(default_factory=Constant)
    conflicts: str = IGNORED
    batch_size: int = MOST_ROWS
    seed: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.step, (SGD, AdaGrad)):
            raise ValueError(
                f"threads that share coefficients step by SGD or AdaGrad, not {type(self.step).__name__}; use one of "
                "these, or another solver"
            )
        if self.conflicts not in CONFLICTS:
            raise ValueError(f"conflicts='{self.conflicts}' is not known; it can be {' or '.join(CONFLICTS)}")
        if self.batch_size < 1:
            raise ValueError(f"batch_size={self.batch_size}, but a batch has 1 row or more")
        if not self.step_size > 0.0:
            raise ValueError(f"step_size={self.step_size}, but it must be more than 0")

    def passes(self, objective: LocalObjective, steps: int) -> float:
        return steps / max(Rows(objective.blocks).count, 1) if steps else 1.0

    def solve(
        self, objective: LocalObjective, start: np.ndarray, memory: Walk | None, steps: int, turn: Turn
    ) -> tuple[np.ndarray, Walk | None]:
        assert objective.pull is None
        rows = Rows(objective.blocks)
        if not rows.count:
            return start, memory
        if memory is None:
            memory = Walk(self.step.slots(len(start)), 0, turn.clock * self.passes(objective, steps))
        table = Table.of(objective.problem, start, memory.slots)
        slope, left, passes = slope_of(objective.problem.loss), steps or rows.count, memory.passes
        size = self.batch_size if self._avoids else min(max(rows.count // LEAST_STINTS, 1), MOST_ROWS)
        for epoch in range(math.ceil(left / rows.count)):
            taken = min(left, rows.count)
            rate = self.step_size * self.schedule(passes + 0.5 * taken / rows.count)
            drawn = stints(objective.blocks, size, taken, generator(self.seed, turn, epoch))
            stretch = _Stretch(table, slope, self._epsilon, rate, 1.0 / rows.mean_weight)
            (stretch.avoiding if self._avoids else stretch.ignoring)(drawn, turn.threads)
            table.settle(taken, rate, self._epsilon)
            left, passes = left - taken, passes + taken / rows.count
        return table.point(), Walk(table.slots(), memory.count + (steps or rows.count), passes)

    @property
    def _avoids(self) -> bool:
        return self.conflicts == AVOIDED

    @property
    def _epsilon(self) -> float:
        """AdaGrad's, or -1."""
        return self.step.epsilon if isinstance(self.step, AdaGrad) else -1.0


@dataclass(frozen=True)
class _Stretch:
    """Steps of one size on a table; a row of weight w counts ``weight_scale * w``."""

    table: Table
    slope: Slope
    epsilon: float
    step_size: float
    weight_scale: float

    def ignoring(self, drawn: list[Stint], threads: int) -> None:
        """Each thread takes the next stint when it is done with one."""
        nothing = np.zeros((0, self.table.outputs))

        def take(stint: Stint) -> None:
            self._take(stint.block, stint.rows, stint.first + np.arange(len(stint.rows)), nothing)

        each_of(drawn, take, threads)

    def avoiding(self, drawn: list[Stint], threads: int) -> None:
        """One stint after another, each dealt to all threads."""
        shares: dict[int, list[np.ndarray]] = {}

        def deal(stint: Stint) -> None:
            shares[stint.first] = dealt(stint.block, stint.rows, threads)

        each_of(drawn, deal, threads)
        for stint in drawn:
            slopes = np.empty((len(stint.rows), self.table.outputs))
            own = [share for share in shares.pop(stint.first) if len(share)]
            side_by_side([self._part(stint, share, slopes) for share in own], threads)
            self.table.move_intercepts(slopes, self.step_size, self.epsilon)

    def _part(self, stint: Stint, share: np.ndarray, slopes: np.ndarray) -> Callable[[], None]:
        def take() -> None:
            kept = np.empty((len(share), self.table.outputs))
            self._take(stint.block, stint.rows[share], stint.first + share, kept)
            slopes[share] = kept

        return take

    def _take(self, block: Block, rows: np.ndarray, places: np.ndarray, kept: np.ndarray) -> None:
        table = self.table
        if isinstance(block, SparseBlock):
            assert not table.centre.any(), "sparse rows are not centred"
            stored = (block.indptr, block.indices, block.values, 0)
        else:
            assert isinstance(block, DenseBlock)
            stored = (*kernels.NO_INDICES, block.values.reshape(-1), block.features)
        kernels.take_steps(
            *stored, table.centre, block.labels, block.weights, rows, places, self.slope.kind, self.slope.scale,
            self.weight_scale, self.step_size, self.epsilon, table.l1, table.ridge, table.records, table.tail, kept,
        )  # fmt: skip
