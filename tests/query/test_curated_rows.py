"""Rows on their way into a curated table: read once, and in bounded memory where people have too many."""

from __future__ import annotations

import errno
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from discreet.errors import SourceError
from discreet.noise import Stream
from discreet.query.curation import Curation
from discreet.query.engines import _curated_rows
from discreet.query.engines._curated_rows import Tally, curated_batches
from discreet.query.unit_rows import kept_rows
from discreet.tables import open_table
from discreet.tables.external_sort import RowBuckets
from tests.query.test_unit_rows import SALT, exact_rows, ids_of, visits, visits_schema

if TYPE_CHECKING:
    from collections.abc import Iterable

    from discreet._types import AnyArray
    from discreet.schema import Schema
    from discreet.tables import Table


def rows_of(batches: Iterable[dict[str, AnyArray]], curation: Curation) -> Counter[tuple[int, ...]]:
    names = (*curation.exact_identifiers(), *curation.unit_identifiers())
    return Counter(row for part in batches for row in exact_rows(part[name] for name in names))


def kept(table: Table, schema: Schema) -> tuple[Counter[tuple[int, ...]], Tally]:
    """The rows that a release uses, as an engine holds them."""
    curation = Curation.from_schema(schema)
    tally = Tally(curation)
    ids, used = kept_rows(table, schema, SALT, SALT)
    (batch,) = table.batches(schema, ids=True, id_salt=SALT)
    arrays = curation.encode(batch) | curation.encode_ids(ids)
    arrays = {name: values[used] for name, values in arrays.items()}
    tally.add(arrays)
    return rows_of([arrays], curation), tally


@pytest.mark.parametrize("waiting", [0, 1 << 27])
@pytest.mark.parametrize("most", [1, 2, 5])
def test_engines_hold_the_rows_that_releases_use(
    most: int, waiting: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_curated_rows, "_WAITING", waiting)
    rng = Stream.from_seed(most).generator()
    ids = [*ids_of(rng, 3000, "text"), *[None] * 40, *["once"], *["often"] * 700]
    schema = visits_schema(most)
    curation = Curation.from_schema(schema)
    tally = Tally(curation)
    with open_table(visits(rng, ids)) as table:
        found = rows_of(curated_batches(table, curation, tally, SALT), curation)
        expected, other = kept(table, schema)
    assert found == expected
    assert tally.version == other.version


def test_rows_are_read_once_whoever_has_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = visits_schema(1)
    curation = Curation.from_schema(schema)
    with open_table(visits(Stream.from_seed(1).generator(), [1, 1, 2, 2, 2, 3])) as table:
        read: list[int] = []
        real = table.batches

        def batches(*args: Any, **options: Any) -> Any:
            read.append(1)
            return real(*args, **options)

        monkeypatch.setattr(table, "batches", batches)
        parts = curated_batches(table, curation, Tally(curation), SALT)
        assert sum(len(part["c1"]) for part in parts) == 3
    assert read == [1]


def test_of_one_with_very_many_rows_few_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = visits_schema(2)
    curation = Curation.from_schema(schema)
    waiting = [0]
    real = RowBuckets.add

    def add(self: RowBuckets, columns: list[AnyArray]) -> None:
        waiting[0] += len(columns[0])
        real(self, columns)

    monkeypatch.setattr(RowBuckets, "add", add)
    with open_table(visits(Stream.from_seed(1).generator(), [None] * 5000 + [7])) as table:
        list(curated_batches(table, curation, Tally(curation), SALT))
    assert waiting == [2]


@pytest.mark.parametrize("when", ["add", "chunks"])
def test_a_full_disk_is_said_in_one_sentence(when: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> Any:
        raise OSError(errno.ENOSPC, "No space left on device", "/tmp/secret")

    monkeypatch.setattr(RowBuckets, when, fail)
    schema = visits_schema(1)
    curation = Curation.from_schema(schema)
    rows = visits(Stream.from_seed(1).generator(), [1, 1, 2])
    with open_table(rows) as table, pytest.raises(SourceError, match="has room") as caught:
        list(curated_batches(table, curation, Tally(curation), SALT))
    assert "secret" not in str(caught.value)
    assert caught.value.__cause__ is None
