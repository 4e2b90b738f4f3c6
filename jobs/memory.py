"""How much memory the driver takes while something runs."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Watch:
    """Use ``with``: afterwards ``python_bytes`` is the most that this process held resident beyond what it held at
    first, and ``heap_bytes`` the most of the JVM's heap that was in use; in Spark's local mode executors share that.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._jvm: Any = spark.sparkContext._jvm
        self._over = threading.Event()
        self.python_bytes, self.heap_bytes = 0, 0

    def __enter__(self) -> Watch:
        import psutil

        process = psutil.Process()
        before = process.memory_info().rss
        self._jvm.java.lang.System.gc()
        for pool in self._pools():
            pool.resetPeakUsage()

        def look() -> None:
            while not self._over.wait(0.05):
                self.python_bytes = max(self.python_bytes, process.memory_info().rss - before)

        self._thread = threading.Thread(target=look, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()
        self.heap_bytes = sum(pool.getPeakUsage().getUsed() for pool in self._pools())

    def _pools(self) -> list[Any]:
        found = self._jvm.java.lang.management.ManagementFactory.getMemoryPoolMXBeans()
        return [pool for pool in found if str(pool.getType().name()) == "HEAP"]
