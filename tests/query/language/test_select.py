"""SELECT: what is read of SQL, and how everything else is refused by name, with the nearest question."""

from __future__ import annotations

import pytest

from discreet.errors import ExpressionRefused
from discreet.query.language.query import parse_query
from tests.query.survey import SCHEMA

READ = {
    "SELECT COUNT(*) FROM t": "count",
    "select count( * ) from T": "count",
    "SELECT COUNT(*) FROM t WHERE age > 40 GROUP BY sex": "count where 40 < age by sex",
    "SELECT sex, COUNT(*) FROM t GROUP BY sex": "count by sex",
    "SELECT COUNT(*) AS n, SEX FROM t GROUP BY sex": "count by sex",
    'SELECT AVG(age) AS "mean age" FROM people': "mean(age)",
    "SELECT SUM(CASE WHEN by THEN age END) FROM t": "sum(CASE WHEN (by IN (TRUE)) THEN age ELSE NULL END)",
    "SELECT SUM(age * 2)\n\tFROM t\n\tWHERE sex IN ('f', 'x')": "sum(2 * age) where sex IN ('f', 'x')",
    "SELECT age, COUNT(*) FROM t GROUP BY age (30, 45, 60)": "count by age (30, 45, 60)",
    "SELECT age (30, 60), sex, COUNT(*) FROM t GROUP BY sex, age (30,60)": "count by sex, age (30, 60)",
    "SELECT COUNT(*) FROM t WHERE (select = 'from')": "count where (select IN ('from'))",
    'SELECT SUM(where) FROM t WHERE (limit > 0.5) GROUP BY "by"': 'sum(where) where (0.5 < limit) by "by"',
}


@pytest.mark.parametrize("text", READ)
def test_what_of_sql_is_read(text: str) -> None:
    assert str(parse_query(text, SCHEMA)) == READ[text]


# The construct as typed, and the nearest question that is read.
REFUSED = {
    "SELECT * FROM t WHERE age > 40": ("whole rows, *", "SELECT COUNT(*) FROM t WHERE age > 40"),
    "SELECT COUNT(*) FROM t JOIN u ON t.a = u.a WHERE age > 3": (
        "a join, JOIN",
        "SELECT COUNT(*) FROM t WHERE age > 3",
    ),
    "SELECT COUNT(*) FROM t LEFT OUTER JOIN u USING (a)": ("a join, LEFT JOIN", "SELECT COUNT(*) FROM t"),
    "SELECT COUNT(*) FROM t, u": ("a second table, u", "SELECT COUNT(*) FROM t"),
    "SELECT COUNT(*) FROM (SELECT * FROM t) u WHERE age > 3": (
        "a sub-query as a table",
        "SELECT COUNT(*) FROM data WHERE age > 3",
    ),
    "SELECT COUNT(*) FROM hr.people": ("a table of a schema, hr.people", "SELECT COUNT(*) FROM people"),
    "SELECT COUNT(*) FROM people p": ("another name for the table, p", "SELECT COUNT(*) FROM people"),
    "SELECT COUNT(*) FROM people AS p": ("another name for the table, p", "SELECT COUNT(*) FROM people"),
    'SELECT COUNT(*) FROM "my people"': (
        'a table that is not a plain name, "my people"',
        "SELECT COUNT(*) FROM data",
    ),
    "SELECT COUNT(*) FROM read_csv('/etc/passwd')": (
        "a function as a table, read_csv",
        "SELECT COUNT(*) FROM data",
    ),
    "SELECT COUNT(*) FROM t UNION ALL SELECT 1": ("a second query, UNION", "SELECT COUNT(*) FROM t"),
    "SELECT COUNT(*) FROM t EXCEPT SELECT 1 FROM u": ("a second query, EXCEPT", "SELECT COUNT(*) FROM t"),
    "SELECT sex, COUNT(*) FROM t GROUP BY sex HAVING COUNT(*) > 5": (
        "a choice among groups, HAVING",
        "SELECT COUNT(*) FROM t GROUP BY sex",
    ),
    "SELECT COUNT(*) FROM t WHERE smoker ORDER BY 1": (
        "an order of groups, ORDER BY",
        "SELECT COUNT(*) FROM t WHERE smoker",
    ),
    "SELECT COUNT(*) FROM t LIMIT 5": ("a limit on groups, LIMIT", "SELECT COUNT(*) FROM t"),
    "SELECT COUNT(*) FROM t OFFSET 5": ("a limit on groups, OFFSET", "SELECT COUNT(*) FROM t"),
    "SELECT DISTINCT sex FROM t": ("a choice of rows, DISTINCT", "SELECT COUNT(*) FROM t GROUP BY sex"),
    "SELECT COUNT(DISTINCT sex) FROM t": (
        "a choice of values, DISTINCT",
        "SELECT COUNT(*) FROM t GROUP BY sex",
    ),
    "SELECT SUM(DISTINCT age) FROM t": ("a choice of values, DISTINCT", "SELECT SUM(age) FROM t"),
    "SELECT SUM(age) OVER (PARTITION BY sex) FROM t": ("a window, OVER", "SELECT SUM(age) FROM t"),
    "SELECT COUNT(*) FILTER (WHERE age > 3) FROM t": (
        "a choice of rows, FILTER",
        "SELECT COUNT(*) FROM t WHERE age > 3",
    ),
    "SELECT COUNT(*) FILTER (WHERE age > 3) FROM hr.people JOIN t WHERE smoker": (
        "a choice of rows, FILTER",
        "SELECT COUNT(*) FROM people WHERE (age > 3) AND (smoker)",
    ),
    "SELECT SUM(age), COUNT(*) FROM t": ("a second aggregate, COUNT(*)", "SELECT SUM(age) FROM t"),
    "SELECT SUM(age) / COUNT(*) FROM t": ("something after an aggregate, /", "SELECT SUM(age) FROM t"),
    "SELECT MAX(age) FROM t": (
        "an aggregate that is not COUNT, SUM or AVG, MAX(age)",
        "SELECT AVG(age) FROM t",
    ),
    "SELECT MEAN(age) FROM t": (
        "an aggregate that is not COUNT, SUM or AVG, MEAN(age)",
        "SELECT AVG(age) FROM t",
    ),
    "SELECT COUNT(age > 3) FROM t": ("COUNT of a condition", None),
    "SELECT age FROM t": ("a column that is not in GROUP BY, age", "SELECT AVG(age) FROM t"),
    "SELECT sex FROM t": ("a column that is not in GROUP BY, sex", "SELECT COUNT(*) FROM t GROUP BY sex"),
    "SELECT sex, COUNT(*) FROM t": (
        "a column that is not in GROUP BY, sex",
        "SELECT COUNT(*) FROM t GROUP BY sex",
    ),
    "SELECT age (30), COUNT(*) FROM t GROUP BY age (40)": (
        "a column that is not in GROUP BY, age (30)",
        None,
    ),
    "SELECT sex FROM t GROUP BY sex": ("no COUNT, SUM or AVG", "SELECT COUNT(*) FROM t GROUP BY sex"),
    "SELECT COUNT(*)": ("no FROM", "SELECT COUNT(*) FROM data"),
    "SELECT COUNT(*) FROM": ("nothing after FROM", "SELECT COUNT(*) FROM data"),
    "SELECT COUNT(*) FROM t WHERE": ("nothing after WHERE", "SELECT COUNT(*) FROM t"),
    "SELECT COUNT(*) FROM t GROUP sex": ("GROUP without BY and a column", "SELECT COUNT(*) FROM t"),
    "SELECT COUNT(*) FROM t GROUP BY sex WHERE smoker": (
        "WHERE after GROUP",
        "SELECT COUNT(*) FROM t WHERE smoker GROUP BY sex",
    ),
    "SELECT COUNT(*) FROM t WHERE smoker WHERE by": ("a second WHERE", "SELECT COUNT(*) FROM t WHERE smoker"),
    "SELECT COUNT(*) FROM t;": ("the sign ; (a second statement)", "SELECT COUNT(*) FROM t"),
    "SELECT COUNT(*) FROM t; DROP TABLE t": ("the sign ; (a second statement)", "SELECT COUNT(*) FROM t"),
    "SELECT COUNT(*) -- all\nFROM t": ("a comment", "SELECT COUNT(*) FROM t"),
    "/* all */ SELECT COUNT(*) FROM t": ("a comment", "SELECT COUNT(*) FROM t"),
    "WITH u AS (SELECT * FROM t) SELECT COUNT(*) FROM u": (
        "a common table expression, WITH",
        "SELECT COUNT(*) FROM u",
    ),
    "EXPLAIN SELECT COUNT(*) FROM t": ("a statement, EXPLAIN", "SELECT COUNT(*) FROM t"),
    "DROP TABLE t": ("a statement, DROP", None),
    "INSERT INTO t VALUES (1)": ("a statement, INSERT", None),
    "UPDATE t SET age = 1": ("a statement, UPDATE", None),
    "SELECT COUNT(*) FROM t WHERE (age > 3": ("a ( that is not closed", None),
    "SELECT COUNT(*) FROM t WHERE sex = 'f": ("a quote that is not closed", None),
    "SELECT COUNT(*)) FROM t": ("a ) without its (", None),
    "SELECT COUNT(*) FROM t WHERE EXISTS (SELECT 1)": ("a sub-query, EXISTS", None),
    # The first of several is named.
    "SELECT MAX(age) FROM t JOIN u LIMIT 3": (
        "an aggregate that is not COUNT, SUM or AVG, MAX(age)",
        "SELECT AVG(age) FROM t",
    ),
    "SELECT COUNT(*) FROM t WHERE agee > 3 LIMIT 3": ("the unknown column agee", None),
    "SELECT AVG(agee) FROM t JOIN u": ("the unknown column agee", None),
    "SELECT COUNT(*) FROM t JOIN u WHERE agee > 3": ("a join, JOIN", None),
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_of_sql_is_refused_is_named_with_the_nearest_question(text: str) -> None:
    construct, nearest = REFUSED[text]
    with pytest.raises(ExpressionRefused) as refused:
        parse_query(text, SCHEMA)
    assert refused.value.construct == construct
    if nearest is None:
        assert "Write: SELECT" not in refused.value.hint
    else:
        assert refused.value.hint == f"Write: {nearest}"
        parse_query(nearest, SCHEMA)


def test_what_is_repeated_of_a_text_is_short_and_can_be_shown() -> None:
    with pytest.raises(ExpressionRefused) as refused:
        parse_query(f"SELECT COUNT(*) FROM people {'p' * 500}", SCHEMA)
    assert refused.value.construct == f"another name for the table, {'p' * 61}..."
    with pytest.raises(ExpressionRefused) as refused:
        parse_query("SELECT \x1b[31m FROM t", SCHEMA)
    assert refused.value.construct == "something that is not an aggregate, ?[31m"
