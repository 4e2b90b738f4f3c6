"""Ensembles: every worker's own model, averaged in what it holds probable."""

from __future__ import annotations

import numpy as np
import pytest
from cases import BLOCK_FORMATS
from problems import drive, make_problem
from scipy.special import log_softmax

from sparkdml.algorithms import Ensemble
from sparkdml.losses import Logistic, Softmax, Squared
from sparkdml.optim.descent import Descent
from sparkdml.optim.steps import AdaGrad

METHOD = Ensemble(Descent(AdaGrad(), 0.3, batch_size=8), passes=4)


def rows(classes: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(classes)
    X = rng.standard_normal((120, 4))
    y = np.argmax(X @ rng.standard_normal((4, classes)) + rng.gumbel(size=(120, classes)), axis=1).astype(float)
    return X, y, rng.integers(0, 3, 120).astype(float)


def members(problem, X: np.ndarray, models: np.ndarray) -> list[np.ndarray]:
    """Log-probabilities of each model, by scipy."""
    found = []
    for model in models:
        coefficients, intercepts = problem.to_raw(model)
        margins = X @ coefficients + intercepts
        margins = np.hstack([np.zeros_like(margins), margins]) if margins.shape[1] == 1 else margins
        found.append(log_softmax(margins, axis=1))
    return found


@pytest.mark.parametrize("form", BLOCK_FORMATS)
@pytest.mark.parametrize("classes", [2, 4])
def test_the_objective_is_the_log_loss_of_averaged_probabilities(form: str, classes: int) -> None:
    X, y, weights = rows(classes)
    problem = make_problem(Logistic() if classes == 2 else Softmax(classes), X, weights, 0.1)
    make = BLOCK_FORMATS[form]
    cuts = [(0, 50), (50, 120), (120, 120)]
    workers = [[make(X[a:b], y[a:b], weights[a:b])] if b > a else [] for a, b in cuts]
    state = drive(METHOD, problem, workers)[-1]
    np.testing.assert_allclose(state.shares, [weights[a:b].sum() / weights.sum() for a, b in cuts])
    logs = members(problem, X.astype(np.float32) if "32" in form else X, state.models[:2])
    mixture = sum(share * np.exp(log) for share, log in zip(state.shares[:2], logs, strict=True))
    picked = (np.arange(len(y)), y.astype(int))
    assert state.objective == pytest.approx(np.average(-np.log(mixture[picked]), weights=weights), rel=1e-5)
    alone = [np.average(-log[picked], weights=weights) for log in logs]
    assert state.objective <= state.shares[:2] @ alone
    assert state.stop.reason == "converged"


def test_two_runs_are_bit_equal() -> None:
    X, y, weights = rows(2)
    problem = make_problem(Logistic(), X, weights, 0.1)
    block = [BLOCK_FORMATS["dense-float64"](X, y, weights)]
    one, other = (drive(METHOD, problem, [block, block])[-1].models for _ in "ab")
    np.testing.assert_array_equal(one, other)


def test_a_loss_without_probabilities_is_refused() -> None:
    X, _, weights = rows(2)
    with pytest.raises(ValueError, match="averages probabilities, and Squared has none"):
        METHOD.init(make_problem(Squared(), X, weights), np.zeros(5))
