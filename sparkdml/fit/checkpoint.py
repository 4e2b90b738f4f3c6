"""A fit's state on disk, so that it goes on where it was after the driver is lost."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sparkdml.algorithms.base import State
from sparkdml.algorithms.states import pack, unpack
from sparkdml.data.dataset import Dataset
from sparkdml.fit.validation import EarlyStopping
from sparkdml.report.history import History, Round
from sparkdml.resources.hadoop import HadoopPath

if TYPE_CHECKING:
    from pyspark import SparkContext

logger = logging.getLogger(__name__)

FORMAT = 1
NAME = "sparkdml-fit.npz"
#: Each of several fits at once has a folder of its own, which goes when it ends.
MAP_PREFIX = "map-"


@dataclass(frozen=True)
class Keeping:
    """Where checkpoints go, how many rounds apart, and the parameters that tell this fit from others."""

    directory: str
    interval: int
    params: dict[str, str]


class Checkpoint:
    """Writes the state into a directory every ``interval`` rounds; any file system that Spark reaches will do.

    ``identity`` says what is being fitted (parameters, data); a state of another fit is refused. ``history`` and
    ``stopping`` are the running fit's: they are written with the state, and restored with it.
    """

    def __init__(
        self,
        sc: SparkContext,
        directory: str,
        interval: int,
        identity: dict[str, str],
        history: History,
        stopping: EarlyStopping | None = None,
    ) -> None:
        self._directory = HadoopPath(sc, directory)
        self._file = self._directory / NAME
        self._interval, self._identity = interval, identity
        self._history, self._stopping = history, stopping

    def resume(self, start: Any) -> Any:
        """The state that an earlier, interrupted fit left, or else ``start``.

        Raises ValueError if it is of another fit, or if the directory cannot be written.
        """
        refused = self._file.try_writing()
        if refused:
            raise ValueError(
                f"checkpointDir='{self._directory}' cannot be written ({refused}); give a directory that can"
            )
        data = self._file.read()
        if data is None:
            return start
        content = unpack(data)
        if content["format"] != FORMAT:
            raise ValueError(
                f"{self._file} has format {content['format']}, this version writes {FORMAT}; finish that fit with the "
                "version that began it, or remove the file"
            )
        then = content["identity"]
        changed = sorted(key for key in then.keys() | self._identity.keys() if then.get(key) != self._identity.get(key))
        if changed:
            told = "; ".join(f"{key}: {then.get(key)} then, {self._identity.get(key)} now" for key in changed)
            raise ValueError(
                f"{self._file} is of another fit ({told}); remove it, or give this fit a checkpointDir of its own"
            )
        self._history.rounds[:] = content["rounds"]
        if self._stopping is not None:
            self._stopping.memory = content["stopping"]
        logger.info("going on after round %d, which %s holds", len(self._history.rounds) - 1, self._file)
        return content["state"]

    def __call__(self, entry: Round, state: State) -> None:
        if state.stop is None and self.due(entry.round + 1):
            self.write(state)

    def due(self, rounds: int) -> bool:
        """Whether there is to be one after so many rounds."""
        return rounds % self._interval == 0

    def write(self, state: Any) -> None:
        """Keep the state, and the rounds so far, instead of what was kept before."""
        content = {
            "format": FORMAT,
            "identity": self._identity,
            "state": state,
            "rounds": self._history.rounds,
            "stopping": self._stopping.memory if self._stopping else None,
        }
        self._file.write(pack(content))

    def finish(self) -> None:
        """The fit is over: its state is of no more use."""
        self._file.remove()
        leave(self._directory)


def data_identity(dataset: Dataset) -> dict[str, str]:
    """What tells one data set from another: its size, and a digest of all its rows."""
    digest = sum(handle.digest for handle in dataset.handles) % 2**64
    return {"rows": str(dataset.rows), "features": str(dataset.features), "digest": f"{digest:016x}"}


def leave(directory: HadoopPath) -> None:
    """Remove the folder of one of several fits, if nothing is in it."""
    if directory.name.startswith(MAP_PREFIX):
        directory.remove_if_empty()
