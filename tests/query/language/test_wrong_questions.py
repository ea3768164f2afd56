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
BEGINNING = "An expression must keep to the query language, and this one has "
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
    "count where sex = F": "Unknown column F. Write the value of sex in single quotes: 'F'.",
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
    "count where admitted > 31.12.2023": "a date without quotes. Write a day as '2024-01-31'.",
    "count where admitted > 2023-12-31": "a date without quotes. Write a day as '2024-01-31'.",
    "count where admitted > '31.12.2023'": "a value beside a date that is none. Write it as 'YYYY-MM-DD'.",
    "count where admitted = '2023-02-30'": "a value beside a date that is none. Write it as 'YYYY-MM-DD'.",
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
    "count where age is 40": "IS with something else than NULL. Write x IS NULL, or x = 1.",
    "count where age > 4 0": "two values side by side. Write a sign, AND or OR between them.",
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
    "count where smoker = 'yes'": "a value that is not declared for smoker. It may hold False, True.",
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
    "mean(hours-per-week)": 'Unknown column hours. Did you mean "hours-per-week"?',
    "mean(income / age)": (
        "a division by something that could be zero. Keep the denominator away from zero: x / GREATEST(y, 1)."
    ),
    "count by wards": "Unknown column wards. Did you mean ward?",
    "count by income": (
        "a column of numbers to group by. Say where its cells begin: BY income (50000, 100000, 150000)."
    ),
    "count by age (60, 40)": (
        "cells that are not a column of numbers and rising numbers. Write where cells begin: BY age"
        " (30, 60, 90)."
    ),
    "count where age > 40; DROP TABLE people": "the sign ; (a second statement). Write one expression.",
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
}


@pytest.mark.parametrize("text", WRONG)
def test_a_wrong_question_is_told_what_is_wrong_and_what_to_write(text: str) -> None:
    with pytest.raises(ExpressionRefused) as problem:
        parse_query(text, SCHEMA)
    assert str(problem.value).removeprefix(BEGINNING) == WRONG[text]


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
