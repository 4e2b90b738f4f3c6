"""Fits beside a parameter server: in step they are those of other placements; out of step they get as far."""

from __future__ import annotations

import contextlib

import numpy as np
import psutil
import pytest

from sparkdml.classification import LinearSVC, LogisticRegression
from sparkdml.data import from_dataframe
from sparkdml.regression import LinearRegression

RULES = ("sgd", "momentum", "nesterov", "adagrad", "adadelta", "rmsprop", "adam", "adamw", "ftrl")


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(3)
    X = rng.standard_normal((400, 8)) * (rng.random((400, 8)) < 0.6)
    y = (X[:, 0] - X[:, 3] + 0.5 + rng.standard_normal(400) > 0).astype(float)
    return X, y, rng.integers(0, 3, 400).astype(float)


@pytest.fixture(scope="module")
def frame(make_frame, rows):
    return make_frame(*rows, kind="sparse")


@pytest.fixture(autouse=True)
def no_server_is_left(spark):
    yield
    assert not servers()


def servers() -> list[psutil.Process]:
    """Those that run for this process."""
    found = []
    for process in psutil.Process().children():
        with contextlib.suppress(psutil.Error):  # a process that has just ended
            if "sparkdml.server" in process.cmdline():
                found.append(process)
    return found


def numbers(model) -> np.ndarray:
    matrix = model.coefficientMatrix.toArray() if hasattr(model, "coefficientMatrix") else model.coefficients.toArray()
    intercepts = model.interceptVector.toArray() if hasattr(model, "interceptVector") else [model.intercept]
    return np.append(matrix, intercepts)


def both(estimator, data, **sidecar):
    broadcast = estimator.copy()._set(placement="broadcast").fit(data)
    return broadcast, estimator.copy()._set(placement="server", **sidecar).fit(data)


@pytest.mark.parametrize("optimizer", RULES)
def test_in_step_every_rule_finds_what_broadcast_finds_to_the_last_bit(frame, optimizer):
    estimator = LogisticRegression(
        regParam=0.05, elasticNetParam=0.2, solver="sgd", optimizer=optimizer, miniBatchFraction=0.3, maxIter=3, tol=0.0
    )
    expected, found = both(estimator, frame, numServers=2)
    np.testing.assert_array_equal(numbers(found), numbers(expected))
    assert found.report.objective == expected.report.objective
    assert found.report.objective_history == expected.report.objective_history


#: A pass is 5 rounds, each of them a Spark job under ``broadcast``.
SHORT = {"solver": "sgd", "miniBatchFraction": 0.2, "maxIter": 3, "tol": 0.0}


@pytest.mark.parametrize(
    "estimator",
    [
        LogisticRegression(family="multinomial", weightCol="weight", **SHORT),
        LogisticRegression(regParam=0.1, standardization=False, **{**SHORT, "miniBatchFraction": 1.0}),
        LogisticRegression(fitIntercept=False, **SHORT),
        LinearSVC(regParam=0.01, schedule="inverse", **SHORT),
        LinearRegression(regParam=0.01, elasticNetParam=1.0, **SHORT),
    ],
    ids=["softmax", "raw", "no intercept", "svc", "lasso"],
)
def test_in_step_every_estimator_does(frame, estimator):
    expected, found = both(estimator, frame)
    np.testing.assert_array_equal(numbers(found), numbers(expected))


@pytest.mark.parametrize("partitions", [1, 3, 7])
def test_workers_may_be_more_than_slots(make_frame, rows, partitions):
    estimator = LogisticRegression(solver="sgd", miniBatchFraction=0.5, maxIter=2, tol=0.0)
    expected, found = both(estimator, make_frame(*rows, kind="sparse", partitions=partitions), numServers=3)
    np.testing.assert_array_equal(numbers(found), numbers(expected))


@pytest.mark.parametrize(("workers", "staleness"), [(1, -1), (1, 2), (2, -1), (3, 2), (5, -1), (8, 2)])
def test_out_of_step_the_optimum_is_reached_by_any_number_of_workers(make_frame, rows, workers, staleness):
    data = make_frame(*rows[:2], kind="dense", partitions=workers)
    optimum = LogisticRegression(regParam=0.05, tol=1e-10).fit(data).report.objective
    estimator = LogisticRegression(
        regParam=0.05, solver="sgd", optimizer="adagrad", stepSize=0.3, miniBatchFraction=0.1, maxIter=20, tol=0.0
    )
    found = estimator._set(placement="server", staleness=staleness).fit(data)
    assert optimum <= found.report.objective <= optimum + 1e-2


@pytest.mark.parametrize("stale", ["compensated:0.04", "adaptively-compensated:0.5", "adadelay", "adaptive-revision"])
def test_stale_gradients_are_corrected(make_frame, rows, stale):
    data = make_frame(*rows[:2], kind="dense", partitions=8)
    optimum = LogisticRegression(regParam=0.05, tol=1e-10).fit(data).report.objective
    estimator = LogisticRegression(
        regParam=0.05, solver="sgd", stepSize=0.5, miniBatchFraction=0.1, maxIter=20, tol=0.0
    )
    optimizer = "adagrad" if stale == "adaptive-revision" else "sgd"
    found = estimator._set(placement="server", optimizer=optimizer, staleness=-1, staleGradients=stale).fit(data)
    assert found.report.objective <= optimum + 1e-2


@pytest.mark.parametrize(
    "method",
    [
        {"solver": "sgd", "stepSize": 0.3, "pushEvery": 2, "pullEvery": 4, "miniBatchFraction": 0.1},
        {"solver": "sgd", "stepSize": 0.3, "miniBatchFraction": 0.1, "codec": "int8"},
        {"solver": "sgd", "stepSize": 0.3, "miniBatchFraction": 0.1, "pipeline": True},
        {"solver": "easgd", "optimizer": "momentum", "stepSize": 0.02, "batchSize": 32},
        {"solver": "admm"},
        {"solver": "svrg"},
    ],
    ids=["downpour", "int8", "pipeline", "eamsgd", "admm", "svrg"],
)
def test_other_work_beside_servers_comes_as_near(make_frame, rows, method):
    data = make_frame(*rows[:2], kind="dense", partitions=4)
    optimum = LogisticRegression(regParam=0.05, tol=1e-10).fit(data).report.objective
    estimator = LogisticRegression(regParam=0.05, maxIter=15, tol=0.0, placement="server", staleness=-1)
    found = estimator._set(**method).fit(data)
    assert optimum - 1e-9 <= found.report.objective <= optimum + 1e-2
    assert found.report.bytes["up"] > 0


def test_in_step_few_features_travel(make_frame):
    rng = np.random.default_rng(5)
    X = rng.standard_normal((300, 400)) * (rng.random((300, 400)) < 0.01)
    frame = make_frame(X, (X.sum(axis=1) > 0).astype(float), kind="sparse")
    estimator = LogisticRegression(solver="sgd", miniBatchFraction=0.05, maxIter=2, tol=0.0)
    expected, found = both(estimator, frame, numServers=2)
    np.testing.assert_array_equal(numbers(found), numbers(expected))
    assert found.report.bytes["up"] < expected.report.bytes["up"] / 2
    softmax = estimator.copy()._set(family="multinomial", regParam=0.01)
    expected, found = both(softmax, frame, numServers=2)
    np.testing.assert_allclose(numbers(found), numbers(expected), rtol=1e-9, atol=1e-12)


def test_in_step_packets_are_those_of_broadcast(frame):
    estimator = LogisticRegression(regParam=0.05, solver="sgd", codec="int8", miniBatchFraction=0.3, maxIter=3, tol=0.0)
    expected, found = both(estimator, frame)
    np.testing.assert_array_equal(numbers(found), numbers(expected))


def test_rounds_close_without_backup_workers(make_frame, rows):
    data = make_frame(*rows[:2], kind="dense", partitions=2)
    estimator = LogisticRegression(regParam=0.05, solver="sgd", miniBatchFraction=0.1, maxIter=10, tol=0.0)
    found = estimator._set(placement="server", backupWorkers=1).fit(data)
    optimum = LogisticRegression(regParam=0.05, tol=1e-10).fit(data).report.objective
    assert found.report.objective <= optimum + 0.1


def test_a_prepared_data_set_is_fitted_twice(frame):
    estimator = LogisticRegression(solver="sgd", miniBatchFraction=0.1, maxIter=2, tol=0.0, placement="server")
    with from_dataframe(frame) as data:
        one, other = estimator.fit(data), estimator.fit(data)
    np.testing.assert_array_equal(numbers(one), numbers(other))
    assert one.report.placement.startswith("server")
    assert [entry.iteration for entry in one.report.history] == [0, 1, 2]
    assert one.report.bytes["up"] > 0
    assert {
        worker: told["pushes_total{apply}"] for worker, told in one.report.servers[0].items() if worker != "none"
    } == {
        "0": 20.0,
        "1": 20.0,
    }


def test_a_callback_ends_the_fit(frame):
    model = LogisticRegression(solver="sgd", miniBatchFraction=0.1, maxIter=50, tol=0.0, placement="server")
    model = model.setOnRound(lambda history: len(history.rounds) == 3).fit(frame)
    assert model.report.rounds == 3


def test_a_fit_stops_when_nothing_is_gained(frame):
    model = LogisticRegression(solver="sgd", stepSize=0.5, regParam=0.1, maxIter=500, tol=1e-2, placement="server")
    report = model.fit(frame).report
    assert report.stop.reason in ("converged", "stalled")
    assert report.rounds < 100


@pytest.mark.parametrize(
    ("params", "told"),
    [
        ({"placement": "server", "solver": "l-bfgs"}, "solver='sgd'"),
        ({"placement": "server", "solver": "sgd", "codec": "low-rank:2"}, "codec='low-rank:2' is of matrices"),
        ({"placement": "broadcast", "solver": "sgd", "pushEvery": 2}, "pushEvery is of placement='server'"),
        ({"placement": "server", "solver": "sgd", "pushEvery": 0}, "pushEvery=0"),
        ({"placement": "server", "solver": "sgd", "pipeline": True}, "pipeline=True with staleness=0"),
        (
            {"placement": "server", "solver": "sgd", "staleness": 1, "pipeline": True, "staleGradients": "adadelay"},
            "what a worker read last",
        ),
        (
            {"placement": "server", "solver": "sgd", "staleness": 1, "pipeline": True, "pushEvery": 2, "pullEvery": 2},
            "pipeline=True with local steps",
        ),
        ({"placement": "server", "solver": "sgd", "pushEvery": 2}, "set pullEvery to 2"),
        ({"placement": "server", "solver": "sgd", "staleness": 1, "pullEvery": 2}, "pullEvery=2 with staleness=1"),
        (
            {"placement": "server", "solver": "sgd", "optimizer": "ftrl", "pushEvery": 2, "pullEvery": 2},
            "optimizer='ftrl'",
        ),
        (
            {
                "placement": "server",
                "solver": "sgd",
                "staleness": -1,
                "pullEvery": 2,
                "staleGradients": "compensated:1",
            },
            "those of local steps are at others",
        ),
        (
            {"placement": "server", "solver": "easgd"},
            "staleness=0 with EASGD: in step it is what placement='broadcast'",
        ),
        ({"placement": "server", "solver": "easgd", "staleness": -1, "localSteps": "auto"}, "set it to a number"),
        ({"placement": "server", "solver": "easgd", "staleness": -1, "pushEvery": 1}, "pushEvery is set, but"),
        ({"placement": "server", "solver": "easgd", "staleness": 1, "staleGradients": "adadelay"}, "unset it"),
        ({"placement": "server", "solver": "admm"}, "staleness=0 with ADMM"),
        ({"placement": "server", "solver": "bmuf", "staleness": 1}, "BMUF is not among them"),
        ({"placement": "broadcast", "solver": "sgd", "staleness": 1}, "staleness is of placement='server'"),
        ({"placement": "server", "solver": "sgd", "staleness": -2}, "staleness=-2"),
        ({"placement": "server", "solver": "sgd", "numServers": 0}, "numServers=0"),
        ({"placement": "server", "solver": "sgd", "staleness": 1, "backupWorkers": 1}, "backupWorkers=1"),
        ({"placement": "server", "solver": "sgd", "staleGradients": "adadelay"}, "staleness=0"),
        ({"placement": "server", "solver": "sgd", "staleness": 1, "staleGradients": "compensated:-1"}, "-1"),
        (
            {
                "placement": "server",
                "solver": "sgd",
                "staleness": 1,
                "staleGradients": "adaptive-revision",
                "optimizer": "adam",
            },
            "adagrad",
        ),
    ],
)
def test_what_does_not_go_together_is_refused_before_any_job(frame, params, told):
    with pytest.raises(ValueError, match=told):
        LogisticRegression(**params).fit(frame)
