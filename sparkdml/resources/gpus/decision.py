"""How a fit gets GPUs from Spark: a table, as a pure function.

Sources: ``isSupported`` and ``canBeScheduled`` of Spark's ``ResourceProfileManager``, its ``TaskResourceRequest``, and
"Stage Level Scheduling Overview" in its documentation of each cluster manager.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import Enum

EXECUTOR_AMOUNT = "spark.executor.resource.gpu.amount"
TASK_AMOUNT = "spark.task.resource.gpu.amount"
SCRIPT = "spark.executor.resource.gpu.discoveryScript"
VENDOR = "spark.executor.resource.gpu.vendor"
CORES = "spark.executor.cores"
DYNAMIC = "spark.dynamicAllocation.enabled"

LOCAL, STANDALONE, YARN, K8S, OTHER = "local", "standalone", "yarn", "k8s", "other"
#: Since when tasks of one stage may ask for other resources than the application's, with its own executors: SPARK-39853
#: (standalone), SPARK-45250 (YARN), SPARK-45495 (Kubernetes). ``local-cluster`` is standalone to Spark.
TASK_PROFILES_SINCE = {STANDALONE: (3, 4, 0), YARN: (3, 5, 1), K8S: (3, 5, 1)}
#: Since when a stage may have executors of its own, under dynamic allocation: SPARK-29154, SPARK-39062 (standalone).
FULL_PROFILES_SINCE = {STANDALONE: (3, 4, 0), YARN: (3, 1, 0), K8S: (3, 1, 0)}


class Way(Enum):
    """How GPUs come to a fit's tasks."""

    NONE = "no GPUs"
    APPLICATION = "the application's own settings"
    TASK_PROFILE = "a profile for its tasks"
    FULL_PROFILE = "a profile for its executors and tasks"
    REFUSED = "refused"


@dataclass(frozen=True)
class Application:
    """What was set for the whole application. Amounts that were not set are 0, texts empty.

    executor_cores : None where the cluster decides (a standalone worker gives all that it has).
    """

    master: str
    version: tuple[int, int, int] = (4, 0, 0)
    dynamic_allocation: bool = False
    executor_gpus: int = 0
    task_gpus: float = 0.0
    executor_cores: int | None = None
    task_cpus: int = 1
    script: str = ""
    vendor: str = ""


@dataclass(frozen=True)
class Decision:
    """The way, and the reason for it; of a refusal, what was asked, what there is and what to set.

    ``task_gpus`` and ``task_cpus`` are what a profile's tasks ask for, ``executor_gpus`` and ``executor_cores`` its
    executors.
    """

    way: Way
    reason: str
    task_gpus: float = 0.0
    task_cpus: int = 1
    executor_gpus: int = 0
    executor_cores: int = 1

    def __str__(self) -> str:
        return f"{self.way.value}: {self.reason}"


def cluster_of(master: str) -> str:
    """Which cluster manager ``spark.master`` names."""
    if master.startswith(("spark://", "local-cluster")):
        return STANDALONE
    if master.startswith("local"):
        return LOCAL
    return YARN if master == "yarn" else K8S if master.startswith("k8s") else OTHER


def decide(app: Application, gpus: float) -> Decision:
    """How tasks that want ``gpus`` each (at most 1, or a whole number) get them; the first rule that fits."""
    cluster = cluster_of(app.master)
    if cluster == LOCAL and app.task_gpus > 0.0:
        return _refused(
            f"{TASK_AMOUNT}={app.task_gpus:g} with master '{app.master}', where no executor ever has a GPU: Spark "
            f"accepts that and starts no task, of any job; unset it, or use a cluster (local-cluster[1,1,1024] is one)"
        )
    if gpus == 0.0:
        return Decision(Way.NONE, "gpusPerWorker is 0")
    asked = f"gpusPerWorker={gpus:g}"
    if cluster == LOCAL:
        return _refused(
            f"{asked}, but master '{app.master}' hands out no GPUs, whatever {EXECUTOR_AMOUNT} says; use a cluster "
            "(local-cluster[1,1,1024] is one), or gpusPerWorker=0"
        )
    if cluster == OTHER:
        return _refused(
            f"{asked}, but master '{app.master}' is not known to hand out GPUs; use standalone, YARN or k8s"
        )
    if app.executor_cores is not None and app.task_cpus > app.executor_cores:
        return _refused(
            f"a task asks for {app.task_cpus} CPUs (spark.task.cpus), and an executor has {app.executor_cores} "
            f"({CORES}); lower the one or raise the other"
        )
    if app.dynamic_allocation and (app.executor_gpus < gpus or app.task_gpus != gpus):
        return _own_executors(app, cluster, gpus)
    if app.executor_gpus == 0:
        script = "" if cluster == STANDALONE else f", {SCRIPT} (conf/gpu-discovery.sh)"
        vendor = f", {VENDOR}=nvidia.com" if cluster == K8S else ""
        worker = " (and spark.worker.resource.gpu.* of the workers)" if cluster == STANDALONE else ""
        return _refused(
            f"{asked}, but executors have no GPUs: set {EXECUTOR_AMOUNT}={math.ceil(gpus)}{script}{vendor}{worker} "
            "before the session starts"
        )
    if app.executor_gpus < gpus:
        return _refused(
            f"{asked}, but an executor has {app.executor_gpus} ({EXECUTOR_AMOUNT}); ask for {app.executor_gpus} at "
            "most, or give executors more"
        )
    if app.task_gpus == gpus:
        return Decision(Way.APPLICATION, f"every task has {gpus:g} ({TASK_AMOUNT}); {_share(app, gpus)}")
    if app.version < TASK_PROFILES_SINCE[cluster]:
        since = ".".join(map(str, TASK_PROFILES_SINCE[cluster]))
        return _refused(
            f"{asked}, but {TASK_AMOUNT} is {app.task_gpus:g}, and tasks of one stage may ask for more only since "
            f"Spark {since} ({cluster}); set {TASK_AMOUNT}={gpus:g}"
        )
    return Decision(Way.TASK_PROFILE, f"on the application's executors; {_share(app, gpus)}", gpus, app.task_cpus)


def _own_executors(app: Application, cluster: str, gpus: float) -> Decision:
    """Under dynamic allocation a profile comes with executors of its own, so it must tell all about them."""
    if app.version < FULL_PROFILES_SINCE[cluster]:
        return _refused(
            f"gpusPerWorker={gpus:g} under dynamic allocation needs executors of the fit's own, which Spark "
            f"{'.'.join(map(str, app.version))} does not start on {cluster}; set {EXECUTOR_AMOUNT}={math.ceil(gpus)} "
            f"and {TASK_AMOUNT}={gpus:g}, or {DYNAMIC}=false"
        )
    missing = []
    if cluster == STANDALONE and app.executor_cores is None:
        missing.append(f"{CORES} (else one executor takes all cores of a worker)")
    if cluster != STANDALONE and not app.script:
        missing.append(f"{SCRIPT} (conf/gpu-discovery.sh)")
    if cluster == K8S and not app.vendor:
        missing.append(f"{VENDOR} (nvidia.com)")
    if missing:
        return _refused(
            f"gpusPerWorker={gpus:g} under dynamic allocation starts executors of the fit's own; set "
            f"{' and '.join(missing)}, or {DYNAMIC}=false"
        )
    whole = replace(app, executor_gpus=max(app.executor_gpus, math.ceil(gpus)), executor_cores=app.executor_cores or 1)
    reason = f"on executors of its own, under dynamic allocation; {_share(whole, gpus)}"
    return Decision(Way.FULL_PROFILE, reason, gpus, app.task_cpus, whole.executor_gpus, whole.executor_cores or 1)


def _share(app: Application, gpus: float) -> str:
    """How many workers an executor has at a time."""
    tasks = app.executor_gpus * math.floor(1.0 / gpus) if gpus < 1.0 else int(app.executor_gpus // gpus)
    if app.executor_cores is not None:
        tasks = min(tasks, app.executor_cores // app.task_cpus)
    return f"up to {tasks} workers an executor, which has {app.executor_gpus} GPUs"


def _refused(reason: str) -> Decision:
    return Decision(Way.REFUSED, reason)
