"""What a fit's workers are: how many, and with which GPUs."""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from sparkdml.resources.gpus.decision import (
    CORES,
    DYNAMIC,
    EXECUTOR_AMOUNT,
    K8S,
    SCRIPT,
    TASK_AMOUNT,
    VENDOR,
    YARN,
    Application,
    Decision,
    Way,
    cluster_of,
    decide,
)
from sparkdml.resources.slots import setting, task_slots

if TYPE_CHECKING:
    from pyspark import RDD, SparkContext
    from pyspark.resource import ResourceProfile

T = TypeVar("T")

_lock = threading.Lock()
#: Spark never forgets a profile, and gives executors to each: equal ones are one.
_profiles: dict[tuple[str, Decision], ResourceProfile] = {}


@dataclass(frozen=True)
class Workers:
    """At most ``most`` of them (0: as many as there are slots), each with ``gpus``, which come as ``decision`` says."""

    most: int = 0
    gpus: float = 0.0
    decision: Decision = Decision(Way.NONE, "")
    profile: ResourceProfile | None = None

    def holding(self, rdd: RDD[T]) -> RDD[T]:
        """``rdd``, computed by tasks that hold the workers' GPUs."""
        return rdd if self.profile is None else rdd.withResources(self.profile)

    def reading(self, rdd: RDD[T]) -> RDD[T]:
        """``rdd``, computed where the workers will be: executors of their own would not find others' files."""
        return self.holding(rdd) if self.decision.way is Way.FULL_PROFILE else rdd

    def limited(self, slots: int) -> int:
        """``slots``, or ``most`` if that is less."""
        return min(slots, self.most) if self.most else slots

    def slots(self, sc: SparkContext) -> int:
        """Workers that can run at once, at least 1."""
        return self.limited(task_slots(sc, self.profile))


#: As many as there are slots, without GPUs.
ANY = Workers()


def workers_for(sc: SparkContext, most: int = 0, gpus: float = 0.0) -> Workers:
    """The workers of a fit. Raises ValueError, before any job, where Spark would never start their tasks."""
    decision = decide(application(sc), gpus)
    if decision.way is Way.REFUSED:
        raise ValueError(decision.reason)
    profile = _profile(sc, decision) if decision.way in (Way.TASK_PROFILE, Way.FULL_PROFILE) else None
    return Workers(most, gpus, decision, profile)


def application(sc: SparkContext) -> Application:
    """What was set for this application."""
    master, cores = str(sc.master), setting(sc, CORES, "")
    in_master = re.fullmatch(r"local-cluster\[\s*\d+\s*,\s*(\d+)\s*,\s*\d+\s*\]", master)
    if not cores and in_master:
        cores = in_master[1]
    if not cores and cluster_of(master) in (YARN, K8S):
        cores = "1"
    numbers = [int(number) for number in re.findall(r"\d+", sc.version)[:3]]
    return Application(
        master=master,
        version=(numbers[0], numbers[1], numbers[2]),
        dynamic_allocation=setting(sc, DYNAMIC, "false").lower() == "true",
        executor_gpus=int(setting(sc, EXECUTOR_AMOUNT, "0")),
        task_gpus=float(setting(sc, TASK_AMOUNT, "0")),
        executor_cores=int(cores) if cores else None,
        task_cpus=int(setting(sc, "spark.task.cpus", "1")),
        script=setting(sc, SCRIPT, ""),
        vendor=setting(sc, VENDOR, ""),
    )


def _profile(sc: SparkContext, decision: Decision) -> ResourceProfile:
    from pyspark.resource import ExecutorResourceRequests, ResourceProfileBuilder, TaskResourceRequests

    key = (str(sc.applicationId), decision)
    with _lock:
        if key not in _profiles:
            builder = ResourceProfileBuilder()
            builder.require(TaskResourceRequests().cpus(decision.task_cpus).resource("gpu", decision.task_gpus))
            if decision.way is Way.FULL_PROFILE:
                app = application(sc)
                executors = ExecutorResourceRequests().cores(decision.executor_cores)
                builder.require(executors.resource("gpu", decision.executor_gpus, app.script, app.vendor))
            profile = builder.build
            # known to Spark before anybody asks how many tasks of it there can be
            sc._jsc.sc().resourceProfileManager().addResourceProfile(profile._java_resource_profile)
            _profiles[key] = profile
        return _profiles[key]
