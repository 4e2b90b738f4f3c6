"""Servers of a fit on executors, and those that somebody else has started."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import trustme

from sparkdml.classification import LogisticRegression
from sparkdml.resources.slots import task_slots

ROOT = Path(__file__).resolve().parents[1]
ESTIMATOR = LogisticRegression(
    regParam=0.05, solver="sgd", optimizer="adam", miniBatchFraction=0.3, maxIter=3, tol=0.0, placement="server"
)
ELSEWHERE = {"serverLaunch": "external", "serverAddresses": ["a:1"], "serverTokenFile": "/no/file"}


@pytest.fixture(scope="module")
def frame(make_frame):
    rng = np.random.default_rng(3)
    X = rng.standard_normal((200, 6))
    return make_frame(X, (X[:, 0] - X[:, 3] + rng.standard_normal(200) > 0).astype(float))


def numbers(model) -> np.ndarray:
    return np.append(model.coefficients.toArray(), model.intercept)


@pytest.fixture(scope="module")
def calm(frame) -> np.ndarray:
    return numbers(ESTIMATOR.fit(frame))


@contextlib.contextmanager
def served(count: int, *options: str) -> Iterator[list[str]]:
    """Addresses of servers that were started by hand."""
    command = [sys.executable, "-m", "sparkdml.server", "serve", *options]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with contextlib.ExitStack() as stack:
        processes = [
            stack.enter_context(subprocess.Popen(command, env=environment, stdout=subprocess.PIPE))
            for _ in range(count)
        ]
        try:
            yield [json.loads(process.stdout.readline())["address"] for process in processes]
        finally:
            for process in processes:
                process.terminate()


@pytest.fixture
def token(tmp_path) -> Path:
    path = tmp_path / "token"
    path.write_text(secrets.token_hex(32) + "\n")
    return path


def test_servers_on_executors_leave_workers_a_slot_and_find_the_same(spark, frame, calm):
    slots = task_slots(spark.sparkContext)
    model = ESTIMATOR.copy()._set(serverLaunch="executors", numServers=slots - 1).fit(frame)
    np.testing.assert_array_equal(numbers(model), calm)
    assert not spark.sparkContext.statusTracker().getActiveJobsIds()
    with pytest.raises(ValueError, match=f"numServers={slots} leaves no slot for workers: Spark has {slots}"):
        ESTIMATOR.copy()._set(serverLaunch="executors", numServers=slots).fit(frame)
    assert spark.sparkContext.parallelize(range(4), 2).count() == 4


def test_jobs_of_a_callback_get_slots_beside_servers_on_executors(spark, frame, calm):
    def count(history) -> None:
        if len(history.rounds) == 2:
            assert spark.sparkContext.parallelize(range(10), 2).count() == 10

    model = ESTIMATOR.copy()._set(serverLaunch="executors").setOnRound(count).fit(frame)
    np.testing.assert_array_equal(numbers(model), calm)


def test_external_servers_serve_one_fit_after_another(frame, calm, token):
    with served(2, "--token-file", str(token)) as addresses:
        estimator = ESTIMATOR.copy()._set(
            serverLaunch="external", serverAddresses=addresses, serverTokenFile=str(token)
        )
        for number in range(2):
            model = estimator.fit(frame)
            np.testing.assert_array_equal(numbers(model), calm)
            assert model.report.servers[0]["0"]["pushes_total{apply}"] == 12, number
        out_of_step = estimator.copy()._set(staleness=-1, optimizer="adagrad").fit(frame)
        assert out_of_step.report.rounds == 4

        def busy(history) -> None:
            if len(history.rounds) == 2:
                with pytest.raises(RuntimeError, match="has this server"):
                    ESTIMATOR.copy()._set(
                        serverLaunch="external", serverAddresses=addresses, serverTokenFile=str(token)
                    ).fit(frame)
                raise InterruptedError

        with pytest.raises(InterruptedError):
            estimator.copy().setOnRound(busy).fit(frame)
        np.testing.assert_array_equal(numbers(estimator.fit(frame)), calm)  # the one that was interrupted has let go


def test_external_servers_by_mutual_tls(frame, calm, tmp_path, token):
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "authority.pem")
    certificate = authority.issue_cert("127.0.0.1")
    certificate.private_key_pem.write_to_path(tmp_path / "key.pem")
    certificate.cert_chain_pems[0].write_to_path(tmp_path / "certificate.pem")
    files = {name: str(tmp_path / f"{name}.pem") for name in ("certificate", "key", "authority")}
    options = [word for name, path in files.items() for word in (f"--{name}", path)]
    with served(1, "--token-file", str(token), *options) as addresses:
        model = ESTIMATOR.copy()._set(
            serverLaunch="external", serverAddresses=addresses, serverTokenFile=str(token),
            serverCertificate=files["certificate"], serverKey=files["key"], serverAuthority=files["authority"],
        ).fit(frame)  # fmt: skip
        np.testing.assert_array_equal(numbers(model), calm)
        (tmp_path / "other").write_text(secrets.token_hex(32))
        with pytest.raises(RuntimeError, match="token"):
            ESTIMATOR.copy()._set(
                serverLaunch="external", serverAddresses=addresses, serverTokenFile=str(tmp_path / "other"),
                serverAuthority=files["authority"], serverCertificate=files["certificate"], serverKey=files["key"],
            ).fit(frame)  # fmt: skip


@pytest.mark.parametrize(
    ("params", "told"),
    [
        ({"serverLaunch": "cloud"}, "serverLaunch='cloud' is not known"),
        ({"serverLaunch": "external"}, "serverAddresses=nothing"),
        ({"serverAddresses": ["a:1"]}, "serverLaunch='local'"),
        ({**ELSEWHERE, "serverAddresses": ["a"]}, "host:port"),
        ({**ELSEWHERE, "numServers": 2}, "numServers=2"),
        (ELSEWHERE, "/no/file"),
        ({"serverLaunch": "executors", "replicas": 1}, "replicas=1"),
        ({"serverCertificate": "c"}, "serverKey=''"),
        ({"serverAuthority": "a"}, "serverCertificate"),
        ({"workerGroups": "by-name"}, "workerGroups='by-name' is not known"),
        ({"workerGroups": "by-speed", "staleness": 1}, "staleness=1"),
        ({"workerGroups": "by-speed", "backupWorkers": 1}, "backupWorkers=1"),
        ({"placement": "broadcast", "serverLaunch": "executors"}, "serverLaunch is of placement='server'"),
    ],
)  # fmt: skip
def test_what_does_not_go_together_is_refused_before_any_round(frame, params, told):
    with pytest.raises(ValueError, match=told):
        ESTIMATOR.copy()._set(**params).fit(frame)
