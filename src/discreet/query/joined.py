"""Databases whose columns belong to the same people: what they must agree on, and their common schema."""

from __future__ import annotations

from typing import TYPE_CHECKING

from discreet.errors import ParameterError
from discreet.schema import Schema

if TYPE_CHECKING:
    from collections.abc import Sequence

    from discreet.query.sums import NoisySums
    from discreet.schema import Column


def joined_schema(databases: Sequence[NoisySums]) -> Schema:
    """Return the schema of all columns; refuse databases that do not go together."""
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
