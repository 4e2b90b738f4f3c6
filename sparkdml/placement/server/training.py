"""A fit beside parameter servers: the driver has them started, launches the workers, and looks at every pass."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from sparkdml.algorithms.base import Algorithm
from sparkdml.data.dataset import Dataset
from sparkdml.placement.base import Exchange, OnRound, Placement, Trained
from sparkdml.placement.local import Local
from sparkdml.placement.server.fleets import EXECUTORS
from sparkdml.placement.server.job import Job, ServersLostError
from sparkdml.placement.server.methods import side_work
from sparkdml.placement.server.sidecar import ONE, Sidecar
from sparkdml.placement.server.tenure import Tenure
from sparkdml.placement.server.watch import Watch
from sparkdml.placement.server.work import Orders
from sparkdml.placement.ship import Shipped, ship
from sparkdml.problem import Differentiable
from sparkdml.report.history import History
from sparkdml.resources.slots import task_slots
from sparkdml.server.wire import ServerError

logger = logging.getLogger(__name__)

#: A fit with checkpoints outlives its servers so many times.
MAX_LOSSES = 5


class Server(Placement):
    """Parameters live in processes beside Spark, which take the steps; workers are ordinary tasks that pull and push.

    With ``staleness=0`` workers step together, along the sum of what they say, as under other placements, to the last
    bit. Otherwise each worker's gradient is a step of its own, taken when it comes: workers do not wait for one that is
    slow (more than ``staleness`` clocks apart, or ever). Ho et al., "More effective distributed ML via a stale
    synchronous parallel parameter server" (2013); Recht et al. (2011) for steps that overlap.

    A task that dies is run again by Spark alone, and goes on at its clock. When servers are lost, the fit goes on from
    the last state that was kept, if any are.
    """

    name = "server"
    latency_seconds = 0.002

    def __init__(self, sidecar: Sidecar | None = None) -> None:
        self.sidecar = sidecar or Sidecar()

    @contextmanager
    def exchange(self, algorithm: Algorithm, problem: Differentiable, dataset: Dataset) -> Iterator[Exchange]:
        """Single questions, such as a validation loss, are answered in the driver: workers hold all slots."""
        if not dataset.is_here:
            raise ValueError(
                "placement='server' holds all slots, so validation rows on other hosts cannot be asked meanwhile; use "
                "placement='broadcast' with validationIndicatorCol"
            )
        with Local().exchange(algorithm, problem, dataset) as ask:
            yield ask

    def train(
        self,
        algorithm: Algorithm,
        problem: Differentiable,
        state: Any,
        dataset: Dataset,
        on_round: OnRound | None = None,
        history: History | None = None,
    ) -> Trained:
        dataset.check_open()
        history = History() if history is None else history
        workers, how = len(dataset.handles), self.sidecar
        steps = side_work(algorithm, problem, workers, how)
        watch = Watch(steps, history, on_round, state, self._grouping(dataset))
        losses, lost = 0, ""
        with ship(dataset.context, steps, 24 * problem.features) as there:
            while True:
                try:
                    with Tenure(dataset.context, how, steps, watch.kept, instead_of=lost) as servers:
                        lost = servers.fit
                        state = self._beside(servers, there, dataset, watch, history)
                    return Trained(replace(state, coef=state.best), history)
                except (ServerError, ServersLostError) as error:
                    losses += 1
                    if not (how.keep_every and lost) or losses > MAX_LOSSES:
                        raise
                    logger.warning("servers were lost, the fit goes on from its last checkpoint: %s", error)

    @staticmethod
    def _beside(servers: Tenure, there: Shipped, dataset: Dataset, watch: Watch, history: History) -> Any:
        """The state that says stop."""
        watch.begin(servers.client)
        partitions, addresses = tuple(handle.partition for handle in dataset.handles), tuple(servers.fleet.addresses)
        orders = Orders(there, partitions, addresses, servers.fleet.security, servers.fit)
        state = Job(dataset, orders, servers, watch).run(watch.kept)
        history.servers = [_numbers(status) for status in servers.client.status()]
        return state

    def _grouping(self, dataset: Dataset) -> bool:
        """Whether workers are to be split by speed: those that take turns in one task are as fast as each other."""
        if self.sidecar.groups == ONE:
            return False
        held = self.sidecar.shards if self.sidecar.launch.how == EXECUTORS else 0
        slots = task_slots(dataset.context) - held
        if dataset.partitions > slots:
            logger.warning(
                "workerGroups='by-speed' is for workers that have a slot each, and here %d workers have %d slots: they "
                "all step together",
                dataset.partitions,
                slots,
            )
            return False
        return True


def _numbers(status: dict[str, Any]) -> dict[str, dict[str, float]]:
    """By worker, with the number of its group if there are several."""
    workers: dict[str, dict[str, float]] = status["workers"]
    if len(status["groups"]) > 1:
        for number, group in enumerate(status["groups"]):
            for worker in group:
                workers.setdefault(str(worker), {})["group"] = float(number)
    return workers
