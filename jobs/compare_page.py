"""What the comparison shows: a table and charts for each study, and a paragraph of what won and why."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from arrangements import BASELINE, PARTS, Outcome, Study
from console import size
from sparkdml.report import charts
from sparkdml.report import page as pages

_PARTS = (*PARTS, "whole")
_KINDS = ("jvm", "driver", "workers")


def summary(outcomes: Sequence[Outcome]) -> list[list[str]]:
    """A row for each arrangement, under a row of heads."""
    baseline = _baseline(outcomes)
    rows = [
        ["arrangement", "seconds to target", f"{BASELINE} / this", "rounds", "ms a round", "bytes sent", "CPU s, JVM",
         "CPU s, Python", "memory, driver", "memory, workers", "loss", "accuracy"]
    ]  # fmt: skip
    for outcome in outcomes:
        times = baseline.seconds / outcome.seconds if baseline is not None else math.nan
        rows.append(
            [
                outcome.name,
                _or_dash(outcome.seconds, "{:.2f}"),
                _or_dash(times, "{:.1f}x"),
                f"{outcome.rounds}",
                f"{1e3 * sum(outcome.parts.values()):.1f}",
                size(outcome.bytes_sent) if math.isfinite(outcome.bytes_sent) else "-",
                f"{outcome.cpu['jvm']:.1f}",
                f"{outcome.cpu['driver'] + outcome.cpu['workers']:.1f}",
                size(outcome.memory["jvm"] + outcome.memory["driver"]),
                size(outcome.memory["workers"]),
                f"{outcome.loss:.4f}",
                _or_dash(outcome.accuracy, "{:.4f}"),
            ]
        )
    return rows


def page(studies: Mapping[str, Study], outcomes: Mapping[str, Sequence[Outcome]], about: str) -> str:
    """The whole page, as HTML."""
    sections = [
        pages.paragraph(
            "Each arrangement ran alone, in turn, from a cached DataFrame; once to warm up, then timed. Seconds are "
            "the median; memory of the driver is that of its Python process and of the JVM, which in local mode "
            "is the executor too."
        ),
        pages.paragraph(about, quiet=True),
    ]
    for name, study in studies.items():
        sections += _study(name, study, outcomes[name])
    return pages.page("One workload, many arrangements", sections)


def verdict(study: Study, outcomes: Sequence[Outcome]) -> str:
    """What won and why, from the figures."""
    reached = sorted((o for o in outcomes if o.reached), key=lambda o: o.seconds)
    if not reached:
        return f"No arrangement came to a loss of {study.target:g} within its rounds."
    best, baseline = reached[0], _baseline(outcomes)
    words = [f"{best.name} was first at a training loss of {study.target:g}: {best.seconds:.2f} s"]
    if baseline is not None and baseline.reached and baseline is not best:
        words.append(f", {baseline.seconds / best.seconds:.1f} times as fast as {baseline.name}")
    words.append(f". It took {best.rounds} rounds of {1e3 * sum(best.parts.values()):.1f} ms")
    if "compute" in best.parts:
        words.append(f", {_share(best):.0%} of them spent in computing")
    words.append(".")
    ours = [o for o in reached if "compute" in o.parts]
    if len(ours) > 1:
        fewest, longest = min(ours, key=lambda o: o.rounds), max(ours, key=lambda o: o.seconds)
        words.append(
            f" {fewest.name} needed the fewest rounds, {fewest.rounds}; {longest.name} took longest, "
            f"{longest.seconds:.2f} s, with {longest.rounds} rounds of {1e3 * sum(longest.parts.values()):.1f} ms, "
            f"of which computing was {_share(longest):.0%}: "
        )
        rounds, cost = longest.rounds / best.rounds, _round(longest) / _round(best)
        words.append(
            f"its rounds cost {cost:.1f} times those of {best.name}." if cost > rounds
            else f"it needed {rounds:.1f} times the rounds of {best.name}."
        )  # fmt: skip
        least = min(ours, key=lambda o: o.bytes_sent)
        words.append(f" {least.name} sent least, {size(least.bytes_sent)}.")
    short = [o.name for o in outcomes if not o.reached]
    if short:
        words.append(f" Not there within their rounds: {', '.join(short)}.")
    return "".join(words)


@dataclass(frozen=True)
class Figure:
    """``name`` is the last part of its file's name."""

    name: str
    chart: str
    caption: str
    legend: Sequence[str]


def figures(outcomes: Sequence[Outcome]) -> list[Figure]:
    """The charts of a study."""
    names = [outcome.name for outcome in outcomes]
    by_rounds, by_seconds = (
        [charts.Line(o.name, o.curve[axis], o.curve["losses"]) for o in outcomes] for axis in ("rounds", "seconds")
    )
    loss = charts.Axis("training loss", logarithmic=True)
    parts = [part for part in _PARTS if any(part in o.parts for o in outcomes)]
    return [
        Figure(
            "seconds",
            charts.lines(by_seconds, charts.Axis("seconds", logarithmic=True), loss),
            "Loss against seconds from the cached DataFrame; pyspark.ml tells no times, so its iterations are drawn "
            "evenly over its fit.",
            names,
        ),
        Figure(
            "rounds",
            charts.lines(by_rounds, charts.Axis("rounds", logarithmic=True), loss),
            "Loss against rounds.",
            names,
        ),
        Figure(
            "phases",
            charts.stacked(names, parts, [[1e3 * o.parts.get(part, 0.0) for part in parts] for o in outcomes], "ms"),
            "A round's milliseconds: a worker's computing, on average; its wait for slower ones; putting what is sent "
            "into messages and taking it out; sending, summing and scheduling; the algorithm's own. Of pyspark.ml "
            "only the whole is known.",
            parts,
        ),
        Figure(
            "cpu",
            charts.stacked(names, _KINDS, [[o.cpu[kind] for kind in _KINDS] for o in outcomes], "CPU seconds"),
            "CPU seconds of a whole fit, of the JVM, the driver's Python and Python workers (servers among them).",
            _KINDS,
        ),
    ]


def _study(name: str, study: Study, outcomes: Sequence[Outcome]) -> list[str]:
    return [
        pages.heading(name),
        *([pages.paragraph(study.about)] if study.about else []),
        pages.paragraph(verdict(study, outcomes)),
        pages.table(summary(outcomes)),
        *(pages.figure(figure.chart, figure.caption, figure.legend) for figure in figures(outcomes)),
    ]


def _baseline(outcomes: Sequence[Outcome]) -> Outcome | None:
    return next((outcome for outcome in outcomes if "whole" in outcome.parts), None)


def _round(outcome: Outcome) -> float:
    return sum(outcome.parts.values())


def _share(outcome: Outcome) -> float:
    """Of computing in a round."""
    return outcome.parts["compute"] / _round(outcome)


def _or_dash(value: float, form: str) -> str:
    return form.format(value) if math.isfinite(value) else "-"
