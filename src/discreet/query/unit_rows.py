"""Selection of the rows of a person who has more than ``max_rows_per_unit``.

The rows with the smallest ``md5(salt:id:x0,x1,...)`` stay, where ``x0, x1, ...`` are the row's exact cells in
the order of the curated table, as integers: a number that is kept as a float by its 64 bits. The rule depends
on the salt and on the person's own rows alone. It is therefore the same on every engine and at every
registration, a repeated query is about the same rows, and a neighboring table differs in at most
``max_rows_per_unit`` used rows. Rows of a person with equal digests have equal cells: whichever of them stay,
the curated table is the same.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import TYPE_CHECKING

import numpy as np

from discreet.errors import DataError, SourceError
from discreet.privacy.receipt import canonical
from discreet.query.curation import Curation, exact_words

if TYPE_CHECKING:
    from collections.abc import Iterator

    from discreet._types import Bools, Ints, Words
    from discreet.ledger import Ledger
    from discreet.schema import Schema
    from discreet.tables import Batch, Table

LABEL = "rows per unit"
_BUCKETS, _ONE_BUCKET = 32, 2**20
"""Number of groups of ids that are sorted one after the other, and the rows up to which there is one."""


def ledger_salt(ledger: Ledger, schema: Schema) -> str:
    """Return the salt of a schema's rows in a ledger: the same for its questions, models and releases.

    It is empty where every row is a unit, and nothing is to be chosen.

    Privacy
    -------
    It may become public, as in the log of a server that hashes with it; the ledger's secret does not follow
    from it, if HMAC-SHA256 is a pseudorandom function.
    """
    if schema.id_column is None:
        return ""
    text = canonical([LABEL, schema.digest])
    return hmac.new(ledger.secret(), text.encode(), hashlib.sha256).hexdigest()


def row_digests(curation: Curation, salt: str, batch: Batch, rows: Bools | None = None) -> list[bytes]:
    """Return the digest of each row of a batch, or of the marked ones, by which a person's rows are ranked.

    Parameters
    ----------
    curation : Curation
        Layout of the curated table, whose exact cells are hashed.
    salt : str
        Salt of :func:`ledger_salt`, or, for a release without a ledger, one from its key.
    batch : Batch
        Batch of rows that was read with ``id_texts``.
    rows : array of bool, optional
        Mask of the rows that are hashed; None for all.

    Notes
    -----
    ``md5(salt || ':' || id || ':' || x0 || ',' || x1 ...)`` in SQL, as 16 bytes: their order is that of the
    hexadecimal text.
    """
    assert batch.id_texts is not None
    mask = np.ones(batch.n_rows, bool) if rows is None else rows
    arrays = curation.encode(batch)
    names = [name for name in curation.exact_identifiers() if name in arrays]  # without ids
    integers = [exact_words(arrays[name][mask]).tolist() for name in names]
    # One format for all parts of a row: this is called for every row of people who have too many.
    form = f"{salt}:".encode().replace(b"%", b"%%") + b"%b:" + b",".join([b"%d"] * len(names))
    rows_of_cells = zip(batch.id_texts[mask], *integers, strict=True)
    return [hashlib.md5(form % row, usedforsecurity=False).digest() for row in rows_of_cells]


def count_used_rows(table: Table, schema: Schema) -> int:
    """Return how many rows are used, at most ``max_rows_per_unit`` of each unit; only ids are read."""
    if schema.id_column is None:
        return table.count()
    ids = _read_ids(table, schema)
    ids.sort()
    return int(np.minimum(_unit_sizes(ids), schema.max_rows_per_unit or 1).sum())


def _unit_sizes(ids: Words) -> Ints:
    """Return the number of rows of each unit, for sorted ids."""
    starts = np.flatnonzero(np.diff(ids, prepend=~ids[:1]))
    return np.diff(starts, append=len(ids))


def _read_ids(table: Table, schema: Schema, id_salt: str = "") -> Words:
    """Return the fingerprints of all ids, in one buffer that grows: joined, they would be held twice."""
    content = bytearray()
    for ids in table.read_ids(schema, id_salt=id_salt):
        content += np.ascontiguousarray(ids).data
    return np.frombuffer(content, np.uint64)


def _unit_groups(ids: Words) -> Iterator[Ints]:
    """Yield the places of ids in groups, in order within each: all rows of a unit are in one group.

    Sorting takes some 50 bytes for each row, and one group at a time is sorted.
    """
    if len(ids) <= _ONE_BUCKET:
        yield np.arange(len(ids))
        return
    # Any byte of a fingerprint is as good as another, so the order of bytes of the processor does not matter.
    buckets = ids.view(np.uint8)[::8] % np.uint8(_BUCKETS)
    for bucket in range(_BUCKETS):
        yield np.flatnonzero(buckets == bucket)


def kept_rows(table: Table, schema: Schema, salt: str, id_salt: str = "") -> tuple[Words, Bools]:
    """Return the fingerprints of all ids, and a mask of the rows that are used.

    Parameters
    ----------
    table : Table
        Table, whose ids are read, and all of it once more if a unit has more rows than are used.
    schema : Schema
        Schema with an ``id_column`` and ``max_rows_per_unit``.
    salt : str
        As for :func:`row_digests`.
    id_salt : str
        Text that is hashed before an id, as in :meth:`Table.batches <discreet.tables.Table.batches>`.

    Notes
    -----
    It holds 12 bytes for each row, and 35 more for each row of a unit that has too many.
    """
    most = schema.max_rows_per_unit
    assert most is not None
    ids = _read_ids(table, schema, id_salt)
    crowded = np.zeros(len(ids), bool)
    for group in _unit_groups(ids):
        ordered = group[np.argsort(ids[group])]
        sizes = _unit_sizes(ids[ordered])
        crowded[ordered] = np.repeat(sizes > most, sizes)
    kept = ~crowded
    if not crowded.any():
        return ids, kept
    # Only these are hashed, in Python: in most tables few people have more rows than are used.
    curation = Curation.from_schema(schema)
    places = np.flatnonzero(crowded)
    words, filled = np.empty((len(places), 2), np.uint64), 0
    for batch in table.batches(schema, ids=True, id_texts=True, id_salt=id_salt):
        here = _same_rows(table, batch, ids)
        digests = b"".join(row_digests(curation, salt, batch, crowded[here]))
        words[filled : filled + len(digests) // 16] = np.frombuffer(digests, ">u8").reshape(-1, 2)
        filled += len(digests) // 16
    if filled != len(places):
        raise _changed_error(table)
    units = ids[places]
    for group in _unit_groups(units):
        # Stable: rows with equal digests stay in the table's order.
        ranked = group[np.lexsort((words[group, 1], words[group, 0], units[group]))]
        sizes = _unit_sizes(units[ranked])
        rank = np.arange(len(ranked)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        kept[places[ranked[rank < most]]] = True
    return ids, kept


def limited_batches(
    table: Table, schema: Schema, salt: str, id_salt: str = ""
) -> Iterator[tuple[Batch, Bools | None]]:
    """Yield each batch of a table with a mask of the rows that are used; None where every row is a unit.

    Parameters
    ----------
    table, schema, salt, id_salt
        As for :func:`kept_rows`.
    """
    if schema.id_column is None:
        for batch in table.batches(schema):
            yield batch, None
        return
    ids, kept = kept_rows(table, schema, salt, id_salt)
    for batch in table.batches(schema, ids=True, id_salt=id_salt):
        yield batch, kept[_same_rows(table, batch, ids)]


def check_matrix_allowed(schema: Schema, where: str) -> None:
    """Refuse a matrix, which has no ids, under a schema with an id column."""
    if schema.id_column is not None:
        raise DataError(
            f"{where} must be a table with the id column {schema.id_column!r}, was a matrix, in which the "
            f"rows of one {schema.unit} cannot be identified and limited to {schema.max_rows_per_unit}. "
            "Give a frame or a mapping of names to arrays that has the column; or, where every row is "
            f"another {schema.unit}, declare neither id_column nor max_rows_per_unit.",
            column=schema.id_column,
        )


def _same_rows(table: Table, batch: Batch, ids: Words) -> slice:
    """Return the slice of a batch, whose ids must be those of the first pass."""
    here = slice(batch.start, batch.start + batch.n_rows)
    if not np.array_equal(ids[here], np.asarray(batch.ids)):
        raise _changed_error(table)
    return here


def _changed_error(table: Table) -> SourceError:
    return SourceError(
        f"{table.label} must stay as it is while it is read, and its ids have changed. Read it again when "
        "no one writes to it."
    )
