"""Drafts of schema files: marks for what only a person knows, proposals by name, and patterns."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from discreet.errors import ParameterError, SchemaError
from discreet.schema import Schema
from discreet.schema.name_hints import guess_range, guess_role


def test_a_draft_asks_for_everything_that_only_a_person_knows() -> None:
    types = {"size": "integer", "NO": "string", "a: b # c, {d": "number", "born": "date", "owner": "boolean"}
    draft = Schema.draft(types)
    fields = yaml.safe_load(draft)["fields"]
    assert {field["name"]: field["type"] for field in fields} == types
    with pytest.raises(SchemaError) as caught:
        Schema.from_yaml(draft)
    open_places = [problem.split(" is still ")[0] for problem in caught.value.problems]
    assert open_places == [
        "Schema: privacy.dataset",
        "Defaults: privacy.bounds_source",
        "Columns 'size', 'a: b # c, {d', 'born': constraints.minimum",
        "Columns 'size', 'a: b # c, {d', 'born': constraints.maximum",
        "Column 'NO': constraints.enum",
    ]


def test_a_draft_that_was_filled_in_loads() -> None:
    draft = Schema.draft({"size": "integer", "job": "string", "owner": "boolean"})
    for value in ("survey-2024", "codebook", "0", "120", "[clerk, nurse]"):
        draft = draft.replace("???  #", f"{value}  #", 1)
    schema = Schema.from_yaml(draft)
    assert schema.dataset == "survey-2024"
    assert schema.column("size").n_integers == 121
    assert schema.column("size").bounds_source == "codebook"
    assert schema.column("job").levels == ("clerk", "nurse", "other")


def test_a_draft_knows_six_types() -> None:
    with pytest.raises(
        ParameterError, match="one of number, integer, date, datetime, string, boolean, was 'blob'"
    ):
        Schema.draft({"x": "blob"})
    assert "minimum: ???  # the earliest minute that anybody may have" in Schema.draft({"seen": "datetime"})


def test_numbered_columns_that_are_alike_get_one_pattern() -> None:
    types = {f"v{i}": "number" for i in range(1, 41)}
    draft = Schema.draft(types, privacy={"dataset": "d"})
    assert draft.count("???  #") == 3  # two bounds, and who says so
    filled = draft.replace("minimum: ???", "minimum: 0").replace("maximum: ???", "maximum: 9")
    schema = Schema.from_yaml(filled.replace("bounds_source: ???", "bounds_source: law"))
    assert {column.range for column in schema.columns} == {(0.0, 9.0)}
    # A pattern may fit only the columns that it was written for.
    other = yaml.safe_load(Schema.draft({**types, "vac": "integer", "v_other": "string"}))
    assert [rule["match"] for rule in other["patterns"]] == ["v[0-9]*"]
    assert "patterns" not in yaml.safe_load(Schema.draft({"v1": "number", "v2": "number", "v3": "integer"}))
    assert "patterns" not in yaml.safe_load(Schema.draft({**types, "v7b": "string"}))


def test_identifiers_stay_unpublished_until_somebody_says_otherwise() -> None:
    draft = Schema.draft({"patient_id": "string", "e-mail": "string", "age": "integer", "text": "string"})
    content = yaml.safe_load(draft)
    roles = {field["name"]: field.get("privacy", {}).get("role") for field in content["fields"]}
    assert roles == {"patient_id": "id", "e-mail": "drop", "age": None, "text": "drop"}
    assert content["privacy"]["id_column"] == "patient_id"
    assert content["privacy"]["max_rows_per_unit"] == "???"
    # Two of them: nobody knows which is whose.
    two = yaml.safe_load(Schema.draft({"patient_id": "string", "visit_id": "string", "age": "integer"}))
    assert "id_column" not in two["privacy"]


def test_a_proposed_range_is_refused_until_it_is_confirmed_once() -> None:
    types = {"age": "integer", **{f"q{i}": "integer" for i in range(1, 31)}, "share_pct": "number"}
    draft = Schema.draft(types, privacy={"dataset": "d"})
    with pytest.raises(SchemaError) as caught:
        Schema.from_yaml(draft)
    assert caught.value.problems == ("Schema: proposals is still ???. Write proposals: confirmed.",)
    with pytest.raises(SchemaError) as caught:
        Schema.from_yaml("\n".join(line for line in draft.splitlines() if "proposals" not in line))
    (problem,) = caught.value.problems
    assert problem.startswith("Columns 'age', 'q1', 'q2' and 29 more: the range is only proposed")
    with pytest.raises(SchemaError, match="proposals must be confirmed, or be left out, was 'yes'"):
        Schema.from_yaml(draft.replace("proposals: ???", "proposals: yes"))
    schema = Schema.from_yaml(draft.replace("proposals: ???", "proposals: confirmed"))
    accepted = Schema.from_yaml(Schema.draft(types, privacy={"dataset": "d"}, accept_proposals=True))
    assert accepted == schema
    assert {column.bounds_source for column in schema.columns} == {
        "proposed by name, confirmed by the curator"
    }
    assert [schema.column(name).range for name in ("age", "q30", "share_pct")] == [(0, 120), (1, 5), (0, 100)]
    assert schema.column("age").measure == "years"


def test_what_is_declared_is_neither_guessed_nor_asked_for() -> None:
    declared: dict[str, dict[str, Any]] = {
        "age": {"constraints": {"minimum": 18, "maximum": 99}, "privacy": {"bounds_source": "book"}},
        "name": {"type": "integer", "constraints": {"enum": [1, 2]}},
        "q1": {"constraints": {"minimum": 0}},
    }
    types = {"age": "integer", "name": "string", "q1": "integer"}
    draft = Schema.draft(types, declared=declared, privacy={"dataset": "d", "unit": "child"})
    content = yaml.safe_load(draft)
    assert content["privacy"]["unit"] == "child"
    assert "proposals" not in content
    age, name, q1 = content["fields"]
    assert age["constraints"] == {"minimum": 18, "maximum": 99}
    assert name == {"name": "name", **declared["name"]}
    assert q1["constraints"] == {"minimum": 0, "maximum": "???"}


@pytest.mark.parametrize(
    "name",
    [
        "id",
        "patientID",
        "Teilnehmer-Nr",
        "participant_no",
        "Kundennummer",
        "record id",
        "uuid",
        "MRN",
        "Patient",
        "kunde",
    ],
)
def test_names_of_identifiers(name: str) -> None:
    guess = guess_role(name, "string")
    assert guess is not None
    assert guess.role == "id"


@pytest.mark.parametrize(
    "name",
    [
        "Name",
        "first_name",
        "Nachname",
        "E-Mail",
        "emailAddress",
        "Telefonnummer",
        "mobile",
        "phone_2",
        "PLZ",
        "zip code",
        "Straße",
        "home_address",
        "IBAN",
        "SSN",
        "Sozialversicherungsnummer",
        "ip_address",
        "comments",
        "Bemerkungen",
        "q7_text",
        "latitude",
    ],
)
def test_names_of_people_places_and_texts(name: str) -> None:
    guess = guess_role(name, "string")
    assert guess is not None
    assert guess.role == "drop"


@pytest.mark.parametrize(
    "name",
    ["valid", "grid", "hotel", "flat", "context", "paid", "ship", "q1", "case", "rename", "cost_per_patient"],
)
def test_other_names_are_not_guessed(name: str) -> None:
    assert guess_role(name, "string") is None


def test_only_types_that_can_identify_are_dropped() -> None:
    assert guess_role("has_phone", "boolean") is None
    assert guess_role("has_phone", "string") is not None


@pytest.mark.parametrize(
    ("name", "type_", "ends"),
    [
        ("age", "integer", (0, 120)),
        ("Alter", "number", (0, 120)),
        ("share_pct", "number", (0, 100)),
        ("q17", "integer", (1, 5)),
        ("Frage_3a", "integer", (1, 5)),
        ("q17", "number", None),
        ("hours-per-week", "integer", (0, 168)),
        ("Wochenstunden", "number", (0, 168)),
        ("BMI", "number", (10, 80)),
        ("bp_sys", "number", (50, 300)),
        ("diastolic", "integer", (20, 200)),
        ("Körpergröße", "number", (40, 250)),
        ("birth_year", "integer", (1900, 2100)),
        ("page", "integer", None),
        ("average", "number", None),
        ("income", "number", None),
        ("age", "string", None),
    ],
)
def test_well_known_ranges(name: str, type_: str, ends: tuple[int, int] | None) -> None:
    guess = guess_range(name, type_)
    assert (None if guess is None else (guess.lower, guess.upper)) == ends
