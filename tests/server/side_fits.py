"""Fits beside servers without Spark: workers are threads, servers are in the test's own process."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import numpy as np
from cases import BLOCK_FORMATS
from parameter_servers import SECURITY, client, servers

from sparkdml.algorithms import LBFGS
from sparkdml.algorithms.base import Algorithm
from sparkdml.core import Turn, add_updates
from sparkdml.data.block import Block
from sparkdml.losses import Logistic
from sparkdml.penalties import ElasticNet
from sparkdml.placement.server import Sidecar
from sparkdml.placement.server.methods import check, side_work
from sparkdml.placement.server.watch import Watch
from sparkdml.placement.server.work import Orders, work_of_all
from sparkdml.placement.ship import Inline
from sparkdml.problem import Problem, Scaling
from sparkdml.report.history import History

RNG = np.random.default_rng(3)
ROWS, FEATURES = 400, 8


def rows(density: float = 1.0, features: int = FEATURES, count: int = ROWS) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    X = rng.standard_normal((count, features)) * (rng.random((count, features)) < density)
    return X, (X[:, 0] - X[:, 3] + 0.5 + rng.standard_normal(count) > 0).astype(float)


def problem_of(X: np.ndarray, l2: float = 0.05, l1: float = 0.0) -> Problem:
    """Of columns as they are."""
    ones = np.ones((X.shape[1], 1))
    return Problem(Logistic(), ElasticNet(l2, ones, l1, ones), Scaling(0.0 * ones, ones), True, float(len(X)))


def parts_of(X: np.ndarray, y: np.ndarray, workers: int, kind: str = "dense-float64") -> list[list[Block]]:
    return [
        [BLOCK_FORMATS[kind](X[part], y[part], np.ones(len(part)))]
        for part in np.array_split(np.arange(len(X)), workers)
    ]


def optimum(problem: Problem, X: np.ndarray, y: np.ndarray) -> float:
    smooth = LBFGS(200, 1e-12)
    return together(smooth, problem, parts_of(X, y, 1)).objective


def together(algorithm: Algorithm, problem: Problem, parts: Sequence[Sequence[Block]]) -> Any:
    """The last state of rounds that all take part in."""
    state, memories, clock = algorithm.init(problem, np.zeros(problem.size)), [None] * len(parts), 0
    while state.stop is None:
        total = None
        for worker, blocks in enumerate(parts):
            turn = Turn(clock, worker, len(parts))
            update, memories[worker] = algorithm.work(problem, blocks, state.coef, memories[worker], turn)
            total = update if total is None else add_updates(total, update)
        state, clock = algorithm.advance(problem, state, total), clock + 1
    return state


def beside_servers(
    algorithm: Algorithm, problem: Problem, parts: Sequence[Sequence[Block]], sidecar: Sidecar, shards: int = 1
) -> tuple[Any, dict[str, dict[str, float]]]:
    """The last state, whose ``coef`` is the best point, and what the first server counted of each worker."""
    check(algorithm, sidecar)
    steps = side_work(algorithm, problem, len(parts), sidecar)
    with servers(shards, len(parts), sidecar.staleness) as of, client(of) as driver:
        steps.create(driver)
        start = np.zeros(problem.size)
        state = algorithm.init(problem, start)
        steps.put(driver, state)
        addresses = tuple(server.listening.address for server in of)
        orders = Orders(Inline(steps), tuple(range(len(parts))), addresses, SECURITY, fit="")
        watch = Watch(steps, History(), None, state, by_speed=False)
        watch.begin(driver)

        def run(number: int) -> None:
            with client(of, 60.0) as own, ExitStack() as pipes:
                steps.create(own)
                work_of_all(orders, own, {number: parts[number]}, 0, pipes)

        with ThreadPoolExecutor(len(parts)) as threads:
            running = [threads.submit(run, number) for number in range(len(parts))]
            while state.stop is None:
                before, state = state, watch.look(state)
                if state is before:
                    time.sleep(0.005)
                for worker in running:
                    if worker.done() and state.stop is None:
                        worker.result()
            for worker in running:
                worker.result()
        told = driver.status()[0]["workers"]
    return replace(state, coef=state.best), told
