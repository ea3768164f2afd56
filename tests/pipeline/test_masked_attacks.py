"""Attacks on a masked release in the main job: published those on made-up people, internal those on real."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from discreet import Column, PureDP, Schema, publish, verify
from discreet.audit._rehearsal import decode_column
from discreet.noise import Stream
from discreet.query.dummy import rows_from_schema
from discreet.report.folder.folder import write_sums

if TYPE_CHECKING:
    from pathlib import Path

    from discreet.pipeline import Published

SCHEMA = Schema(
    columns=[
        Column("age", lower=17, upper=90),
        Column("hours", lower=0, upper=80),
        Column("owner", values=("no", "yes"), role="target", closed=True),
    ]
)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Published:
    rows = rows_from_schema(SCHEMA, 300, Stream.from_seed(1))
    return publish(
        {column.name: decode_column(column, rows[column.name]) for column in SCHEMA.released},
        schema=SCHEMA,
        method="masked",
        privacy=PureDP(epsilon=1),
        ledger=False,
        out=tmp_path_factory.mktemp("attacked") / "release",
    )


def test_what_is_computed_from_real_rows_stays_internal(done: Published) -> None:
    stated = done.statement.attacks
    assert [one["attack"] for one in stated] == ["shadow models", "margin", "influence", "nearest point"]
    assert {one["on"] for one in stated} == {"made-up"}
    assert [one for one in done.findings.members if one["on"] == "made-up"] == stated
    real = [one for one in done.findings.members if one["on"] == "rows"]
    assert {one["rows"] for one in real} == {150}
    assert {one["rows"] for one in stated} == {300}
    assert json.loads((done.internal / "attacks.json").read_text())["members"] == done.findings.members
    published = (done.public / "statement.json").read_text()
    for one in real:
        assert repr(one["upper"]) not in published


def test_the_pages_say_who_was_attacked(done: Published) -> None:
    report = (done.internal / "report.html").read_text()
    page = (done.public / "statement.html").read_text()
    assert "People drawn from the declared columns: half of them make a table anew" in page
    assert "All tell a person in the table from another" in page
    assert "Real people" not in page
    assert "Real people: a random half makes a table anew" in report
    assert "May it be published?" in report
    stage = next(stage for stage in done.findings.stages if stage.name == "attack")
    assert "4 attacks on tables made anew from made-up and real people" in str(stage)


def test_a_stranger_gets_the_same_results_and_a_changed_one_is_caught(done: Published) -> None:
    found = {check.name: check for check in verify(done.public).checks}
    assert found["attacks"].verdict == "passed"
    assert "4 attacks, run again" in found["attacks"].detail
    path: Path = done.public / "statement.json"
    before = path.read_text()
    document = json.loads(before)
    document["attacks"][2]["value"] -= 0.01
    path.write_text(json.dumps(document))
    write_sums(done.public)
    try:
        assert {check.name for check in verify(done.public).failures} >= {"attacks"}
    finally:
        path.write_text(before)
        write_sums(done.public)
