"""How workers are to cooperate through servers, as parameters say."""

from __future__ import annotations

from dataclasses import dataclass, field

from sparkdml.placement.server.fleets import Launch
from sparkdml.placement.server.gradients import Pace
from sparkdml.server.stale import AS_IT_COMES, REVISION, stale_way

#: Ways in which workers are grouped: all step together, or those of like speed.
ONE, BY_SPEED = "one", "by-speed"


@dataclass(frozen=True)
class Sidecar:
    """How workers cooperate through servers: ``staleness`` 0 is BSP, n SSP, -1 ASP; ``shards`` processes.

    ``backup_workers`` are how many of the slowest a BSP round does without; ``replicas`` backups stand by each shard.
    ``stale``: see :func:`sparkdml.server.stale.stale_way`. ``pace``: how often a worker pushes and pulls. ``groups``:
    ``one``, or ``by-speed``. ``keep_every``: passes from one state that the fit can go on from to the next; 0 for none.
    """

    staleness: int = 0
    shards: int = 1
    backup_workers: int = 0
    replicas: int = 0
    stale: str = AS_IT_COMES
    pace: Pace = Pace()
    groups: str = ONE
    launch: Launch = field(default_factory=Launch)
    keep_every: int = 0

    def __post_init__(self) -> None:
        if self.stale != REVISION:
            stale_way(self.stale, 1)
        if self.stale != AS_IT_COMES and self.staleness == 0:
            raise ValueError(
                f"staleGradients='{self.stale}' with staleness=0: gradients of rounds are of the present values; set "
                "staleness to -1 or to a number of clocks"
            )
        if self.backup_workers and self.staleness != 0:
            raise ValueError(
                f"backupWorkers={self.backup_workers} with staleness={self.staleness}: only rounds (staleness=0) can "
                "do without some workers; unset one of them"
            )
        if self.groups not in (ONE, BY_SPEED):
            raise ValueError(f"workerGroups='{self.groups}' is not known; it can be {ONE} or {BY_SPEED}")
        if self.groups != ONE and (self.staleness != 0 or self.backup_workers):
            raise ValueError(
                f"workerGroups='{self.groups}' with staleness={self.staleness}, backupWorkers={self.backup_workers}: "
                "groups step together (staleness=0), and wait for all of theirs (backupWorkers=0); unset one of them"
            )
        if self.replicas and self.launch.how != Launch.how:
            raise ValueError(
                f"replicas={self.replicas} with serverLaunch='{self.launch.how}': only servers that the driver starts "
                "get backups by it; unset replicas, and set checkpointDir to outlive the loss of a server"
            )
        if self.launch.addresses and self.shards not in (1, len(self.launch.addresses)):
            raise ValueError(
                f"numServers={self.shards}, but serverAddresses has {len(self.launch.addresses)}; unset numServers"
            )
