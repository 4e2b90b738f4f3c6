"""What a stretch of work took of the machine: CPU seconds and memory, of the JVM and of Python."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass, field
from typing import Any

#: Seconds between two looks; what a process does after its last look is not counted.
LOOK_SECONDS = 0.05


@dataclass
class Watch:
    """Use ``with``: afterwards CPU seconds meanwhile by kind, and the most memory resident at once, in bytes.

    jvm : the JVM. driver : this process. workers : Python processes that the JVM or this process began, parameter
    servers among them. Memory that processes share is counted in each.
    """

    cpu: dict[str, float] = field(default_factory=dict)
    memory: dict[str, int] = field(default_factory=dict)

    def __enter__(self) -> Watch:
        self._first: dict[Any, float] = {}
        self._last: dict[Any, tuple[str, float]] = {}
        self._over = threading.Event()
        self._look(at_start=True)
        self._thread = threading.Thread(target=self._keep_looking, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()
        self._look()
        self.cpu = dict.fromkeys(("jvm", "driver", "workers"), 0.0)
        for process, (kind, seconds) in self._last.items():
            self.cpu[kind] += seconds - self._first.get(process, 0.0)

    def _keep_looking(self) -> None:
        while not self._over.wait(LOOK_SECONDS):
            self._look()

    def _look(self, at_start: bool = False) -> None:
        import psutil

        resident = dict.fromkeys(("jvm", "driver", "workers"), 0)
        for process in _family(psutil):
            try:
                times, kind = process.cpu_times(), _kind(process)
                resident[kind] += process.memory_info().rss
            except psutil.Error:
                continue  # ended meanwhile
            self._last[process] = kind, times.user + times.system
            if at_start:
                self._first[process] = times.user + times.system
        for kind, size in resident.items():
            self.memory[kind] = max(self.memory.get(kind, 0), size)


def _family(psutil: Any) -> list[Any]:
    """This process, its JVM, which may be its parent (spark-submit), and all that they began."""
    here = psutil.Process()
    parent = here.parent()
    root = parent if parent is not None and _is_jvm(parent) else here
    return [root, *root.children(recursive=True)]


def _kind(process: Any) -> str:
    if process.pid == os.getpid():
        return "driver"
    return "jvm" if _is_jvm(process) else "workers"


def _is_jvm(process: Any) -> bool:
    return bool(process.name() == "java")
