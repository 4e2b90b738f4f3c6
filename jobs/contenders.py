"""Who races, and how the outcome reads."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from console import table

LADDER = (1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8)
PHASES = ("rounds", "ingest", "compute", "wait", "serialise", "aggregate", "driver")


@dataclass
class Contender:
    """``fit()`` returns the objective it reached and, for sparkdml, its seconds by phase."""

    name: str
    fit: Callable[[], tuple[float, dict[str, float]]]
    seconds: list[float] = field(default_factory=list)
    phases: list[dict[str, float]] = field(default_factory=list)
    objective: float = float("nan")

    def run(self) -> None:
        started = time.perf_counter()
        self.objective, phases = self.fit()
        self.seconds.append(time.perf_counter() - started)
        self.phases.append(phases)

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    def phase(self, name: str) -> float:
        return statistics.median(p.get(name, 0.0) for p in self.phases)


def run_in_turn(contenders: Sequence[Contender], repeats: int) -> None:
    """Each ``repeats`` times after a warm-up that does not count."""
    for round_ in range(repeats + 1):
        for contender in contenders:
            contender.run()
            if round_ == 0:
                contender.seconds.clear()
                contender.phases.clear()


def loosest(fit: Callable[[float], float], target: float) -> float:
    """The largest tolerance that reaches ``target``: a decade of the ladder, or 5 or 2 times that."""
    decade = next((tol for tol in LADDER if fit(tol) <= target), LADDER[-1])
    return next((factor * decade for factor in (5, 2) if fit(factor * decade) <= target), decade)


def standings(contenders: Sequence[Contender], target: float, baseline: Callable[[Contender], Contender]) -> str:
    """A table: seconds, ratio to each one's baseline, objective, phases."""
    body = [["", "seconds", "pyspark/this", "objective", *PHASES]]
    for c in contenders:
        cells = [f"{c.phase(p):.0f}" if p == "rounds" else f"{c.phase(p):.2f}" for p in PHASES]
        value = f"{c.objective:.9f}" + (" (short)" if c.objective > target + 1e-9 * abs(target) else "")
        body.append([c.name, f"{c.median:.2f}", f"{baseline(c).median / c.median:.1f}x", value, *cells])
    return table(body)
