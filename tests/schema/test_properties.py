from __future__ import annotations

import copy
import json
from datetime import date
from typing import Any

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from discreet.errors import SchemaError
from discreet.schema import Column, Protect, Schema

letters = st.characters(exclude_categories=("Cc", "Cs", "Zl", "Zp"))
words = st.text(letters, max_size=20)
notes = st.none() | st.text(letters, min_size=1, max_size=40).filter(
    lambda note: note.strip() not in ("", "???")
)
names = st.text(letters, min_size=1, max_size=20).filter(lambda name: name == name.strip() and name != "???")
# Words that one reading of YAML or another takes for something else.
traps = st.sampled_from(
    ["NO", "yes", "1e5", "01", "1:30", "~", "null", "true", "2024-01-01", "=", "<<", "-", "."]
)
finite = st.floats(-1e100, 1e100)


seconds = st.datetimes().map(lambda moment: moment.replace(microsecond=0))


@st.composite
def columns(draw: st.DrawFn, name: str, *, role: str = "sensitive") -> Column:
    extra: dict[str, Any] = {
        "role": role,
        "required": draw(st.booleans()),
        "title": draw(notes),
        "description": draw(notes),
        "measure": draw(notes),
        "bounds_source": draw(notes),
    }
    kind = draw(st.sampled_from(["number", "integer", "date", "datetime", "strings", "integers", "booleans"]))
    if kind in ("strings", "integers", "booleans"):
        whole = st.integers(-(2**53), 2**53)
        one: st.SearchStrategy[Any] = {
            "strings": words | traps,
            "integers": whole,
            "booleans": st.booleans(),
        }[kind]
        values = draw(st.lists(one, min_size=2, max_size=6, unique=True))
        return Column(name, values=tuple(values), **extra)
    bounds = {
        "number": finite,
        "integer": st.integers(-(2**53), 2**53),
        "date": st.dates(),
        "datetime": seconds,
    }[kind]
    ends: list[Any] = sorted(draw(st.lists(bounds, min_size=2, max_size=2, unique=True)))
    if kind == "datetime":
        extra["step"] = "second"
    if kind == "number":
        assume(ends[1] - ends[0] >= 1e-100)
    if role == "sensitive" and kind not in ("date", "datetime"):
        extra["protect"] = draw(st.sampled_from([None, Protect(share=0.1)]))
    return Column(name, type=kind, lower=ends[0], upper=ends[1], **extra)  # type: ignore[arg-type]


@st.composite
def schemas(draw: st.DrawFn) -> Schema:
    listed = draw(st.lists(names, min_size=1, max_size=5, unique_by=str.casefold))
    listed = [name for name in listed if not name.casefold().endswith("_missing")] or ["x"]
    made = [draw(columns(name)) for name in listed]
    return Schema(
        columns=made,
        target=draw(st.none() | st.sampled_from(listed)),
        neighbors=draw(st.sampled_from(["replace-one", "add-remove"])),
        row_count=draw(st.sampled_from(["public", "private"])),
        dataset=draw(st.none() | st.from_regex(r"\A[a-z0-9][a-z0-9._-]{0,20}\Z")),
        missing_values=tuple(draw(st.sampled_from([[], ["n/a?"], ["-9-", "NA-"]]))),
        title=draw(notes),
        description=draw(notes),
    )


def shuffled(content: Any) -> Any:
    """Turn every mapping around, deep down."""
    if isinstance(content, dict):
        return {key: shuffled(content[key]) for key in reversed(list(content))}
    return [shuffled(item) for item in content] if isinstance(content, list) else content


@settings(max_examples=150, deadline=None)
@given(schemas())
def test_a_schema_survives_every_way_out_and_back(schema: Schema) -> None:
    for back in (
        Schema.from_dict(schema.to_dict()),
        Schema.from_dict(json.loads(json.dumps(schema.to_dict()))),
        Schema.from_yaml(schema.to_yaml()),
        Schema.from_dict(shuffled(schema.to_dict())),
    ):
        assert back == schema
        assert back.digest == schema.digest
        assert [list(map(type, c.levels)) for c in back.columns] == [
            list(map(type, c.levels)) for c in schema.columns
        ]


SOUND = Schema(
    columns=[
        Column("pid", role="id"),
        Column("age", type="integer", lower=0, upper=120, grid=1, protect=Protect(error=9)),
        Column("t", lower=34, upper=43, grid=0.1, measure="degrees", required=False),
        Column("born", lower=date(1900, 1, 1), upper=date(2024, 1, 1)),
        Column("job", values=("clerk", "nurse"), closed=True, bounds_source="codebook"),
        Column("owner", values=(False, True), role="target"),
    ],
    id_column="pid",
    max_rows_per_unit=3,
    primary_key=("pid", "born"),
    dataset="survey",
).to_dict()
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | traps | st.just("???"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


def places(content: Any) -> list[tuple[Any, Any]]:
    """Return every (container, key) deep down."""
    keys = (
        list(content)
        if isinstance(content, dict)
        else range(len(content))
        if isinstance(content, list)
        else ()
    )
    return [(content, key) for key in keys] + [place for key in keys for place in places(content[key])]


@settings(max_examples=400, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 10_000), anything), min_size=1, max_size=3))
def test_whatever_stands_in_a_file_it_is_a_schema_or_a_schema_error(damage: list[tuple[int, Any]]) -> None:
    content = copy.deepcopy(SOUND)
    for index, value in damage:
        found = places(content)
        container, key = found[index % len(found)]
        container[key] = value
    problems: tuple[str, ...] = ()
    try:
        schema = Schema.from_dict(content)
    except SchemaError as error:
        problems = error.problems
    else:
        assert Schema.from_dict(schema.to_dict()) == schema
        assert Schema.from_yaml(schema.to_yaml()).digest == schema.digest
    assert all(problem.endswith((".", "?")) for problem in problems)


@settings(max_examples=100, deadline=None)
@given(finite, finite, arrays.arrays(np.float64, 20, elements=st.floats(allow_nan=True)))
def test_clipping_stays_within_bounds_and_twice_is_once(a: float, b: float, values: Any) -> None:
    if not abs(a - b) >= 1e-100:
        return
    column = Column("x", lower=min(a, b), upper=max(a, b))
    schema = Schema(columns=[column])
    once = schema.clip(values[:, None])
    np.testing.assert_array_equal(schema.clip(once), once)
    np.testing.assert_array_equal(once[:, 0], column.clip(values))
    np.testing.assert_array_equal(np.isnan(once[:, 0]), np.isnan(values))
    seen = once[~np.isnan(once)]
    assert ((seen >= column.range[0]) & (seen <= column.range[1])).all()
    inside = (values >= column.range[0]) & (values <= column.range[1])
    np.testing.assert_array_equal(once[inside, 0], values[inside])


@settings(max_examples=60, deadline=None)
@given(
    st.dictionaries(
        names, st.sampled_from(["number", "integer", "string", "boolean", "date", "datetime"]), min_size=1
    )
)
def test_a_draft_keeps_names_and_types(types: dict[str, str]) -> None:
    from discreet.schema.serialization import read_yaml

    fields = read_yaml(Schema.draft(types))["fields"]
    assert {field["name"]: field["type"] for field in fields} == types
