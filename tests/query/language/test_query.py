"""Questions are read, written as sentences and as SQL, and read again as the same; nothing else happens."""

from __future__ import annotations

import datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from discreet.errors import ExpressionRefused, ParameterError
from discreet.noise import Stream
from discreet.query.language._group_by import GroupKey
from discreet.query.language.query import Query, build_query, parse_query, parse_stored_query
from discreet.schema import Column, Schema
from tests.effort import function_calls
from tests.query.language.queries import Streamed, drawn, question, spoiled
from tests.query.survey import SCHEMA


def check_identity(text: str) -> None:
    found = parse_stored_query(text, SCHEMA)
    again = parse_stored_query(found.sql, SCHEMA)
    assert again == found
    assert again.sql == found.sql
    assert parse_stored_query(str(found), SCHEMA) == found
    if refusal_of(text) is None:
        # What may be typed may be typed as it is written, too.
        assert parse_query(found.sql, SCHEMA) == parse_query(str(found), SCHEMA) == found


@settings(max_examples=150, deadline=None)
@given(drawn(question))
def test_sentence_to_sql_to_sentence_is_the_identity(text: str) -> None:
    check_identity(text)


@pytest.mark.stats
def test_sentence_to_sql_to_sentence_is_the_identity_20_000_times() -> None:
    choose = Streamed(Stream())
    texts = [question(choose) for _ in range(20_000)]
    assert len(set(texts)) > 15_000
    for text in texts:
        check_identity(text)


def refusal_of(text: str) -> ExpressionRefused | None:
    """Return why a text is refused; whatever else is raised is a mistake of ours."""
    try:
        parse_query(text, SCHEMA)
    except ExpressionRefused as refused:
        return refused
    return None


def check_spoiled(text: str) -> None:
    refused = refusal_of(text)
    if refused is None:
        check_identity(text)
        return
    assert refused.construct.isprintable()
    if refused.hint.startswith("Write: "):
        check_identity(refused.hint.removeprefix("Write: "))


@settings(max_examples=250, deadline=None)
@given(drawn(spoiled))
def test_a_spoiled_question_is_read_or_refused_and_nothing_else(text: str) -> None:
    check_spoiled(text)


@pytest.mark.stats
def test_a_spoiled_question_is_read_or_refused_and_nothing_else_20_000_times() -> None:
    choose = Streamed(Stream())
    texts = [spoiled(choose) for _ in range(20_000)]
    assert len(set(texts)) > 19_000
    for text in texts:
        check_spoiled(text)


@settings(max_examples=300, deadline=None)
@given(
    st.text(max_size=80), st.sampled_from(["", "SELECT ", "count where ", "SELECT COUNT(*) FROM t WHERE "])
)
def test_any_text_at_all_is_read_or_refused(text: str, before: str) -> None:
    check_spoiled(before + text)


ENDLESS = {
    "nested parentheses": "count where " + "(" * 4000 + "TRUE" + ")" * 4000,
    "nested in SQL": "SELECT SUM(" + "(" * 3000 + "age" + ")" * 3000 + ") FROM t",
    "never closed": "SELECT COUNT(*) FROM t WHERE " + "(" * 8000,
    "a chain of signs": "sum(" + "-" * 8000 + "age)",
    "a chain of NOT": "count where " + "NOT " * 1900 + "smoker",
    "comments that never end": "SELECT " + "/*" * 4000,
    "quotes": "count where sex = " + "'" * 8001,
    "quotes in SQL": "SELECT COUNT(*) FROM t WHERE sex = " + "'" * 8001,
    "commas": "count by " + "," * 8000,
    "commas in SQL": "SELECT " + "," * 8000 + " FROM t",
    "parentheses and commas": "count by " + ",(" * 4000,
    "keys": "SELECT " + "sex," * 1300 + "COUNT(*) FROM t GROUP BY " + "age," * 700 + "age",
    "edges": 'count by "hours-per-week" (' + ",".join(str(i / 10) for i in range(1000)) + ")",
    "a megabyte": "count where age > 1" + " " * 2**20,
    "a megabyte of SQL": "SELECT " + "x" * 2**20,
    "NUL": "\x00" * 8000,
    "a lone surrogate": "SELECT COUNT(*) FROM t WHERE sex = '\ud800'",
    "selects": "SELECT " * 1100,
    "withs": "WITH " * 1600 + "SELECT COUNT(*) FROM t",
}


@pytest.mark.parametrize("text", ENDLESS.values(), ids=ENDLESS)
def test_hostile_texts_are_refused_at_once(text: str) -> None:
    refused = None

    def read() -> None:
        nonlocal refused
        refused = refusal_of(text)

    assert function_calls(read) < 1_000_000  # the most is 400,000, about a tenth of a second
    if text == ENDLESS["edges"]:
        assert refused is None
    else:
        assert refused is not None
        # What is repeated of a text is short.
        assert len(str(refused)) < 1500


@pytest.mark.parametrize("piece", ["'", "''\"", "/*", "//*", "(", "a'b", "1.", "1e5", "e+5by ", ",("])
@pytest.mark.parametrize("before", ["count where ", "SELECT COUNT(*) FROM t WHERE ", "count by "])
def test_reading_effort_grows_with_the_length_of_a_text(before: str, piece: str) -> None:
    half, whole = (
        function_calls(lambda size=size: refusal_of(before + piece * (size // len(piece))))  # type: ignore[misc]
        for size in (3900, 7800)
    )
    assert whole < 2.2 * half + 1000


def test_something_else_than_a_text_is_refused() -> None:
    with pytest.raises(ExpressionRefused, match="no text"):
        parse_query(b"count", SCHEMA)  # type: ignore[arg-type]


# Parts.


def test_a_sentence_of_parts_is_the_typed_one() -> None:
    made = build_query(
        "mean(age * 2), count",
        "smoker",
        [
            "sex",
            {"column": "hours-per-week", "edges": [20, 40.5]},
            {"column": "admitted", "edges": ["2020-03-01"]},
        ],
        SCHEMA,
    )
    typed = "mean(age * 2), count where smoker by sex, \"hours-per-week\" (20, 40.5), admitted ('2020-03-01')"
    assert made == parse_query(typed, SCHEMA)
    assert made.by[1:] == (GroupKey("hours-per-week", (20.0, 40.5)), GroupKey("admitted", (60.0,)))
    assert build_query("count", None, [], SCHEMA) == parse_query("count", SCHEMA)


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        (("count(age > 40)", None, []), "COUNT of a condition"),
        (("", None, []), "nothing to compute"),
        (("age, count", None, []), "nothing to compute"),
        (("sum", None, []), "SUM of nothing"),
        (("max(age)", None, []), "There is no MAX"),
        (("sum(age)", "age", []), "something other than a condition"),
        (("count", None, ["agee"]), "Unknown column agee. Did you mean age"),
        (("count", None, ['sex", "age']), "a name in double quotes that is not a column"),
        (("count", None, ["sex", "SEX"]), "comes twice"),
        (("count", None, ["hours-per-week"]), 'BY "hours-per-week" \\(25, 50, 75\\)'),
        (("count", None, [{"column": "age", "edges": []}]), "rising numbers"),
        (("count", None, [{"column": "age", "edges": [3, 3]}]), "rising numbers"),
        (("count", None, [{"column": "age", "edges": [float("nan")]}]), "rising numbers"),
        (("count", None, [{"column": "age", "edges": [1, float("inf")]}]), "rising numbers"),
        (("count", None, [{"column": "age", "edges": [10**400]}]), "rising numbers"),
        (("count", None, [{"column": "age", "edges": [True]}]), "rising numbers"),
        (("count", None, [{"column": "age", "edges": ["2020-01-01"]}]), "rising numbers"),
        (("count", None, [{"column": "admitted", "edges": ["2020-02-31"]}]), "rising numbers"),
        (("count", None, [{"column": "sex", "edges": [1]}]), "rising numbers. Leave them out"),
    ],
)
def test_parts_are_refused_like_texts(parts: Any, said: str) -> None:
    statistics, where, by = parts
    with pytest.raises(ExpressionRefused, match=said):
        build_query(statistics, where, by, SCHEMA)


@pytest.mark.parametrize("by", [[5], [{"column": "age"}], [{"column": "age", "edges": [1], "x": 1}], [None]])
def test_groups_that_are_none_are_refused(by: Any) -> None:
    with pytest.raises(ParameterError, match="by of build_query must hold names"):
        build_query("count", None, by, SCHEMA)


# What would be read as something else.


@pytest.mark.parametrize("text", ["sum(age) + 1", "mean (age) / (where + 1)", "sum(age) > 3"])
def test_what_stands_after_the_parentheses_is_not_taken_into_them(text: str) -> None:
    with pytest.raises(ExpressionRefused, match=r"[/>+] after \w+ ?\(age\)\. Ask for"):
        parse_query(text, SCHEMA)


@pytest.mark.parametrize("text", ["count )(", "count (", "count * *", "count ()()", "count(age) + 1"])
def test_what_can_be_neither_rows_nor_a_column_is_not_counted(text: str) -> None:
    with pytest.raises(ExpressionRefused, match=r"no meaning|not closed|without its|[*(+] after count"):
        parse_query(text, SCHEMA)


COUNTED = {
    "count(age)": "count",
    "count(change)": "count where change IS NOT NULL",
    "COUNT change + age WHERE sex = 'f'": "count where (change IS NOT NULL) AND (sex IN ('f'))",
    "SELECT COUNT(change) FROM t": "count where change IS NOT NULL",
    "SELECT COUNT(1) FROM t": "count",
    "SELECT sex, COUNT(change) FROM t GROUP BY sex": "count where change IS NOT NULL by sex",
    "mean(age)": "mean(age)",
    "mean(change)": "mean(change) where change IS NOT NULL",
    "mean(change > 1) where age > 30": "mean(1 < change) where (30 < age) AND (change IS NOT NULL)",
    "SELECT AVG(change) FROM t WHERE change IS NOT NULL": "mean(change) where change IS NOT NULL",
    "mean(change) by sex": "mean(change) where change IS NOT NULL by sex",
    "mean(COALESCE(change, 0))": "mean(COALESCE(change, 0))",
    "mean(change) where change IS NULL": "mean(change) where (change IS NOT NULL) AND FALSE",
    "mean(change) where FALSE and age > 3": "mean(change) where (3 < age) AND (change IS NOT NULL) AND FALSE",
    "sum(change)": "sum(change)",
    "count where (change > 1) IS TRUE": "count where 1 < change",
}


@pytest.mark.parametrize("text", COUNTED)
def test_a_mean_and_a_count_of_something_are_over_the_rows_where_it_is_known(text: str) -> None:
    query = parse_query(text, SCHEMA)
    assert str(query) == COUNTED[text]
    assert parse_query(str(query), SCHEMA) == query == parse_query(query.sql, SCHEMA)


ORDERED = {
    "count by sex order by count desc limit 2": "count by sex order by count desc limit 2",
    "count, mean(age) by sex order by 3, 1 desc": "count, mean(age) by sex order by mean(age), sex desc",
    "mean(change) BY sex ORDER BY mean(change)": (
        "mean(change) where change IS NOT NULL by sex order by mean(change)"
    ),
    "count, count(change) by sex order by count(change)": (
        "count, count(change) by sex order by count(change)"
    ),
    "count(change) by sex order by count(change)": "count where change IS NOT NULL by sex order by count",
    "count by age (30, 60), sex order by AGE, sex asc": (
        "count by age (30, 60), sex order by age (30, 60), sex"
    ),
    "count by age (30, 60) order by age (30.0,60) desc": "count by age (30, 60) order by age (30, 60) desc",
    'sum(limit) by "by" order by "by" limit 1': 'sum(limit) by "by" order by "by" limit 1',
}


@pytest.mark.parametrize("text", ORDERED)
def test_groups_are_ordered_by_what_is_named_and_written_so_again(text: str) -> None:
    query = parse_query(text, SCHEMA)
    assert str(query) == ORDERED[text]
    check_identity(text)


SEVERAL = {
    "count, mean(age), stddev_pop(age)": "count, mean(age), stddev_pop(age)",
    "proportion(smoker), count": "mean(smoker IN (TRUE)), count",
    # Each is over the rows where it is known, and the condition is that of all of them.
    "count(change), mean(change), mean(age)": "count(change), mean(change), mean(age)",
    "ratio(age, where), median(age), quantile(age, .9)": "ratio(age, where), median(age), quantile(age, 0.9)",
    "var_samp(age), stddev_samp(age) by sex": "variance(age), stddev(age) by sex",
}


@pytest.mark.parametrize("text", SEVERAL)
def test_several_statistics_are_one_question(text: str) -> None:
    assert str(parse_query(text, SCHEMA)) == SEVERAL[text]
    check_identity(text)


def test_edges_are_written_with_all_their_digits_and_odd_names_in_quotes() -> None:
    found = parse_query('count by "hours-per-week" (1.2345678, 99.00001), "where"', SCHEMA)
    assert str(found) == 'count by "hours-per-week" (1.2345678, 99.00001), "where"'
    assert isinstance(found, Query)
    with pytest.raises(ExpressionRefused, match="rising numbers"):
        parse_query("count by age (3 0)", SCHEMA)


# Dates.

DAYS = Schema(
    columns=[
        Column("am Tag", lower=datetime.date(2020, 1, 1), upper=datetime.date(2024, 12, 31)),
        Column("d", lower=datetime.date(2020, 1, 1), upper=datetime.date(2024, 12, 31)),
        Column("age", type="integer", lower=0, upper=9),
        Column("c", values=("(366 < d)", "b")),
    ]
)


@pytest.mark.parametrize(
    ("typed", "written"),
    [
        ("d > '2021-01-01'", "'2021-01-01' < d"),
        ("d + 1 > '2021-01-02'", "'2021-01-01' < d"),
        ("d > '2019-12-27'", "'2019-12-27' < d"),
        ("not d > '2021-01-01'", "d <= '2021-01-01'"),
        ("d in ('2021-05-05', '2021-05-06')", "('2021-05-05' = d) OR ('2021-05-06' = d)"),
        (
            "\"am Tag\" between '2021-01-01' and '2022-01-01' and age > 3",
            "(\"am Tag\" <= '2022-01-01') AND (3 < age) AND ('2021-01-01' <= \"am Tag\")",
        ),
        (
            "case when d > '2021-01-01' then 1 else 0 end = 1",
            "1 = CASE WHEN ('2021-01-01' < d) THEN 1 ELSE 0 END",
        ),
        ("c = '(366 < d)'", "c IN ('(366 < d)')"),
    ],
)
def test_days_are_written_as_dates_and_read_as_the_same_question(typed: str, written: str) -> None:
    asked = parse_query(f"count where {typed}", DAYS)
    assert str(asked) == f"count where {written}"
    assert parse_query(str(asked), DAYS) == asked
    assert parse_query(asked.sql, DAYS) == asked


@pytest.mark.parametrize(
    ("said", "written"),
    [
        ("d > 366", "'2021-01-01' < d"),
        ("d > 366.5", "366.5 < d"),
        ("d + 1 > 367", "367 < (d + 1)"),
        ("-5 < d", "'2019-12-27' < d"),
        ("d > 1e9", "1000000000 < d"),
    ],
)
def test_a_stored_question_may_have_numbers_of_days_and_a_typed_one_may_not(said: str, written: str) -> None:
    asked = parse_stored_query(f"count where {said}", DAYS)
    assert str(asked) == f"count where {written}"
    assert parse_stored_query(str(asked), DAYS) == parse_stored_query(asked.sql, DAYS) == asked
    with pytest.raises(ExpressionRefused, match="a date compared with a number"):
        parse_query(f"count where {said}", DAYS)


ERRORS = {
    "mean(hours)": 'Unknown column hours. Did you mean "hours-per-week"?',
    "mean(Größe)": "Unknown column Größe. There are ",
    "mean(agé)": "Unknown column agé. Did you mean age?",
    "corr(age)": "There is no CORR. Use COUNT, SUM, MEAN, VARIANCE, STDDEV, RATIO, MEDIAN or QUANTILE.",
    "MAX(age) by sex": "There is no MAX. It would be the value of one row. QUANTILE(age, 0.99) is a high "
    "value that hardly depends on one row.",
    "count, min(2 * age)": "QUANTILE(2 * age, 0.01) is a low value that hardly depends on one row.",
    "mean": "MEAN of nothing. Write MEAN(age).",
    "stddev(age, sex)": "STDDEV of 2 things. Write STDDEV(age).",
    "ratio(age)": "RATIO of 1 thing. Write RATIO(sales, hours).",
    "quantile(age)": "QUANTILE of 1 thing. Write QUANTILE(age, 0.9).",
    "quantile(age, 90)": "the level 90 of a quantile. It is the part of the rows that lie below, between 0 "
    "and 1: QUANTILE(age, 0.9).",
    "median(smoker)": "a quantile of a condition. Ask for its MEAN",
    "count(distinct sex)": "a count of the distinct values of sex. GROUP BY counts the rows of each declared "
    "value. Every row is a person of its own, and COUNT(*) counts them.",
    "sum(distinct age)": "SUM of DISTINCT values. Leave out DISTINCT, which only COUNT of an id column has.",
    "count, count(*)": "a statistic that comes twice",
    "count, age": "an item without a statistic, age. Write SUM(age) or MEAN(age).",
    "count,, sum(age)": "an empty place between commas",
    ", ".join(f"sum(age + {i})" for i in range(17)): "17 statistics. Ask for at most 16 at once.",
    "total(age)": "the word TOTAL. Write SUM.",
    "percentile(age, 90)": "the word PERCENTILE. Write QUANTILE(age, 0.9), with a level between 0 and 1.",
    "count order by count": "ORDER BY without groups. There is one row: leave it out, or write GROUP BY.",
    "count limit 5": "LIMIT without groups. There is one row: leave it out, or write GROUP BY.",
    "count by sex limit": "LIMIT without a number",
    "count by sex limit 0": "LIMIT 0. Write a whole number of groups: LIMIT 10.",
    "count by sex limit 2.5": "LIMIT 2.5. Write a whole number of groups",
    "count by sex order by mean(age)": "an order by mean(age), which is not returned. Order by one of these, "
    "or ask for it as well: sex, count.",
    "count by sex order by age": "an order by age, which is not returned.",
    "count by sex order by count(change)": "an order by count(change), which is not returned.",
    "count by sex order by 3": "an order by 3, which is not returned.",
    "count by sex order by desc": "an empty place after ORDER BY",
    "count by sex order by count, 2 desc": "an order that names one column twice",
    "count by sex limit 3 order by count": "LIMIT before ORDER BY",
    "count(age>3)": "Write COUNT WHERE age>3 for the rows where it is true.",
    "count((age > 3) and sex = 'f')": "Write COUNT WHERE (age > 3) and sex = 'f' for the rows",
}


@pytest.mark.parametrize("text", ERRORS)
def test_errors_name_what_was_typed_and_what_to_write_instead(text: str) -> None:
    with pytest.raises(ExpressionRefused) as caught:
        parse_query(text, SCHEMA)
    assert ERRORS[text] in str(caught.value)


def test_names_of_letters_need_no_quotes_and_no_letter_passes_for_a_word_of_the_language() -> None:
    schema = Schema(columns=[Column("Größe", lower=0, upper=3), Column("ward", values=("a", "b"))])
    same = parse_query('mean("Größe") where "Größe" > 1 by "Größe" (1, 2)', schema)
    assert parse_query("mean(größe) where Größe > 1 by Größe (1, 2)", schema) == same
    assert parse_query(str(same), schema) == same
    # The capitals of a long s and of a dotless i are ASCII.
    for text in ("count where ward ıN ('a')", "caſe when ward = 'a' then 1 else 0 end"):
        with pytest.raises(ExpressionRefused, match=r"Unknown column|no meaning|the function"):
            parse_query(text, schema)
