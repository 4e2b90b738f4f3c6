"""Loss and gradient as matrix products on devices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sparkdml.core import Update, add_updates
from sparkdml.losses import Loss
from sparkdml.problem.devices.block import DeviceBlock
from sparkdml.problem.devices.losses import ARRAY_LOSSES
from sparkdml.problem.devices.resident import Resident


def sums_on_devices(
    loss: Loss, blocks: Sequence[DeviceBlock], coefficients: np.ndarray, intercepts: np.ndarray
) -> Update:
    """``loss``, ``gradient`` and ``slope_sum`` as :func:`~sparkdml.problem.gradient.loss_and_gradient` has them.

    Values stay as they are stored, float32 where that loses nothing; products and sums are float64. Nothing is waited
    for until all devices have their work.
    """
    residents = list({id(block.resident): block.resident for block in blocks}.values())
    running = [
        _begin(loss, [block for block in blocks if block.resident is resident], resident, coefficients, intercepts)
        for resident in residents
    ]
    total: Update = {
        "loss": 0.0,
        "gradient": np.zeros((len(coefficients), loss.outputs)),
        "slope_sum": np.zeros(loss.outputs),
    }
    for resident, (value, gradient, slope_sum) in zip(residents, running, strict=True):
        with resident.device.current():
            arrays = [np.asarray(resident.device.to_numpy(each)) for each in (value, gradient, slope_sum)]
        add_updates(total, {"loss": float(arrays[0]), "gradient": arrays[1], "slope_sum": arrays[2]})
    return total


def _begin(
    loss: Loss,
    blocks: Sequence[DeviceBlock],
    resident: Resident,
    coefficients: np.ndarray,
    intercepts: np.ndarray,
) -> tuple[Any, Any, Any]:
    """The sums over one device's blocks, arrays there."""
    device, evaluate = resident.device, ARRAY_LOSSES[type(loss)]
    xp = device.xp
    with device.current():
        point, shift = device.put(coefficients[:, : loss.outputs]), device.put(intercepts)
        value, gradient, slope_sum = (device.put(np.zeros(n)) for n in ((), point.shape, shift.shape))
        for block in blocks:
            arrays = resident.arrays(block.source)
            features, labels, weights = (xp.astype(each, xp.float64, copy=False) for each in arrays)
            losses, slopes = evaluate(xp, loss, features @ point + shift, labels, weights)
            value = value + losses
            gradient = gradient + features.T @ slopes
            slope_sum = slope_sum + xp.sum(slopes, axis=0)
    return value, gradient, slope_sum
