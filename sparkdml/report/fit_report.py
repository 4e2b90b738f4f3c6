"""What ``model.report`` holds."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from sparkdml.core import Stop
from sparkdml.report.history import PHASES, History, Round


@dataclass(frozen=True)
class FitReport:
    """How a model was trained: plain numbers only, so that a model never holds on to a session.

    ``solver`` and ``placement`` are those that ran, each with the reason for it. ``objective_history`` starts with
    the objective at the start and has one value for each accepted step after it. ``seconds`` has the phases
    ``ingest`` (0 for data prepared earlier) and those of a :class:`~.history.Round`: ``compute``, ``wait``,
    ``serialise``, ``aggregate``, ``driver``; ``bytes`` has ``stored`` (block
    files), ``down`` and ``up`` (to and from workers, all rounds). ``servers`` has for each parameter server, by worker,
    pushes by what became of them, bytes, waits, and how many clocks pushes were ahead of the slowest worker
    (:meth:`sparkdml.server.metrics.Metrics.numbers`). ``devices`` tells by worker its host and what computed there, if
    GPUs were asked for.
    """

    stop: Stop
    objective: float
    rounds: int
    iterations: int
    objective_history: list[float]
    history: list[Round]
    seconds: dict[str, float]
    bytes: dict[str, int]
    solver: str = ""
    placement: str = ""
    servers: list[dict[str, dict[str, float]]] = field(default_factory=list)
    devices: list[str] = field(default_factory=list)

    @property
    def compute_ratio(self) -> float:
        """Seconds of computing by the slowest worker over all other seconds of the rounds.

        By Amdahl's law no number of workers makes a fit more than 1 + this times faster.
        """
        slowest = self.seconds["compute"] + self.seconds["wait"]
        other = self.seconds["serialise"] + self.seconds["aggregate"] + self.seconds["driver"]
        return slowest / other if other > 0.0 else math.inf


def fit_report(
    stop: Stop,
    objective: float,
    history: History,
    ingest_seconds: float,
    stored_bytes: int,
    solver: str = "",
    placement: str = "",
) -> FitReport:
    objectives = history.objectives
    return FitReport(
        stop=stop,
        objective=objective,
        rounds=len(history.rounds),
        iterations=max(len(objectives) - 1, 0),
        objective_history=objectives,
        history=list(history.rounds),
        seconds={
            "ingest": ingest_seconds,
            **{phase: history.total(f"{phase}_seconds") for phase in PHASES},
        },
        bytes={
            "stored": stored_bytes,
            "down": int(history.total("bytes_down")),
            "up": int(history.total("bytes_up")),
        },
        solver=solver,
        placement=placement,
        servers=list(history.servers),
        devices=list(history.devices),
    )
