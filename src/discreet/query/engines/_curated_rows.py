"""Rows on their way into a curated table: encoded, checked, counted, and at most so many of each unit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from discreet.errors import DataError, SourceError
from discreet.query._person_signs import ID_BITS
from discreet.query.curation import Version
from discreet.query.unit_rows import limited_batches
from discreet.tables.cell_encoding import NO_ID

if TYPE_CHECKING:
    from collections.abc import Iterator

    from discreet._types import AnyArray, Words
    from discreet.query.curation import Curation
    from discreet.tables import Table


class Tally:
    """Number of rows and sum of fingerprints of a curated table while it is filled."""

    def __init__(self, curation: Curation) -> None:
        self._curation = curation
        self.version = Version(0, 0)

    def count(self, n_rows: int) -> None:
        """Count rows without their fingerprints."""
        self.version = Version(self.version.n_rows + n_rows, 0)

    def add(self, arrays: dict[str, AnyArray]) -> None:
        """Count a batch of rows with their fingerprints."""
        n_rows = self.version.n_rows + len(next(iter(arrays.values())))
        cells, units = self._curation.checksums(arrays)
        self.version = Version(
            n_rows, (self.version.checksum + cells) % 2**64, (self.version.unit_checksum + units) % 2**64
        )


def curated_batches(
    table: Table, curation: Curation, tally: Tally, salt: str
) -> Iterator[dict[str, AnyArray]]:
    """Yield a table curated, a batch at a time, without the rows past ``max_rows_per_unit``.

    All declared cells are read and counted; the arrays are those of columns that are stored.
    """
    names = curation.identifiers()
    if curation.ids:
        _check_ids(table, curation)
    for batch, kept in limited_batches(table, curation.schema, salt, curation.id_salt(salt)):
        arrays = curation.encode(batch)
        if batch.ids is not None:
            arrays |= curation.encode_ids(batch.ids)
        if kept is not None:
            arrays = {name: values[kept] for name, values in arrays.items()}
        if len(next(iter(arrays.values()))):
            tally.add(arrays)
            yield {name: arrays[name] for name in names}


def stored_batches(
    table: Table, curation: Curation, tally: Tally, salt: str
) -> Iterator[dict[str, AnyArray]]:
    """Yield the stored columns of a table in which every row is a unit, and count rows; read no others."""
    assert not curation.has_units
    for batch in table.batches(curation.schema, names=curation.stored):
        tally.count(batch.n_rows)
        yield curation.encode(batch, stored=True)


def _check_ids(table: Table, curation: Curation) -> None:
    """Refuse a table in which an id is missing or stands twice, where ids are kept."""
    parts = list(table.read_ids(curation.schema))
    ids: Words = np.concatenate(parts) if parts else np.empty(0, np.uint64)
    if (ids == NO_ID).any():
        raise missing_ids(table.label, curation)
    ordered = np.sort(ids & np.uint64(2**ID_BITS - 1))
    if (ordered[1:] == ordered[:-1]).any():
        raise repeated_ids(table.label, curation)


def missing_ids(label: str, curation: Curation) -> DataError:
    """Return the error for a row that has no id, where ids are kept."""
    column = curation.schema.id_column
    return DataError(
        f"{label}: column {column!r} must have an id in every row where ids are kept, and does not. Leave "
        "rows without one out.",
        column=column,
    )


def repeated_ids(label: str, curation: Curation) -> DataError:
    """Return the error for an id that occurs twice: other databases could not tell the rows apart."""
    column = curation.schema.id_column
    return DataError(
        f"{label}: column {column!r} must have every id once where ids are kept, and has one twice. Keep one "
        "row for each of them before you register the table.",
        column=column,
    )


def no_room(kind: str) -> SourceError:
    """Return the error for curated rows that do not fit on the disk."""
    return SourceError(
        f"The curated table cannot be built: the engine stopped with {kind}. Check that the folder for "
        "temporary files has room."
    )
