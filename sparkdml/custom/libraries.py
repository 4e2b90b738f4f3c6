"""Objectives as functions that algorithms train: the gradient is the library's, or the user's own."""

from __future__ import annotations

import functools
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse

from sparkdml.custom.objective import Batch, Objective
from sparkdml.custom.trees import Tree, flattened, put_together
from sparkdml.problem.function import Examples, Function, Params
from sparkdml.resources.worker import in_task


def function_of(objective: Objective, features: int) -> CustomFunction:
    """``objective`` over rows of so many features."""
    kinds: dict[str, type[Any]] = {"numpy": NumpyFunction, "torch": TorchFunction, "jax": JaxFunction}
    kind: type[CustomFunction] = kinds[objective.library]
    return kind(objective, features)


@dataclass(frozen=True)
class CustomFunction(Function):
    """An objective's loss. Raises ValueError for losses of a wrong shape and for NaN."""

    objective: Objective
    given_features: int

    @property
    def features(self) -> int:
        return self.given_features

    @property
    def chunk_rows(self) -> int:  # type: ignore[override]
        return self.objective.chunk_rows

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        return self.objective.shapes

    @abstractmethod
    def predict(self, params: Params, features: Any) -> np.ndarray:
        """The user's predictions for dense rows, float64 (n,) or (n, k)."""

    def _tree(self, params: Params, array: Any) -> Tree:
        return put_together(self.objective.initial, lambda path: array(params[path]))

    def _checked(self, losses: np.ndarray, rows: int) -> np.ndarray:
        if losses.shape != (rows,):
            raise ValueError(
                f"the objective's loss returned shape {losses.shape} for a batch of {rows} rows; return one loss for "
                f"each row, shape ({rows},): weights and the mean are seen to"
            )
        wrong = np.flatnonzero(np.isnan(losses))
        if len(wrong):
            raise ValueError(
                f"the objective's loss is NaN for {len(wrong)} of {rows} rows, first for row {wrong[0]} of the batch; "
                "look for logarithms, roots and quotients of values that can be 0 or below"
            )
        return losses


class NumpyFunction(CustomFunction):
    """With the gradient that the user wrote."""

    def loss_and_gradient(
        self, params: Params, rows: Examples, rng: np.random.Generator | None = None
    ) -> tuple[float, Params]:
        found = self.objective.loss(self._tree(params, np.array), Batch(*rows))
        if not isinstance(found, tuple) or len(found) != 2:
            raise ValueError(
                "with library='numpy' the objective's loss returns two values, the losses of rows and the gradient; it "
                f"returned a {type(found).__name__}"
            )
        losses = self._checked(np.asarray(found[0], np.float64), len(rows.labels))
        gradient = flattened(found[1])
        shapes = {path: array.shape for path, array in gradient.items()}
        if shapes != dict(self.shapes):
            raise ValueError(f"the objective's gradient has shapes {shapes}, and its parameters have {self.shapes}")
        return float(losses @ rows.weights), gradient

    def predict(self, params: Params, features: Any) -> np.ndarray:
        assert self.objective.predict is not None
        return np.asarray(self.objective.predict(self._tree(params, np.array), features), np.float64)


class TorchFunction(CustomFunction):
    """By PyTorch's automatic differentiation, in float32, on the CPU."""

    def loss_and_gradient(
        self, params: Params, rows: Examples, rng: np.random.Generator | None = None
    ) -> tuple[float, Params]:
        torch = _torch()
        leaves = {path: _tensor(torch, array).requires_grad_() for path, array in params.items()}
        losses, weighted = self._losses(torch, leaves, rows)
        weighted.backward()
        gradient = {
            path: np.zeros(self.shapes[path]) if leaf.grad is None else leaf.grad.numpy()
            for path, leaf in leaves.items()
        }
        return losses, gradient

    def loss(self, params: Params, rows: Examples) -> float:
        torch = _torch()
        with torch.no_grad():
            return self._losses(torch, {path: _tensor(torch, array) for path, array in params.items()}, rows)[0]

    def predict(self, params: Params, features: Any) -> np.ndarray:
        assert self.objective.predict is not None
        torch = _torch()
        with torch.no_grad():
            tree = self._tree(params, lambda array: _tensor(torch, array))
            found = self.objective.predict(tree, _tensor(torch, features))
        return np.asarray(found.numpy(), np.float64)

    def _losses(self, torch: Any, leaves: Mapping[str, Any], rows: Examples) -> tuple[float, Any]:
        """The weighted sum, in float64, and as a tensor that knows how it came about."""
        batch = Batch(*(_tensor(torch, array) for array in _dense(rows)))
        losses = self.objective.loss(self._tree(leaves, lambda leaf: leaf), batch)
        if not isinstance(losses, torch.Tensor):
            raise ValueError(f"the objective's loss returned a {type(losses).__name__}, not a tensor")
        values = self._checked(losses.detach().numpy().astype(np.float64), len(rows.labels))
        return float(values @ rows.weights), (losses * batch.weights).sum()


class JaxFunction(CustomFunction):
    """By JAX's automatic differentiation, in float32, compiled for each number of rows."""

    def loss_and_gradient(
        self, params: Params, rows: Examples, rng: np.random.Generator | None = None
    ) -> tuple[float, Params]:
        slopes, losses = self._compiled[0](self._tree(params, np.float32), Batch(*_dense(rows)))
        return self._value(losses, rows), flattened(slopes)

    def loss(self, params: Params, rows: Examples) -> float:
        return self._value(self._compiled[1](self._tree(params, np.float32), Batch(*_dense(rows))), rows)

    def predict(self, params: Params, features: Any) -> np.ndarray:
        assert self.objective.predict is not None
        found = self.objective.predict(self._tree(params, np.float32), np.asarray(features, np.float32))
        return np.asarray(found, np.float64)

    def _value(self, losses: Any, rows: Examples) -> float:
        return float(self._checked(np.asarray(losses, np.float64), len(rows.labels)) @ rows.weights)

    @cached_property
    def _compiled(self) -> tuple[Any, Any]:
        """``(tree, batch)`` to the gradient of the weighted sum and the losses, and to the losses alone."""
        import jax

        def weighted(tree: Tree, batch: Batch) -> tuple[Any, Any]:
            losses = self.objective.loss(tree, batch)
            if losses.shape == batch.labels.shape:
                return (losses * batch.weights).sum(), losses
            return losses.sum(), losses  # of a wrong shape, which is told when the numbers are here

        return jax.jit(jax.grad(weighted, has_aux=True)), jax.jit(self.objective.loss)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_compiled"}


def _dense(rows: Examples) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features, labels and weights as float32."""
    given: Any = rows.features
    features = given.toarray() if sparse.issparse(given) else given
    return np.asarray(features, np.float32), rows.labels.astype(np.float32), rows.weights.astype(np.float32)


def _tensor(torch: Any, array: np.ndarray) -> Any:
    # a copy: what is mapped from a file cannot be written, which tensors do not know
    return torch.tensor(np.asarray(array), dtype=torch.float32)


@functools.cache
def _torch() -> Any:
    """PyTorch, with one thread where tasks run side by side."""
    import torch

    if in_task():
        torch.set_num_threads(1)
    return torch
