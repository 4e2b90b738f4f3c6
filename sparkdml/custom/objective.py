"""What a user writes: a loss, what its parameters start at, and what the model predicts."""

from __future__ import annotations

import importlib.util
import inspect
import sysconfig
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from pyspark import cloudpickle

from sparkdml.custom.trees import Tree, flattened

#: Libraries whose automatic differentiation may be used, and numpy, where the gradient is given.
LIBRARIES = ("numpy", "torch", "jax")


class Batch(NamedTuple):
    """Some rows, in the objective's library: ``features`` (n, d), ``labels`` and ``weights`` (n,), all float32.

    Labels of classes may be used as integers: numbers below 2^24 are exact. In numpy labels and weights are float64,
    and features are ``scipy.sparse.csr_matrix`` where rows are stored sparse; other libraries are given dense ones.
    """

    features: Any
    labels: Any
    weights: Any


@dataclass(frozen=True)
class Objective:
    """``F(params) = 1/W * sum_i w_i loss_i(params) + regParam / 2 * |params|^2``.

    Parameters
    ----------
    loss : ``loss(params, batch)``, a pure function: the loss of each row, shape (n,), without weights and not averaged.
        With ``library="numpy"`` it returns two values: these, and the derivative of ``sum_i w_i loss_i`` by the
        parameters, in a tree like ``initial``.
    initial : where parameters start: a tree of arrays (dictionaries and lists in one another). ``params`` has its form.
    predict : ``predict(params, features)`` for ``transform``: (n,) numbers, or (n, k) for a column of vectors.
    library : ``torch`` or ``jax``, which find the derivative, or ``numpy``. Workers need it installed.
    chunk_rows : the most rows that ``loss`` is given at once.

    Functions travel to workers by value (cloudpickle), with what they use of their own file: notebooks, scripts and
    modules beside them need not be on workers. Other modules that they import, and installed ones, do.

    Raises
    ------
    ValueError, TypeError : for what cannot be; ImportError if the library is not installed here.
    """

    loss: Callable[[Tree, Batch], Any]
    initial: Tree
    predict: Callable[[Tree, Any], Any] | None = None
    library: str = "torch"
    chunk_rows: int = 1024
    shapes: dict[str, tuple[int, ...]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if self.library not in LIBRARIES:
            raise ValueError(f"library='{self.library}' is not known; it can be {', '.join(LIBRARIES)}")
        if importlib.util.find_spec(self.library) is None:
            raise ImportError(
                f"library='{self.library}' is not installed; pip install 'sparkdml[{self.library}]' here and on workers"
            )
        if self.chunk_rows < 1:
            raise ValueError(f"chunk_rows={self.chunk_rows}; a call is given 1 row or more")
        for name in ("loss", "predict"):
            function = getattr(self, name)
            if not callable(function) and not (name == "predict" and function is None):
                raise TypeError(f"{name} is a {type(function).__name__}; it must be a function")
        object.__setattr__(self, "shapes", {path: array.shape for path, array in flattened(self.initial).items()})

    @property
    def start(self) -> np.ndarray:
        """All of ``initial`` in one vector."""
        return np.concatenate([array.ravel() for array in flattened(self.initial).values()])

    def __reduce__(self) -> tuple[Any, ...]:
        # what is defined in a notebook or a script has no module that workers could import it from
        values = (self.loss, self.initial, self.predict, self.library, self.chunk_rows)
        with _by_value(self.loss, self.predict):
            return _unpickled, (cloudpickle.dumps(values),)


@contextmanager
def _by_value(*functions: Any) -> Iterator[None]:
    """Within it, cloudpickle takes these functions with it, unless they are of an installed package."""
    installed = tuple(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib"))
    known = cloudpickle.list_registry_pickle_by_value()
    modules = {inspect.getmodule(function) for function in functions}
    new = [
        module
        for module in modules
        if module is not None
        and module.__name__ not in {"__main__", *known}
        and not (getattr(module, "__file__", None) or installed[0]).startswith(installed)
    ]
    for module in new:
        cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in new:
            cloudpickle.unregister_pickle_by_value(module)


def _unpickled(content: bytes) -> Objective:
    return Objective(*cloudpickle.loads(content))
