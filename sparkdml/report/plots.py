"""Pictures of a fit."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

from sparkdml.report.fit_report import FitReport

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def plot_fit(report: FitReport, roc: Sequence[tuple[float, float]] = ()) -> Figure:
    """Objective by round and by second; with ``roc`` (false and true positive rates) that curve too."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("plots need matplotlib: pip install 'sparkdml[report]'") from error
    figure = Figure(figsize=(12 if roc else 8, 3.5), layout="constrained")
    axes = figure.subplots(1, 3 if roc else 2)
    objectives = [entry.objective for entry in report.history]
    validation = [entry.validation for entry in report.history]
    rounds = [entry.round for entry in report.history]
    seconds = list(accumulate(e.seconds for e in report.history))
    for axis, places, name in ((axes[0], rounds, "round"), (axes[1], seconds, "seconds")):
        axis.plot(places, objectives, marker=".", label="objective")
        if any(value == value for value in validation):
            axis.plot(places, validation, marker=".", label="validation loss")
            axis.legend()
        axis.set_xlabel(name)
        axis.set_ylabel("objective")
    if roc:
        axes[2].plot(*zip(*roc, strict=True))
        axes[2].plot([0, 1], [0, 1], linestyle=":", color="grey")
        axes[2].set_xlabel("false positive rate")
        axes[2].set_ylabel("true positive rate")
    return figure
