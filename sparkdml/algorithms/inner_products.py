"""What L-BFGS needs of its vectors: their inner products.

These are of m steps, then m changes of the gradient, then the slope, (2m + 1, 2m + 1), in coordinates in which the
preconditioner is the identity.
"""

from __future__ import annotations

import numpy as np

#: Corrections without so much curvature, of a share of their lengths, are left out.
FLAT = 1e-12


def grown(gram: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Inner products with those of the vectors that are new: of one more correction and the slope, or the slope alone.

    ``rows`` may be all of them; then it is the answer.
    """
    size = rows.shape[1]
    if len(rows) == size:
        return rows
    count = size // 2
    newest = [count - 1, 2 * count - 1, 2 * count]
    known = [n for n in range(size) if n not in newest]
    whole = np.empty((size, size))
    whole[np.ix_(known, known)] = gram[:-1, :-1]
    whole[newest] = rows
    whole[:, newest] = rows.T
    return whole


def two_loop(gram: np.ndarray) -> np.ndarray:
    """The inverse Hessian times the slope, as weights of corrections and slope, in ``gram``'s order (2m + 1,).

    ``H_0`` is the identity in the coordinates of these inner products, scaled by the latest correction.

    Nocedal & Wright, *Numerical Optimization* (2006), algorithm 7.4.
    """
    count = len(gram) // 2
    weights = np.zeros(len(gram))
    weights[-1] = 1.0
    curvatures = [float(gram[n, count + n]) for n in range(count)]
    lengths = np.sqrt(np.diagonal(gram)[:count] * np.diagonal(gram)[count : 2 * count])
    used = [n for n in range(count) if curvatures[n] > FLAT * lengths[n]]
    alphas = {}
    for n in reversed(used):
        alphas[n] = float(gram[n] @ weights) / curvatures[n]
        weights[count + n] -= alphas[n]
    if used:
        weights *= curvatures[used[-1]] / gram[count + used[-1], count + used[-1]]
    for n in used:
        weights[n] += alphas[n] - float(gram[count + n] @ weights) / curvatures[n]
    return weights
