"""What a round's seconds went to, of workers merged in any order."""

from __future__ import annotations

import itertools
from functools import reduce

import pytest

from sparkdml.core import Tally
from sparkdml.report.history import PHASES, Round

WORKERS = [Tally.of(1.0, 0.1), Tally.of(3.0, 0.3), Tally.of(2.0)]


@pytest.mark.parametrize("order", list(itertools.permutations(WORKERS)))
def test_workers_wait_for_the_slowest(order):
    split = reduce(Tally.merge, order, Tally()).split(5.0)
    assert split == pytest.approx(
        {"compute_seconds": 2.0, "wait_seconds": 1.0, "serialise_seconds": 0.3, "aggregate_seconds": 1.7}
    )


def test_one_worker_waits_for_nobody():
    assert Tally.of(2.0).split(2.5)["wait_seconds"] == 0.0


def test_phases_are_never_negative_however_clocks_differ():
    assert Tally.of(2.0, 1.0).split(2.5)["aggregate_seconds"] == 0.0


def test_seconds_of_a_round_are_those_of_its_phases():
    phases = {f"{phase}_seconds": 2.0**n for n, phase in enumerate(PHASES)}
    entry = Round(round=0, iteration=0, objective=1.0, gradient_norm=1.0, bytes_down=0, bytes_up=0, **phases)
    assert entry.seconds == 31.0
