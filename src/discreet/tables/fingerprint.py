"""Keyed digests of some rows of a table, by which it is known again whatever its name, format and order."""

from __future__ import annotations

import datetime
import hashlib
from typing import TYPE_CHECKING, Any

import numpy as np

from discreet.errors import DiscreetError, SchemaError
from discreet.tables.table import open_table

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from discreet._types import AnyArray, Words
    from discreet.schema import Column, Schema
    from discreet.tables.table import Batch

ROWS = 128
"""Number of rows whose digests make up a fingerprint."""
_MISSING = 0x7FF8_0000_0000_0000  # the bits of a missing cell
_ODD = (0x9E37_79B9_7F4A_7C15, 0xBF58_476D_1CE4_E5B9, 0x94D0_49BB_1331_11EB)  # multipliers of SplitMix64


def fingerprint_table(source: Any, schema: Schema, key: bytes) -> tuple[str, ...]:
    """Return keyed digests of some rows of a table; none if it cannot be read here.

    Parameters
    ----------
    source : Any
        Table as :func:`~discreet.tables.open_table` reads it; one that only Spark can read has no digests.
    schema : Schema
        Schema that names the columns to hash.
    key : bytes
        Secret of at least 32 bytes.

    Privacy
    -------
    With the key, guesses at whole rows can be tested; without it the digests tell only how many there are.
    Both stay with the curator.

    Raises
    ------
    SchemaError
        The table lacks a declared column.

    Notes
    -----
    A cell with bits b has the hash z = m_1(b xor k), a row the sum of its cells' hashes, mixed once more
    under the key. The ``ROWS`` distinct rows with the smallest hashes are kept (a bottom-k sample), each with
    how often it occurs: rows of few columns occur in every table, and their counts tell tables apart.
    """
    try:
        with open_table(source, schema=schema) as table:
            sample = sample_rows(table.batches(schema), schema, key)
    except SchemaError:
        raise
    except DiscreetError:
        # The error is raised again when the job itself reads the table.
        return ()
    return sample_digests(sample, key)


def sample_rows(batches: Iterable[Batch], schema: Schema, key: bytes) -> Words:
    """Return the smallest hashes of the rows of some batches, and below each how often it occurs."""
    word = int.from_bytes(key[:8])
    sample = merge_samples([])
    for batch in batches:
        hashes = _row_hashes(batch, schema, word)
        if sample.shape[1] == ROWS:
            hashes = hashes[hashes <= sample[0, -1]]
        distinct, times = np.unique(hashes, return_counts=True)
        sample = merge_samples([sample, np.stack([distinct, times.astype(np.uint64)])])
    return sample


def merge_samples(samples: Sequence[Words]) -> Words:
    """Return the sample of all rows from those of parts: the smallest of all are so in their parts."""
    hashes, times = np.concatenate([np.empty((2, 0), np.uint64), *samples], axis=1)
    smallest, places = np.unique(hashes, return_inverse=True)
    counts = np.bincount(places, times, len(smallest)).astype(np.uint64)
    return np.stack([smallest, counts])[:, :ROWS]


def sample_digests(sample: Words, key: bytes) -> tuple[str, ...]:
    """Return the keyed digests of a sample of rows, which are the fingerprint of its table."""
    return tuple(
        hashlib.blake2b(f"{row}:{times}".encode(), key=key[:64], digest_size=8).hexdigest()
        for row, times in sample.T.tolist()
    )


def _row_hashes(batch: Batch, schema: Schema, key: int) -> Words:
    """Return a 64-bit hash of each row of a batch, whatever the order of its columns.

    Notes
    -----
    With cell bits b_j and key k: z_j = m ((b_j xor k) * a_0), where m(x) = x xor (x >> 32); the hash is the
    SplitMix64 finalizer of (sum_j z_j) xor k. A sum does not depend on the order of its terms.
    """
    total: Words = np.zeros(batch.n_rows, np.uint64)
    for column in schema.released:
        bits = _bits(column, batch[column.name])
        bits ^= np.uint64(key)
        bits *= np.uint64(_ODD[0])
        bits ^= bits >> np.uint64(32)
        total += bits
    total ^= np.uint64(key)
    for odd in _ODD[1:]:
        total ^= total >> np.uint64(30)
        total *= np.uint64(odd)
    total ^= total >> np.uint64(31)
    return total


def _bits(column: Column, values: AnyArray) -> Words:
    """Return 64 bits for each cell, which depend on its value and not on its declaration."""
    if column.is_category:
        return np.array([_level_bits(level) for level in column.levels], np.uint64)[values]
    cells: AnyArray = np.array(values, np.float64)
    if column.type == "date":
        cells += column.lower.toordinal()  # type: ignore[union-attr]
    elif column.type == "datetime":
        # In seconds, whatever the declared step is.
        assert isinstance(column.lower, datetime.datetime)
        first = (column.lower - datetime.datetime.min).total_seconds()
        cells = cells * column.step_length.total_seconds() + first
    bits: Words = cells.view(np.uint64)
    if not column.required:
        bits[np.isnan(cells)] = _MISSING
    return bits


def _level_bits(level: Any) -> int:
    """Return the 64 bits of one listed value: those of a number if it is one, else a hash of its text."""
    if level is None:
        return _MISSING
    try:
        return int(np.float64(level).view(np.uint64))  # a code that may be declared as a number as well
    except ValueError:
        return int.from_bytes(hashlib.blake2b(str(level).encode(), digest_size=8).digest())
