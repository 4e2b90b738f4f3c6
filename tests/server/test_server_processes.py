"""Servers as processes: they start, tell where they are, are seen, and end with whoever started them."""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import numpy as np
import psutil
import pytest
import trustme

from sparkdml.server.client import Push
from sparkdml.server.launch import Servers, local
from sparkdml.server.wire import Security, ServerUnreachableError, connect

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}


def until(condition: Callable[[], bool], seconds: float = 10.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def gone(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def command(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "sparkdml.server", *arguments],
        env={**ENVIRONMENT, **environment},
        capture_output=True,
        text=True,
        timeout=30,
    )


def test_servers_work_are_watched_and_end_with_the_block() -> None:
    with local(2, workers=1, metrics=True) as servers:
        pids = [child.process.pid for child in servers.primaries]
        with servers.client() as c:
            c.create("w", 10)
            c.push(0, 0, 0, {"w": Push(np.ones(10))})
            np.testing.assert_array_equal(c.pull({"w": None})["w"], np.ones(10))
        for child in servers.primaries:
            host, port = child.address.split(":")
            assert host == "127.0.0.1"
            with socket.create_connection((host, int(port))) as sock:
                sock.sendall(bytes(100))
                assert b"begin no message" in sock.recv(1000)
            url = f"http://127.0.0.1:{child.metrics_port}/metrics"
            told = urllib.request.urlopen(url, timeout=10).read().decode()
            assert 'sparkdml_pushes_total{verdict="apply",worker="0"} 1.0' in told
            assert 'sparkdml_faults_total{reason="damaged message"} 1.0' in told
            assert "sparkdml_table_bytes 40.0" in told
        address, token = servers.addresses[0], servers.security.token.hex()
        done = command("status", address, SPARKDML_SERVER_TOKEN=token)
        assert json.loads(done.stdout)["tables"]["w"]["pushes"] == 1
        for pid in pids:
            assert not any(token in word for word in psutil.Process(pid).cmdline())
        failed = command("status", address, SPARKDML_SERVER_TOKEN=secrets.token_hex(32))
        assert (failed.returncode, failed.stdout) == (1, "")
        assert "token" in failed.stderr
        assert "Traceback" not in failed.stderr
    assert all(gone(pid) for pid in pids)
    with pytest.raises(ServerUnreachableError):
        connect(address, servers.security, 2.0)


def test_servers_end_when_the_block_is_left_by_an_interrupt() -> None:
    found = []

    def run() -> None:
        with local(1, workers=1) as servers:
            found.append(servers.primaries[0].process)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run()
    assert found[0].returncode == 0


def test_a_server_that_cannot_start_says_why() -> None:
    with pytest.raises(RuntimeError, match="workers=0"):
        local(1, workers=0)
    with pytest.raises(RuntimeError, match="no directory"):
        local(1, workers=1, restore=["a"])


def test_a_server_ends_on_request_and_on_a_signal() -> None:
    with local(2, workers=1) as servers:
        first, second = (child.process for child in servers.primaries)
        with connect(servers.addresses[0], servers.security, 5.0) as connection:
            connection.call("stop", {})
        assert first.wait(10) == 0
        second.terminate()
        assert second.wait(10) == 0
        assert [child.words() for child in servers.primaries] == ["", ""]


def test_a_server_by_hand_tells_its_token_and_ends_on_sigterm(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "sparkdml.server", "serve"],
        env=ENVIRONMENT, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        told = json.loads(process.stdout.readline())
        (tmp_path / "token").write_text(told["token"] + "\n")
        assert command("status", told["address"], "--token-file", str(tmp_path / "token")).returncode == 0
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


DRIVER = """
import os, sys, time
from sparkdml.server.launch import local
servers = local(2, workers=1)
if sys.argv[1] == "fork" and os.fork() == 0:  # holds the other end of the pipes, as a daemon of Spark's would
    time.sleep(60)
print(*[child.process.pid for child in servers.primaries], flush=True)
time.sleep(60)
"""


@pytest.mark.fault
@pytest.mark.parametrize("how", ["alone", "fork"])
def test_servers_end_when_the_driver_is_killed(how: str) -> None:
    driver = subprocess.Popen([sys.executable, "-c", DRIVER, how], env=ENVIRONMENT, stdout=subprocess.PIPE)
    assert driver.stdout is not None
    family = psutil.Process(driver.pid)
    try:
        pids = [int(word) for word in driver.stdout.readline().split()]
        assert len(pids) == 2
        left = [child for child in family.children() if child.pid not in pids]
        driver.kill()
        driver.wait()
        until(lambda: all(gone(pid) for pid in pids))
    finally:
        driver.kill()
        driver.wait()
        driver.stdout.close()
        for child in left:
            child.kill()


def test_shards_go_on_from_snapshots_over_mutual_tls(tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "authority.pem")
    certificate = authority.issue_cert("127.0.0.1")
    certificate.private_key_pem.write_to_path(tmp_path / "key.pem")
    certificate.cert_chain_pems[0].write_to_path(tmp_path / "certificate.pem")
    security = Security.fresh(*(str(tmp_path / f"{name}.pem") for name in ("certificate", "key", "authority")))

    def run(restore: list[str]) -> Servers:
        return local(2, workers=1, security=security, snapshots=str(tmp_path), restore=restore)

    with run([]) as servers, servers.client() as c:
        c.create("w", 9)
        c.push(0, 0, 0, {"w": Push(np.arange(9.0))})
        c.snapshot("first")
    with run(["first.0", "first.1"]) as servers, servers.client() as c:
        c.create("w", 9)
        assert c.arrive(0, 1) == 1
        np.testing.assert_array_equal(c.pull({"w": None})["w"], np.arange(9.0))
