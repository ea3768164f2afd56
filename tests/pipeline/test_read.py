"""``discreet.read``: a table as a database, with the schema and the ledger beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from discreet import Column, Database, Ledger, PureDP, Schema, read
from discreet.errors import BudgetExceeded, DataError, SchemaError
from discreet.pipeline.query import QuerySession

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA = Schema(dataset="wards", columns=[Column("age", type="integer", lower=0, upper=100)])


def write_table(folder: Path) -> Path:
    path = folder / "wards.csv"
    path.write_text("age\n" + "\n".join(["34", "51", "27"] * 20) + "\n")
    return path


def test_schema_and_ledger_are_found_beside_the_table(tmp_path: Path) -> None:
    path = write_table(tmp_path)
    with pytest.raises(SchemaError, match="discreet init"):
        read(path)
    (tmp_path / "wards.schema.yaml").write_text(SCHEMA.to_yaml())
    with read(path) as table:
        first = table.count("age > 30", privacy=PureDP(1.0))
    with read(path) as table:
        # The ledger that was charged is the one beside the table, so the same question is free.
        again = table.count("age > 30", privacy=PureDP(1.0))
        assert table.ledger.url == str(tmp_path / "wards.ledger")
    assert again.value == first.value
    with Ledger.open(tmp_path / "wards.ledger") as ledger:
        assert len(ledger.entries()) == 1
    # A ledger that the database opened is closed with it, and leaves no journal behind.
    assert not list(tmp_path.glob("*-wal"))


def test_a_database_opens_and_closes_a_ledger_given_by_its_path(tmp_path: Path) -> None:
    place = tmp_path / "t.ledger"
    Ledger.open(place, limit=PureDP(1.0)).close()
    with Database({"age": [1, 2, 3]}, schema=SCHEMA, ledger=place) as table:
        table.count(privacy=PureDP(1.0), where="age > 1")
        with pytest.raises(BudgetExceeded):
            table.count(privacy=PureDP(1.0), where="age > 2")
    assert not list(tmp_path.glob("*-wal"))


def test_a_ledger_given_open_stays_open(tmp_path: Path) -> None:
    with Ledger.open(":memory:") as ledger:
        with read(write_table(tmp_path), schema=SCHEMA, ledger=ledger) as table:
            table.count("age > 30", privacy=PureDP(1.0))
        assert len(ledger.entries()) == 1


@pytest.mark.parametrize("ledger", [None, False])
def test_a_table_without_rows_is_refused_by_both_before_a_ledger_is_made(tmp_path: Path, ledger: Any) -> None:
    path = tmp_path / "wards.csv"
    path.write_text("age\n")
    refused = r"wards\.csv must have at least one row, and has none\."
    with pytest.raises(DataError, match=refused):
        read(path, schema=SCHEMA, ledger=ledger)
    with QuerySession(path, schema=SCHEMA, ledger=ledger) as session, pytest.raises(DataError, match=refused):
        session.query("count", privacy=PureDP(1.0))
    assert [file.name for file in tmp_path.iterdir()] == ["wards.csv"]
    with pytest.raises(DataError, match="must have at least one row"):
        read({"age": []}, schema=SCHEMA, ledger=False)
