"""Codebooks: headings in two languages, bounds, lists and codes of missing answers; errors name the line."""

from __future__ import annotations

import csv
import io
from typing import Any

import pytest

from discreet.errors import SchemaError
from discreet.schema.codebook import read_codebook

BOOK = """\
Variable,Label,Min,Max,Values,Missing codes,Unit
age,Age in years,18,99,,999,years
q1,Satisfied?,,,1=low; 2=mid; 3=high; 99=refused,99,
sex,,,,"f, m, x",,
q2,,,,1-5,"98,99",
day,,2020-01-01,2024-12-31,,,
weight,,"0,5",10,,-9,kg
code,,,,01=x|02=y,,
name,Full name,,,,,
"""


def read(text: str, sign: str = ",") -> dict[str, dict[str, Any]]:
    return read_codebook(csv.reader(io.StringIO(text), delimiter=sign), "book.csv")


def test_a_codebook_becomes_keys_of_fields() -> None:
    source = {"bounds_source": "book.csv"}
    assert read(BOOK) == {
        "age": {
            "title": "Age in years",
            "missingValues": ["999"],
            "constraints": {"required": False, "minimum": 18, "maximum": 99},
            "privacy": {"measure": "years", **source},
        },
        "q1": {
            "type": "integer",
            "title": "Satisfied?",
            "description": "1 = low; 2 = mid; 3 = high",
            "missingValues": ["99"],
            "constraints": {"required": False, "enum": [1, 2, 3]},
            "privacy": source,
        },
        "sex": {"type": "string", "constraints": {"enum": ["f", "m", "x"]}, "privacy": source},
        "q2": {
            "missingValues": ["98", "99"],
            "constraints": {"required": False, "minimum": 1, "maximum": 5},
            "privacy": source,
        },
        "day": {
            "type": "date",
            "constraints": {"minimum": "2020-01-01", "maximum": "2024-12-31"},
            "privacy": source,
        },
        "weight": {
            "type": "number",
            "missingValues": ["-9"],
            "constraints": {"required": False, "minimum": 0.5, "maximum": 10},
            "privacy": {"measure": "kg", **source},
        },
        "code": {
            "type": "string",
            "description": "01 = x; 02 = y",
            "constraints": {"enum": ["01", "02"]},
            "privacy": source,
        },
        "name": {"title": "Full name"},
    }


def test_headings_may_be_german_or_those_of_redcap() -> None:
    german = read(
        "Spalte;Bezeichnung;von;bis;Fehlwerte;Einheit;Datentyp;Rolle\nx;Alter;0;9;99;Jahre;Ganzzahl;public",
        ";",
    )
    assert german["x"] == {
        "type": "integer",
        "title": "Alter",
        "missingValues": ["99"],
        "constraints": {"required": False, "minimum": 0, "maximum": 9},
        "privacy": {"role": "public", "measure": "Jahre", "bounds_source": "book.csv"},
    }
    redcap = read(
        "Variable / Field Name;Field Label;Choices, Calculations, OR Slider Labels;Text Validation Min\n"
        "sex;Sex;1, Male | 2, Female;",
        ";",
    )
    assert redcap["sex"]["constraints"] == {"enum": [1, 2]}
    assert redcap["sex"]["description"] == "1 = Male; 2 = Female"


@pytest.mark.parametrize("span", ["1-5", "1 to 5", "1..5", "[1, 5]", "1 bis 5", "1–5"])
def test_ranges_are_read_as_people_write_them(span: str) -> None:
    assert read(f"name;range\nx;{span}", ";")["x"]["constraints"] == {"minimum": 1, "maximum": 5}
    negative = read("name;Wertebereich\nx;-5 - -1", ";")
    assert negative["x"]["constraints"] == {"minimum": -5, "maximum": -1}


def test_all_errors_of_a_codebook_are_reported_with_their_lines() -> None:
    text = (
        "name;label;values;min;max;type;role\n"
        "b;x;;0;abc;number;\n"
        "b;x;;0;1;number;\n"
        "c;x;;0;;foo;\n"
        ";x;;0;1;;\n"
        "d;;a|a;;;;\n"
        "e;;;;;;targt\n"
        ";;;;;;\n"
    )
    with pytest.raises(SchemaError) as caught:
        read(text, ";")
    assert caught.value.problems == (
        "book.csv, line 2, column 'b': upper must be a number, or a date such as 2024-12-31 or "
        "2024-12-31T23:59, was 'abc'.",
        "book.csv, line 3: 'b' must have one line, and has another. Leave one out.",
        "book.csv, line 4, column 'c': type must be one of number, integer, string, boolean, date, "
        "datetime, was 'foo'.",
        "book.csv, line 4, column 'c': upper must be given beside lower, and is empty. Write both, or "
        "neither.",
        "book.csv, line 5: name must be given, and is empty. Write it.",
        "book.csv, line 6, column 'd': values must be different values, such as 1=low; 2=high, was 'a|a'.",
        "book.csv, line 7, column 'e': role must be one of sensitive, target, public, id, drop (did you mean "
        "target?), was 'targt'.",
    )


def test_a_codebook_without_names_is_refused() -> None:
    with pytest.raises(SchemaError, match=r"line 1: one heading must be name .* they were 'foo', 'bar'"):
        read("foo,bar\n1,2")
    with pytest.raises(SchemaError, match="they were nothing"):
        read("")
