from __future__ import annotations

import datetime
import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
import yaml

from discreet.errors import SchemaError
from discreet.schema import Schema

if TYPE_CHECKING:
    from pathlib import Path

LISTED = "fields: [{{name: x, type: string, constraints: {{enum: [{}]}}, privacy: {{closed: true}}}}]"


@pytest.mark.parametrize(
    "word",
    ["NO", "yes", "on", "Off", "y", "01234", "1:30", "1_000", "0x1F", "0o7", "2024-01-01", "=", "1.2.3"],
)
def test_a_plain_word_stays_what_it_is(word: str) -> None:
    schema = Schema.from_yaml(LISTED.format(f"{word}, second"))
    assert schema.column("x").values == (word, "second")


@pytest.mark.parametrize("number", ["1e5", "1E+5", "100000", "1e05", "100000.0", "100000.", "+100000"])
def test_a_number_is_a_number_however_it_is_written(number: str) -> None:
    schema = Schema.from_yaml(
        f"fields: [{{name: x, type: number, constraints: {{minimum: -.5, maximum: {number}}}}}]"
    )
    assert schema.column("x").range == (-0.5, 100000.0)


@pytest.mark.parametrize("word", ["true", "3", "1e5", ".5", "~", "null"])
def test_a_word_that_means_something_else_must_be_quoted(word: str) -> None:
    with pytest.raises(SchemaError, match=r"constraints\.enum must"):
        Schema.from_yaml(LISTED.format(f"{word}, second"))
    schema = Schema.from_yaml(LISTED.format(f'"{word}", second'))
    assert schema.column("x").values == (word, "second")


def test_what_is_written_reads_the_same_in_any_yaml() -> None:
    words = ["NO", "1e5", "01234", "1:30", "2024-01-01", "~", "", "=", "<<", "a: b", "#", "é", "- x", "'"]
    quoted = ", ".join("'" + word.replace("'", "''") + "'" for word in words)
    schema = Schema.from_yaml("missingValues: []\n" + LISTED.format(quoted))
    text = schema.to_yaml()
    assert Schema.from_yaml(text) == schema
    assert yaml.safe_load(text)["fields"][0]["constraints"]["enum"] == words


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("a: &x 1\nb: *x", "line 1 is not: an anchor (& or *) is used"),
        ("a: 1\nb: 2\na: 3", "line 3 is not: the key 'a' stands twice in one block"),
        ("a: 1\n1: 2", "line 2 is not: a key is no string"),
        ("a: 1\n[x]: 2", "line 2 is not: a key is no string"),
        ("a: !!python/object/apply:os.system [ls]", "line 1 is not: could not determine a constructor"),
        ("[" * 30, "line 1 is not: it is nested more than 20 deep"),
        ("a: " + "9" * 5000, "a sign or a number in it cannot be read"),
        ("a: \x00", "a sign or a number in it cannot be read"),
        ("a: 1\n--- \nb: 2", "line 2 is not: "),
        ("- 1", "must hold keys and values, was a list"),
        ("", "must hold keys and values, was a NoneType"),
        (" " * 4_000_001, "at most 4,000,000 characters, has 4,000,001"),
    ],
    ids=lambda text: repr(text[:20]),
)
def test_yaml_with_a_trap_in_it_is_refused(text: str, what: str) -> None:
    with pytest.raises(SchemaError) as caught:
        Schema.from_yaml(text)
    assert what in str(caught.value)


def test_a_bomb_of_aliases_is_refused_at_once() -> None:
    bomb = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "\n".join(
        f"{name}: &{name} [{','.join(['*' + before] * 9)}]"
        for before, name in zip("abcdefgh", "bcdefghi", strict=True)
    )
    # Expanded, it is a list of 9 ** 9 values, which no machine would finish.
    with pytest.raises(SchemaError, match="anchor"):
        Schema.from_yaml(bomb)


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b'{"fields": 1, "fields": 2}', "the key 'fields' stands twice in one block"),
        (b"{", "line 1 is not: "),
        (b"[" * 100_000, "nested more than 20 deep"),
        (b"[1]", "must hold keys and values, was a list"),
        (
            b'{"fields": [{"name": "x", "type": "number", "constraints": {"minimum": NaN, "maximum": 1}}]}',
            "nan",
        ),
        (b"\xff\xfe", "must be text in UTF-8, and byte 0 is not"),
    ],
)
def test_json_with_a_trap_in_it_is_refused(tmp_path: Path, content: bytes, what: str) -> None:
    path = tmp_path / "x.schema.json"
    path.write_bytes(content)
    with pytest.raises(SchemaError) as caught:
        Schema.load(path)
    assert what in str(caught.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match="discreet init TABLE"):
        Schema.load(tmp_path / "none.schema.yaml")


def test_a_byte_order_mark_is_no_part_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "x.schema.yaml"
    path.write_text("\ufefffields: [{name: x, type: boolean}]", "utf-8")
    assert Schema.load(path).column("x").levels == (False, True)


@pytest.mark.slow
def test_importing_the_schema_loads_neither_pydantic_nor_yaml() -> None:
    code = (
        "import sys, discreet.schema; print([m for m in ('pydantic', 'yaml', 'scipy') if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("type_", "written", "lower"),
    [
        ("date", "01.02.2018", datetime.date(2018, 2, 1)),
        ("date", "2018-02-01", datetime.date(2018, 2, 1)),
        ("datetime", "01.02.2018 08:30", datetime.datetime(2018, 2, 1, 8, 30)),
        ("datetime", "2018-02-01T08:30", datetime.datetime(2018, 2, 1, 8, 30)),
    ],
)
def test_a_bound_may_be_written_in_the_format_of_its_field(
    type_: str, written: str, lower: datetime.date
) -> None:
    format_ = "%d.%m.%Y" if type_ == "date" else "%d.%m.%Y %H:%M"
    last = "2025-12-31" if type_ == "date" else "2025-12-31T23:59"
    field = {
        "name": "seen", "type": type_, "format": format_,
        "constraints": {"minimum": written, "maximum": last}, "privacy": {"bounds_source": "law"},
    }  # fmt: skip
    schema = Schema.from_yaml(json.dumps({"fields": [field], "privacy": {"dataset": "d"}}))
    assert schema.column("seen").lower == lower
    assert Schema.from_yaml(schema.to_yaml()) == schema
