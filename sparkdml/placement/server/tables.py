"""The tables that every fit has beside those of its method, as the driver and its workers agree on them."""

from __future__ import annotations

#: A row for each worker in each pass: its loss at the start, 1 once it has told it, and until then seconds of
#: computing and of packing.
PASSES = "passes"
#: How often all rows have been read so far, where workers are not in step.
READ = "read"
#: From the driver: whether the fit is over, how many passes it has looked at, and at which start it wants losses; then,
#: for each worker, what it is to multiply its updates by.
CONTROL = "control"
OVER, SEEN, WANTED, FACTORS = 0, 1, 2, 3
#: A number for each worker: 1 once it has not found its blocks.
MISSING = "missing"


def start_of(pass_number: int) -> str:
    """The table with the point at which pass ``pass_number`` began, until the one after the next begins."""
    return f"start {pass_number % 2}"
