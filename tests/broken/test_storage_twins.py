"""A query engine that keeps rows in a file with a name: the scanner must find them after a kill."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import pytest

from discreet.query.engines._duckdb import DuckDBEngine
from discreet.tables.duckdb import literal
from tests.cli.killing import killer
from tests.leftovers import Traces
from tests.marked import SCHEMA, marked_people, write_people

if TYPE_CHECKING:
    from discreet.query.curation import Curation


def plain_database() -> None:
    """Let a large table be curated in a DuckDB file that stays until the end."""

    def to_file(engine: DuckDBEngine, curation: Curation, folder: Path) -> BinaryIO:
        file = Path(tempfile.mkdtemp(prefix="discreet-"), "curated.duckdb")
        for connection in (engine._connection, engine._reader):
            connection.execute(f"ATTACH IF NOT EXISTS {literal(str(file))} AS large")
            connection.execute("USE large")
        return Path(os.devnull).open("rb")

    setattr(DuckDBEngine, "_to_file", to_file)  # noqa: B010 - a method


@pytest.mark.slow
def test_rows_in_a_file_with_a_name_are_found_after_a_kill(tmp_path: Path) -> None:
    people = marked_people(1500)
    (tmp_path / "data").mkdir()
    table = str(write_people(tmp_path / "data", people))
    with killer(tmp_path) as place:
        ended = place.run(
            *("query", table, "count", "--epsilon", "1"),
            twin=f"{__name__}:plain_database",
            after="discreet.query.engines._duckdb:DuckDBEngine._fill",
        )
    assert ended.killed
    assert Traces(people, SCHEMA).found_in(tmp_path / "tmp")
