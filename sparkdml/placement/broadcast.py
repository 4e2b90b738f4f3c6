"""Coefficients live on the driver and are sent to the workers in each round."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from sparkdml.algorithms.base import Algorithm
from sparkdml.comm.packets import Packets
from sparkdml.core import Tally, Turn, Update, add_updates, payload_bytes
from sparkdml.data.combine import combine
from sparkdml.data.dataset import MAX_REBUILDS, Dataset, FilesVanishError, Sighting
from sparkdml.data.handle import Handle
from sparkdml.data.open_blocks import MissingBlocksError, open_handle
from sparkdml.placement import memories
from sparkdml.placement.base import Exchange, Exchanged, Placement
from sparkdml.placement.on_gpus import on_gpus
from sparkdml.placement.ship import Shipped, ship
from sparkdml.problem import Differentiable
from sparkdml.resources.worker import limit_threads, settle, task_threads


@dataclass
class Contribution:
    """What a round's tasks return; merged over partitions. ``remembers``: some worker left a memory. ``devices``: where
    partitions' blocks were.
    """

    update: Update | None
    tally: Tally = Tally()
    missing: tuple[int, ...] = ()
    seen: dict[int, Sighting] = field(default_factory=dict)
    remembers: bool = False
    devices: dict[int, str] = field(default_factory=dict)

    def merge(self, other: Contribution) -> Contribution:
        update = self.update or other.update
        if self.update and other.update:
            update = add_updates(self.update, other.update)
        return Contribution(
            update,
            self.tally.merge(other.tally),
            self.missing + other.missing,
            {**self.seen, **other.seen},
            self.remembers or other.remembers,
            {**self.devices, **other.devices},
        )


class Broadcast(Placement):
    """One Spark job a round: coefficients go out, updates are summed on the way back, the driver advances.

    The choice while a model fits the driver and a round's arithmetic outweighs the 40 ms of a Spark job. What workers
    remember lies beside their blocks; it is lost with them, and when a task is run on another executor.
    """

    name = "broadcast"
    latency_seconds = 0.05

    @contextmanager
    def exchange(self, algorithm: Algorithm, problem: Differentiable, dataset: Dataset) -> Iterator[Exchange]:
        fit, remembers = uuid.uuid4().hex[:12], False
        with ship(dataset.context, problem, 24 * problem.features) as problem_there:

            def ask(coef: np.ndarray, clock: int) -> Exchanged:
                nonlocal remembers
                total = self._round(algorithm, problem_there, coef, clock, dataset, fit)
                assert total.update is not None
                remembers = remembers or total.remembers
                return Exchanged(
                    total.update,
                    total.tally,
                    bytes_down=coef.nbytes * dataset.partitions,
                    bytes_up=sent_bytes(total.update, dataset.partitions),
                    devices=tuple(total.devices[partition] for partition in sorted(total.devices)),
                )

            try:
                yield ask
            finally:
                if remembers:
                    memories.forget_all(dataset, fit)

    def _round(
        self,
        algorithm: Algorithm,
        problem: Shipped,
        coef: np.ndarray,
        clock: int,
        dataset: Dataset,
        fit: str,
    ) -> Contribution:
        """The sum over all partitions, each counted once, whatever files were lost meanwhile."""
        began = time.perf_counter()
        with ship(dataset.context, coef, coef.nbytes) as coef_there:
            shipping = time.perf_counter() - began
            partitions, gpus = [h.partition for h in dataset.handles], self.workers.gpus > 0.0
            task = _round_task(algorithm, problem, coef_there, clock, partitions, fit, gpus)
            for _ in range(MAX_REBUILDS):
                mapped = self.workers.holding(dataset.rdd().mapPartitions(task))
                # methods by features send a number for each row
                value_bytes = coef.nbytes if dataset.divisible else max(coef.nbytes, 8 * dataset.rows)
                total = combine(mapped, Contribution.merge, value_bytes, dataset.partitions)
                if total is None:
                    total = Contribution(None)
                if total.missing:
                    dataset.rebuild(total.missing)
                    continue
                dataset.confirm(total.seen)
                total.tally = total.tally.serialising(shipping)
                return total
        raise FilesVanishError


def _round_task(
    algorithm: Algorithm, problem: Shipped, coef: Shipped, clock: int, partitions: list[int], fit: str, gpus: bool
) -> Callable[[Iterable[Handle]], Iterator[Contribution]]:
    def run(handles: Iterable[Handle]) -> Iterator[Contribution]:
        limit_threads()
        # the iterator is read to its end: Spark ends a worker whose task leaves some of it
        for handle in list(handles):
            try:
                blocks = open_handle(handle)
            except MissingBlocksError:
                yield Contribution(None, missing=(handle.partition,))
                continue
            opened = time.perf_counter()
            point = coef.value
            read = time.perf_counter()
            devices = {}
            if gpus:
                blocks, devices[handle.partition] = on_gpus(blocks)
            turn = Turn(clock, partitions.index(handle.partition), len(partitions), task_threads())
            memory = memories.recall(handle, fit, clock) if clock else None
            update, memory = algorithm.work(problem.value, blocks, point, memory, turn)
            if memory is not None:
                memories.keep(handle, fit, clock, memory)
            seen = {handle.partition: Sighting(handle.digest, handle.homes)}
            remembers = memory is not None
            tally = Tally.of(time.perf_counter() - read, read - opened)
            yield Contribution(update, tally, seen=seen, remembers=remembers, devices=devices)
        settle()

    return run


def sent_bytes(total: Update, workers: int) -> int:
    """Bytes that ``workers`` sent: arrays as long as their sum, and packets, of which ``total`` has everyone's."""
    packets = sum(value.nbytes for value in total.values() if isinstance(value, Packets))
    return packets + (payload_bytes(total) - packets) * workers
