"""A fit's state on disk, so that it goes on where it was after the driver is lost."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from sparkdml.algorithms.base import State
from sparkdml.algorithms.states import pack, unpack
from sparkdml.data.dataset import Dataset
from sparkdml.fit.validation import EarlyStopping
from sparkdml.report.history import History, Round

if TYPE_CHECKING:
    from pyspark import SparkContext

logger = logging.getLogger(__name__)

FORMAT = 1
NAME = "sparkdml-fit.npz"
#: Each of several fits at once has a folder of its own, which goes when it ends.
MAP_PREFIX = "map-"


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
        self._file = _File(sc, directory)
        self._interval, self._identity = interval, identity
        self._history, self._stopping = history, stopping

    def resume(self, start: Any) -> Any:
        """The state that an earlier, interrupted fit left, or else ``start``."""
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
        if state.stop is None and (entry.round + 1) % self._interval == 0:
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


def data_identity(dataset: Dataset) -> dict[str, str]:
    """What tells one data set from another: its size, and a digest of all its rows."""
    digest = sum(handle.digest for handle in dataset.handles) % 2**64
    return {"rows": str(dataset.rows), "features": str(dataset.features), "digest": f"{digest:016x}"}


class _File:
    """A file of that name in ``directory``, by Hadoop's file systems; written whole or not at all."""

    def __init__(self, sc: SparkContext, directory: str) -> None:
        jvm: Any = sc._jvm
        self._jvm = jvm
        self._path = jvm.org.apache.hadoop.fs.Path(directory, NAME)
        self._system = self._path.getFileSystem(sc._jsc.hadoopConfiguration())

    def __str__(self) -> str:
        return str(self._path.toString())

    def read(self) -> bytes | None:
        if not self._system.exists(self._path):
            return None
        stream = self._system.open(self._path)
        try:
            return bytes(stream.readAllBytes())
        finally:
            stream.close()

    def write(self, data: bytes) -> None:
        half = self._path.suffix(".part")
        stream = self._system.create(half, True)
        try:
            stream.write(data)
        finally:
            stream.close()
        context = self._jvm.org.apache.hadoop.fs.FileContext.getFileContext(
            self._path.toUri() if self._path.toUri().getScheme() else self._system.getUri(), self._system.getConf()
        )
        overwrite = self._jvm.org.apache.hadoop.fs.Options.Rename.OVERWRITE
        options = self._jvm.java.lang.reflect.Array.newInstance(overwrite.getClass(), 1)
        options[0] = overwrite
        context.rename(half, self._path, options)

    def remove(self) -> None:
        self._system.delete(self._path, False)
        folder = self._path.getParent()
        if str(folder.getName()).startswith(MAP_PREFIX) and not len(self._system.listStatus(folder)):
            self._system.delete(folder, False)
