"""Selection of the rows of a person who has more than ``max_rows_per_unit``.

The rows with the smallest ``md5(salt:id:x0,x1,...)`` stay, where ``x0, x1, ...`` are the row's exact cells in
the order of the curated table, as integers: a number that is kept as a float by its 64 bits. The rule depends
on the salt and on the person's own rows alone. It is therefore the same on every engine and at every
registration, a repeated query is about the same rows, and a neighboring table differs in at most
``max_rows_per_unit`` used rows. Rows of a person with equal digests have equal cells: whichever of them stay,
the curated table is the same.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
from typing import TYPE_CHECKING

import numpy as np

from discreet.errors import DataError, SourceError
from discreet.privacy.receipt import canonical
from discreet.query.curation import Curation, exact_words
from discreet.tables.arrow import ArrayStream, read_stream
from discreet.tables.cell_encoding import md5_words
from discreet.tables.duckdb import connect_shared, literal

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


def row_digests(
    curation: Curation, salt: str, batch: Batch, rows: Bools | None = None
) -> tuple[Words, Words]:
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

    Returns
    -------
    first, second : array of uint64
        Halves of ``md5(salt || ':' || id || ':' || x0 || ',' || x1 ...)``, as SQL writes it: their order is
        that of its hexadecimal text.
    """
    assert batch.id_texts is not None
    mask = np.ones(batch.n_rows, bool) if rows is None else rows
    arrays = curation.encode(batch)
    names = [name for name in curation.exact_identifiers() if name in arrays]  # without ids
    waiting = [[batch.id_texts[mask], *(exact_words(arrays[name][mask]) for name in names)]]
    dtypes = {"id": np.dtype(object)} | dict.fromkeys(names, np.dtype(np.int64))
    # In the engine: it writes out and hashes a row in a fifth of the time that Python takes.
    cells = ", ',', ".join(names)
    halves = ", ".join(md5_words(f"concat({literal(f'{salt}:')}, id, ':', {cells})"))
    # Taken out when it is read: a stream is in a cycle of references, and would hold the arrays for long.
    stream = ArrayStream(dtypes, lambda: (waiting.pop() for _ in range(1)))
    first, second = [np.empty(0, np.uint64)], [np.empty(0, np.uint64)]
    with contextlib.closing(connect_shared()) as connection:
        connection.register("arriving", stream)
        hashed = connection.sql(f"SELECT {halves} FROM arriving")  # noqa: S608 - hexadecimal salt, our names
        with contextlib.closing(read_stream(hashed.__arrow_c_stream__())) as pieces:
            for (low, high), _ in pieces:
                first.append(low.byteswap())
                second.append(high.byteswap())
    if stream.failure is not None:
        raise stream.failure
    return np.concatenate(first), np.concatenate(second)


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
    ids, crowded = crowded_rows(table, schema, id_salt)
    kept = ~crowded
    if not crowded.any():
        return ids, kept
    # Only these are hashed: in most tables few people have more rows than are used.
    curation = Curation.from_schema(schema)
    places = np.flatnonzero(crowded)
    words, filled = np.empty((2, len(places)), np.uint64), 0
    for batch in table.batches(schema, ids=True, id_texts=True, id_salt=id_salt):
        here = same_rows(table, batch, ids)
        first, second = row_digests(curation, salt, batch, crowded[here])
        words[:, filled : filled + len(first)] = first, second
        filled += len(first)
    if filled != len(places):
        raise changed_error(table)
    units = ids[places]
    for group in _unit_groups(units):
        kept[places[group[used_rows(schema, units[group], *words[:, group])]]] = True
    return ids, kept


def crowded_rows(table: Table, schema: Schema, id_salt: str) -> tuple[Words, Bools]:
    """Return the fingerprints of all ids, and a mask of the rows of units that have too many.

    Parameters
    ----------
    table, schema, id_salt
        As for :func:`kept_rows`; only ids are read.
    """
    assert schema.max_rows_per_unit is not None
    ids = _read_ids(table, schema, id_salt)
    crowded = np.zeros(len(ids), bool)
    for group in _unit_groups(ids):
        ordered = group[np.argsort(ids[group])]
        sizes = _unit_sizes(ids[ordered])
        crowded[ordered] = np.repeat(sizes > schema.max_rows_per_unit, sizes)
    return ids, crowded


def used_rows(schema: Schema, units: Words, first: Words, second: Words) -> Ints:
    """Return the places of the rows that are used of some units.

    Parameters
    ----------
    schema : Schema
        Schema that says how many rows of a unit are used.
    units : array of uint64
        Fingerprint of the id of each row; all rows of a unit are among them, in the order of the table.
    first, second : array of uint64
        Their digests, as :func:`row_digests` returns them.
    """
    assert schema.max_rows_per_unit is not None
    ranked = _rank_order(units, first, second)
    sizes = _unit_sizes(units[ranked])
    rank = np.arange(len(ranked)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return ranked[rank < schema.max_rows_per_unit]


def _rank_order(units: Words, first: Words, second: Words) -> Ints:
    """Return the order of rows by unit and digest; those with equal digests stay in the table's order."""
    by_unit = np.argsort(units)
    sizes = _unit_sizes(units[by_unit])
    # The number of the unit with the first bits of the digest behind it: one key is sorted much faster.
    bits = np.uint64(64 - len(sizes).bit_length())
    keys = np.repeat(np.arange(len(sizes), dtype=np.uint64), sizes) << bits
    keys |= first[by_unit] >> (np.uint64(64) - bits)
    order = np.argsort(keys)
    ordered = keys[order]
    if (ordered[1:] == ordered[:-1]).any():
        return np.lexsort((second, first, units))
    return by_unit[order]


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
    n_rows = 0
    for batch in table.batches(schema, ids=True, id_salt=id_salt):
        n_rows += batch.n_rows
        yield batch, kept[same_rows(table, batch, ids)]
    if n_rows != len(ids):
        raise changed_error(table)


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


def same_rows(table: Table, batch: Batch, ids: Words) -> slice:
    """Return the slice of the rows of a batch, whose ids must be those of the first pass."""
    here = slice(batch.start, batch.start + batch.n_rows)
    if not np.array_equal(ids[here], np.asarray(batch.ids)):
        raise changed_error(table)
    return here


def changed_error(table: Table) -> SourceError:
    """Return the error for a table whose ids are others at the second pass."""
    return SourceError(
        f"{table.label} must stay as it is while it is read, and its ids have changed. Read it again when "
        "no one writes to it."
    )
