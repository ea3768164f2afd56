"""Answers without noise held against plain SQL on the clamped raw cells; every difference is classified."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from discreet.batching import run_batch
from discreet.errors import ExpressionRefused, ParameterError
from discreet.privacy import GaussianDP
from discreet.query.language.query import parse_stored_query
from discreet.query.text_query import query_task
from tests.query.raw_questions import drawn_questions
from tests.query.raw_tables import Choices, clamped_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    import duckdb

    from discreet.query import Database
    from discreet.query.language.query import Query
    from tests.query.raw_questions import Question
    from tests.query.raw_tables import RawTable

NO_NOISE = 1e15
"""A mu so large that the noise is far below one step of any sum."""
GRID_BITS = 30
"""Sums are on a grid of 2**30 steps of an expression's range: a row is off by half a step at most, and where
the number of rows is private by half a step more, because the grid begins at a multiple of its step."""
_BATCH = 48  # questions that are answered in one pass
TIES = "the last bits of computed numbers decide a comparison or a FLOOR"


@dataclass
class Tally:
    """How many questions were asked, refused and answered, and of what kinds."""

    asked: int = 0
    answered: int = 0
    cells: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    classes: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)


def hold_against_sql(table: RawTable, db: Database, count: int, tally: Tally) -> None:
    """Ask `count` questions about a table, and compare every cell of the answers with plain SQL."""
    raw = clamped_rows(table)
    if table.people is not None:
        _leave_out_rows(table, db, raw, tally)
    questions = drawn_questions(table, Choices(f"raw questions {table.seed}"), count)
    for start in range(0, count, _BATCH):
        batch = questions[start : start + _BATCH]
        _hold_batch(table, db, raw, batch, tally)
    raw.close()


def _no_noise(table: RawTable) -> GaussianDP:
    return GaussianDP(mu=NO_NOISE, unit=table.schema.unit, neighbors=table.schema.neighbors)


def _leave_out_rows(table: RawTable, db: Database, raw: duckdb.DuckDBPyConnection, tally: Tally) -> None:
    """Take out of the clamped cells the rows past ``max_rows_per_unit``, of which each person has no more."""
    cells = db.query("count by line", privacy=_no_noise(table)).cells
    kept = [line for line, cell in enumerate(cells) if round(cell.value or 0) == 1]
    assert table.people is not None
    most = table.schema.max_rows_per_unit
    assert most is not None
    wanted = {person: min(rows, most) for person, rows in Counter(table.people).items()}
    if Counter(table.people[line] for line in kept) != wanted:
        tally.failures.append(f"table {table.seed}: kept {kept} of {table.people}, at most {most} each")
    raw.execute(f"DELETE FROM data WHERE line NOT IN ({', '.join(map(str, kept))})")


def _hold_batch(
    table: RawTable, db: Database, raw: duckdb.DuckDBPyConnection, questions: Sequence[Question], tally: Tally
) -> None:
    parsed: list[tuple[Question, Query]] = []
    for question in questions:
        tally.asked += 1
        try:
            parsed.append((question, parse_stored_query(question.text, table.schema)))
        except ExpressionRefused as refusal:
            tally.refused[refusal.construct.split(",")[0]] += 1
    results: list[tuple[int, Any]] = []
    run_batch((query_task(db, query, privacy=_no_noise(table)) for _, query in parsed), results.extend)
    n_rows = int(_row(raw, "SELECT COUNT(*) FROM data")[0])
    truths = _truths(raw, [question for question, _ in parsed])
    for number, result in results:
        question, query = parsed[number]
        if isinstance(result, ParameterError) and "must depend on a column" in str(result):
            tally.refused["a constant where the number of rows is private"] += 1
            continue
        tally.answered += 1
        tally.kinds[question.verb + (" by" if question.groups else "")] += 1
        if isinstance(result, Exception):
            tally.failures.append(f"table {table.seed}: {question.text!r}: {result!r}")
            continue
        found = [cell.value for cell in result.cells]
        wanted = truths[number]
        size = math.prod(group.cells for group in question.groups)
        if len(found) != size:
            tally.failures.append(f"table {table.seed}: {question.text!r}: {len(found)} cells, not {size}")
            continue
        for place, value in enumerate(found):
            tally.cells += 1
            known, total = wanted.get(place, (0, 0.0))
            # Where it is public how many rows are summed, zero need not be on the grid.
            fixed = db.n_rows and not question.groups and question.where is None
            steps = n_rows * (0.5 if fixed else 1.0)
            problem = difference(raw, question, query, steps, value, known, total)
            if problem == TIES:
                tally.classes[TIES] += 1
            elif problem is not None:
                tally.failures.append(f"table {table.seed}: {question.text!r} cell {place}: {problem}")


def _truths(
    raw: duckdb.DuckDBPyConnection, questions: Sequence[Question]
) -> list[dict[int, tuple[int, float]]]:
    """Return for every cell of each question how many values are known, and their sum; no empty cells."""
    whole = [i for i, question in enumerate(questions) if not question.groups]
    columns = []
    for i in whole:
        question = questions[i]
        kept = f" FILTER (WHERE {question.where.sql})" if question.where else ""
        columns += [f"{what}{kept}" for what in _asked(question)]
    found: list[dict[int, tuple[int, float]]] = [{} for _ in questions]
    if columns:
        row = _row(raw, f"SELECT {', '.join(columns)} FROM data")
        for i, known, total in zip(whole, row[::2], row[1::2], strict=True):
            found[i] = {0: (int(known), float(total or 0.0))}
    for i, question in enumerate(questions):
        if question.groups:
            shape = [group.cells for group in question.groups]
            for *key, known, total in raw.execute(question.select(", ".join(_asked(question)))).fetchall():
                place = 0
                for size, code in zip(shape, key, strict=True):
                    place = place * size + code
                found[i][place] = (int(known), float(total or 0.0))
    return found


def _asked(question: Question) -> tuple[str, str]:
    if question.number is None:
        return "COUNT(*)", "COUNT(*)"
    return f"COUNT({question.number.sql})", f"SUM({question.number.sql})"


def _row(raw: duckdb.DuckDBPyConnection, sql: str) -> Any:
    return raw.execute(sql).fetchone()


def difference(
    raw: duckdb.DuckDBPyConnection,
    question: Question,
    query: Query,
    steps: float,
    value: float | None,
    known: int,
    total: float,
) -> str | None:
    """Return None for an answer that is right, the reason of a difference that has one, or what is wrong."""
    if question.verb == "mean" and known == 0:
        return None  # a mean of nothing has no value
    wanted = total / known if question.verb == "mean" else total
    if value is None:
        return f"no value, not {wanted!r}"
    width, margin = 0.0, 1e-9  # what noise there is
    (statistic,) = query.statistics
    if statistic.expression is not None:
        lower, upper = statistic.expression.lower, statistic.expression.upper
        width = max(upper, 0.0) - min(lower, 0.0)
        margin += steps * width * (2.0**-GRID_BITS + 1e-12)
    rows = max(known, 1) if question.verb == "mean" else 1
    if abs(value - wanted) <= margin / rows:
        return None
    off = f"{value!r}, not {wanted!r} within {margin / rows:.3g}"
    if not question.near:
        return off
    ties = " OR ".join(f"COALESCE({near}, FALSE)" for near in question.near)
    near_rows = int(_row(raw, f"SELECT COUNT(*) FROM data WHERE {ties}")[0])
    if question.verb == "mean":
        rows = max(known - near_rows, 1)
    allowed = (margin + near_rows * max(width, 1.0)) / rows
    return TIES if abs(value - wanted) <= allowed else f"{off}, nor {allowed:.3g} with {near_rows} ties"


def stated(failures: Sequence[str], most: int = 12) -> str:
    """Return the first failures as text: table seed and question, which say how to repeat each."""
    return "\n".join(itertools.chain([f"{len(failures)} differences"], failures[:most]))
