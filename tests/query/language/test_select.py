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
    # Several statistics, by their words in SQL.
    "SELECT COUNT(*), AVG(age), STDDEV_POP(age) FROM t": "count, mean(age), stddev_pop(age)",
    "SELECT SUM(age) / SUM(where) AS r FROM t": "ratio(age, where)",
    "SELECT MEDIAN(age), QUANTILE(age, 0.9) FROM t": "median(age), quantile(age, 0.9)",
    "SELECT PERCENTILE_DISC(0.9) WITHIN GROUP (ORDER BY age) FROM t": "quantile(age, 0.9)",
    "SELECT COUNT(*) FROM within GROUP BY sex": "count by sex",
    # ORDER BY has positions after SELECT, names that AS gives, and what is written again.
    "SELECT COUNT(*) FROM t GROUP BY sex ORDER BY 1": "count by sex order by count",
    "SELECT COUNT(*) AS n, sex FROM t GROUP BY sex ORDER BY 1 DESC, 2 LIMIT 3": (
        "count by sex order by count desc, sex limit 3"
    ),
    "SELECT sex AS s, AVG(age) AS age FROM t GROUP BY sex, age ORDER BY age, s": (
        "mean(age) by sex, age order by mean(age), sex"
    ),
    "SELECT AVG(change) FROM t GROUP BY sex ORDER BY AVG(change) DESC": (
        "mean(change) where change IS NOT NULL by sex order by mean(change) desc"
    ),
    "SELECT COUNT(*) FROM t GROUP BY age (30, 45) ORDER BY age LIMIT 1": (
        "count by age (30, 45) order by age (30, 45) limit 1"
    ),
    # GROUP BY has positions and names too; a column comes before a name.
    "SELECT FLOOR(age / 10) AS decade, COUNT(*) FROM t GROUP BY decade": "count by FLOOR(age / 10)",
    "SELECT COUNT(*), age > 40, SEX FROM t GROUP BY 3, 2": "count by sex, 40 < age",
    "SELECT age (30, 60) AS a, COUNT(*) FROM t GROUP BY A ORDER BY a": (
        "count by age (30, 60) order by age (30, 60)"
    ),
    "SELECT sex AS by, by, COUNT(*) FROM t GROUP BY sex, by": 'count by sex, "by"',
    "SELECT COUNT(change), COUNT(*) FROM t": "count(change), count",
    'SELECT AVG("age"), COUNT("where") FROM t': "mean(age), count",
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
    "SELECT COUNT(*) FROM t GROUP BY 1": ("a constant to group by", None),
    "SELECT COUNT(*) AS n FROM t GROUP BY n": ("the unknown column n", None),
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
    "SELECT COUNT(*) FROM t WHERE smoker ORDER BY 1": ("ORDER BY without groups", None),
    "SELECT COUNT(*) FROM t LIMIT 5": ("LIMIT without groups", None),
    "SELECT COUNT(*) FROM t GROUP BY sex LIMIT 2, 5": (
        "LIMIT without a number",
        "SELECT COUNT(*) FROM t GROUP BY sex",
    ),
    "SELECT COUNT(*) FROM t GROUP BY sex ORDER sex": (
        "ORDER without BY",
        "SELECT COUNT(*) FROM t GROUP BY sex",
    ),
    "SELECT sex, COUNT(*) FROM t GROUP BY sex ORDER BY 3": ("an order by 3, which is not returned", None),
    "SELECT sex, COUNT(*) FROM t GROUP BY sex ORDER BY count": (
        "an order by count, which is not returned",
        None,
    ),
    "SELECT sex, COUNT(*) FROM t GROUP BY sex LIMIT 5 ORDER BY 2": (
        "ORDER after LIMIT",
        "SELECT COUNT(*) FROM t GROUP BY sex ORDER BY COUNT(*) LIMIT 5",
    ),
    "SELECT sex, COUNT(*) AS n FROM t JOIN u GROUP BY sex ORDER BY n DESC LIMIT 2": (
        "a join, JOIN",
        "SELECT COUNT(*) FROM t GROUP BY sex ORDER BY COUNT(*) DESC LIMIT 2",
    ),
    "SELECT COUNT(*) FROM t OFFSET 5": (
        "a choice of groups other than LIMIT, OFFSET",
        "SELECT COUNT(*) FROM t",
    ),
    "SELECT DISTINCT sex FROM t": ("a choice of rows, DISTINCT", "SELECT COUNT(*) FROM t GROUP BY sex"),
    "SELECT COUNT(DISTINCT sex) FROM t": ("a count of the distinct values of sex", None),
    "SELECT SUM(DISTINCT age) FROM t": ("SUM of DISTINCT values", None),
    "SELECT SUM(age) OVER (PARTITION BY sex) FROM t": ("a window, OVER", "SELECT SUM(age) FROM t"),
    "SELECT COUNT(*) FILTER (WHERE age > 3) FROM t": (
        "a choice of rows, FILTER",
        "SELECT COUNT(*) FROM t WHERE age > 3",
    ),
    "SELECT COUNT(*) FILTER (WHERE age > 3) FROM hr.people JOIN t WHERE smoker": (
        "a choice of rows, FILTER",
        "SELECT COUNT(*) FROM people WHERE (age > 3) AND (smoker)",
    ),
    "SELECT SUM(age), COUNT(*) FROM t JOIN u": ("a join, JOIN", "SELECT SUM(age), COUNT(*) FROM t"),
    "SELECT SUM(age), COUNT(*), SUM(AGE) FROM t": ("a statistic that comes twice", None),
    "SELECT SUM(age) / COUNT(*) FROM t": ("something after an aggregate, /", "SELECT AVG(age) FROM t"),
    # An extreme is the value of one row: no other statistic is written in its place.
    "SELECT MAX(age) FROM t": ("an aggregate that does not exist here, MAX(age)", None),
    "SELECT PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY age) FROM t": (
        "an aggregate that does not exist here, PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY age)",
        "SELECT PERCENTILE_DISC(0.5) WITHIN GROUP (ORDER BY age) FROM t",
    ),
    "SELECT SUM(age) / SUM(where) FROM t, u": ("a second table, u", "SELECT SUM(age) / SUM(where) FROM t"),
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
    "SELECT sex FROM t GROUP BY sex": (
        "no statistic, such as COUNT(*) or AVG(x)",
        "SELECT COUNT(*) FROM t GROUP BY sex",
    ),
    "SELECT COUNT(*)": ("no FROM", "SELECT COUNT(*) FROM data"),
    "SELECT COUNT(*) FROM": ("nothing after FROM", "SELECT COUNT(*) FROM data"),
    "SELECT COUNT(*) FROM t GROUP sex": ("GROUP without BY and a column", "SELECT COUNT(*) FROM t"),
    "SELECT COUNT(*) FROM t GROUP BY sex WHERE smoker": (
        "WHERE after GROUP",
        "SELECT COUNT(*) FROM t WHERE smoker GROUP BY sex",
    ),
    "SELECT COUNT(*) FROM t WHERE smoker WHERE by": ("a second WHERE", "SELECT COUNT(*) FROM t WHERE smoker"),
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
    "SELECT MAX(age) FROM t JOIN u LIMIT 3": ("an aggregate that does not exist here, MAX(age)", None),
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


HINTS = {
    "SELECT COUNT(*) FROM t WHERE": "Write a condition: WHERE age > 40.",
    "SELECT ROUND(AVG(age), 2) FROM t": "Ask for the aggregate alone, and compute with the answer.",
    "SELECT MAX(age) FROM t": "It would be the value of one row. QUANTILE(age, 0.99) is a high value that "
    "hardly depends on one row.",
    "SELECT COUNT(DISTINCT sex) FROM t": "GROUP BY counts the rows of each declared value. Every row is a "
    "person of its own, and COUNT(*) counts them.",
    "SELECT COUNT(*) FROM t LIMIT 5": "There is one row: leave it out, or write GROUP BY.",
    "SELECT sex, COUNT(*) FROM t GROUP BY sex ORDER BY age": "Order by one of these, or ask for it as "
    "well: sex, COUNT(*).",
}


@pytest.mark.parametrize("text", HINTS)
def test_what_has_no_nearest_question_is_explained(text: str) -> None:
    with pytest.raises(ExpressionRefused) as refused:
        parse_query(text, SCHEMA)
    assert refused.value.hint == HINTS[text]


def test_what_is_repeated_of_a_text_is_short_and_can_be_shown() -> None:
    with pytest.raises(ExpressionRefused) as refused:
        parse_query(f"SELECT COUNT(*) FROM people {'p' * 500}", SCHEMA)
    assert refused.value.construct == f"another name for the table, {'p' * 61}..."
    with pytest.raises(ExpressionRefused) as refused:
        parse_query("SELECT \x1b[31m FROM t", SCHEMA)
    assert refused.value.construct == "something that is not an aggregate, ?[31m"
