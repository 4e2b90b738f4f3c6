"""One fit under one arrangement: how long it took to the target, what it cost, how the loss fell."""

from __future__ import annotations

import importlib
import itertools
import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from config import ConfigError, setting
from usage import Watch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: Of Spark's own estimators; all parameters but these are the study's.
BASELINE = "pyspark.ml"
ESTIMATORS = {
    "LogisticRegression": ("sparkdml.classification", "pyspark.ml.classification"),
    "MultilayerPerceptronClassifier": ("sparkdml.classification", "pyspark.ml.classification"),
}
#: What a round's seconds go to, and what reports of fits call it.
PARTS = {
    "compute": "compute",
    "wait": "wait",
    "serialise": "serialise",
    "communicate": "aggregate",
    "algorithm": "driver",
}


@dataclass(frozen=True)
class Study:
    """One estimator on the same rows to the same loss, arranged in several ways."""

    estimator: str = setting("one of " + ", ".join(ESTIMATORS))
    target: float = setting("the training loss to reach")
    arrangements: dict[str, Any] = setting(
        f"a table of parameters for each arrangement, by name, beside those of all; 'library' in it may be '{BASELINE}'"
    )
    params: dict[str, Any] = setting("parameters of all arrangements", default_factory=dict)
    about: str = setting("a sentence for the page", default="")


@dataclass(frozen=True)
class Outcome:
    """The medians of several fits of one arrangement, and how the loss fell in one of them.

    seconds : from a cached frame to the target, NaN if it was not reached. rounds : until then.
    parts : seconds of a round, by what they went to. cpu, memory : see :class:`~usage.Watch`, of whole fits.
    curve : rounds, seconds and losses. accuracy : on the test rows, NaN without any.
    """

    name: str
    seconds: float
    rounds: int
    whole_seconds: float
    loss: float
    parts: dict[str, float]
    bytes_sent: float
    cpu: dict[str, float]
    memory: dict[str, float]
    curve: dict[str, list[float]]
    accuracy: float
    repeats: list[float]

    @property
    def reached(self) -> bool:
        return math.isfinite(self.seconds)


def make(study: Study, name: str) -> Callable[..., Any]:
    """The estimator of an arrangement, by further parameters; ConfigError for one that cannot be."""
    given = {**study.params, **study.arrangements[name]}
    baseline = given.pop("library", "sparkdml") == BASELINE
    module = ESTIMATORS[study.estimator][baseline]
    kind = getattr(importlib.import_module(module), study.estimator)
    if baseline:  # takes only what it knows
        given = {key: value for key, value in given.items() if hasattr(kind, key)}

    def estimator(**more: Any) -> Any:
        return kind(**{**given, **more})

    try:
        found = estimator()
        if not baseline:
            found.checkParams()
    except (TypeError, ValueError) as error:
        raise ConfigError(f"arrangement '{name}': {error}") from None
    return estimator


def is_baseline(study: Study, name: str) -> bool:
    return study.arrangements[name].get("library") == BASELINE


def measured(study: Study, name: str, rows: DataFrame, test: DataFrame | None, repeats: int) -> Outcome:
    """The arrangement, once to warm up and then ``repeats`` times, alone."""
    estimator = make(study, name)
    if is_baseline(study, name):
        one = _baseline(estimator, rows, study.target)
    else:
        one = partial(_fit, estimator, rows, study.target)
        one()
    fits = [one() for _ in range(repeats)]
    middle = sorted(fits, key=lambda fit: fit.seconds)[len(fits) // 2]
    return Outcome(
        name=name,
        seconds=middle.seconds,
        rounds=middle.rounds,
        whole_seconds=statistics.median(fit.whole_seconds for fit in fits),
        loss=middle.losses[-1],
        parts=middle.parts,
        bytes_sent=middle.bytes_sent,
        cpu={kind: statistics.median(fit.watch.cpu[kind] for fit in fits) for kind in middle.watch.cpu},
        memory={kind: statistics.median(fit.watch.memory[kind] for fit in fits) for kind in middle.watch.memory},
        curve={"rounds": middle.clocks, "seconds": middle.times, "losses": middle.losses},
        accuracy=math.nan if test is None else _accuracy(middle.model, test),
        repeats=[fit.seconds for fit in fits],
    )


@dataclass(frozen=True)
class _Fit:
    model: Any
    seconds: float
    whole_seconds: float
    rounds: int
    parts: dict[str, float]
    bytes_sent: float
    watch: Watch
    clocks: list[float]
    times: list[float]
    losses: list[float]


def _fit(estimator: Callable[..., Any], rows: DataFrame, target: float) -> _Fit:
    """Rounds after the target do not count: time to it is that of the whole fit without theirs."""
    began = time.perf_counter()
    with Watch() as watch:
        model = estimator().fit(rows)
        whole = time.perf_counter() - began
    report = model.report
    entries = report.history
    spent = list(itertools.accumulate(e.seconds for e in entries))
    before = whole - spent[-1]
    losses = [entry.objective for entry in entries]
    there = next((n for n, loss in enumerate(losses) if loss <= target), None)
    count = len(entries)
    parts = {part: model.report.seconds[phase] / count for part, phase in PARTS.items()}
    return _Fit(
        model,
        math.nan if there is None else before + spent[there],
        whole,
        count if there is None else there + 1,
        parts,
        float(report.bytes["down"] + report.bytes["up"]),
        watch,
        [float(number + 1) for number in range(count)],
        [before + seconds for seconds in spent],
        losses,
    )


def _baseline(estimator: Callable[..., Any], rows: DataFrame, target: float) -> Callable[[], _Fit]:
    """Spark does not tell when it was where: a first fit does, later ones have as many iterations as that took."""
    losses = _losses(estimator().fit(rows))
    there = next((n for n, loss in enumerate(losses) if loss <= target), None)
    iterations = len(losses) - 1 if there is None else max(there, 1)
    return partial(_baseline_fit, estimator, rows, iterations, there is not None)


def _losses(model: Any) -> list[float]:
    summary = model.summary() if callable(model.summary) else model.summary  # of networks it is a method
    return list(summary.objectiveHistory)


def _baseline_fit(estimator: Callable[..., Any], rows: DataFrame, iterations: int, reaches: bool) -> _Fit:
    """``reaches`` : whether so many iterations reach the target; but for rounding, as Spark adds up in any order."""
    began = time.perf_counter()
    with Watch() as watch:
        model = estimator(maxIter=iterations).fit(rows)
        whole = time.perf_counter() - began
    share, losses = whole / (iterations + 1), _losses(model)
    return _Fit(
        model,
        whole if reaches else math.nan,
        whole,
        iterations + 1,
        {"whole": share},
        math.nan,
        watch,
        [float(number + 1) for number in range(iterations + 1)],
        [share * (number + 1) for number in range(iterations + 1)],
        losses,
    )


def _accuracy(model: Any, test: DataFrame) -> float:
    scored = model.transform(test)
    return float(scored.where("prediction = label").count() / scored.count())


def unreached(outcomes: Sequence[Outcome]) -> list[str]:
    return [outcome.name for outcome in outcomes if not outcome.reached]
