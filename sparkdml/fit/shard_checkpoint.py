"""Checkpoints of a fit by shards: a file with what the driver knows, and a folder with the shards' states."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable
from dataclasses import replace

from sparkdml.fit.checkpoint import Checkpoint, leave
from sparkdml.placement.partitioned import Kept
from sparkdml.resources.hadoop import HadoopPath, parquet_sizes

logger = logging.getLogger(__name__)

#: Folders with states of shards are called so.
SHARDS_PREFIX = "sparkdml-shards-"


class ShardCheckpoint:
    """A :class:`~sparkdml.placement.partitioned.Keeper`.

    The file of ``checkpoint``, in ``directory``, names the folder. It is written after all that is in there, so that
    folders which no file names are halves of a checkpoint, or of an older one: they go.
    """

    def __init__(self, checkpoint: Checkpoint, directory: HadoopPath) -> None:
        self._checkpoint, self._directory = checkpoint, directory
        self._latest: Kept | None = checkpoint.resume(None)
        if self._latest is not None and not self._is_whole(self._latest):
            raise ValueError(
                f"{self.path(self._latest)} is not whole: {self._latest.files} files of {self._latest.nbytes} bytes "
                f"together were written there; bring them back, or remove {directory} to fit from the start"
            )
        self._sweep()

    def latest(self) -> Kept | None:
        if self._latest is not None and not self._is_whole(self._latest):
            logger.warning("files of the checkpoint in %s are gone", self.path(self._latest))
            self._latest = None
        return self._latest

    def due(self, rounds: int) -> bool:
        return self._checkpoint.due(rounds)

    def keep(self, kept: Kept, write: Callable[[str], None]) -> None:
        # a name of its own: after a loss a fit may come by the same round again
        kept = replace(kept, folder=f"{SHARDS_PREFIX}{kept.rounds:06d}-{uuid.uuid4().hex[:8]}")
        write(self.path(kept))
        sizes = parquet_sizes(self._directory / kept.folder)
        shards = len(kept.bounds) - 1
        if len(sizes) < shards:
            raise ValueError(
                f"{shards} tasks wrote a file each into checkpointDir='{self._directory}', and the driver finds "
                f"{len(sizes)} there; give a directory that all hosts share"
            )
        self._latest = replace(kept, files=len(sizes), nbytes=sum(sizes))
        self._checkpoint.write(self._latest)
        self._sweep()

    def path(self, kept: Kept) -> str:
        return str(self._directory / kept.folder)

    def finish(self) -> None:
        """The fit is over: what was kept is of no more use."""
        self._latest = None
        self._checkpoint.finish()
        self._sweep()
        leave(self._directory)

    def _is_whole(self, kept: Kept) -> bool:
        sizes = parquet_sizes(self._directory / kept.folder)
        return (len(sizes), sum(sizes)) == (kept.files, kept.nbytes)

    def _sweep(self) -> None:
        """Remove all folders but the latest."""
        used = None if self._latest is None else self._latest.folder
        for name in self._directory.sizes():
            if name.startswith(SHARDS_PREFIX) and name != used:
                (self._directory / name).remove()
