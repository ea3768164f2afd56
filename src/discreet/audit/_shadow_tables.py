"""Tables made for an attack: synthetic ones with the people in them, and masked ones with their classifier.

Beside a synthetic table stand the people in it and others; of a masked one it is asked what its classifier
says about the people who trained it.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from discreet.learn.perturbation.mean_loss import minimize
from discreet.noise.linear_algebra import product, round_to_bits
from discreet.tables.encoded import EncodedTable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from discreet._types import AnyArray, Floats, Ints
    from discreet.audit.targets import UnitRows
    from discreet.privacy import Promise
    from discreet.release.masked.method import MaskedRelease
    from discreet.release.masked.plan import MaskedPlan
    from discreet.release.synthetic import SyntheticRelease
    from discreet.schema import Column, Schema

_BLOCK = 64
_TOLERANCE = 1e-10
_POINTS_BLOCK = 256
_MOST_WEIGHTS = 1000
"""Number of weights up to which their covariance is used."""
_LEAST_SPREAD = 1e-9
_DIGITS = 30
"""Binary digits to which scores are rounded, so that equal rows have equal scores on every machine."""


@dataclass(frozen=True, eq=False)
class ShadowTable:
    """A synthetic table made for an attack, and the people in it and others.

    Attributes
    ----------
    method : SyntheticRelease
        Method after the release, with the noisy answers.
    schema : Schema
        Declaration of the columns.
    published : dict of str to array
        Rows of the table, encoded.
    known : dict of str to array
        People who are not in the table, and whom the attacker knows, encoded.
    groups : list of dict of str to array
        Rows of people in the table, and of others, encoded, whom the attacker is to tell apart.
    units : list of UnitRows
        Which rows of the two groups are whose.
    n_rows : int
        Number of rows of which the table was made.
    """

    method: SyntheticRelease
    schema: Schema
    published: dict[str, AnyArray]
    known: dict[str, AnyArray]
    groups: list[dict[str, AnyArray]]
    units: list[UnitRows]
    n_rows: int

    areas: ClassVar[tuple[tuple[str, str], ...]] = (
        (
            "nearest row",
            "In {} of pairs of a person in the table and another, a published row is more like the one in "
            "it.",
        ),
        (
            "likelihood",
            "In {} of pairs of a person in the table and another, the noisy counts of the one in it are "
            "further above what other people explain.",
        ),
    )
    """Name of the attack by each feature, and the sentence about its result."""

    @property
    def promise(self) -> Promise:
        """Promise that the table was made under."""
        (promise,) = self.method.promises_
        return promise

    @classmethod
    def from_members(
        cls,
        method: SyntheticRelease,
        rows: Mapping[str, AnyArray],
        units: UnitRows,
        members: Ints,
        others: Ints,
        n: int,
        seed: int,
    ) -> ShadowTable:
        """Make a table of members; the first `n` of them and of others are attacked, the rest is known.

        Parameters
        ----------
        method : SyntheticRelease
            Method with the parameters of the release; it is not changed.
        rows : mapping of str to array
            Rows of all people, encoded.
        units : UnitRows
            People of the table, with the places of the rows of each.
        members, others : array of int
            Numbers of the people in the table, and of those who are not.
        n, seed : int
            Number of people of each group that are attacked, and seed of the noise.
        """
        made = copy.copy(method)
        made.ledger, made.anyway, made.random_state, made.n_records = None, True, seed, None
        # Whose public cells are there is not protected, and would be all that these attacks find.
        made.keep_public = False
        schema = method.schema
        assert schema is not None
        inside = units.take(members)
        cells = {c.name: rows[c.name][inside.places] for c in schema.released}
        source = EncodedTable(cells, None if schema.id_column is None else inside.owners)
        table = made.release(source)
        chosen = [units.take(people) for people in (others[n:], members[:n], others[:n])]
        known, *groups = ({name: values[one.places] for name, values in rows.items()} for one in chosen)
        return cls(made, schema, dict(table.columns), known, groups, chosen[1:], len(inside.places))

    @property
    def questions(self) -> list[dict[str, Any]]:
        """Published questions about tables, with their answers."""
        questions = self.method.tables_["questions"]
        return [one for one in questions if one["question"]["kind"] == "marginals"]

    def codes(self, rows: Mapping[str, AnyArray]) -> AnyArray:
        """Return the cells of rows in the published tables, one row each."""
        parts = [one["question"] for one in self.questions if one["name"] == "one"]
        part_of = {name: part for part in parts for table in part["tables"] for name in table}
        codes = [cell_codes(self.schema.column(name), rows[name], part) for name, part in part_of.items()]
        # Where noise leaves one cell to every column, no table was asked, and all rows are alike.
        return np.column_stack([np.empty((len(next(iter(rows.values()))), 0)), *codes]).astype(np.int16)

    @property
    def width(self) -> int:
        """Number of columns with more than one cell."""
        return int(self.codes(self.groups[0]).shape[1])

    @cached_property
    def nearest(self) -> list[tuple[Ints, Ints]]:
        """Distance of the nearest row and number of cells guessed right, of members and of others.

        Of several rows of a person the one that is nearest counts, and the cells of the first are guessed.
        """
        shown = self.codes(self.published)
        found = []
        for people, units in zip(self.groups, self.units, strict=True):
            distance, right = _find_nearest(self.codes(people), shown, units.starts)
            found.append((np.minimum.reduceat(distance, units.starts), right))
        return found

    def features(self) -> list[Floats]:
        """Return for people in the table and others how near a row is, and how likely they are in it."""
        return [
            np.column_stack([-1.0 * distance, score])
            for (distance, _), score in zip(self.nearest, self._likelihood(), strict=True)
        ]

    def _likelihood(self) -> list[Floats]:
        """Return for members and others how far the noisy counts of their cells exceed those of people known.

        Notes
        -----
        The sum over tables of ``(T - n p) / (sd**2 + n p (1 + n / m))`` in the person's cell, with ``p`` the
        share of the cell among the ``m`` people known and ``n`` the rows of the table: the excess divided by
        its variance where nobody is known to be in the table. Several rows of a person are added up.
        """
        scores = [np.zeros(len(next(iter(people.values())))) for people in self.groups]
        for one in self.questions:
            question, values, sds = one["question"], np.array(one["values"]), np.array(one["sd"])
            columns = {name: self.schema.column(name) for table in question["tables"] for name in table}
            known, *people = (
                {name: cell_codes(column, rows[name], question) for name, column in columns.items()}
                for rows in (self.known, *self.groups)
            )
            start = 0
            for table in question["tables"]:
                shape = [cell_count(columns[name], question) for name in table]
                end = start + math.prod(shape)
                places = [
                    np.ravel_multi_index([codes[name] for name in table], shape) for codes in (known, *people)
                ]
                ratio = self.n_rows / len(places[0])
                # What the table would count if its people were like those whom the attacker knows.
                expected = np.bincount(places[0], minlength=end - start) * ratio
                # An empty cell has a variance too: at least that of one expected row.
                variance = np.square(sds[start:end]) + np.maximum(expected, 1.0) * (1 + ratio)
                excess = (values[start:end] - expected) / variance
                for score, place in zip(scores, places[1:], strict=True):
                    score += excess[place]
                start = end
        return [units.combine(score, np.add) for units, score in zip(self.units, scores, strict=True)]


def cell_codes(column: Column, values: AnyArray, question: Mapping[str, Any]) -> Ints:
    """Return the cells of encoded values in a published question.

    Parameters
    ----------
    column : Column
        Declaration of the column.
    values : array
        Encoded cells: codes of levels, or numbers with NaN where they are missing.
    question : mapping
        Question as ``tables.json`` has it, with its edges and groups.
    """
    if column.is_category:
        groups = question.get("groups", {}).get(column.name)
        codes = np.asarray(values, np.int64)
        return codes if groups is None else np.array(groups)[codes]
    edges = np.array(question["edges"].get(column.name, ()), np.float64)
    missing = np.isnan(values)
    # A missing cell gets a place first, since NaN has none among the edges, and then a cell of its own.
    found = np.searchsorted(edges, np.where(missing, 0.0, values), side="right")
    return np.where(missing, len(edges) + 1, found)


def cell_count(column: Column, question: Mapping[str, Any]) -> int:
    """Return the number of cells of a column in a published question, that of missing values included."""
    if column.is_category:
        groups = question.get("groups", {}).get(column.name)
        return len(column.levels) if groups is None else max(groups) + 1
    return len(question["edges"].get(column.name, ())) + 1 + (not column.required)


def _find_nearest(people: AnyArray, shown: AnyArray, firsts: Ints) -> tuple[Ints, Ints]:
    """Return in how many columns the nearest row differs, and how many cells such rows guess right.

    Parameters
    ----------
    people, shown : array of int of shape (rows, columns)
        Cells of people, and of published rows in random order: the first of equally near ones is taken.
    firsts : array of int
        Rows of people whose cells are guessed.
    """
    # In few bytes each, of which a processor compares many at once.
    narrow = np.min_scalar_type(max(int(people.max(initial=0)), int(shown.max(initial=0)), people.shape[1]))
    own, published = people.T.astype(narrow), shown.T.astype(narrow)
    nearest = np.empty(len(people), np.int64)
    for start in range(0, len(people), _BLOCK):
        part = slice(start, start + _BLOCK)
        nearest[part] = _count_differences(own[:, part], published)[0].min(axis=1)
    right = np.zeros(len(firsts), np.int64)
    for start in range(0, len(firsts), _BLOCK):
        part = slice(start, start + _BLOCK)
        cells = own[:, firsts[part]]
        distance, differs = _count_differences(cells, published)
        for cell, column, one in zip(cells, published, differs, strict=True):
            # The column that is guessed must not count in how alike a row is.
            right[part] += column[(distance - one).argmin(axis=1)] == cell
    return nearest, right


def _count_differences(own: AnyArray, published: AnyArray) -> tuple[AnyArray, list[AnyArray]]:
    """Return in how many columns, and in which, each person's row differs from each published one."""
    differs = [cell[:, None] != column for cell, column in zip(own, published, strict=True)]
    distance = np.zeros((own.shape[1], published.shape[1]), own.dtype)
    for one in differs:
        distance += one
    return distance, differs


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
        cells = {c.name: rows[c.name][inside.places] for c in schema.released}
        source = EncodedTable(cells, None if schema.id_column is None else inside.owners)
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
                    round_to_bits(scores, _DIGITS)
                    for scores in (
                        units.combine(self._margins(rows, codes), np.add) / units.sizes,
                        units.combine(self._shifts(rows, codes, reference, direction), np.add),
                        units.combine(-self._distances(rows), np.maximum),
                    )
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
        # The own class is left out of the largest of the others.
        scores[people, codes] = -np.inf
        return np.asarray(own - scores.max(axis=1))

    def _likelihood_direction(self, reference: Floats) -> Floats:
        """Return ``H^-1 C^-1 (W - V)`` as one vector: what the gradients of people are multiplied by."""
        moved = (self.weights - reference).ravel()
        # The matrix of many weights does not fit: then their shift itself is the direction, as if H and C
        # were flat.
        if moved.size > _MOST_WEIGHTS:
            return moved
        gradients = self._gradients(reference, *self._read(self.known))
        spread, axes = np.linalg.eigh(gradients.T @ gradients / len(gradients))
        # Directions in which nobody differs would otherwise have no variance at all.
        spread = np.maximum(spread, _LEAST_SPREAD * spread[-1])
        curvature = spread + self.plan.regularization
        sampling = (1 / self.n_rows + 1 / len(gradients)) * spread / curvature**2
        # What sampling does not explain of the shift is the noise of the release.
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
        for start in range(0, len(rows), _POINTS_BLOCK):
            block = rows[start : start + _POINTS_BLOCK]
            # |x - p|**2 without |x|**2, which is the same for all points of a person and is added at the end.
            nearest[start : start + _POINTS_BLOCK] = (sizes - 2 * (block @ self.points.T)).min(axis=1)
        return np.asarray(nearest + np.sum(rows**2, axis=1))
