"""Masked tables made for an attack, and what their classifier says about the people who trained it."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from discreet.audit._rehearsal import decode_column
from discreet.learn.perturbation.mean_loss import minimize
from discreet.noise.linear_algebra import product

if TYPE_CHECKING:
    from collections.abc import Mapping

    from discreet._types import AnyArray, Floats, Ints
    from discreet.audit._units import UnitRows
    from discreet.privacy import Promise
    from discreet.release.masked.method import MaskedRelease
    from discreet.release.masked.plan import MaskedPlan

_TOLERANCE = 1e-10
_BLOCK = 256
_MOST_WEIGHTS = 1000
"""Number of weights up to which their covariance is used."""
_LEAST_SPREAD = 1e-9
_DIGITS = 30
"""Binary digits to which scores are rounded, so that equal rows have equal scores on every machine."""


@dataclass(frozen=True, eq=False)
class MaskedShadow:
    """A masked table made for an attack, and the people in it and others.

    Attributes
    ----------
    plan : MaskedPlan
        Plan of the table, with the map from declared columns to points.
    promise : Promise
        Promise that the table was made under.
    weights : array of shape (n_outputs, dimension)
        Weights of the published classifier.
    points : array of shape (n_records, dimension)
        Points that the table publishes.
    known : dict of str to array
        People who are not in the table, and whom the attacker knows, encoded.
    groups : list of dict of str to array
        Rows of people in the table, and of others, encoded, whom the attacker is to tell apart.
    units : list of UnitRows
        Which rows of the two groups are whose.
    n_rows : int
        Number of rows that the classifier was trained on.
    """

    plan: MaskedPlan
    promise: Promise
    weights: Floats
    points: Floats
    known: dict[str, AnyArray]
    groups: list[dict[str, AnyArray]]
    units: list[UnitRows]
    n_rows: int

    areas: ClassVar[tuple[tuple[str, str], ...]] = (
        (
            "margin",
            "In {} of pairs of a person in the table and another, the published classifier fits the one in "
            "it better.",
        ),
        (
            "influence",
            "In {} of pairs of a person in the table and another, the published classifier is shifted "
            "further towards the one in it, away from a classifier of other people.",
        ),
        (
            "nearest point",
            "In {} of pairs of a person in the table and another, a published point is nearer to the one in "
            "it.",
        ),
    )
    """Name of the attack by each feature, and the sentence about its result."""

    @classmethod
    def from_members(
        cls,
        method: MaskedRelease,
        rows: Mapping[str, AnyArray],
        units: UnitRows,
        members: Ints,
        others: Ints,
        n: int,
        seed: int,
    ) -> MaskedShadow:
        """Make a table of members; the first `n` of them and of others are attacked, the rest is known.

        Parameters
        ----------
        method, rows, units, members, others, n, seed
            As for :meth:`discreet.audit._shadow_tables.ShadowTable.from_members`.
        """
        made = copy.copy(method)
        made.ledger, made.random_state, made.n_records = None, seed, None
        schema = method.schema
        assert schema is not None
        inside = units.take(members)
        source = {c.name: decode_column(c, rows[c.name][inside.places]) for c in schema.released}
        if schema.id_column is not None:
            source[schema.id_column] = inside.owners
        # The points of this copy belong to its own classifier.
        plan = made.plan(schema, len(inside.places))
        table = made.release(source)
        assert made.model_ is not None
        chosen = [units.take(people) for people in (others[n:], members[:n], others[:n])]
        known, *groups = ({name: values[one.places] for name, values in rows.items()} for one in chosen)
        # Classifier and noisy counts together keep the requested promise.
        promise = plan.promises[0] if len(plan.promises) == 1 else made.privacy
        points = np.column_stack([table.columns[name] for name in plan.encoding.names])
        return cls(plan, promise, made.model_, points, known, groups, chosen[1:], len(inside.places))

    def features(self) -> list[Floats]:
        """Return for people in the table and others what the classifier and the points say about them.

        Notes
        -----
        One column for each of :attr:`areas`. Margin: the score of the person's class less the largest other
        one.

        Influence: let V be the classifier of the m people known, F the mean of the squares ``g g'`` of their
        gradients and ``H = F + lambda``. A person with gradient ``-g`` shifts the classifier of n people by
        ``u = H^-1 g / n``, and without that person ``W - V`` has about the covariance
        ``C = (1 / n + 1 / m) H^-1 F H^-1 + s^2``, where the variance s^2 of the noise is estimated from its
        norm. The score ``<u, C^-1 (W - V)>`` is the logarithm of the likelihood ratio up to ``<u, C^-1 u>``,
        which is of second order. Everything is diagonal where F is.

        Rows of one person count together: the mean margin, the sum of the gradients, the nearest of all.
        """
        reference = self._train_reference()
        direction = self._likelihood_direction(reference)
        return [
            np.column_stack(
                [
                    _round_scores(units.combine(self._margins(rows, codes), np.add) / units.sizes),
                    _round_scores(units.combine(self._shifts(rows, codes, reference, direction), np.add)),
                    _round_scores(units.combine(-self._distances(rows), np.maximum)),
                ]
            )
            for units, (rows, codes) in zip(self.units, map(self._read, self.groups), strict=True)
        ]

    def _read(self, rows: Mapping[str, AnyArray]) -> tuple[Floats, Ints]:
        """Return people as points of the ball, with the positions of their classes."""
        return self.plan.encoding.rows(rows), np.asarray(rows[self.plan.target.name], np.int64)

    def _train_reference(self) -> Floats:
        """Return the classifier of people whom the attacker knows, trained without noise."""
        rows, codes = self._read(self.known)
        n_classes = len(self.plan.target.levels)
        problem = self.plan.loss.problem(rows, codes, self.plan.regularization, n_classes)
        return problem.weights(minimize(problem, _TOLERANCE))

    def _margins(self, rows: Floats, codes: Ints) -> Floats:
        """Return how far the score of each person's class is above the others."""
        scores = product(rows, self.weights.T)
        if len(self.weights) == 1:
            return np.where(codes == 1, scores[:, 0], -scores[:, 0])
        people = np.arange(len(codes))
        own = scores[people, codes].copy()
        scores[people, codes] = -np.inf
        return np.asarray(own - scores.max(axis=1))

    def _likelihood_direction(self, reference: Floats) -> Floats:
        """Return ``H^-1 C^-1 (W - V)`` as one vector: what the gradients of people are multiplied by."""
        moved = (self.weights - reference).ravel()
        if moved.size > _MOST_WEIGHTS:
            return moved
        gradients = self._gradients(reference, *self._read(self.known))
        spread, axes = np.linalg.eigh(gradients.T @ gradients / len(gradients))
        # Directions in which nobody differs would otherwise have no variance at all.
        spread = np.maximum(spread, _LEAST_SPREAD * spread[-1])
        curvature = spread + self.plan.regularization
        sampling = (1 / self.n_rows + 1 / len(gradients)) * spread / curvature**2
        noise = max(0.0, (float(moved @ moved) - float(np.sum(sampling))) / moved.size)
        return np.asarray(axes @ ((axes.T @ moved) / (curvature * (sampling + noise))))

    def _shifts(self, rows: Floats, codes: Ints, reference: Floats, direction: Floats) -> Floats:
        """Return how far each row shifts the classifier in the direction that tells members from others."""
        return np.asarray(np.sum(self._gradients(reference, rows, codes) * direction, axis=1))

    def _gradients(self, weights: Floats, rows: Floats, codes: Ints) -> Floats:
        """Return minus the gradient of each row's loss by all weights, one row each."""
        slopes = self.plan.loss.residuals(product(rows, weights.T), codes)
        return (slopes[:, :, None] * rows[:, None, :]).reshape(len(rows), -1)

    def _distances(self, rows: Floats) -> Floats:
        """Return the squared distance of each person to the nearest published point."""
        sizes = np.sum(self.points**2, axis=1)
        nearest = np.empty(len(rows))
        for start in range(0, len(rows), _BLOCK):
            block = rows[start : start + _BLOCK]
            nearest[start : start + _BLOCK] = (sizes - 2 * (block @ self.points.T)).min(axis=1)
        return np.asarray(nearest + np.sum(rows**2, axis=1))


def _round_scores(scores: Floats) -> Floats:
    """Return scores as multiples of a power of two, about a billionth of the largest."""
    largest = float(np.max(np.abs(scores), initial=0.0))
    grid = math.ldexp(1.0, math.frexp(largest)[1] - _DIGITS)
    return np.asarray(np.rint(scores / grid) * grid)
