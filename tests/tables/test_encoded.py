"""Rows that are encoded already are read as an engine reads them."""

import datetime

import numpy as np
import pytest

from discreet import Column, Schema
from discreet.audit._rehearsal import decode_column
from discreet.noise import Stream
from discreet.privacy import ApproxDP
from discreet.query import Database
from discreet.query.curation import Curation
from discreet.query.dummy import rows_from_schema
from discreet.query.engines.base import kernel_engine_for
from discreet.query.unit_rows import kept_rows
from discreet.tables import open_table
from discreet.tables.encoded import EncodedTable

SCHEMA = Schema(
    columns=[
        Column("age", type="integer", lower=0, upper=120),
        Column("bmi", lower=10.5, upper=60, required=False),
        Column("ward", values=("a", "b", "c"), closed=True, required=False),
        Column("day", type="date", lower=datetime.date(2020, 1, 1), upper=datetime.date(2024, 1, 1)),
        Column("who", type="integer", role="id"),
    ],
    id_column="who",
    max_rows_per_unit=2,
)
ROWS = rows_from_schema(SCHEMA, 60, Stream.from_seed(1))
PRIVACY = ApproxDP(epsilon=4.0, delta=1e-6)
IDS = np.arange(60) // 3  # a row of each person is too many


def decoded() -> dict[str, object]:
    """Return the rows as a table holds them."""
    return {**{c.name: decode_column(c, ROWS[c.name]) for c in SCHEMA.released}, "who": IDS}


@pytest.mark.parametrize("salt", ["", "of a ledger"])
def test_cells_ids_and_rows_that_are_used_are_those_of_the_engine(salt: str) -> None:
    encoded = EncodedTable(ROWS, IDS)
    with open_table(decoded(), schema=SCHEMA) as table:
        (read,) = table.batches(SCHEMA, ids=True, id_texts=True, id_salt=salt)
        parts = list(encoded.batches(SCHEMA, ids=True, id_texts=True, id_salt=salt, rows=25))
        assert [(one.start, one.n_rows) for one in parts] == [(0, 25), (25, 25), (50, 10)]
        for name in read:
            np.testing.assert_array_equal(np.concatenate([one[name] for one in parts]), read[name])
        np.testing.assert_array_equal(
            np.concatenate([one.ids for one in parts if one.ids is not None]), read.ids
        )
        texts = [text for one in parts if one.id_texts is not None for text in one.id_texts]
        assert read.id_texts is not None
        assert texts == list(read.id_texts)
        for found, expected in zip(
            kept_rows(encoded, SCHEMA, "x", salt), kept_rows(table, SCHEMA, "x", salt), strict=True
        ):
            np.testing.assert_array_equal(found, expected)
        assert kept_rows(encoded, SCHEMA, "x", salt)[1].sum() == 40
    assert (encoded.count(), encoded.names) == (60, ("age", "bmi", "ward", "day"))
    (some,) = encoded.batches(SCHEMA, names={"ward"})
    assert list(some) == ["ward"]


def test_an_engine_has_the_same_version_of_them() -> None:
    versions = []
    for source in (decoded(), EncodedTable(ROWS, IDS)):
        engine = kernel_engine_for(source)
        versions.append(engine.register(source, Curation.from_schema(SCHEMA), salt="x"))
        # By SQL too, for what arrays do not answer.
        with Database(source, schema=SCHEMA, engine=kernel_engine_for(source), random_state=1) as database:
            assert database.count(where="ward = 'a'", privacy=PRIVACY).value == pytest.approx(13, abs=13)
    assert versions[0] == versions[1]
