"""The processes below this driver."""

from __future__ import annotations

import os
import signal

import psutil


def of_this_driver(words: str) -> list[psutil.Process]:
    """Those with ``words`` in their command that have no children of their own."""
    found = []
    for process in psutil.Process().children(recursive=True):
        try:
            if words in " ".join(process.cmdline()) and not process.children():
                found.append(process)
        except psutil.Error:
            continue  # it has just ended, or is what Spark's start script left behind
    return found


def end(words: str) -> None:
    """Kill the first of them."""
    processes = of_this_driver(words)
    assert processes
    os.kill(processes[0].pid, signal.SIGKILL)
