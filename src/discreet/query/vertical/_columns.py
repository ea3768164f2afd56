"""Columns of several databases about the same people: their joint schema, and the database of each."""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from discreet.errors import ParameterError
from discreet.query.aggregates._moments import Moments
from discreet.query.aggregates._vectors import Gram
from discreet.query.aggregates.base import Sums, parse_expression
from discreet.query.features import ONE, Features
from discreet.query.vertical._gram import Part
from discreet.schema import Schema

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from discreet._types import Floats
    from discreet.query.aggregates.base import Aggregate
    from discreet.query.answers import NoisySums
    from discreet.query.curation import Curation
    from discreet.query.vertical._gram import Asker
    from discreet.schema import Column


def join_schemas(databases: Sequence[NoisySums]) -> Schema:
    """Return the schema of the columns of all databases; refuses databases that do not fit together."""
    if len(databases) < 2:
        raise ParameterError(
            f"databases of VerticalDatabases must be at least two, were {len(databases)}. Ask a single one "
            "itself."
        )
    first = databases[0].schema
    columns: list[Column] = []
    for i, db in enumerate(databases):
        schema = db.schema
        for word, here, there in (
            ("neighbors", schema.neighbors, first.neighbors),
            ("unit", schema.unit, first.unit),
            ("row_count", schema.row_count, first.row_count),
        ):
            if here != there:
                raise ParameterError(
                    f"{word} of all schemas of VerticalDatabases must be the same, were {there!r} in the "
                    f"first and {here!r} in database {i + 1}. A promise must be about the same people."
                )
        if schema.id_column is None:
            raise ParameterError(
                f"databases of VerticalDatabases must have an id_column, and database {i + 1} has none. "
                "Declare it, and register the table with keep_ids=True."
            )
        taken = {column.name for column in columns}
        twice = [column.name for column in schema.released if column.name in taken]
        if twice:
            raise ParameterError(
                f"databases of VerticalDatabases must not have a column name in common, and database {i + 1} "
                f"has {twice[0]!r} again. Rename it where it is declared."
            )
        columns.extend(schema.released)
    targets = [column.name for column in columns if column.role == "target"]
    if len(targets) > 1:
        raise ParameterError(
            f"databases of VerticalDatabases must have one target at most, and have {', '.join(targets)}. "
            "Declare the others sensitive."
        )
    if first.neighbors == "replace-one":
        _check_counts([db.n_rows for db in databases])
    return Schema(
        columns=columns,
        target=targets[0] if targets else None,
        neighbors=first.neighbors,
        unit=first.unit,
        row_count=first.row_count,
    )


def _check_counts(counts: Sequence[int | None]) -> None:
    """Refuse numbers of rows that are not public, or not the same."""
    if None in counts:
        raise ParameterError(
            "row_count of the schemas of VerticalDatabases must be public under replace-one neighbors, and "
            "is private. Declare add-remove neighbors: the number of rows is then asked for."
        )
    if len(set(counts)) > 1:
        raise ParameterError(
            "databases of VerticalDatabases must have the same number of rows under replace-one neighbors, "
            f"had {', '.join(map(str, counts))}. Register the same people everywhere, or declare add-remove."
        )


_ALL = Fraction(1)
_EVEN = 1 / 12  # variance of a column that is spread evenly over its range, as a fraction of its square


class Owners:
    """The columns of several databases, and the share of a promise that each database gets.

    Parameters
    ----------
    curation : Curation
        Layout of the columns of all databases together.
    schemas : sequence of Schema
        Schema of each database.
    shares : sequence of float, optional
        Weight of each database; by default the number of its coordinates in an aggregate.

    Privacy
    -------
    Shares follow from the schemas and the aggregate, or are given: they are public.

    Reference
    ---------
    docs/explanation/theorems/sulq-vertical.md.
    """

    def __init__(self, curation: Curation, schemas: Sequence[Schema], shares: Sequence[float] | None) -> None:
        self._curation = curation
        self._owner = {
            name: i
            for i, schema in enumerate(schemas)
            for column in schema.released
            for name in (column.name, column.missing_flag)
            if name is not None
        }
        self._given = None if shares is None else _check_shares(shares, len(schemas))

    def parts(self, question: Gram) -> list[Part]:
        """Return the columns of a Gram matrix by database."""
        if question.edges:
            raise ParameterError(
                "edges of a Gram over several databases must be left out, and were given. Declare a category "
                "to have a coordinate for each of its levels."
            )
        return self._parts_of(question.columns, question.center, question.radius)

    def _parts_of(
        self, columns: Sequence[str], center: Sequence[float] | None, radius: float | None
    ) -> list[Part]:
        """Return the part of each database, with its coordinates, center and radius.

        Notes
        -----
        A radius ``B`` over ``d`` coordinates becomes ``B sqrt(d_i / d)`` for a database with ``d_i`` of
        them: the squares of the parts add up to the square of the whole.
        """
        features = Features.from_curation(self._curation, columns, center=center, radius=radius)
        middle = np.array(features.center) / ONE
        owners = np.array([self._owner[columns[pick.place]] for pick in features.picks])
        parts = []
        for database in dict.fromkeys(owners.tolist()):
            places = np.flatnonzero(owners == database)
            own = tuple(name for name in columns if self._owner[name] == database)
            short = None
            if features.clips:
                assert radius is not None
                # Squares of the parts add up to the square of the whole.
                short = max(float(radius) * math.sqrt(len(places) / features.size), 1 / ONE)
            parts.append(Part(database, own, places, middle[places], short, self._spread(own, short)))
        return parts

    def _spread(self, columns: Sequence[str], radius: float | None) -> float:
        """Return the mean square of a coordinate, for rows spread evenly over the declared ranges."""
        sizes = [len(self._curation.column(name).levels) for name in columns]
        total = sum(1 - 1 / size if size else _EVEN for size in sizes)
        if radius is not None:
            total = min(total, radius**2)
        return float(max(total, 1 / ONE)) / sum(max(size, 1) for size in sizes)

    def inside(self, question: Aggregate, asker: Asker) -> tuple[Floats, Floats]:
        """Ask for sums that need no products across databases; return values and standard deviations."""
        if isinstance(question, Gram):
            (part,) = self.parts(question)
            return asker(part.database, question, _ALL, _ALL)
        if isinstance(question, Sums):
            return self._sums(question, asker)
        if isinstance(question, Moments):
            return self._moments(question, asker)
        raise ParameterError(
            f"question of VerticalDatabases must be a Gram, Sums or Moments, was {question.kind!r}. Ask the "
            "database that has its columns."
        )

    def _sums(self, question: Sums, asker: Asker) -> tuple[Floats, Floats]:
        """Ask each database for the expressions over its columns; refuses an expression over several."""
        expressions = [parse_expression(expression, self._curation) for expression in question.expressions]
        owners = []
        for expression in expressions:
            here = {self._owner[name] for name in expression.columns}
            if len(here) > 1:
                raise ParameterError(
                    "expressions of Sums over several databases must each have columns of one of them, and "
                    f"{expression.canonical} has not. Only sums of products go across: ask for a Gram."
                )
            owners.append(here.pop() if here else 0)
        value, sd = np.empty(len(expressions)), np.empty(len(expressions))
        for database, share in self._shares(Counter(owners)).items():
            places = [i for i, owner in enumerate(owners) if owner == database]
            texts = tuple(str(expressions[i].canonical) for i in places)
            value[places], sd[places] = asker(database, Sums(texts), share, _ALL)
        return value, sd

    def _moments(self, question: Moments, asker: Asker) -> tuple[Floats, Floats]:
        """Ask each database for the moments of its columns; noisy counts are averaged by inverse variance."""
        parts = self._parts_of(question.columns, None, None)
        d = sum(len(part.places) for part in parts)
        is_number = [
            not column.is_category
            for column in map(self._curation.column, question.columns)
            for _ in range(max(len(column.levels), 1))
        ]
        square_of = 1 + d + np.cumsum(is_number) - 1
        value, sd = np.zeros(1 + d + sum(is_number)), np.zeros(1 + d + sum(is_number))
        counted: list[tuple[float, float]] = []
        for part, share in self.with_shares(parts):
            own, own_sd = asker(part.database, Moments(part.columns), share, _ALL)
            numbers = [place for place in part.places.tolist() if is_number[place]]
            places = [*(1 + part.places).tolist(), *square_of[numbers].tolist()]
            value[places], sd[places] = own[1:], own_sd[1:]
            counted.append((float(own[0]), float(own_sd[0])))
        # Every database counts the same people; where the number is public there is no noise to average.
        noisy = [(count, noise**-2) for count, noise in counted if noise > 0]
        value[0] = counted[0][0]
        if noisy:
            precision = sum(weight for _, weight in noisy)
            value[0], sd[0] = sum(count * weight for count, weight in noisy) / precision, precision**-0.5
        return value, sd

    def with_shares(self, parts: Sequence[Part]) -> list[tuple[Part, Fraction]]:
        """Return the parts, each with its database's share of a promise."""
        shares = self._shares({part.database: len(part.places) for part in parts})
        return [(part, shares[part.database]) for part in parts]

    def _shares(self, coordinates: Mapping[int, int]) -> dict[int, Fraction]:
        """Return the share of a promise of each database with coordinates in the aggregate."""
        weights = {
            database: Fraction(count) if self._given is None else self._given[database]
            for database, count in coordinates.items()
        }
        total = sum(weights.values())
        return {database: weight / total for database, weight in weights.items()}


def _check_shares(shares: Sequence[float], size: int) -> list[Fraction]:
    """Return shares as fractions; refuses another number of them, and shares of 0."""
    given = [float(share) for share in shares]
    if len(given) != size or not all(0 < share < math.inf for share in given):
        raise ParameterError(
            f"shares of VerticalDatabases must be {size} numbers above 0, one for each database, were "
            f"{given}."
        )
    return [Fraction(share) for share in given]
