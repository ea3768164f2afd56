"""Several statistics, ORDER BY and LIMIT as text: what is written is read as the same query again."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING

import pytest

from discreet.errors import ExpressionRefused
from discreet.query.language.lexer import write_name
from discreet.query.language.query import parse_query
from discreet.schema import Column, Schema
from tests.draws import Draws

if TYPE_CHECKING:
    from discreet.query.language.query import Query

# Columns that are called like words of the language, and like nothing at all.
WORDS = ("ratio", "median", "limit", "order", "desc", "asc", "by", "where", "quantile", "stddev", "distinct")
ODD = ("count", "mean", "group by", 'a"b', "x, y", "par(en", "select", "as", "from", "sum", "end", "it's")
SCHEMA = Schema(
    columns=[
        Column("person", type="id", role="id"),
        Column("age", type="integer", lower=0, upper=99),
        *(Column(name, lower=-3, upper=7) for name in WORDS),
        *(Column(name, lower=1, upper=9) for name in ODD),
        Column("part", lower=0, upper=1, required=False),
        Column("day", type="date", lower=datetime.date(2020, 1, 1), upper=datetime.date(2021, 1, 1)),
        Column("sex", values=("f", "m", "order by count limit 3"), closed=True),
        Column("Ward", values=(1, 2, 3), required=False),
        Column("by ward", values=("a", "b"), closed=True),
    ],
    id_column="person",
    max_rows_per_unit=3,
)
NUMBERS = ("age", "part", "AGE", "(age + part)", "age * 2 - 1", "CASE WHEN sex = 'm' THEN age ELSE 1 END")
TESTS = (
    "age > 40", "sex = 'f'", "sex IN ('m', 'order by count limit 3')", "part IS NOT NULL", "NOT (limit < 2)",
    "day < '2020-07-01'", "Ward = 2 OR (order > desc)", "(age > 3) AND (part < 0.5)",
)  # fmt: skip
KEYS = (
    "sex",
    "ward",
    '"by ward"',
    "age (30, 60)",
    '"limit" (0, 2.5)',
    '"group by" (5)',
    "day ('2020-06-01')",
)


class Texts:
    """Draws queries in words and in SQL."""

    def __init__(self, name: str) -> None:
        self.draws = Draws(name)

    def number(self) -> str:
        kind = self.draws.whole(0, 3)
        if kind == 0:
            return write_name(self.draws.choice((*WORDS, *ODD)))
        if kind == 1:
            return f"{write_name(self.draws.choice(WORDS))} + {self.draws.choice(NUMBERS)}"
        return self.draws.choice(NUMBERS)

    def some(self, most: int, among: tuple[str, ...]) -> list[str]:
        found: dict[str, None] = {}
        for _ in range(self.draws.whole(1, most)):
            found[self.draws.choice(among)] = None
        return list(found)

    def statistic(self, sql: bool) -> str:
        one = ("sum", "avg" if sql else "mean", "variance", "stddev", "var_pop", "stddev_pop", "median")
        kind = self.draws.choice(
            (*one, "ratio", "quantile", "count", "units", "known", *([] if sql else ["proportion"]))
        )
        level = self.draws.choice(("0.9", ".25", "0.5", "1e-2"))
        match kind:
            case "count":
                return self.draws.choice(("count(*)", "COUNT(*)") if sql else ("count", "Count", "count(*)"))
            case "units":
                return "count(distinct person)"
            case "known":
                return f"count({self.draws.choice(('part', 'age', 'Ward'))})"
            case "ratio":
                below = self.draws.choice(("age", "age + 1", "ABS(age - 50)", "sex = 'f'", write_name("sum")))
                return f"SUM({self.number()}) / sum({below})" if sql else f"ratio({self.number()}, {below})"
            case "quantile" if sql and self.draws.random() < 0.5:
                return f"PERCENTILE_DISC({level}) WITHIN GROUP (ORDER BY {self.number()})"
            case "quantile":
                return f"quantile({self.number()}, {level})"
            case "proportion":
                return f"proportion({self.draws.choice(TESTS)})"
            case _:
                word = self.draws.choice((kind, kind.upper()))
                return f"{word}({self.number()})"

    def ending(self, statistics: list[str], keys: list[str], names: list[str], shown: list[str]) -> str:
        """Draw ORDER BY and LIMIT; a query may not be sorted by one thing twice."""

        def position(item: str) -> int:
            return shown.index(item) + 1 if item in shown else 0

        text = ""
        if self.draws.random() < 0.7:
            items = [*keys, *statistics]
            places = list(range(1, len(items) + 1))
            chosen = sorted({self.draws.choice(places) for _ in range(2)})
            written = [
                str(position(items[place - 1]))
                if self.draws.random() < 0.3 and position(items[place - 1])
                else names[place - 1] or items[place - 1]
                if self.draws.random() < 0.5
                else items[place - 1]
                for place in chosen
            ]
            text += " order by " + ", ".join(
                one + self.draws.choice(("", " desc", " DESC", " asc")) for one in written
            )
        return text + (f" limit {self.draws.whole(1, 50)}" if self.draws.random() < 0.6 else "")

    def query(self, sql: bool) -> str:
        """Draw a query that is in the language."""
        statistics = list(dict.fromkeys(self.statistic(sql) for _ in range(self.draws.whole(1, 4))))
        where = f" where {self.draws.choice(TESTS)}" if self.draws.random() < 0.6 else ""
        keys = self.some(2, KEYS) if self.draws.random() < 0.7 else []
        names = [""] * len(keys)
        typed = list(statistics)
        if sql:
            aliases = ("n", '"limit 3"', "m", "total", "by_", '"Sum"', "k")
            for i in range(len(statistics)):
                named = self.draws.random() < 0.5
                names.append(aliases[i] if named else "")
                typed[i] += f" AS {aliases[i]}" if named else ""
        else:
            names += [""] * len(statistics)
        shown = [key for key in keys if not sql or self.draws.random() < 0.5]
        end = self.ending(statistics, keys, names, [*shown, *statistics]) if keys else ""
        if not sql:
            return f"{', '.join(typed)}{where}{' by ' + ', '.join(keys) if keys else ''}{end}"
        groups = f" GROUP BY {', '.join(keys)}" if keys else ""
        return f"SELECT {', '.join([*shown, *typed])} FROM people{where}{groups}{end}"


def same_again(text: str) -> Query:
    """Read a text, and what is written of it, in words and as SQL."""
    query = parse_query(text, SCHEMA)
    for written in (str(query), query.sql):
        try:
            again = parse_query(written, SCHEMA)
        except ExpressionRefused as refused:
            raise AssertionError((text, written)) from refused
        assert again == query, (text, written)
        assert (str(again), again.sql) == (str(query), query.sql)
    return query


def refusal(text: str) -> str | None:
    """Return why a text is refused, by the language's own error and never by another; None if it is read."""
    try:
        same_again(text)
    except ExpressionRefused as refused:
        return str(refused)
    return None


@pytest.mark.parametrize("sql", [False, True])
@pytest.mark.parametrize("count", [300, pytest.param(1000, marks=pytest.mark.slow)])
def test_drawn_queries_are_read_from_what_is_written_of_them(count: int, sql: bool) -> None:
    texts = Texts(f"queries {sql}")
    read = 0
    for _ in range(count):
        text = texts.query(sql)
        said = refusal(text)
        assert said is None or "twice" in said, (text, said)  # the same in other words
        read += said is None
    assert read > 0.78 * count


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("ratio(ratio, age)", None),
        ("mean(ratio), ratio(median, age), median(median)", None),
        ('mean(limit), count by sex order by mean(limit) desc limit 3', None),
        ('sum(order) by "limit" (1, 2) order by "limit" desc limit 2', None),
        ('mean(desc) by "order" (0) order by "order" desc, mean(desc) asc', None),
        ('count by "desc" (0) order by "desc" desc', None),
        ('count by "asc" (0) order by "asc"', None),
        ("SELECT COUNT(*) AS n FROM t GROUP BY sex ORDER BY n DESC", "count by sex order by count desc"),
        ('SELECT COUNT(*) AS "desc" FROM t GROUP BY sex ORDER BY "desc"', "count by sex order by count"),
        ("SELECT sex, AVG(age) FROM t GROUP BY sex ORDER BY 2", "mean(age) by sex order by mean(age)"),
        ("SELECT AVG(age), sex FROM t GROUP BY sex ORDER BY sex", "mean(age) by sex order by sex"),
        ("count, count(part) by sex order by count(part)", None),
        ("count(part) by sex order by count(part)", "count where part IS NOT NULL by sex order by count"),
        ("mean(part) by sex order by 2", "mean(part) where part IS NOT NULL by sex order by mean(part)"),
        ("mean(part), mean(age) by sex order by mean(part)", None),
        ('mean(mean), sum(sum), sum(count), ratio(ratio, sum)', None),
        ('mean("a""b") by "by ward" order by "by ward"', None),
        ("count by sex limit 2", None),
        ("median(age)", "median(age)"),
        ("quantile(age, 0.5)", "median(age)"),
    ],
)  # fmt: skip
def test_names_like_words_of_the_language_are_names(text: str, written: str | None) -> None:
    query = same_again(text)
    if written is not None:
        assert str(query) == written


def test_a_position_counts_what_select_shows() -> None:
    """As in SQL: ORDER BY 1 is the first item after SELECT, whatever it is."""
    first = parse_query("SELECT AVG(age), sex FROM t GROUP BY sex ORDER BY 1", SCHEMA)
    assert first == parse_query("mean(age) by sex order by mean(age)", SCHEMA)
    alone = parse_query("SELECT AVG(age) FROM t GROUP BY sex ORDER BY 1 DESC LIMIT 2", SCHEMA)
    assert alone == parse_query("mean(age) by sex order by mean(age) desc limit 2", SCHEMA)


SOUP = (
    "count", "COUNT(*)", "sum(", "mean(", "stddev(age)", "ratio(", "median(", "quantile(age, 0.9)",
    "AVG(age)", "count(distinct person)", "PERCENTILE_DISC(0.9)", "WITHIN", "GROUP", "SELECT", "FROM t",
    "WHERE", "by", "BY", "order", "ORDER BY", "limit", "LIMIT 3", "desc", "asc", "AS", "n", "age", "sex",
    '"limit"', '"', "'", "''", "(", ")", ",", "*", "/", "+", "-", "1", "0", "99", "0.5", "1e999", "-1",
    ";", "--", "/*", "distinct", "sex = 'f'", "AND", "OR", "NOT", "IN", "NULL", "CASE", "END", "\x00",
    "\n", "é", "ı", "²", "١", "𝟏", "½", "day ('2020-06-01')", "age (30, 60)", "HAVING", "OFFSET", "UNION",
    "OVER ()", "FILTER (WHERE age > 3)", ".",
)  # fmt: skip


def test_soups_of_words_are_refused_or_read() -> None:
    draws = Draws("soup of statistics")
    for _ in range(6_000):
        refusal(" ".join(draws.choice(SOUP) for _ in range(draws.whole(1, 9))))


@pytest.mark.parametrize("sql", [False, True])
def test_spoiled_queries_are_refused_or_read(sql: bool) -> None:
    texts, draws = Texts(f"to spoil {sql}"), Draws(f"spoil {sql}")
    read = 0
    for _ in range(1_500):
        text = texts.query(sql)
        for _ in range(draws.whole(1, 2)):
            at, length = draws.whole(0, len(text)), draws.whole(0, 6)
            text = text[:at] + draws.choice(("", " ", *SOUP)) + text[at + length :]
        read += refusal(text) is None
    assert 0 < read < 1_200


@pytest.mark.parametrize(
    "text",
    [
        "count order by count", "count limit 3", "count by sex limit 0", "count by sex limit -1",
        "count by sex limit 2.5", "count by sex limit many", "count by sex limit", "count by sex order by",
        "count by sex order by count,", "count by sex order by age", "count by sex order by 3",
        "count by sex order by 0", "count by sex order by count, count desc",
        "count by sex limit 3 order by count", f"count by sex limit {'9' * 5000}",
        f"count by sex order by {'9' * 5000}", f"SELECT COUNT(*) FROM t GROUP BY sex ORDER BY {'9' * 5000}",
        "count order by count by sex", "count, count", "mean(age), mean(AGE)", "mean()", "mean(age, part)",
        "ratio(age)", "ratio(age, part, age)", "ratio(age, part - 0.5)", "quantile(age)", "quantile(age, 1)",
        "quantile(age, 0)", "quantile(age, part)", "quantile(age, -0.5)", "median(age > 3)", "median(sex)",
        "mean(sex)", "stddev(Ward = 'x')", "count(distinct age)", "sum(distinct age)", "count(distinct)",
        "count(distinct person, age)", "mean(age) + 1", "mean(age) desc", "count, age", "count,, mean(age)",
        "count,", ", count", "SELECT COUNT(*) FROM t LIMIT 3",
        "SELECT COUNT(*) FROM t GROUP BY sex ORDER BY m", "SELECT SUM(age) / COUNT(*) FROM t",
        "SELECT SUM(age) / SUM(part) / SUM(age) FROM t", "SELECT PERCENTILE_DISC(0.9) FROM t",
        "SELECT PERCENTILE_CONT(0.9) WITHIN GROUP (ORDER BY age) FROM t", "count by sex limit ²",
        "count by sex order by ²", "count by sex limit ١", "SELECT COUNT(*) FROM t GROUP BY sex LIMIT ²",
        ", ".join(f"sum(age + {i})" for i in range(17)),
    ],
)  # fmt: skip
def test_wrong_queries_are_refused(text: str) -> None:
    with pytest.raises(ExpressionRefused):
        parse_query(text, SCHEMA)
