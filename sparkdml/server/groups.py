"""Which workers step together: those of like speed."""

from __future__ import annotations

import math
from collections.abc import Sequence


def grouped(seconds: Sequence[float], ratio: float = 1.5) -> list[list[int]]:
    """Workers by speed, fastest group first; ``seconds[worker]`` is what a clock takes it.

    A group ends before the first worker that takes ``ratio`` times as long as the group's fastest, so nobody waits
    longer than that for its round. Members are in the order of their numbers. Stepping together within groups only is
    the idea of Petrel (Zhou et al., *Community-aware synchronous parallel for heterogeneous parameter server*, 2020).
    """
    if not ratio > 1.0:
        raise ValueError(f"ratio={ratio:g}; it must be above 1, or equally fast workers could not be in one group")
    wrong = {worker: time for worker, time in enumerate(seconds) if not (math.isfinite(time) and time > 0.0)}
    if not seconds or wrong:
        raise ValueError(f"seconds a clock of every worker must be given, finite and above 0, not {wrong or 'none'}")
    groups: list[list[int]] = []
    for worker in sorted(range(len(seconds)), key=lambda worker: (seconds[worker], worker)):
        if groups and seconds[worker] < ratio * seconds[groups[-1][0]]:
            groups[-1].append(worker)
        else:
            groups.append([worker])
    return [sorted(group) for group in groups]


def check_groups(groups: Sequence[Sequence[int]], workers: int, backup_workers: int) -> list[tuple[int, ...]]:
    """The same groups with members in order; ValueError unless each worker is in one, each larger than the backup."""
    if sorted(worker for group in groups for worker in group) != list(range(workers)):
        raise ValueError(
            f"groups={[list(group) for group in groups]}; each worker from 0 to {workers - 1} must be in exactly one"
        )
    small = [list(group) for group in groups if len(group) <= backup_workers]
    if small:
        raise ValueError(
            f"backup_workers={backup_workers} with the group {small[0]}: a round needs a push, so the number must be "
            "below that of a group's workers; lower it, or join groups by a larger ratio"
        )
    return [tuple(sorted(group)) for group in groups]
