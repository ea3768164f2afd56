from __future__ import annotations

import datetime
import pickle
from pathlib import Path
from typing import Any

import pytest
import yaml

from discreet.errors import ParameterError, SchemaError
from discreet.schema import Column, Protect, Schema

CASES = yaml.safe_load(Path(__file__).with_name("wrong_schemas.yaml").read_text("utf-8"))


@pytest.mark.parametrize("case", CASES, ids=[case["case"] for case in CASES])
def test_a_wrong_file_is_told_everything_that_is_wrong(case: dict[str, Any]) -> None:
    with pytest.raises(SchemaError) as caught:
        Schema.from_yaml(case["file"])
    assert list(caught.value.problems) == case["problems"]
    assert all(problem in str(caught.value) for problem in case["problems"])


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (
            {"lower": 5, "upper": 1},
            "Column 'x': upper must be above lower (5), was 1; they look exchanged. "
            "Write Column('x', lower=1, upper=5).",
        ),
        (
            {"lower": datetime.date(2024, 1, 1), "upper": datetime.date(1990, 1, 1)},
            "Column 'x': upper must be above lower (2024-01-01), was 1990-01-01; they look exchanged. "
            "Write Column('x', lower=date(1990, 1, 1), upper=date(2024, 1, 1)).",
        ),
        (
            {},
            "Column 'x': its bounds or its list of values must be declared, and neither was. Write "
            "Column('x', lower=<smallest possible>, upper=<largest possible>), or "
            "Column('x', values=(<first>, <second>)), or Column('x', role='drop').",
        ),
        (
            {"type": "float", "lower": 0, "upper": 1},
            "Column 'x': type must be one of number, integer, category, date, datetime, id, text, was "
            "'float'. Write Column('x', type='number').",
        ),
        (
            {"values": (0.5, 1.5)},
            "Column 'x': values must be all strings, all integers or all booleans, and 0.5 is of type "
            "float. Write Column('x', values=('0.5', '1.5')).",
        ),
        (
            {"values": "ab"},
            "Column 'x': values must be a list of at least one value, was 'ab'. "
            "Write Column('x', values=(<first>, <second>)).",
        ),
        (
            {"values": ("a\x07", "b")},
            "Column 'x': values must hold strings of at most 200 characters without control "
            "characters, and 'a\\x07' is none. Rename it in the table and here.",
        ),
        (
            {"type": "number", "values": ("a", "b"), "lower": 0, "upper": 1},
            "Column 'x': values is for categories, and the type was 'number'. Leave out the list, or "
            "declare the column as a category alone.",
        ),
        (
            {"values": (1, 2**60)},
            "Column 'x': values must hold integers between -2**53 and 2**53, and 1152921504606846976 is "
            "none. Write Column('x', values=('1', '1152921504606846976')).",
        ),
        (
            {"type": "category"},
            "Column 'x': values must list everything a category may hold, and was left out. "
            "Write Column('x', values=(<first>, <second>)).",
        ),
        (
            {"type": "id", "role": "public"},
            "Column 'x': an id is never released, so role must be id or drop, was 'public'. "
            "Write Column('x', role='id').",
        ),
        (
            {"lower": 0, "upper": 10, "protect": Protect(error=6)},
            "Column 'x': protect: error must be at most half the range (5), was 6: guessing the middle "
            "never errs by more. Write Column('x', protect=Protect(error=<at most 5>)).",
        ),
        (
            {"lower": 0, "upper": 10, "protect": 3},
            "Column 'x': protect must hold either error or share, and held neither. "
            "Write Column('x', protect=Protect(error=<error in its unit>)).",
        ),
        (
            {"lower": 0, "upper": 10, "closed": 1},
            "Column 'x': closed must be true or false, was 1. "
            "Write Column('x', closed=True) if the list is complete.",
        ),
        (
            {"lower": 0, "upper": 10**400},
            "Column 'x': upper must be a finite number, was inf. "
            "Write Column('x', upper=<largest possible>).",
        ),
        (
            {"lower": 0, "upper": datetime.datetime(2024, 1, 1)},
            "Column 'x': lower must be a datetime without a time zone (year-month-dayThour:minute), was 0. "
            "Write Column('x', lower=<smallest possible>).",
        ),
        (
            {"lower": 0, "upper": 1, "title": "a\x00"},
            "Column 'x': title must be without control characters. Retype it.",
        ),
    ],
)
def test_a_wrong_column_in_python_is_told_so_in_the_words_of_python(
    settings: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(SchemaError) as caught:
        Column("x", **settings)
    assert sentence in caught.value.problems


AGE = Column("age", lower=0, upper=120)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (
            {"columns": "age"},
            "Schema: columns must be a list of Column, was 'age'. "
            'Write Schema(columns=[Column("age", lower=0, upper=120)]).',
        ),
        (
            {"columns": [AGE], "target": "agee"},
            "Schema: target must name a declared column, was 'agee'. "
            "Write Schema(columns=[...], target='age').",
        ),
        (
            {"columns": [AGE, Column("note", role="drop")], "target": "note"},
            "Schema: target must be a column that is protected, and 'note' has role drop. "
            "Write Column('note', role='target').",
        ),
        (
            {"columns": [AGE, Column("b", values=(0, 1), role="target")], "target": "age"},
            "Schema: there must be one target, and 'age' and 'b' are declared so. "
            "Write Column('b', role='sensitive').",
        ),
        (
            {"columns": [AGE], "id_column": "row", "max_rows_per_unit": 1},
            "Schema: id_column must name a declared column, was 'row'. The columns are age.",
        ),
        (
            {"columns": [AGE], "neighbors": "add"},
            "Schema: neighbors must be replace-one or add-remove, was 'add'. "
            "Write Schema(columns=[...], neighbors='add-remove').",
        ),
        (
            {"columns": [AGE, AGE]},
            "Schema: column names must differ, in more than upper and lower case, and 'age' and 'age' "
            "do not. Rename one of them in the table and here.",
        ),
        (
            {"columns": [AGE], "missing_values": "NA"},
            "Schema: missing_values must be a list of strings, was 'NA'. "
            "Write Schema(columns=[...], missing_values=('', 'NA')).",
        ),
        (
            {"columns": [AGE], "unit": None},
            "Schema: unit must be a string, was None. Write Schema(columns=[...], unit='person').",
        ),
        (
            {"columns": [AGE], "max_rows_per_unit": True},
            "Schema: max_rows_per_unit must be a whole number of at least 1, was True. "
            "Write Schema(columns=[...], max_rows_per_unit=1).",
        ),
    ],
)
def test_a_wrong_table_in_python_is_told_so_in_the_words_of_python(
    settings: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(SchemaError) as caught:
        Schema(**settings)
    assert list(caught.value.problems) == [sentence]


def test_an_unknown_column_is_answered_with_the_nearest_name() -> None:
    schema = Schema(columns=[AGE, Column("owner", values=(0, 1))])
    with pytest.raises(ParameterError, match="Did you mean 'owner'"):
        schema.column("ownr")
    with pytest.raises(ParameterError, match="It has age, owner"):
        schema.column("zzz")


def test_several_problems_of_one_column_come_together() -> None:
    with pytest.raises(SchemaError) as caught:
        Column("x", lower=0, upper=10, grid=-1, role="pubic", required="no")  # type: ignore[arg-type]
    assert len(caught.value.problems) == 3
    assert pickle.loads(pickle.dumps(caught.value)).problems == caught.value.problems
    assert str(caught.value).startswith("The schema has 3 errors:\n- Column 'x': ")
