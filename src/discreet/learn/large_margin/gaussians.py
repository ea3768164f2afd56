"""From matrices to ellipsoids: a shift that changes no decision, and what stands in a matrix.

``x' A x`` of an embedded row is ``(x - center)' P (x - center) + offset`` in the columns' units, as soon as
``A`` is positive definite. Adding the same multiple of the identity to every matrix adds the same number
to every class's ``f`` of a row, so that no decision changes; cutting off negative eigenvalues class by class
would change many.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from discreet._typing import Floats
    from discreet.learn.perturbed.embedding import Embedding

LEAST = 2.0**-10
"""The smallest eigenvalue after the shift, as a part of the spread of all eigenvalues."""


def common_shift(matrices: Floats) -> Floats:
    """Return the matrices with one multiple of the identity added to all, so that all are positive definite.

    How much is added is a convention: no more than takes the smallest eigenvalue of all to 2**-10 of their
    spread.

    Reference
    ---------
    docs/explanation/theorems/large-margin-cone.md
    """
    values = np.linalg.eigvalsh(matrices)
    least, most = float(values.min()), float(values.max())
    floor = LEAST * (most - least) if most > least else 1.0
    return np.asarray(matrices + max(0.0, floor - least) * np.eye(matrices.shape[-1]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Gaussians:
    """What stands in positive definite matrices, in the columns' own units.

    Attributes
    ----------
    centers : array of shape (..., d)
        Where ``f`` is smallest.
    inverse_covariances : array of shape (..., d, d)
        How ``f`` grows from there. A decision surface, not an estimate of how a class is spread.
    offsets : array of shape (...)
        What ``f`` is at the center; not negative.
    """

    centers: Floats
    inverse_covariances: Floats
    offsets: Floats


def gaussians_in(matrices: Floats, embedding: Embedding) -> Gaussians:
    """Return centers, inverse covariances and offsets for rows inside what was declared."""
    d = embedding.n_features
    inner, cross, last = matrices[..., :d, :d], matrices[..., :d, d], matrices[..., d, d]
    toward = np.linalg.solve(inner, cross[..., np.newaxis])[..., 0]
    scale, start = embedding.affine
    constant = embedding.constant
    return Gaussians(
        centers=(-constant * toward - start) / scale,
        inverse_covariances=inner * scale * scale[:, np.newaxis],
        offsets=np.maximum(constant**2 * (last - (cross * toward).sum(axis=-1)), 0.0),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Ellipse:
    """Points in the plane where a class's ``f`` is one margin above its smallest value.

    Attributes
    ----------
    label : object
        The class.
    center, radii : (float, float)
        In the columns' units; the longer radius first.
    angle : float
        Of the longer radius, in degrees against the first column.
    """

    label: object
    center: tuple[float, float]
    radii: tuple[float, float]
    angle: float


def ellipse_of(label: object, center: Floats, inverse_covariance: Floats, level: float) -> Ellipse:
    """Return the ellipse at which a class's ``f`` is ``level`` above its smallest value."""
    values, vectors = np.linalg.eigh(inverse_covariance)
    long = vectors[:, 0] if vectors[0, 0] >= 0 else -vectors[:, 0]
    return Ellipse(
        label=label,
        center=(float(center[0]), float(center[1])),
        radii=(math.sqrt(level / values[0]), math.sqrt(level / values[1])),
        angle=math.degrees(math.atan2(long[1], long[0])),
    )
