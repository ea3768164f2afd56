"""Rows on their way into a curated table: encoded, checked, counted, and at most so many of each unit."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import numpy as np

from discreet.errors import DataError, SourceError
from discreet.query._person_signs import ID_BITS
from discreet.query.curation import Version
from discreet.query.unit_rows import changed_error, crowded_rows, row_digests, same_rows, used_rows
from discreet.tables.cell_encoding import NO_ID
from discreet.tables.external_sort import RowBuckets

if TYPE_CHECKING:
    from collections.abc import Iterator

    from discreet._types import AnyArray, Words
    from discreet.query.curation import Curation
    from discreet.tables import Table


_WAITING = 2**27  # bytes of rows of crowded units that wait in memory


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
    for arrays in _limited_arrays(table, curation, salt):
        if len(next(iter(arrays.values()))):
            tally.add(arrays)
            yield {name: arrays[name] for name in names}


def _limited_arrays(table: Table, curation: Curation, salt: str) -> Iterator[dict[str, AnyArray]]:
    """Yield the rows that are used, curated; those of units that have too many come last.

    These wait in buckets by unit, on disk if there are many, so that a server need not send them once more;
    the rows are those of :func:`~discreet.query.unit_rows.kept_rows`, which keeps their order.
    """
    schema = curation.schema
    if not curation.has_units:
        yield from map(curation.encode, table.batches(schema))
        return
    id_salt = curation.id_salt(salt)
    ids, crowded = crowded_rows(table, schema, id_salt)
    id_texts = bool(crowded.any())
    names, n_rows = list[str](), 0
    with RowBuckets(None, _WAITING) as buckets:
        for batch in table.batches(schema, ids=True, id_texts=id_texts, id_salt=id_salt):
            assert batch.ids is not None
            many = crowded[same_rows(table, batch, ids)]
            arrays = curation.encode(batch) | curation.encode_ids(batch.ids)
            if many.any():
                names, units = list(arrays), batch.ids[many]
                digests = row_digests(curation, salt, batch, many)
                # A row that others of the same batch leave no place for need not wait.
                used = used_rows(schema, units, *digests)
                places = np.flatnonzero(many)[used]
                waiting = [arrays[name][places] for name in names]
                with _room():
                    buckets.add([*waiting, *(words[used] for words in digests), units[used]])
                arrays = {name: values[~many] for name, values in arrays.items()}
            yield arrays
            n_rows += batch.n_rows
        if n_rows != len(ids):
            raise changed_error(table)
        with _room():
            for *columns, first, second, units in buckets.chunks():
                used = used_rows(schema, units, first, second)
                yield {name: values[used] for name, values in zip(names, columns, strict=True)}


@contextlib.contextmanager
def _room() -> Iterator[None]:
    """Raise the sentence about room for temporary files where rows cannot wait in them."""
    try:
        yield
    except OSError as problem:
        kind = type(problem).__name__
    else:
        return
    raise no_room(kind)


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
