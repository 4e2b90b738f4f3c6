"""Coefficients live in the driver, and so do the workers: nothing is sent."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import reduce
from typing import Any

import numpy as np

from sparkdml.algorithms.base import Algorithm
from sparkdml.core import Tally, Turn, Update, add_updates
from sparkdml.data.block import Block
from sparkdml.data.dataset import Dataset
from sparkdml.placement.base import Exchange, Exchanged, Placement
from sparkdml.placement.cost import FETCH_BYTES
from sparkdml.problem import Differentiable
from sparkdml.resources.threads import pool

#: Below so many bytes a share, handing work to another thread costs more than it saves.
SHARE_BYTES = 512 * 1024


class Local(Placement):
    """Every round runs in threads of the driver, over the block files that Spark's tasks wrote.

    The choice in Spark's local mode, where driver and executor are one machine (and one JVM): a round costs its
    arithmetic, without the 40 ms of a Spark job. There are as many threads as Spark has slots: each is a worker, or all
    are one worker's, if the algorithm makes use of them (:attr:`~.Algorithm.threaded`). On a cluster blocks of
    up to :data:`~sparkdml.placement.cost.FETCH_BYTES` together are brought to the driver first; more are refused.
    """

    name = "local"
    latency_seconds = 0.001

    @contextmanager
    def exchange(self, algorithm: Algorithm, problem: Differentiable, dataset: Dataset) -> Iterator[Exchange]:
        dataset.check_open()
        threads, brought = self.workers.slots(dataset.context), None
        if any(handle.host != socket.gethostname() for handle in dataset.handles):
            if dataset.stored_bytes > FETCH_BYTES:
                hosts = sorted({handle.host for handle in dataset.handles})
                remedy = "placement='broadcast' (or 'auto') on a cluster"
                if algorithm.threaded:
                    remedy = (
                        "placement='broadcast' or 'allreduce', where the threads of each task (spark.task.cpus) share "
                        "a model and these are averaged, or solver='model-averaging'"
                    )
                raise ValueError(
                    f"placement='local' computes in the driver, but {dataset.stored_bytes} bytes of blocks are on "
                    f"{', '.join(hosts)}, and no more than {FETCH_BYTES} are brought from there; use {remedy}"
                )
            threads, brought = min(threads, os.cpu_count() or 1), dataset.bring_here()
        memories: dict[int, Any] = {}
        handles = dataset.handles

        def ask(coef: np.ndarray, clock: int) -> Exchanged:
            # every round looks for its files anew, so that lost ones are found and built again
            nonlocal handles
            opened = dataset.open_here() if brought is None else brought
            if dataset.handles != handles:  # built again, with rows perhaps in another order
                handles = dataset.handles
                memories.clear()
            if algorithm.threaded:
                workers, own = [[block for blocks in opened for block in blocks]], min(threads, os.cpu_count() or 1)
            else:
                workers = shares(opened, threads) if dataset.divisible else [list(blocks) for blocks in opened]
                own = 1

            def work(number: int) -> tuple[Update, float]:
                began = time.perf_counter()
                memory, turn = memories.get(number), Turn(clock, number, len(workers), own)
                update, memories[number] = algorithm.work(problem, workers[number], coef, memory, turn)
                return update, time.perf_counter() - began

            numbers = range(len(workers))
            done = list(map(work, numbers) if len(workers) == 1 else pool(threads).map(work, numbers))
            total = reduce(add_updates, (update for update, _ in done))
            return Exchanged(total, reduce(Tally.merge, (Tally.of(seconds) for _, seconds in done)), 0, 0)

        yield ask


def shares(partitions: Sequence[Sequence[Block]], threads: int) -> list[list[Block]]:
    """The rows of all partitions in at most ``threads`` lists of blocks of about the same bytes, in order.

    Blocks are cut between rows where a share ends; nothing is copied.
    """
    blocks = [block for partition in partitions for block in partition]
    total = sum(block.nbytes for block in blocks)
    count = max(min(threads, total // SHARE_BYTES), 1)
    quota = total / count
    result: list[list[Block]] = [[]]
    filled = 0.0
    for block in blocks:
        row_bytes = block.nbytes / block.rows
        start = 0
        while start < block.rows:
            last = len(result) == count
            rows = block.rows - start
            room = rows if last else round((quota * len(result) - filled) / row_bytes)
            stop = start + min(max(room, 0), rows)
            if stop > start:
                result[-1].append(block.between(start, stop))
                filled += (stop - start) * row_bytes
            if stop < block.rows:
                result.append([])
            start = stop
    return [share for share in result if share]
