"""How many tasks run side by side."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from py4j.protocol import Py4JError

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.resource import ResourceProfile

#: Stands for "as many as asked for" under dynamic allocation without an upper bound.
UNBOUNDED = 4096

#: Settings do not change while an application runs, and asking the JVM takes as long as a round of a small fit.
_settings: WeakKeyDictionary[SparkContext, dict[str, str | None]] = WeakKeyDictionary()

logger = logging.getLogger(__name__)


def task_slots(sc: SparkContext, profile: ResourceProfile | None = None) -> int:
    """Tasks that the application can run at once, at least 1: such as ``profile`` or its own settings ask for."""
    if setting(sc, "spark.dynamicAllocation.enabled", "false").lower() == "true":
        # what runs now says little of what may run later
        executors = setting(sc, "spark.dynamicAllocation.maxExecutors", "")
        cores = int(setting(sc, "spark.executor.cores", "1"))
        slots = int(executors) * cores // max(int(setting(sc, "spark.task.cpus", "1")), 1) if executors else UNBOUNDED
        return min(max(slots, 1), UNBOUNDED)
    try:
        context = sc._jsc.sc()
        default = context.resourceProfileManager().defaultResourceProfile()
        running = int(context.maxNumConcurrentTasks(default if profile is None else profile._java_resource_profile))
    except Py4JError as error:
        logger.info("Spark does not tell its slots (%s); defaultParallelism stands in", error)
        running = 0
    return max(running or sc.defaultParallelism, 1)


def setting(sc: SparkContext, name: str, default: str) -> str:
    """The application's setting ``name``."""
    known = _settings.setdefault(sc, {})
    if name not in known:
        # getConf() would copy every setting across, one call each
        conf = sc._jsc.sc().conf()
        known[name] = str(conf.get(name)) if conf.contains(name) else None
    value = known[name]
    return default if value is None else value
