"""Corrections of gradients that come late, against their formulas."""

from __future__ import annotations

import math

import numpy as np
import pytest

from sparkdml.server.rules import rule
from sparkdml.server.specs import Budget, Range, TableSpec
from sparkdml.server.tables import table

ALL = Range(0, 3)


def made(**options):
    spec = TableSpec("w", "dense", "<f8", 0, 0, 3, {"name": "sgd", "step_size": 0.5, "workers": 2, **options})
    return table(spec, Budget(10**6))


def test_compensation_is_to_first_order_at_the_values_that_the_worker_read():
    values, g, other = made(stale="compensated:0.1"), np.array([1.0, -2.0, 0.5]), np.array([0.3, 0.3, -0.3])
    values.pull(ALL, worker=0)
    values.push(ALL, other, worker=1)
    moved = -0.5 * other
    values.push(ALL, g, worker=0, delay=1)
    np.testing.assert_allclose(values.pull(ALL), moved - 0.5 * (g + 0.1 * g * g * moved))


def test_adaptive_compensation_divides_by_the_root_of_mean_squares():
    values, g, other = made(stale="adaptively-compensated:2"), np.array([1.0, -2.0, 0.5]), np.array([0.3, 0.3, -0.3])
    values.pull(ALL, worker=0)
    values.push(ALL, other, worker=1)
    moved, squares = -0.5 * other, 0.95 * 0.05 * other**2 + 0.05 * g**2
    values.push(ALL, g, worker=0, delay=1)
    expected = moved - 0.5 * (g + 2.0 / (np.sqrt(squares) + 1e-7) * g * g * moved)
    np.testing.assert_allclose(values.pull(ALL), expected)


def test_nothing_is_compensated_for_a_worker_that_has_not_read():
    values, g = made(stale="compensated:0.1"), np.ones(3)
    values.push(ALL, np.ones(3), worker=1)
    values.push(ALL, g, worker=0, delay=1)
    np.testing.assert_allclose(values.pull(ALL), -np.ones(3))


def test_adadelay_shortens_steps_by_time_and_delay():
    values = made(stale="adadelay")
    for _ in range(5):
        values.push(ALL, np.zeros(3), worker=1)
    values.push(ALL, np.ones(3), worker=0, delay=4)
    np.testing.assert_allclose(values.pull(ALL), -0.5 / math.sqrt((6 + 4) / 2) * np.ones(3))


def revised(gradients: list[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    """The paper's loop, for pairs of a gradient and the sum of those that came since its worker read."""
    w, z, most = np.zeros(3), np.zeros(3), np.zeros(3)
    for g, beside in gradients:
        before = np.where(most > 0.0, 0.5 / np.sqrt(np.where(most > 0.0, most, 1.0)), 0.5)
        z = z + g * g + 2.0 * g * beside
        most = np.maximum(most, z)
        rate = 0.5 / np.sqrt(most)
        w = w - rate * g + (before - rate) * beside
    return w


def test_adaptive_revision_is_its_authors_loop():
    spec = TableSpec(
        "w", "dense", "<f8", 0, 0, 3, {"name": "adagrad", "step_size": 0.5, "workers": 2, "stale": "adaptive-revision"}
    )
    values, (a, b, c) = table(spec, Budget(10**6)), np.random.default_rng(0).standard_normal((3, 3))
    values.pull(ALL, worker=0)
    values.pull(ALL, worker=1)
    values.push(ALL, a, worker=1)
    values.pull(ALL, worker=1)
    values.push(ALL, b, worker=0, delay=1)
    values.push(ALL, c, worker=1, delay=1)
    np.testing.assert_allclose(values.pull(ALL), revised([(a, np.zeros(3)), (b, a), (c, b)]))


def test_without_delays_revision_is_adagrad():
    rules = {"name": "adagrad", "step_size": 0.5, "l1": 0.1, "l2": 0.2, "workers": 1}
    plain, revising = (
        table(TableSpec("w", "dense", "<f8", 0, 0, 3, {**rules, **way}), Budget(10**6))
        for way in ({}, {"stale": "adaptive-revision"})
    )
    rng = np.random.default_rng(1)
    for _ in range(5):
        gradient = rng.standard_normal(3)
        for one in (plain, revising):
            one.pull(ALL, worker=0)
            one.push(ALL, gradient, worker=0)
    np.testing.assert_allclose(revising.pull(ALL), plain.pull(ALL))


def test_reads_by_keys_are_noted_too():
    values = made(stale="compensated:0.1")
    values.push(ALL, np.array([-2.0, 0.0, -2.0]), worker=1)
    values.pull(np.array([0, 2]), worker=0)
    values.push(ALL, np.array([-2.0, 0.0, -2.0]), worker=1)
    values.push(np.array([0, 2]), np.array([1.0, 1.0]), worker=0, delay=1)
    np.testing.assert_allclose(values.pull(ALL), [2.0 - 0.5 * 1.1, 0.0, 2.0 - 0.5 * 1.1])


@pytest.mark.parametrize("stale", ["compensated", "compensated:0", "compensated:x", "late"])
def test_unknown_ways_are_refused(stale):
    with pytest.raises(ValueError, match=f"'{stale}'"):
        rule("sgd", stale=stale)
