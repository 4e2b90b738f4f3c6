"""Rows prepared once for a file of tests, and what none of them may leave."""

from __future__ import annotations

import gc
from contextlib import ExitStack

import pytest
from sharded_family import rows

from sparkdml.data import from_dataframe


@pytest.fixture(scope="module")
def blocks(make_frame):
    """``blocks(classes, kind)``: the rows as a data set of two workers, made once."""
    with ExitStack() as stack:
        made = {}

        def prepared(classes: int = 2, kind: str = "mixed"):
            if (classes, kind) not in made:
                frame = make_frame(*rows(classes), kind=kind)
                made[classes, kind] = stack.enter_context(from_dataframe(frame, classes=classes > 0, wide=True))
            return made[classes, kind]

        yield prepared


@pytest.fixture(scope="module")
def frame(make_frame):
    made = make_frame(*rows(), kind="sparse").cache()
    made.count()
    yield made
    made.unpersist()


@pytest.fixture(autouse=True)
def nothing_is_left(request, spark):
    """No RDD outlives a test, nor any file but those of the module's own data sets."""
    before = spark.sparkContext._jsc.getPersistentRDDs().size()
    yield
    gc.collect()
    if not {"blocks", "frame"} & set(request.fixturenames):
        assert spark.sparkContext._jsc.getPersistentRDDs().size() <= before
