"""Random questions about a raw table, each with the plain SQL that answers it on the clamped cells.

The SQL is the analyst's own text but for three things that the language writes differently: a column in a
sum is cast to a real number, so is a constant (SQL would make a decimal of it), and a condition that is used
as a number is cast to 0 and 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

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
    """A column to group by: how it is written, and the SQL of the position of a row's cell, of so many."""

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
            group = self._group(self._draws.choice(self._table.columns))
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
        name, kind = column.name, column.declared.type
        if draws.often(0.08):
            return _same(f"({name} IS {draws.choice(('', 'NOT '))}NULL)")
        if kind == "category" and not column.is_code:
            return self._category(column)
        if draws.often(0.1) and column.is_number:
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
        match draws.whole(0, 13):
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

    def _floor(self, inner: Part) -> Part:
        most = self._draws.choice(("1000", "20"))
        text, sql = f"LEAST({inner.text}, {most})", f"LEAST({inner.sql}, CAST('{most}' AS DOUBLE))"
        near = f"abs(({inner.sql}) - round({inner.sql})) <= {NEAR} * ({inner.size})"
        size = f"(COALESCE({inner.size}, 0) + {most})"
        return Part(f"FLOOR({text})", f"FLOOR({sql})", size, (*inner.near, near))

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
