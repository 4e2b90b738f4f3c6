"""Losses over a block's margins by the array API standard: formulas are those of :mod:`sparkdml.losses`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sparkdml.losses import Logistic, Loss, Softmax, Squared

#: ``(xp, loss, margins (n, K), labels (n,), weights (n,))``, float64 -> the weighted sum of losses, slopes (n, K).
ArrayLoss = Callable[[Any, Any, Any, Any, Any], tuple[Any, Any]]


def logistic(xp: Any, loss: Logistic, margins: Any, labels: Any, weights: Any) -> tuple[Any, Any]:
    margin = margins[:, 0]
    # exp of a negative number only: nothing overflows, and log1p keeps tiny losses exact
    small = xp.exp(-xp.abs(margin))
    share = 1.0 / (1.0 + small)
    positive = margin >= 0.0
    probability = xp.where(positive, share, small * share)
    losses = xp.where(positive, margin, xp.zeros_like(margin)) - labels * margin + xp.log1p(small)
    return xp.sum(weights * losses), (weights * (probability - labels))[:, None]


def softmax(xp: Any, loss: Softmax, margins: Any, labels: Any, weights: Any) -> tuple[Any, Any]:
    below = margins - xp.max(margins, axis=1, keepdims=True)
    shares = xp.exp(below)
    mass = xp.sum(shares, axis=1, keepdims=True)
    classes = xp.astype(xp.arange(loss.outputs, device=margins.device), margins.dtype)
    own = xp.astype(labels[:, None] == classes[None, :], margins.dtype)
    losses = xp.log(mass)[:, 0] - xp.sum(own * below, axis=1)
    return xp.sum(weights * losses), weights[:, None] * (shares / mass - own)


def squared(xp: Any, loss: Squared, margins: Any, labels: Any, weights: Any) -> tuple[Any, Any]:
    residuals = margins[:, 0] - labels
    slopes = loss.scale * weights * residuals
    return 0.5 * xp.sum(slopes * residuals), slopes[:, None]


ARRAY_LOSSES: dict[type[Loss], ArrayLoss] = {Logistic: logistic, Softmax: softmax, Squared: squared}
