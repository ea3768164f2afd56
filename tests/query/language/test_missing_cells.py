"""Missing cells as SQL has them: a text says of every row what DuckDB says of it on the raw cells."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pytest

from discreet.errors import ExpressionRefused
from discreet.query.curation import Curation
from discreet.query.language import Expression, _lowering, _normal_form, parse
from discreet.query.language._program import Program, values
from discreet.query.language.nodes import Junction
from discreet.schema import Column, Schema
from tests.query.language.generator import Choices, HashChoices

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from discreet._types import AnyArray

SCHEMA = Schema(
    columns=[
        Column("a", type="integer", lower=0, upper=10, required=False),
        Column("b", type="integer", lower=-5, upper=5, required=False),
        Column("c", type="integer", lower=1, upper=4),
        Column("ward", values=("p", "q", "r"), required=False),
        Column("flag", values=(False, True), required=False),
        Column("grade", values=(1, 2, 5), required=False),
        Column("sure", values=(False, True)),
    ]
)
CURATION = Curation.from_schema(SCHEMA)
CELLS: dict[str, tuple[Any, ...]] = {
    "a": (None, 0, 3, 10),
    "b": (None, -5, 0, 4),
    "ward": (None, "p", "r", "unlisted"),
    "flag": (None, False, True),
    "grade": (None, 1, 5),
}
OPTIONAL = tuple(CELLS)


def rows() -> list[dict[str, Any]]:
    """Every combination of missing cells, each with several combinations of cells that are there."""
    found = []
    for gaps in itertools.product((True, False), repeat=len(OPTIONAL)):
        for turn in range(4):
            row: dict[str, Any] = {"c": 1 + turn, "sure": turn % 2 == 1}
            for place, (name, missing) in enumerate(zip(OPTIONAL, gaps, strict=True)):
                there = CELLS[name][1:]
                row[name] = None if missing else there[(turn * (place + 1) + sum(gaps)) % len(there)]
            found.append(row)
    return found


ROWS = rows()


def code(level: Any, column: Column) -> int:
    """Return the position of a cell among the levels of its column."""
    listed = column.levels
    return listed.index(level) if level in listed else listed.index("other")


def columns() -> dict[str, AnyArray]:
    """Return the rows as an engine would hold them, by the names that expressions use."""
    batch: dict[str, AnyArray] = {}
    for column in SCHEMA.released:
        cells = [row[column.name] for row in ROWS]
        if column.is_category:
            batch[column.name] = np.array([code(cell, column) for cell in cells], np.int32)
        else:
            batch[column.name] = np.array([np.nan if cell is None else cell for cell in cells], np.float64)
    return CURATION.name_arrays(CURATION.encode(batch))


COLUMNS = columns()


@pytest.fixture(scope="module")
def raw() -> Iterator[duckdb.DuckDBPyConnection]:
    """The raw rows, as their owner has them."""
    connection = duckdb.connect()
    connection.execute("SET threads = 1")
    connection.execute(
        "CREATE TABLE raw (a DOUBLE, b DOUBLE, c DOUBLE, ward VARCHAR, flag BOOLEAN, grade INT, sure BOOLEAN)"
    )
    names = ("a", "b", "c", "ward", "flag", "grade", "sure")
    connection.executemany(
        "INSERT INTO raw VALUES (?, ?, ?, ?, ?, ?, ?)", [[row[name] for name in names] for row in ROWS]
    )
    yield connection
    connection.close()


class Questions:
    """Draws texts that mean the same here and in DuckDB; «c» marks a condition that is used as a number."""

    def __init__(self, choices: Choices) -> None:
        self._choices = choices

    def _of(self, *options: str) -> str:
        return options[self._choices.below(len(options))]

    def number(self, depth: int) -> str:
        """Draw a number, whose values are few binary digits long, so that no order of adding matters."""
        if depth <= 0:
            return self._of("a", "a", "b", "b", "c", "grade", "0", "1", "2", "3", "0.5", "-1")
        inner = depth - 1
        match self._choices.below(14):
            case 0:
                return f"({self.number(inner)} + {self.number(inner)})"
            case 1:
                return f"({self.number(inner)} - {self.number(inner)})"
            case 2:
                return f"(({self.number(0)}) * ({self.number(inner)}))"
            case 3:
                return f"(({self.number(inner)}) / {self._of('2', '4', '0.5')})"
            case 4:
                return f"ABS({self.number(inner)})"
            case 5:
                return f"FLOOR({self.number(inner)})"
            case 6:
                return f"POWER({self.number(0)}, {self._of('0', '1', '2', '3')})"
            case 7 | 8:
                items = ", ".join(self.number(inner) for _ in range(1 + self._choices.below(3)))
                return f"{self._of('LEAST', 'GREATEST')}({items})"
            case 9:
                items = ", ".join(self.number(inner) for _ in range(1 + self._choices.below(3)))
                return f"COALESCE({items})"
            case 10 | 11 | 12:
                whens = " ".join(
                    f"WHEN {self.condition(inner)} THEN {self.branch(inner)}"
                    for _ in range(1 + self._choices.below(2))
                )
                return f"CASE {whens} {self._of('', f'ELSE {self.branch(inner)}')} END"
            case _:
                return f"«{self.condition(inner)}»"

    def branch(self, depth: int) -> str:
        """Draw what a CASE may give: a number or NULL, very often 0 or 1."""
        return self._of("0", "1", "NULL", self.number(depth), self.number(depth))

    def condition(self, depth: int) -> str:
        """Draw a condition."""
        inner = depth - 1
        if depth <= 0:
            return self._of(
                "flag", "sure", "ward = 'p'", "ward <> 'q'", "a < b", "grade = 2", "TRUE", "FALSE"
            )
        match self._choices.below(13):
            case 0 | 1 | 2:
                relation = self._of("=", "<>", "<", "<=", ">", ">=")
                return f"({self.number(inner)} {relation} {self.number(inner)})"
            case 3:
                ends = f"{self.number(0)} AND {self.number(0)}"
                return f"({self.number(inner)} {self._of('', 'NOT ')}BETWEEN {ends})"
            case 4:
                return f"({self.number(inner)} {self._of('', 'NOT ')}IN (0, 3, {self._of('1', '10', '-5')}))"
            case 5:
                listed = self._of("'p'", "'p', 'r'", "'q', 'p', 'r'")
                return f"(ward {self._of('', 'NOT ')}IN ({listed}))"
            case 6:
                subject = self._of("a", "b", "c", "ward", "flag", "grade", f"({self.number(inner)})")
                return f"({subject} IS {self._of('', 'NOT ')}NULL)"
            case 7:
                word = self._of("NULL", "TRUE", "FALSE")
                return f"(({self.condition(inner)}) IS {self._of('', 'NOT ')}{word})"
            case 8 | 9 | 10:
                return f"({self.condition(inner)} {self._of('AND', 'OR')} {self.condition(inner)})"
            case 11:
                return f"(NOT ({self.condition(inner)}))"
            case _:
                return self.condition(0)


def here(text: str) -> str:
    """Return a text as it is written in the language, where a condition is a number by itself."""
    return text.replace("«", "(").replace("»", ")")


def there(text: str) -> str:
    """Return a text as DuckDB wants it."""
    return text.replace("«", "CAST((").replace("»", ") AS INTEGER)")


def truth(expression: Expression) -> AnyArray:
    """Return for every row whether a condition is true."""
    return np.broadcast_to(values(expression.program, COLUMNS)[expression.place], len(ROWS))


def found(text: str) -> tuple[AnyArray, AnyArray]:
    """Return which rows are known, and the number of each, 0 where it is not known."""
    expression = parse(text, SCHEMA)
    again = parse(expression.canonical, SCHEMA)
    assert again == expression, "the canonical text is read as the same expression"
    if expression.is_condition:
        holds, fails = truth(expression), truth(parse(f"NOT ({text})", SCHEMA))
        assert not np.any(holds & fails)
        known, value = holds | fails, holds.astype(np.float64)
    else:
        results = values(expression.program, COLUMNS)
        known = np.ones(len(ROWS), bool)
        if expression.known_place is not None:
            known = np.broadcast_to(results[expression.known_place], len(ROWS))
        value = np.where(known, results[expression.place], 0.0)
        inside = value[known]
        assert np.all((expression.lower <= inside) & (inside <= expression.upper))
        grid = expression.grid()
        index = expression.evaluate(COLUMNS)
        assert index.min() >= 0
        assert index.max() <= max(grid.top, 0)
        if expression.known is not None and not expression.is_constant:
            assert np.all(grid.lower + grid.step * index[~known] == 0), "a row without a value adds 0"
            assert np.all(np.abs(grid.lower + grid.step * index - value) <= 0.500001 * grid.step)
    if expression.known is not None:
        assert np.array_equal(truth(parse(expression.known, SCHEMA)), known)
    else:
        assert np.all(known)
    return known, value


def compare(raw: duckdb.DuckDBPyConnection, texts: Sequence[str]) -> int:
    """Hold expressions against DuckDB, which is given the raw cells; return how many there were."""
    ours = []
    for text in texts:
        try:
            ours.append((text, *found(here(text))))
        except ExpressionRefused:  # too wide, or too much for one row
            continue
    selected = ", ".join(f"CAST(({there(text)}) AS DOUBLE) AS v{i}" for i, (text, *_) in enumerate(ours))
    theirs: Any = raw.execute(f"SELECT {selected} FROM raw").fetchnumpy()
    for i, (text, known, value) in enumerate(ours):
        cells = np.ma.asarray(theirs[f"v{i}"])
        assert np.array_equal(known, ~np.ma.getmaskarray(cells)), here(text)
        assert np.array_equal(value, cells.filled(0.0)), here(text)
    return len(ours)


def drawn(seed: int, count: int) -> list[str]:
    """Draw texts, conditions and numbers in turn."""
    questions = Questions(HashChoices(seed))
    return [
        questions.condition(1 + i % 4) if i % 2 else questions.number(1 + i // 2 % 3) for i in range(count)
    ]


FIXED = (
    "a >= 5", "NOT a >= 5", "a <> 3", "a NOT IN (3)", "ward <> 'p'", "ward NOT IN ('p', 'q')", "NOT flag",
    "ward = 'p' AND ward = 'q'", "ward = 'p' OR ward <> 'p'", "ward = 'p' AND ward IS NOT NULL",
    "ward = 'p' OR ward IS NULL", "NOT (ward = 'p' OR ward IS NULL)", "a > 3 OR TRUE", "a > 3 AND FALSE",
    "CASE WHEN a > 3 THEN 1 ELSE 0 END", "CASE WHEN a > 3 THEN 0 ELSE 1 END", "CASE WHEN a > 3 THEN b END",
    "NOT (CASE WHEN a > 3 THEN 1 ELSE 0 END = 1)", "LEAST(a, b)", "GREATEST(a, 3)", "COALESCE(a, b, 1)",
    "POWER(a, 0)", "0 * a", "0 * a + 1", "SQRT(POWER(a, 2))", "(a + b) IS NULL", "grade * 2 < a",
    "LN(CASE WHEN a > 3 THEN 1 END)", "LN(GREATEST(a, 1)) >= 0", "a / GREATEST(b, 1) IS NULL",
    "COALESCE(grade) = 1", "grade + 0 <> 7", "ABS(grade) IN (1, 5)",
)  # fmt: skip


def test_fixed_texts_mean_what_duckdb_says(raw: duckdb.DuckDBPyConnection) -> None:
    assert compare(raw, FIXED) == len(FIXED)


def test_drawn_texts_mean_what_duckdb_says(raw: duckdb.DuckDBPyConnection) -> None:
    assert compare(raw, drawn(0, 300)) > 250


@pytest.mark.parametrize(
    "least", [pytest.param(4_000, marks=pytest.mark.slow), pytest.param(20_000, marks=pytest.mark.stats)]
)
def test_thousands_of_drawn_texts_mean_what_duckdb_says(raw: duckdb.DuckDBPyConnection, least: int) -> None:
    # Some of the texts are refused, so that about 240 of 250 are compared.
    assert sum(compare(raw, drawn(seed, 250)) for seed in range(1, least // 235 + 1)) > least


def test_an_all_missing_column_fulfills_no_comparison() -> None:
    missing = {**COLUMNS, "a_missing": np.ones(len(ROWS), np.int32)}
    for text in ("a >= 5", "a < 5", "a = 5", "NOT a = 5", "a BETWEEN 0 AND 10", "a NOT IN (1, 2)"):
        assert not parse(text, SCHEMA).evaluate(missing).any()
    assert parse("a IS NULL", SCHEMA).evaluate(missing).all()


def two_valued(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take a missing cell for the value that its place holds, as if it were known."""
    monkeypatch.setattr(_lowering.Lowering, "known", lambda self, node: None)


def weak_conjunction(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make FALSE AND unknown unknown, as Bochvar's logic does."""
    real = _lowering.Lowering._is_known

    def strict(self: Any, node: Any) -> int:
        if isinstance(node, Junction):
            place: int = self.program.every(self._all_known(node.parts))
            return place
        return real(self, node)

    monkeypatch.setattr(_lowering.Lowering, "_is_known", strict)


def negated_indicator(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rewrite CASE WHEN c THEN 0 ELSE 1 END as NOT c, whatever c may be."""
    monkeypatch.setattr(_normal_form, "is_true", lambda condition: condition)


def closed_world(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a missing category be unlike every level, as a level of its own would be."""
    real = _normal_form._replace

    def decided(test: Any, codes: set[int], missing: bool | None) -> Any:
        return real(test, codes, True if missing is None else missing)

    monkeypatch.setattr(_normal_form, "_replace", decided)


def null_propagating(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let LEAST and GREATEST be unknown if one operand is, as in Oracle and MySQL."""
    monkeypatch.setattr(Program, "some", Program.every)


@pytest.mark.parametrize(
    "twin", [two_valued, weak_conjunction, negated_indicator, closed_world, null_propagating]
)
def test_wrong_twins_are_caught(
    raw: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch, twin: Any
) -> None:
    from discreet.query.language._expression import _parse_cached

    _parse_cached.cache_clear()
    twin(monkeypatch)
    try:
        with pytest.raises(AssertionError):
            compare(raw, (*FIXED, *drawn(7, 60)))
    finally:
        _parse_cached.cache_clear()
