"""Lent DuckDB instances: one test at a time has one, and finds it empty."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from discreet.tables.duckdb import connect
from tests.lending import LENDER

if TYPE_CHECKING:
    from pathlib import Path


def test_a_closed_instance_is_lent_again_and_is_empty_then() -> None:
    LENDER.close()
    first, second = connect(), connect()
    for connection in (first, second):
        connection.execute("CREATE TABLE rows AS SELECT 1 AS x; CREATE VIEW seen AS FROM rows")
    first.close()
    (instance,) = LENDER.idle
    third = connect()
    assert LENDER.idle == []
    assert third.execute("FROM duckdb_tables()").fetchall() == []
    assert second.execute("FROM seen").fetchall() == [(1,)]
    third.close()
    second.close()
    assert instance in LENDER.idle
    assert len(LENDER.idle) == 2


def test_the_threads_of_a_lent_instance_are_those_of_a_fresh_one() -> None:
    first = connect()
    threads = first.execute("SELECT current_setting('threads')").fetchone()
    first.execute("SET GLOBAL threads = 1")
    first.close()
    with connect() as second:
        assert second.execute("SELECT current_setting('threads')").fetchone() == threads


@pytest.mark.parametrize("command", ["ATTACH '{}' AS attached", "SET GLOBAL lock_configuration = true"])
def test_an_instance_with_a_file_or_a_lock_is_ended(command: str, tmp_path: Path) -> None:
    LENDER.close()
    with connect() as connection:
        connection.execute(command.format(tmp_path / "x.duckdb"))
    assert LENDER.idle == []


def test_a_file_that_changes_is_read_anew(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    for value in (1, 2):
        with connect() as connection:
            connection.execute(f"COPY (SELECT {value} AS x) TO '{path}'")
            assert connection.execute(f"FROM '{path}'").fetchall() == [(value,)]


@pytest.mark.slow
def test_a_forked_process_inherits_no_instance_that_waits() -> None:
    connect().close()
    assert len(LENDER.idle) == 1
    child = os.fork()
    if not child:
        os._exit(len(LENDER.idle))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert LENDER.idle == []
