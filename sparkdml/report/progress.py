"""A progress bar, by choice."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sparkdml.report.history import Round


@contextmanager
def progress_bar(wanted: bool) -> Iterator[Callable[..., None] | None]:
    """A callback that counts rounds and shows the objective, or None if none is wanted.

    Drawn on standard error, where that is a terminal or a notebook.
    """
    if not wanted or not (sys.stderr.isatty() or "ipykernel" in sys.modules):
        yield None
        return
    from tqdm.auto import tqdm

    with tqdm(unit=" rounds", leave=False) as bar:

        def show(entry: Round, state: object) -> None:
            bar.set_postfix(objective=f"{entry.objective:.6g}", refresh=False)
            bar.update()

        yield show
