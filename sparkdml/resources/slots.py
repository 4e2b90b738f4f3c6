"""How many tasks run side by side."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError

if TYPE_CHECKING:
    from pyspark import SparkContext

logger = logging.getLogger(__name__)


def task_slots(sc: SparkContext) -> int:
    """Tasks of one CPU request that the application can run at once, at least 1."""
    executors = sc.getConf().get("spark.dynamicAllocation.maxExecutors", "")
    if _truth(sc, "spark.dynamicAllocation.enabled") and executors.isdigit():
        cores = int(sc.getConf().get("spark.executor.cores", "1"))
        return max(int(executors) * cores // _cpus(sc), 1)
    try:
        context = sc._jsc.sc()
        profile = context.resourceProfileManager().defaultResourceProfile()
        running = int(context.maxNumConcurrentTasks(profile))
    except Py4JError as error:
        logger.info("Spark does not tell its slots (%s); defaultParallelism stands in", error)
        running = 0
    return max(running or sc.defaultParallelism, 1)


def _cpus(sc: SparkContext) -> int:
    return max(int(sc.getConf().get("spark.task.cpus", "1")), 1)


def _truth(sc: SparkContext, name: str) -> bool:
    return sc.getConf().get(name, "false").lower() == "true"
