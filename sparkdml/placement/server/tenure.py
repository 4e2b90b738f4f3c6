"""The driver beside the servers of one fit: it has them begin, go on from a state, and end."""

from __future__ import annotations

import logging
import time
import uuid
from contextlib import AbstractContextManager, ExitStack, suppress
from typing import TYPE_CHECKING, Any

from sparkdml.placement.server.fleets import EXTERNAL
from sparkdml.placement.server.sidework import SideWork
from sparkdml.placement.server.work import CALL_SECONDS
from sparkdml.server.client import Client
from sparkdml.server.wire import ServerError, ServerRefusedError

if TYPE_CHECKING:
    from pyspark import SparkContext

    from sparkdml.placement.server.sidecar import Sidecar

#: For whoever runs external servers to start them anew.
RETURN_SECONDS = 60.0
#: For a shared server to be told that the fit is over.
END_SECONDS = 5.0

logger = logging.getLogger(__name__)


class Tenure(AbstractContextManager["Tenure"]):
    """Servers, and the driver's ``client`` of them, until the ``with`` block is left.

    ``instead_of`` is a fit, lost with its servers, in whose place this one goes on.
    """

    def __init__(self, sc: SparkContext, how: Sidecar, steps: SideWork, state: Any, instead_of: str = "") -> None:
        self.fit = uuid.uuid4().hex
        self._steps, self._launch = steps, how.launch
        with ExitStack() as stack:
            self.fleet = stack.enter_context(how.launch.open(sc, how.shards, how.replicas))
            self.client = self._client()
            stack.callback(self._close)
            self._begin(how, max(state.iteration, 0) * steps.rounds_of_pass, instead_of)
            steps.create(self.client)
            steps.put(self.client, state)
            self._stack = stack.pop_all()

    def tend(self) -> bool:
        """See to the servers; whether workers have to be told of new addresses. Raises ServerError if one is lost."""
        if not self.fleet.tend():
            self.client.status()
            return False
        self.client.close()
        self.client = self._client()
        self._steps.create(self.client)
        return True

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _begin(self, how: Sidecar, clock: int, instead_of: str) -> None:
        end = time.monotonic() + (RETURN_SECONDS if instead_of and self._shared else 0.0)
        while True:
            try:
                self.client.begin(self._steps.workers, how.staleness, how.backup_workers, clock, instead_of)
                return
            except ServerRefusedError:
                raise
            except ServerError as error:
                if time.monotonic() > end:
                    raise
                logger.info("waiting for the servers to come back: %s", error)
                time.sleep(1.0)

    @property
    def _shared(self) -> bool:
        return self._launch.how == EXTERNAL

    def _client(self) -> Client:
        return Client(self.fleet.addresses, self.fleet.security, CALL_SECONDS, self.fit)

    def _close(self) -> None:
        self.client.close()
        if self._shared:
            with (
                suppress(ServerError),  # the next fit will wait until this one has been silent for a while
                Client(self.fleet.addresses, self.fleet.security, END_SECONDS, self.fit) as client,
            ):
                client.end()
