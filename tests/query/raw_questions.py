"""Random questions about a raw table, each with the plain SQL that answers it on the clamped cells.

The SQL is the analyst's own text but for three things that the language writes differently: a column in a
sum is cast to a real number, so is a constant (SQL would make a decimal of it), and a condition that is used
as a number is cast to 0 and 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import duckdb

from tests.query.raw_tables import RawColumn, plain, sql_literal

if TYPE_CHECKING:
    from tests.query.raw_tables import Choices, RawTable

NEAR = "1e-12"
"""Relative distance of computed numbers whose order may be decided either way."""
_RELATIONS = ("=", "<>", "!=", "<", "<=", ">", ">=")


@dataclass(frozen=True)
class Part:
    """A number or a condition.

    Attributes
    ----------
    text, sql : str
        As the analyst writes it, and as DuckDB reads it on the clamped cells.
    size : str
        SQL of a number that is at least as large as all that were added up to compute it.
    near : tuple of str
        SQL of conditions under which the last bits of a computed number decide.
    """

    text: str
    sql: str
    size: str = ""
    near: tuple[str, ...] = ()


@dataclass(frozen=True)
class Group:
    """A key: its text, that without edges, and the SQL of the position of a row's cell, of so many."""

    text: str
    column: str
    sql: str
    cells: int


@dataclass(frozen=True)
class Question:
    """A whole question, and its parts."""

    text: str
    verb: str
    number: Part | None
    where: Part | None
    groups: tuple[Group, ...]

    @property
    def near(self) -> tuple[str, ...]:
        """Conditions under which the last bits of a computed number decide."""
        return tuple(near for part in (self.number, self.where) if part is not None for near in part.near)

    def select(self, what: str) -> str:
        """Return SQL that computes something of the rows of WHERE, with the position of each group."""
        keys = [group.sql for group in self.groups]
        places = ", ".join(str(i + 1) for i in range(len(keys)))
        return (
            f"SELECT {', '.join([*keys, what])} FROM data"
            + (f" WHERE {self.where.sql}" if self.where else "")
            + (f" GROUP BY {places}" if keys else "")
        )


class Questions:
    """Draws questions about one table."""

    def __init__(self, table: RawTable, draws: Choices) -> None:
        self._table = table
        self._draws = draws
        self._numbers = [column for column in table.columns if column.is_number and column.name != "line"]

    def question(self) -> Question:
        """Draw a question, in words or as SELECT."""
        draws = self._draws
        groups = self._groups() if draws.often(0.25) else ()
        verb = draws.choice(("count", "count", "count", "sum", "sum", "mean"))
        where = self.condition(draws.choice((0, 1, 1, 2, 3))) if verb == "count" or draws.often(0.6) else None
        number = None
        if verb != "count":
            number = self.number(draws.choice((0, 1, 2))) if draws.often(0.85) else self._indicator(1)
        by = ", ".join(group.text for group in groups)
        condition = f" WHERE {where.text}" if where else ""
        if draws.often(0.5):
            what = "COUNT(*)" if number is None else f"{'SUM' if verb == 'sum' else 'AVG'}({number.text})"
            named = "".join(f"{group.column}, " for group in groups)
            alias = draws.choice(("", "", " AS answer"))
            text = f"SELECT {named}{what}{alias} FROM data{condition}" + (f" GROUP BY {by}" if by else "")
        else:
            what = "count" if number is None else f"{verb}({number.text})"
            if number is not None and verb == "sum" and draws.often(0.2):
                what = number.text  # an expression without a word before it is summed
            text = f"{what}{condition}" + (f" by {by}" if by else "")
        return Question(text, verb, number, where, groups)

    def _groups(self) -> tuple[Group, ...]:
        """Draw one or two columns to group by."""
        found = {}
        for _ in range(self._draws.choice((1, 1, 2))):
            column = self._draws.choice(self._table.columns)
            group = self._expression_key(column) if self._draws.often(0.5) else self._group(column)
            if group is not None:
                found[group.column] = group
        return tuple(found.values())

    def _group(self, column: RawColumn) -> Group | None:
        """Group by a column: its declared values, its whole numbers or days, or cells that begin at edges."""
        declared, name = column.declared, column.name
        if declared.type not in ("number", "integer", "date"):
            levels = [level for level in declared.levels if level is not None]
            whens = " ".join(f"WHEN {name} = {sql_literal(level)} THEN {i}" for i, level in enumerate(levels))
            place = f"CASE {whens} WHEN {name} IS NULL THEN {len(levels)} END"
            return Group(name, name, place, len(declared.levels))
        low, high = declared.range
        if declared.required and declared.type != "number" and high - low <= 100 and self._draws.often(0.6):
            first = sql_literal(declared.lower)
            return Group(name, name, f"CAST({name} - {first} AS BIGINT)", round(high - low) + 1)
        if name == "line":
            return None
        texts = {self._edge(column) for _ in range(self._draws.whole(1, 4))}
        edges = sorted(texts, key=lambda text: text if "'" in text else float(text))
        if len({text if "'" in text else float(text) for text in edges}) < len(edges):
            return None
        if declared.type == "date":
            edges = [edge.removeprefix("DATE ") for edge in edges]
        limits = [self._constant(column, edge) for edge in edges]
        whens = " ".join(f"WHEN {name} < {limit} THEN {i}" for i, limit in enumerate(limits))
        place = f"CASE WHEN {name} IS NULL THEN {len(edges) + 1} {whens} ELSE {len(edges)} END"
        cells = len(edges) + (1 if declared.required else 2)
        return Group(f"{name} ({', '.join(edges)})", name, place, cells)

    def _expression_key(self, column: RawColumn) -> Group | None:
        """Group by an expression of a column."""
        draws, declared, name = self._draws, column.declared, column.name
        if declared.type == "date":
            return self._date_key(column)
        missing = 0 if declared.required else 1
        if draws.often(0.3) and name != "line":
            test = self._simple_of(column, alone=True)
            if test.text == name:
                return None
            place = f"CASE WHEN {test.sql} THEN 0 WHEN NOT {test.sql} THEN 1 ELSE 2 END"
            return Group(test.text, test.text, place, 2 + missing)
        if draws.often(0.3):
            return self._text_key(column)
        if name == "ward":
            levels = [str(level) for level in declared.levels if level is not None]
            places = " ".join(
                f"WHEN {name} = {sql_literal(level)} THEN {i}" for i, level in enumerate(levels)
            )
            text = f"COALESCE({name}, 'none at all')"
            return Group(text, text, f"CASE {places} ELSE {len(levels)} END", len(levels) + missing)
        if name != "delta":
            return None
        low, high = (int(end) for end in declared.range)
        width, form = draws.whole(2, 4), draws.choice(("quotient", "floor", "edges", "multiple"))
        if form == "edges":
            edges = [low * 2 + 1 + draws.whole(1, 3), low * 2 + 6]
            whens = " ".join(f"WHEN {name} * 2 + 1 < {edge} THEN {i}" for i, edge in enumerate(edges))
            place = f"CASE WHEN {name} IS NULL THEN 3 {whens} ELSE 2 END"
            text = f"{name} * 2 + 1"
            return Group(f"{text} ({', '.join(map(str, edges))})", text, place, 3 + missing)
        cells = high // width - low // width + 1
        if cells < 2:
            return None
        floor = f"CAST(FLOOR({name} / CAST({width} AS DOUBLE)) AS BIGINT)"
        place = f"COALESCE({floor} - ({low // width}), {cells})"
        text = {"quotient": "{} / {}", "floor": "FLOOR({} / {})", "multiple": "7 * FLOOR({} / {}) - 1"}[form]
        text = text.format(name, width)
        return Group(text, text, place, cells + missing)

    def _date_key(self, column: RawColumn) -> Group:
        """Group by a field of a date, or by the month, quarter, week or year that it is in."""
        declared, name = column.declared, column.name
        forms = {
            "YEAR({})": "YEAR({})",
            "extract(year from {})": "YEAR({})",
            "DATE_TRUNC('month', {})": "(YEAR({0}) * 12 + MONTH({0}))",
            "DATE_TRUNC('quarter', {})": "(YEAR({0}) * 4 + QUARTER({0}))",
            "DATE_TRUNC('week', {})": "CAST(FLOOR(({} - DATE '0001-01-01') / CAST(7 AS DOUBLE)) AS BIGINT)",
            "DATE_TRUNC('Year', {} + 40)": "YEAR({} + 40)",
        }
        text = self._draws.choice(tuple(forms))
        unit = forms[text]
        first, last = (unit.format(sql_literal(end)) for end in (declared.lower, declared.upper))
        with duckdb.connect() as calendar:
            ((cells,),) = calendar.execute(f"SELECT {last} - {first} + 1").fetchall()
        place = f"COALESCE({unit.format(name)} - {first}, {cells})"
        text = text.format(name)
        return Group(text, text, place, int(cells) + (0 if declared.required else 1))

    def _text_key(self, column: RawColumn) -> Group:
        """Group by a CASE of texts, with or without ELSE."""
        tests = [self._simple_of(column, alone=True) for _ in range(2)]
        last = self._draws.choice((" ELSE 'neither'", ""))
        whens = " ".join(f"WHEN {test.text} THEN '{word}'" for test, word in zip(tests, "ab", strict=True))
        codes = " ".join(f"WHEN {test.sql} THEN {i}" for i, test in enumerate(tests))
        text = f"CASE {whens}{last} END"
        return Group(text, text, f"CASE {codes} ELSE 2 END", 3)

    def _edge(self, column: RawColumn) -> str:
        # An edge is a double: one of more digits than that is another number than is written.
        text = column.near(self._draws)
        return text if "'" in text else plain(Decimal(repr(float(text))))

    @staticmethod
    def _constant(column: RawColumn, text: str) -> str:
        """Return the SQL of a constant that a cell is compared with."""
        if column.declared.type == "number":
            return f"CAST('{text}' AS DOUBLE)"
        return f"DATE {text}" if text.startswith("'") else text

    # Conditions.

    def condition(self, depth: int) -> Part:
        """Draw a condition."""
        draws = self._draws
        if depth <= 0:
            return self._simple()
        kind = draws.whole(0, 11)
        if kind <= 4:
            return self._simple()
        if kind <= 7:
            word = draws.choice(("AND", "OR"))
            parts = [self.condition(depth - 1) for _ in range(draws.choice((2, 2, 3)))]
            return _join(f" {word} ", parts)
        if kind == 8:
            return _wrap("NOT ({})", self.condition(depth - 1))
        if kind == 9:
            tested = f"{draws.choice(('IS', 'IS NOT'))} {draws.choice(('NULL', 'TRUE', 'FALSE'))}"
            return _wrap(f"(({{}}) {tested})", self.condition(depth - 1))
        return self._computed(depth - 1)

    def _simple(self) -> Part:
        """Draw a condition on one or two columns, which no rounding can change."""
        draws, column = self._draws, self._draws.choice(self._table.columns)
        if draws.often(0.08):
            return _same(f"({column.name} IS {draws.choice(('', 'NOT '))}NULL)")
        if column.declared.type == "date" and draws.often(0.5):
            return self._compare_dates()
        return self._simple_of(column)

    def _compare_dates(self) -> Part:
        """Draw a comparison of two dates, or of the days between them."""
        draws = self._draws
        first, second = draws.choice((("day", "gone"), ("gone", "day")))
        relation, days = draws.choice(_RELATIONS), draws.whole(0, 900)
        return _same(
            draws.choice(
                (
                    f"({first} {relation} {second})",
                    f"({first} + {days} {relation} {second})",
                    f"({first} - {second} {relation} {days})",
                    f"({first} - {days} {relation} DATE '2021-02-03')",
                    f"(COALESCE({first}, {second}) {relation} DATE '2021-02-03')",
                    f"(LEAST({first}, DATE '2021-02-03') - {second} {relation} -{days})",
                    f"({draws.choice(('YEAR', 'MONTH', 'ISODOW'))}({first}) {relation} {draws.whole(1, 7)})",
                )
            )
        )

    def _simple_of(self, column: RawColumn, *, alone: bool = False) -> Part:
        """Draw a condition on a column, perhaps with another one of numbers."""
        draws, name, kind = self._draws, column.name, column.declared.type
        if kind == "category" and not column.is_code:
            return self._category(column)
        if draws.often(0.1) and column.is_number and not alone:
            other = draws.choice(self._numbers)
            return _same(f"({name} {draws.choice(_RELATIONS)} {other.name})")
        choice = draws.whole(0, 9)
        listed = draws.choice(("", "NOT "))
        if choice == 0:
            low, high = self._near(column), self._near(column)
            return Part(
                f"({name} {listed}BETWEEN {low.text} AND {high.text})",
                f"({name} {listed}BETWEEN {low.sql} AND {high.sql})",
            )
        if choice == 1 and kind != "date":
            items = [self._near(column) for _ in range(draws.whole(1, 5))]
            texts, codes = ", ".join(item.text for item in items), ", ".join(item.sql for item in items)
            return Part(f"({name} {listed}IN ({texts}))", f"({name} {listed}IN ({codes}))")
        relation, constant = draws.choice(_RELATIONS), self._near(column)
        if draws.often(0.2) and kind != "date":
            return Part(f"({constant.text} {relation} {name})", f"({constant.sql} {relation} {name})")
        return Part(f"({name} {relation} {constant.text})", f"({name} {relation} {constant.sql})")

    def _near(self, column: RawColumn) -> Part:
        if column.is_code:
            text = str(self._draws.choice(column.declared.values or ()))
            return Part(text, text)
        text = column.near(self._draws)
        return Part(text.removeprefix("DATE "), self._constant(column, text.removeprefix("DATE ")))

    def _category(self, column: RawColumn) -> Part:
        draws, name = self._draws, column.name
        if column.sql_type == "BOOLEAN":
            forms = ("{}", "NOT {}", "({} = TRUE)", "({} <> TRUE)", "({} IN (FALSE))")
            return _same(draws.choice(forms).format(name))
        levels = [sql_literal(level) for level in column.declared.levels if level is not None]
        if draws.often(0.5):
            return _same(f"({name} {draws.choice(('=', '<>'))} {draws.choice(levels)})")
        items = ", ".join(draws.choice(levels) for _ in range(draws.whole(1, 3)))
        return _same(f"({name} {draws.choice(('', 'NOT '))}IN ({items}))")

    def _computed(self, depth: int) -> Part:
        """Draw a comparison of computed numbers, which the last bits may decide where both are near."""
        left, right = self.number(depth), self.number(self._draws.choice((0, depth)))
        relation = self._draws.choice(_RELATIONS)
        distance = f"abs(({left.sql}) - ({right.sql})) <= {NEAR} * (({left.size}) + ({right.size}))"
        return Part(
            f"(({left.text}) {relation} ({right.text}))",
            f"(({left.sql}) {relation} ({right.sql}))",
            near=(*left.near, *right.near, distance),
        )

    # Numbers.

    def number(self, depth: int) -> Part:
        """Draw a number."""
        draws = self._draws
        if depth <= 0:
            return self._column() if draws.often(0.75) else self._literal()
        inner = depth - 1
        match draws.whole(0, 16):
            case 14:
                return self._date_number()
            case 15:
                return self._remainder()
            case 16:
                return self._null_if(self._column())
            case 0 | 1:
                return self._binary(draws.choice("+-"), self.number(inner), self.number(inner))
            case 2:
                left, right = self.number(inner), self.number(0)
                return self._binary("*", left, right)
            case 3:
                return self._quotient(self.number(inner), self.number(0))
            case 4:
                return _wrap("ABS({})", self.number(inner))
            case 5:
                return self._floor(self.number(inner))
            case 6:
                return self._power(self.number(0))
            case 7:
                return self._function()
            case 8 | 9:
                name = draws.choice(("LEAST", "GREATEST", "LEAST", "GREATEST", "COALESCE"))
                return self._several(name, [self.number(inner) for _ in range(draws.whole(1, 3))])
            case 10 | 11 | 12:
                return self._case(inner)
            case _:
                return self._indicator(inner)

    def _column(self) -> Part:
        column = self._draws.choice([*self._numbers, self._table.by_name["day"]])
        return Part(column.name, column.as_number, f"abs({column.as_number})")

    def _literal(self) -> Part:
        text = self._draws.choice(("0", "1", "2", "3", "10", "0.5", "0.1", "7.3", "1000", "0.001", "4.25"))
        return Part(text, f"CAST('{text}' AS DOUBLE)", text)

    @staticmethod
    def _binary(sign: str, left: Part, right: Part) -> Part:
        return Part(
            f"(({left.text}) {sign} ({right.text}))",
            f"(({left.sql}) {sign} ({right.sql}))",
            f"(({left.size}) {'*' if sign == '*' else '+'} ({right.size}))",
            left.near + right.near,
        )

    def _quotient(self, above: Part, below: Part) -> Part:
        least = self._draws.choice(("1", "0.5", "10"))
        return Part(
            f"(({above.text}) / GREATEST({below.text}, {least}))",
            f"(({above.sql}) / GREATEST({below.sql}, CAST('{least}' AS DOUBLE)))",
            f"(2 * ({above.size}) / GREATEST({below.sql}, {least}))",
            above.near + below.near,
        )

    def _date_number(self) -> Part:
        """Draw a field of a date, or the days between two of them."""
        draws = self._draws
        date = draws.choice(("day", "gone", "day + 45", "COALESCE(gone, day)", "(gone - 7)"))
        text, sql = draws.choice(
            (
                *((f"{field}({date})",) * 2 for field in ("YEAR", "QUARTER", "MONTH", "DAY", "ISODOW")),
                (f"EXTRACT(MONTH FROM {date})",) * 2,
                (f"({date} - DATE '2020-02-29')",) * 2,
                ("(gone - day)",) * 2,
                ("(DATE '2022-01-01' - day + 3)", "((DATE '2022-01-01' - day) + 3)"),
                (f"({date} - INTERVAL '3' DAY - gone)", f"({date} - 3 - gone)"),
            )
        )
        number = f"CAST({sql} AS DOUBLE)"
        return Part(text, number, f"abs({number})")

    def _remainder(self) -> Part:
        column = self._draws.choice([self._table.by_name[name] for name in ("delta", "income", "visits")])
        by = self._draws.choice((2, 3, 7, 10, -4))
        text = self._draws.choice((f"MOD({column.name}, {by})", f"{column.name} % ({by})"))
        sql = f"CAST({column.name} % ({by}) AS DOUBLE)"
        return Part(text, sql, f"abs({sql})")

    def _null_if(self, column: Part) -> Part:
        value = self._literal()
        if self._draws.often(0.5):
            return Part(
                f"NULLIF({column.text}, {value.text})", f"NULLIF({column.sql}, {value.sql})", column.size
            )
        other = self._literal()
        forms = "CASE {} WHEN {} THEN {} ELSE {} END"
        return Part(
            forms.format(column.text, value.text, other.text, column.text),
            forms.format(column.sql, value.sql, other.sql, column.sql),
            f"({column.size} + {other.size})",
        )

    def _floor(self, inner: Part) -> Part:
        most = self._draws.choice(("1000", "20"))
        text, sql = f"LEAST({inner.text}, {most})", f"LEAST({inner.sql}, CAST('{most}' AS DOUBLE))"
        function = self._draws.choice(("FLOOR", "CEIL", "ROUND"))
        half = "0.5" if function == "ROUND" else "0"
        near = (
            f"abs(({inner.sql}) + {half} - round({inner.sql} + {half})) <= {NEAR} * (({inner.size}) + {half})"
        )
        size = f"(COALESCE({inner.size}, 0) + {most})"
        return Part(f"{function}({text})", f"{function}({sql})", size, (*inner.near, near))

    def _power(self, base: Part) -> Part:
        times = self._draws.choice("0123")
        text, sql, size = (f"POWER({part}, {times})" for part in (base.text, base.sql, base.size))
        return Part(text, sql, size, base.near)

    def _function(self) -> Part:
        column = self._column()
        name, text, sql = self._draws.choice(
            (
                ("SQRT", f"GREATEST({column.text}, 0)", f"GREATEST({column.sql}, 0)"),
                ("LN", f"GREATEST({column.text}, 1)", f"GREATEST({column.sql}, 1)"),
                ("LN", f"GREATEST({column.text}, 0.25)", f"GREATEST({column.sql}, 0.25)"),
                # Below -200 it counts as EXP(-200).
                ("EXP", f"LEAST({column.text}, 10)", f"GREATEST(LEAST({column.sql}, 10), -200)"),
            )
        )
        return Part(f"{name}({text})", f"{name}({sql})", f"(abs({name}({sql})) + 1)")

    @staticmethod
    def _several(name: str, items: list[Part]) -> Part:
        return Part(
            f"{name}({', '.join(item.text for item in items)})",
            f"{name}({', '.join(item.sql for item in items)})",
            "({})".format(" + ".join(f"COALESCE({item.size}, 0)" for item in items)),
            tuple(near for item in items for near in item.near),
        )

    def _case(self, depth: int) -> Part:
        """Draw a CASE of one or two branches, with or without ELSE."""
        draws = self._draws
        branches = [(self.condition(depth), self.number(depth)) for _ in range(draws.choice((1, 1, 2)))]
        last = self.number(depth) if draws.often(0.6) else None
        parts = [part for branch in branches for part in branch] + ([last] if last else [])
        numbers = [value for _, value in branches] + ([last] if last else [])
        texts, sqls = (
            " ".join(f"WHEN {getattr(test, form)} THEN {getattr(value, form)}" for test, value in branches)
            for form in ("text", "sql")
        )
        return Part(
            f"CASE {texts}{f' ELSE {last.text}' if last else ''} END",
            f"CASE {sqls}{f' ELSE {last.sql}' if last else ''} END",
            "({})".format(" + ".join(f"COALESCE({number.size}, 0)" for number in numbers)),
            tuple(near for part in parts for near in part.near),
        )

    def _indicator(self, depth: int) -> Part:
        inner = self.condition(depth)
        return Part(f"({inner.text})", f"CAST(({inner.sql}) AS DOUBLE)", "1", inner.near)


def _same(text: str) -> Part:
    return Part(text, text)


def _wrap(form: str, inner: Part) -> Part:
    return Part(form.format(inner.text), form.format(inner.sql), inner.size, inner.near)


def _join(between: str, parts: list[Part]) -> Part:
    text, sql = between.join(part.text for part in parts), between.join(part.sql for part in parts)
    return Part(f"({text})", f"({sql})", near=tuple(near for part in parts for near in part.near))


def drawn_questions(table: RawTable, draws: Choices, count: int) -> list[Question]:
    """Draw questions about a table, none of them twice."""
    questions = Questions(table, draws)
    found: dict[str, Any] = {}
    while len(found) < count:
        question = questions.question()
        found[question.text] = question
    return list(found.values())
