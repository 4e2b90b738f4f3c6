"""What models add to Spark's own: the report of their fit, and a summary that is built when it is asked for."""

from __future__ import annotations

import copy
import functools
import uuid
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
from pyspark import SparkContext
from pyspark.ml.wrapper import JavaModel

from sparkdml.report.fit_report import FitReport
from sparkdml.report.history import history_table

#: Spark's training summary in the JVM.
Summarise = Callable[[], Any]

#: Classes that have all parameters of their model in the JVM.
_COMPLETE: set[type] = set()


class TrainedModel(JavaModel):
    """Mixed in before one of Spark's model classes.

    ``report`` tells how the model was trained; it is None after loading. Spark's summary is attached to the model in
    the JVM when it is first asked for: planning its predictions would cost a short fit as much again.
    """

    report: FitReport | None = None
    _summarise: Summarise | None = None

    @property
    def hasSummary(self) -> bool:
        """Whether there is a training summary: not after loading, nor after a fit on a prepared data set."""
        return self._summarise is not None or bool(self._call_java("hasSummary"))

    @property
    def summary(self) -> Any:
        """Spark's training summary, with ``history`` and ``plot`` besides."""
        return self._summary(lambda model: super().summary)  # type: ignore[misc]

    def _create_params_from_java(self) -> None:
        """Have those parameters of the JVM's model that this class lacks; a class that lacks none is asked once.

        Each parameter is a call into the JVM, which all together are long beside a short fit.
        """
        if type(self) in _COMPLETE:
            return
        before = set(vars(self))
        super()._create_params_from_java()
        if set(vars(self)) == before:
            _COMPLETE.add(type(self))

    def _summary(self, stock: Callable[[Any], Any]) -> Any:
        """What ``stock`` finds, once the summary is there."""
        if self._summarise is not None:
            jvm_summary, self._summarise = self._summarise(), None
            jvm = SparkContext._jvm
            assert jvm is not None
            java_model: Any = self._java_obj
            java_model.setSummary(jvm.scala.Some(jvm_summary))
        found = stock(self)
        if self.report is not None:
            found.__class__ = _with_history(type(found))  # type: ignore[arg-type]
            found.report = self.report
        return found


def as_it_is(model: Any) -> Any:
    """A copy that later settings of ``model`` do not reach: a training summary is of the model that was trained."""
    now = copy.copy(model)
    now._paramMap, now._summarise = dict(model._paramMap), None
    now._java_obj = model._java_obj.copy(model._empty_java_param_map())
    return now


def with_output_columns(model: Any, names: Sequence[str]) -> tuple[Any, list[str]]:
    """A copy of ``model`` in which each of the parameters ``names`` holds a column, and these columns.

    Summaries need columns that users may have switched off with an empty name.
    """
    scoring = model.copy()
    scoring._summarise = None
    for name in names:
        if not scoring.getOrDefault(name):
            scoring._set(**{name: f"{name}_{uuid.uuid4().hex[:12]}"})
    return scoring, [scoring.getOrDefault(name) for name in names]


class History:
    """What summaries of our fits tell beyond Spark's."""

    report: FitReport

    @property
    def history(self) -> pa.Table:
        """One line a round: see :func:`sparkdml.report.history.history_table`."""
        return history_table(self.report.history)

    def plot(self) -> Any:
        """Objective by round and by second, and the ROC curve of a binary classifier, as a matplotlib Figure.

        Needs the extra ``report`` (matplotlib).
        """
        from sparkdml.report.plots import plot_fit

        roc = getattr(self, "roc", None)
        points = [] if roc is None else [(row["FPR"], row["TPR"]) for row in roc.collect()]
        return plot_fit(self.report, points)


@functools.cache
def _with_history(cls: type) -> type:
    return cls if issubclass(cls, History) else type(cls.__name__, (History, cls), {})
