"""Whole questions against plain SQL on the raw cells, on every engine.

The other side is a plain DuckDB connection that runs the analyst's question on the clamped cells of the
owner's table: see raw_tables.py and raw_questions.py, which know nothing of how a table is curated, read or
summed. Answers come the way that a service gives them, under a promise so weak that there is no noise. Counts
must be equal. A sum may be off by half a step of its grid of 2**30 steps for every row, by a whole one where
the number of summed rows is private, and a mean by that much divided by its number of rows.

Differences from SQL on the raw cells, each with its reason:

- A cell outside the declared range counts as the nearer end, and a text that is not listed as ``other``:
  declared, so that one row can move a sum only so far.
- A number nearer to zero than 2**-448 counts as 0, so that products of cells stay normal floats.
- EXP of less than -200 counts as EXP(-200), where a float is near the end of its range.
- A constant that numbers are compared with, and every edge of a group, is the nearest double. A constant that
  whole numbers are compared with is exact.
- The last bits of computed numbers decide: ``a / 3 < b`` is compared in floats, with EXP, LN and POWER
  written out. Allowed only where both sides are within 1e-12 of the numbers that they are computed from, or a
  FLOOR is that near to a whole number, and for no more rows than that. The number of such cells is recorded.
- A mean over no known cell has no value in SQL; ours says nothing or anything within the range.
- Refused, and so not compared: constants beyond 1e100, values of a category that are not declared, constant
  questions where the number of rows is private. They are counted, and few.

Anything else fails, with the seed of the table and the text of the question.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from benchmarks.measure import save

from discreet.query import Database
from discreet.query.curation import Curated
from discreet.query.language.query import parse_query
from tests.query.raw_checks import TIES, Tally, difference, hold_against_sql, stated
from tests.query.raw_questions import Part, Question
from tests.query.raw_tables import clamped_rows, draw_table

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from discreet._types import AnyArray
    from tests.query.raw_tables import RawTable

# pyspark warns about newer versions of pandas whenever Arrow is used.
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
PER_TABLE = 400


def in_memory(table: RawTable) -> Any:
    """Return the raw cells as an Arrow table, as lists by name, or with whole numbers among floats."""
    arrow = table.arrow()
    if table.n_rows % 3 == 0:
        return arrow
    cells: dict[str, Any] = {name: arrow[name].to_pylist() for name in arrow.column_names}
    if table.n_rows % 3 == 1:
        whole = [column for column in table.columns if column.declared.type == "integer"]
        cells |= {column.name: np.array(column.cells, np.float64) for column in whole}
    return cells


def in_file(folder: Path) -> Callable[[RawTable], Any]:
    """Return what writes the raw cells into a file, of text or of Parquet."""

    def written(table: RawTable) -> Any:
        kind = "csv" if table.n_rows % 2 else "parquet"
        path = folder / f"{table.seed.replace(' ', '-')}.{kind}"
        with contextlib.closing(clamped_rows(table)) as connection:
            connection.execute(f"COPY raw TO '{path}'")
        return path

    return written


def in_postgres(url: str) -> Callable[[RawTable], Any]:
    """Return what puts the raw cells into PostgreSQL, each table in place of the last."""

    def stored(table: RawTable) -> Any:
        import psycopg

        arrow = table.arrow()
        kinds = {column.name: column.sql_type.replace("DOUBLE", "float8") for column in table.columns}
        columns = ", ".join(f"{name} {kinds.get(name, 'BIGINT')}" for name in arrow.column_names)
        with psycopg.connect(url, autocommit=True) as server:
            server.execute("DROP TABLE IF EXISTS raw")
            server.execute(f"CREATE TABLE raw ({columns})".encode())
            with server.cursor() as cursor, cursor.copy("COPY raw FROM STDIN") as copy:
                for row in zip(*(arrow[name].to_pylist() for name in arrow.column_names), strict=True):
                    copy.write_row(row)
        return f"{url}?table=public.raw"

    return stored


def in_spark(session: Any) -> Callable[[RawTable], Any]:
    """Return what makes a Spark data frame of the raw cells."""
    return lambda table: session.createDataFrame(table.arrow())


def asked(seeds: list[str], source: Callable[[RawTable], Any], per_table: int = PER_TABLE) -> Tally:
    """Ask about tables, and return what became of it; nothing differs."""
    tally = Tally()
    for seed in seeds:
        table = draw_table(seed)
        with Database(source(table), schema=table.schema, random_state=1) as db:
            hold_against_sql(table, db, per_table, tally)
        assert not tally.failures, stated(tally.failures)
    # Most of what is drawn is answered, and few answers need a reason.
    assert tally.answered > 0.9 * tally.asked
    assert sum(tally.classes.values()) <= 0.01 * tally.cells
    return tally


def named(kind: str, count: int) -> list[str]:
    """Return the seeds of tables."""
    return [f"{kind} {i}" for i in range(count)]


FAST = named("fast", 3)


def test_answers_are_those_of_plain_sql_on_the_raw_cells() -> None:
    tally = asked(FAST, in_memory, 90)
    assert min(tally.kinds[verb] for verb in ("count", "count by", "sum", "sum by", "mean", "mean by")) > 5


def coarse(self: Curated, values: AnyArray) -> AnyArray:
    """Return numbers on a grid of 2**20 steps of their range."""
    if self.is_category or self.top <= 2**20:
        return values
    step = self.step * self.top / 2**20
    places = np.floor((np.clip(values, self.lower, self.lower + 2**20 * step) - self.lower) / step + 0.5)
    return self.lower + step * places


def middle(self: Curated, values: AnyArray) -> AnyArray:
    """Return numbers with the middle of the range for missing ones."""
    if self.is_category:
        return values
    return np.where(np.isnan(values), self.lower + self.step * (self.top // 2), values)


@pytest.mark.slow
@pytest.mark.parametrize("twin", [coarse, middle])
def test_a_coarse_grid_and_a_filled_gap_are_caught(
    twin: Callable[[Curated, AnyArray], AnyArray], monkeypatch: pytest.MonkeyPatch
) -> None:
    encode = Curated.encode
    monkeypatch.setattr(Curated, "encode", lambda self, values: encode(self, twin(self, values)))
    tally = Tally()
    for seed in FAST:
        table = draw_table(seed)
        with Database(in_memory(table), schema=table.schema, random_state=1) as db:
            hold_against_sql(table, db, 60, tally)
    assert len(tally.failures) > 10
    assert not any("Error" in failure for failure in tally.failures)


def test_a_tie_of_computed_numbers_is_a_reason_for_no_more_rows_than_have_one() -> None:
    table = draw_table("fast 0")
    tie = Part("(delta / 3 >= 0)", "(delta / 3 >= 0)", near=("abs(delta / 3) <= 1e-12 * abs(delta)",))
    question = Question("count where delta / 3 >= 0", "count", None, tie, ())
    with contextlib.closing(clamped_rows(table)) as raw:
        ties = raw.execute("SELECT COUNT(*) FROM data WHERE delta = 0").fetchall()[0][0]
        query = parse_query(question.text, table.schema)
        reasons = [difference(raw, question, query, 9.0, 20.0 + off, 20, 20.0) for off in range(ties + 2)]
    assert ties > 0
    assert reasons[: ties + 1] == [None, *[TIES] * ties]
    assert reasons[-1] not in (None, TIES)


@pytest.mark.slow
def test_a_thousand_questions_in_duckdb(tmp_path: Path) -> None:
    tally = asked(named("memory", 6), in_memory, 110)
    tally_of_files = asked(named("file", 4), in_file(tmp_path), 110)
    assert tally.answered + tally_of_files.answered > 980


@pytest.mark.slow
def test_seven_hundred_questions_in_postgres(postgres_url: str) -> None:
    assert asked(named("postgres", 7), in_postgres(postgres_url), 110).answered > 680


@pytest.mark.slow
def test_a_hundred_questions_in_spark(spark: Any) -> None:
    assert asked(named("spark", 3), in_spark(spark), 40).answered > 100


@pytest.mark.stats
def test_a_hundred_thousand_questions(tmp_path: Path, postgres_url: str, spark: Any) -> None:
    tallies = {
        "duckdb": asked(named("long", 170), in_memory),
        "duckdb, from files": asked(named("long file", 30), in_file(tmp_path)),
        "postgres": asked(named("long postgres", 60), in_postgres(postgres_url)),
        "spark": asked(named("long spark", 8), in_spark(spark)),
    }
    answered = {name: tally.answered for name, tally in tallies.items()}
    assert sum(answered.values()) >= 100_000
    totals = Tally()
    for tally in tallies.values():
        for counts, more in ((totals.kinds, tally.kinds), (totals.refused, tally.refused)):
            counts.update(more)
        totals.classes.update(tally.classes)
    save(
        "raw_cells",
        {
            "questions": sum(answered.values()),
            "questions_by_engine": answered,
            "questions_by_kind": dict(totals.kinds),
            "numbers_compared": sum(tally.cells for tally in tallies.values()),
            "refused": dict(totals.refused.most_common()),
            "differences_with_a_reason": dict(totals.classes),
            "differences": 0,
        },
    )
