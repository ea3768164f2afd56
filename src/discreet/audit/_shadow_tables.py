"""Synthetic tables made for an attack, and what the people in them and others look like beside their rows."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from discreet.audit._rehearsal import decode_column

if TYPE_CHECKING:
    from collections.abc import Mapping

    from discreet._types import AnyArray, Floats, Ints
    from discreet.audit._units import UnitRows
    from discreet.privacy import Promise
    from discreet.release.synthetic import SyntheticRelease
    from discreet.schema import Column, Schema

_BLOCK = 64


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
        source = {c.name: decode_column(c, rows[c.name][inside.places]) for c in schema.released}
        if schema.id_column is not None:
            source[schema.id_column] = inside.owners
        table = made.release(source)
        chosen = [units.take(people) for people in (others[n:], members[:n], others[:n])]
        known, *groups = ({name: values[one.places] for name, values in rows.items()} for one in chosen)
        return cls(made, schema, dict(table.columns), known, groups, chosen[1:], len(inside.places))

    @property
    def questions(self) -> list[dict[str, Any]]:
        """Published questions about tables, with their answers."""
        asked = self.method.tables_["questions"]
        return [one for one in asked if one["question"]["kind"] == "marginals"]

    def codes(self, rows: Mapping[str, AnyArray]) -> AnyArray:
        """Return the cells of rows in the published tables, one row each."""
        parts = [one["question"] for one in self.questions if one["name"] == "one"]
        asked = {name: part for part in parts for table in part["tables"] for name in table}
        codes = [cell_codes(self.schema.column(name), rows[name], part) for name, part in asked.items()]
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
            distance, right = _find_nearest(self.codes(people), shown)
            found.append((np.minimum.reduceat(distance, units.starts), right[units.starts]))
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
                expected = np.bincount(places[0], minlength=end - start) * ratio
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
    found = np.searchsorted(edges, np.where(missing, 0.0, values), side="right")
    return np.where(missing, len(edges) + 1, found)


def cell_count(column: Column, question: Mapping[str, Any]) -> int:
    """Return the number of cells of a column in a published question, that of missing values included."""
    if column.is_category:
        groups = question.get("groups", {}).get(column.name)
        return len(column.levels) if groups is None else max(groups) + 1
    return len(question["edges"].get(column.name, ())) + 1 + (not column.required)


def _find_nearest(people: AnyArray, shown: AnyArray) -> tuple[Ints, Ints]:
    """Return in how many columns the nearest row differs, and how many cells such rows guess right.

    Parameters
    ----------
    people, shown : array of int of shape (rows, columns)
        Cells of people, and of published rows in random order: the first of equally near ones is taken.
    """
    nearest = np.empty(len(people), np.int64)
    right = np.zeros(len(people), np.int64)
    for start in range(0, len(people), _BLOCK):
        block = people[start : start + _BLOCK]
        differs = [block[:, None, j] != shown[None, :, j] for j in range(shown.shape[1])]
        distance = np.zeros((len(block), len(shown)), np.int16)
        for one in differs:
            distance += one
        nearest[start : start + _BLOCK] = distance.min(axis=1)
        for j, one in enumerate(differs):
            guess = shown[(distance - one).argmin(axis=1), j]
            right[start : start + _BLOCK] += guess == block[:, j]
    return nearest, right
