"""What people type by mistake, and the sentence that each mistake gets: what is wrong, and the way out."""

from __future__ import annotations

import datetime

import pytest

from discreet.errors import ExpressionRefused
from discreet.query.language.query import parse_query
from discreet.schema import Column, Schema

SCHEMA = Schema(
    columns=[
        Column("age", type="integer", lower=0, upper=120, measure="years"),
        Column("income", lower=0, upper=200_000, measure="EUR"),
        Column("bmi", lower=10, upper=60, required=False),
        Column("sex", values=("F", "M")),
        Column("ward", values=("surgery", "medicine", "intensive care")),
        Column("smoker", values=(False, True)),
        Column("admitted", lower=datetime.date(2020, 1, 1), upper=datetime.date(2024, 12, 31)),
        Column("hours-per-week", lower=0, upper=99),
    ]
)
BEGINNING = "Not understood: "
# Each question with its message; most of them begin as above.
WRONG = {
    "count where agee > 40": "Unknown column agee. Did you mean age?",
    "count where AGE_YEARS > 40": (
        'Unknown column AGE_YEARS. There are age, income, bmi, sex, ward, smoker, admitted, "hours-per-week".'
    ),
    'count where sex = "F"': (
        "a name in double quotes that is not a column. Values of a category stand in single quotes,"
        " numbers without quotes."
    ),
    "count where sex = F": "Unknown column F. Write a value in single quotes: sex = 'F'.",
    "count where sex = 'female'": "a value that is not declared for sex. It may hold 'F', 'M', 'other'.",
    "count where sex = 'f'": "a value that is not declared for sex. Did you mean 'F'?",
    "count where ward = “surgery”": (
        "the quotation mark “. Values of a category stand in straight single quotes: 'surgery'."
    ),
    "count where ward = ‘surgery’": (
        "the quotation mark ‘. Values of a category stand in straight single quotes: 'surgery'."
    ),
    "count where ward = 'surgery": (
        "a quote that is not closed. Close it; a quote inside quotes is written twice."
    ),
    'count where age > "40"': (
        "a name in double quotes that is not a column. Values of a category stand in single quotes,"
        " numbers without quotes."
    ),
    "count where (age > 40": "a ( that is not closed. Close it.",
    "count where age > 40)": "a ) without its (. Leave it out, or write the ( before it.",
    "mean(ward)": (
        "a category where a number is needed. Compare it with its declared values: ward = 'surgery'."
    ),
    "mean(age) by ward by sex": "a second BY. Join conditions with AND, groups by commas.",
    "count where age > 40 years": "Unknown column years. Leave the unit out: age is in years.",
    "count where income > 50k": "a number that runs into a word. Write numbers as 12, 0.5 or 1e6.",
    "count where income > €50000": (
        "the sign €. Leave the unit out: numbers are in the unit that is declared for their column."
    ),
    "count where income > 50,000": (
        "a comma between two numbers. Write 3.5 with a point, 50000 without a sign between the "
        "thousands, and lists in parentheses: age IN (40, 50)."
    ),
    "count where bmi > 3,5": (
        "a comma between two numbers. Write 3.5 with a point, 50000 without a sign between the "
        "thousands, and lists in parentheses: age IN (40, 50)."
    ),
    "count where admitted > 31.12.2023": "a date without quotes. Write '2023-12-31'.",
    "count where admitted > 2023-12-31": "a date without quotes. Write '2023-12-31'.",
    "count where admitted > '31.12.2023'": "a date in another form. Write '2023-12-31'.",
    "count where admitted > '12/31/2023'": "a date in another form. Write '2023-12-31'.",
    "count where admitted > '03/04/2023'": "a date in another form. Write a day as '2024-01-31'.",
    "count where admitted > '2023'": (
        "a date in another form. Write a day as '2023-12-31', or YEAR(admitted) = 2023."
    ),
    "count where admitted = '2023-02-30'": (
        "a date in another form. There is no such day. Write a day as '2024-01-31'."
    ),
    "count where age == 40": "the sign ==. Write a = b.",
    "count where age => 40": "the sign =>. Write a >= b for at least.",
    "count where age ≥ 40": "the sign ≥. Write a >= b.",
    "count where age ≠ 40": "the sign ≠. Write a <> b.",
    "count where age > −5": "the sign −. Write a minus as -.",
    "count where sex = 'F' && age > 40": "the sign & (bits). Join conditions with AND.",
    "count where sex = 'F' || age > 40": "the sign | (concatenation, bits). Join conditions with OR.",
    "count where sex = 'F' and": "nothing after AND. Write a condition such as age > 40 AND sex = 'F'.",
    "count where age >": "nothing after >. Write a condition such as age > 40 AND sex = 'F'.",
    "count where age > 40 and < 60": "< after AND. Name the column again: age > 40 AND age < 60.",
    "count where age between 40 to 60": "the word TO. Write age BETWEEN 40 AND 60.",
    "count where age in 40, 50": "IN without a list in parentheses. Write age IN (40, 50).",
    "count where age is 40": "IS with something other than NULL. Write x IS NULL, or x = 1.",
    "count where age > 4 0": (
        "two numbers side by side. Write one number without blanks, or a sign between two."
    ),
    "count where age > 40 smoker": "two values side by side. Write a sign, AND or OR between them.",
    "count where ward like 'surg%'": (
        "text matching, LIKE. Compare a category with its declared values: ward IN ('surgery', 'medicine')."
    ),
    "count where ward ILIKE 'surg%'": (
        "text matching, ILIKE. Compare a category with its declared values: ward IN ('surgery', 'medicine')."
    ),
    "count where ward in ('surgery', 'urology')": (
        "a value that is not declared for ward. It may hold 'surgery', 'medicine', 'intensive care', 'other'."
    ),
    "count where bmi = null": "NULL outside a branch of CASE. Write x IS NULL to ask for missing cells.",
    "count where smoker = 'yes'": (
        "a value that is not declared for smoker. Write smoker = TRUE or smoker alone, smoker = FALSE or "
        "NOT smoker."
    ),
    "count where age > (select avg(age) from t)": (
        "a sub-query, SELECT. An expression speaks of one row alone: write a condition such as age < 40."
    ),
    "cuont where age > 40": "Unknown column cuont. Did you mean COUNT?",
    "SELCT COUNT(*) FROM t": "Unknown column SELCT. Did you mean SELECT?",
    "how many people are older than 40?": (
        "the word HOW. Write questions as COUNT WHERE age > 40, or MEAN(age) BY sex."
    ),
    "count smokers": "Unknown column smokers. Did you mean smoker?",
    "sum income per ward": "the word PER. Write BY before the columns of the groups.",
    "mean(hours-per-week)": 'The name hours-per-week needs quotes. Write "hours-per-week".',
    "count where Hours-per-Week > 40": 'The name Hours-per-Week needs quotes. Write "hours-per-week".',
    "mean(hours-per-month)": 'Unknown column hours. Did you mean "hours-per-week"?',
    "mean(income / age)": (
        "Not allowed: a division by something that could be zero. Keep the denominator away from zero: "
        "x / GREATEST(y, 1)."
    ),
    "count by wards": "Unknown column wards. Did you mean ward?",
    "count by income": (
        "a column of numbers to group by. Say where its cells begin: BY income (50000, 100000, 150000)."
    ),
    "count by age (60, 40)": (
        "cells that are not a column of numbers and rising numbers. Write where cells begin: BY age"
        " (30, 60, 90)."
    ),
    "count where age > 40; DROP TABLE people": "the sign ; (a second statement). Ask one question at a time.",
    "'; DROP TABLE people; --": (
        "a quote that is not closed. Close it; a quote inside quotes is written twice."
    ),
    "count where sex = '' OR '1'='1'": "a value that is not declared for sex. It may hold 'F', 'M', 'other'.",
    "count where age > 40 -- all": "a comment. Leave it out.",
    "SELECT * FROM t": "whole rows, *. Write: SELECT COUNT(*) FROM t",
    "SELECT AVG(age) FROM t JOIN u ON t.id = u.id": "a join, JOIN. Write: SELECT AVG(age) FROM t",
    "SELECT ward, AVG(age) FROM t GROUP BY ward HAVING COUNT(*) > 10": (
        "a choice among groups, HAVING. Write: SELECT AVG(age) FROM t GROUP BY ward"
    ),
    "SELECT ward, AVG(age) FROM t": (
        "a column that is not in GROUP BY, ward. Write: SELECT AVG(age) FROM t GROUP BY ward"
    ),
    "SELECT AVG(age)": "no FROM. Write: SELECT AVG(age) FROM data",
    "SELECT AVG(t.age) FROM t": "the sign . (qualified name). Write the name of a column alone.",
    "🙂": (
        "a character that the language does not have. Names of columns that hold others stand in "
        "double quotes, declared values in single quotes."
    ),
    "": "nothing to compute. Write COUNT, SUM(age) or MEAN(age), then WHERE or BY.",
    "count where": "nothing after WHERE. Write a condition: WHERE age > 40.",
    "mean age by": "nothing after BY. Name a column: BY sex.",
    "mean age by ward,": "nothing beside a comma after BY. Leave it out, or name a column.",
    "mean age by sex and ward": "AND between columns to group by. Write a comma: BY sex, ward.",
    "mean(age where sex = 'F'": "a ( that is not closed. Close it.",
    "mean(age where sex = 'F')": (
        "WHERE inside parentheses. Close them before it: MEAN(age) WHERE sex = 'F'."
    ),
    "mean(age) for women": "for after mean(age). Write WHERE before a condition, BY before groups.",
    "mean(age) group ward": "group after mean(age). Write WHERE before a condition, BY before groups.",
    "mean(age), by ward": "an empty place between commas. Leave out the comma.",
    "mean(age) mean(income)": "mean after mean(age). Write a comma between two statistics.",
    "mean(smoker) * 100": "* after mean(smoker). Ask for mean(smoker), and compute with the answer.",
    "sum(age) / count": "/ after sum(age). Write MEAN(age).",
    "sum(age) / sum(income)": "/ after sum(age). Write RATIO(age, income).",
    "sum(count)": "the word COUNT. An expression speaks of one row: ask for it by itself.",
    "count where age > '40'": "a value in quotes beside a number. Numbers stand without quotes: 40.",
    "count where age > avg(age)": (
        "an aggregate, AVG. An expression speaks of one row: ask for it by itself, then write its number."
    ),
    "count where age > 40%": "nothing after %. Write a percentage as a number: 0.4, or 40.",
    "count where age in ()": "IN without values. Write age IN (40, 50).",
    "count where sex = 'F' or 'M'": (
        "a value by itself where a condition is needed. Name the column again, ward = 'surgery' OR ward = "
        "'medicine', or write a list, ward IN ('surgery', 'medicine')."
    ),
    "count where age = 40 or 50": (
        "a value by itself where a condition is needed. Name the column again, age = 40 OR age = 50, or "
        "write a list, age IN (40, 50)."
    ),
    "quantile(age, 50)": (
        "the level 50 of a quantile. It is the part of the rows that lie below, between 0 and 1: "
        "QUANTILE(age, 0.5)."
    ),
    "?": "the sign ?. Leave it out. Write questions as COUNT WHERE age > 40, with the numbers themselves.",
}
_CHAIN = (
    "a comparison of a comparison. Write 40 < age AND age < 60, or put one of them in parentheses: "
    "(age > 40) = smoker."
)
_NO_ROW = (
    "Not allowed: conditions that no row fulfills together. Write OR between them for the rows that fulfill "
    "one."
)
_EVERY_ROW = (
    "Not allowed: conditions of which every row fulfills one. Write AND between them for the rows that "
    "fulfill all."
)
_BEYOND = (
    "Not allowed: a comparison that no row fulfills. age is declared from 0 to 120: compare it with "
    "a value in "
    "between."
)
# SQL has an answer to each of these, which is not what was asked.
MISLEADING = {
    "count where 40 < age < 60": _CHAIN,
    "count where age >= 40 <= 60": _CHAIN,
    "count where smoker = age > 40": _CHAIN,
    "count where age > bmi is null": _CHAIN,
    "count where age > 40 in (1)": _CHAIN,
    "SELECT COUNT(*) FROM t WHERE 40 < age < 60": _CHAIN,
    "count where admitted > 2023": (
        "a date compared with a number. Write YEAR(admitted) > 2023, or a day in quotes: "
        "admitted > '2023-12-31'."
    ),
    "count where 2023 <= admitted": (
        "a date compared with a number. Write YEAR(admitted) >= 2023, or a day in quotes: admitted >= "
        "'2023-01-01'."
    ),
    "count where admitted in (2023)": (
        "a date compared with a number. Write YEAR(admitted) = 2023, or a day in quotes: "
        "admitted = '2023-12-31'."
    ),
    "count where admitted - 3 > 5": (
        "a date compared with a number. Write a day in quotes: admitted > '2020-01-01'."
    ),
    "count where age > admitted": (
        "a date compared with a number. Write a day in quotes: admitted < '2020-01-01'."
    ),
    "count where admitted > 31/12/2023": (
        "a date compared with a number. Write a day in quotes: admitted > '2020-01-01'."
    ),
    "count by admitted > 2023": (
        "a date compared with a number. Write YEAR(admitted) > 2023, or a day in quotes: "
        "admitted > '2023-12-31'."
    ),
    "count by admitted (2023)": (
        "a number where a cell of dates begins. Write where cells begin: BY admitted ('2021-04-01', "
        "'2022-07-02', '2023-10-01')."
    ),
    "count where year(admitted) = 2023-12": (
        "a date without quotes. Write a day as '2023-12-31', or YEAR(admitted) = 2023."
    ),
    "sum(admitted)": (
        "Not allowed: a sum of dates. Write MEAN(admitted) for their mean, or say from which day to count: "
        "admitted - DATE '2020-01-01'."
    ),
    "count where age between 60 and 40": (
        "Not allowed: a BETWEEN whose first end is above its second. Write BETWEEN 40 AND 60."
    ),
    "count where age > 60 and age < 40": _NO_ROW,
    "count where sex = 'F' and sex = 'M'": _NO_ROW,
    "count where age > 40 or age < 60": _EVERY_ROW,
    "count where age <> 40 or age <> 50": _EVERY_ROW,
    "count where sex <> 'F' or sex <> 'M'": _EVERY_ROW,
    "count where sex is null": (
        "Not allowed: IS NULL of what is never missing. Leave it out: the column is declared as required."
    ),
    "count where age > 150": _BEYOND,
    "count where age in (40, 150)": _BEYOND,
    "count where age = 40.5": (
        "Not allowed: a comparison that no row fulfills. age is a whole number: compare it with one."
    ),
    "count where admitted > '2026-01-01'": (
        "Not allowed: a comparison that no row fulfills. admitted is declared from 2020-01-01 to 2024-12-31: "
        "compare it with a value in between."
    ),
    "count where month(admitted) = 13": (
        "Not allowed: a comparison that no row fulfills. MONTH of a date is from 1 to 12: compare it with a "
        "value in between."
    ),
    "count by age (60, 150)": "Not allowed: cells that no row can be in. age is declared from 0 to 120.",
    "count where age in (40-60)": "a difference in a list. Write age BETWEEN 40 AND 60.",
    "count where income > 50.000": (
        "the number 50.000. Write 50, or 50000 if the point sets thousands apart."
    ),
    "count - 5": "- after count. Ask for count, and compute with the answer.",
    "proportion(age)": (
        "Not allowed: a proportion of a number. Write PROPORTION of a condition, or MEAN(age)."
    ),
    "ratio(age, 0)": "Not allowed: a ratio to a sum of zeros. Divide by something else.",
}
MEANT = {
    "count where (age > 40) = smoker": (
        "count where CASE WHEN (40 < age) THEN 1 ELSE 0 END = CASE WHEN (smoker IN (TRUE)) THEN 1 ELSE 0 END"
    ),
    "count where (age > bmi) is null": "count where bmi IS NULL",
    "count where age > 3 and bmi is null": "count where (3 < age) AND (bmi IS NULL)",
    "count where age >= 0 and age <= 120": "count where (0 <= age) AND (age <= 120)",
    "count where age > 60 or age < 40": "count where (60 < age) OR (age < 40)",
    "count where admitted - '2020-01-01' > 5": "count where 5 < (admitted - DATE '2020-01-01')",
    "count where admitted > '2019-06-01'": "count where '2019-06-01' < admitted",
    "count where not sex = 'F' and age > 40": "count where (40 < age) AND (sex IN ('M', 'other'))",
    "avg age": "mean(age)",
    "Average(age) by sex": "mean(age) by sex",
    "SELECT MEAN(age) FROM t": "mean(age)",
    "SELECT AVG(age) FROM t;": "mean(age)",
    "count where age > 40 ; ": "count where 40 < age",
    "SELECT MEDIAN(age) FROM t": "median(age)",
    "mean(age) by ward order by mean(age) desc limit 2": "mean(age) by ward order by mean(age) desc limit 2",
}


@pytest.mark.parametrize("text", [*WRONG, *MISLEADING])
def test_a_wrong_question_is_told_what_is_wrong_and_what_to_write(text: str) -> None:
    with pytest.raises(ExpressionRefused) as problem:
        parse_query(text, SCHEMA)
    assert str(problem.value).removeprefix(BEGINNING) == {**WRONG, **MISLEADING}[text]


@pytest.mark.parametrize("text", MEANT)
def test_what_can_be_meant_is_read_and_written_as_itself(text: str) -> None:
    asked = parse_query(text, SCHEMA)
    assert str(asked) == MEANT[text]
    assert parse_query(str(asked), SCHEMA) == parse_query(asked.sql, SCHEMA) == asked


@pytest.mark.parametrize("text", ["x" * 10_000, "(" * 10_000, "1 + " * 3000, "🙂" * 9000, "'" * 9001])
def test_a_message_about_a_long_text_is_short(text: str) -> None:
    with pytest.raises(ExpressionRefused) as problem:
        parse_query(text, SCHEMA)
    assert len(str(problem.value)) < 300


def test_what_stands_out_of_place_is_never_repeated_in_hidden_characters() -> None:
    for sign in ("\u202e", "\u0000", "\u200b", "\udcff"):
        with pytest.raises(ExpressionRefused) as problem:
            parse_query(f"count where age > 40 {sign}", SCHEMA)
        assert sign not in str(problem.value)


def test_an_unknown_name_lists_no_more_columns_than_can_be_read() -> None:
    wide = Schema(columns=[Column(f"q{i}", lower=0, upper=1) for i in range(60)])
    with pytest.raises(ExpressionRefused, match=r"There are q0, .*, q19 and 40 more\.$"):
        parse_query("mean(salary)", wide)


def test_hints_about_a_category_name_the_column_that_was_typed() -> None:
    with pytest.raises(ExpressionRefused, match="sex = 'F'"):
        parse_query("mean(sex)", SCHEMA)
