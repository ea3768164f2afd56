"""Attacks on a synthetic release in the main job: before the charge, on made-up people, on real ones."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from discreet import GaussianDP, Ledger, publish, verify
from discreet.errors import SelfAttackFailed
from discreet.pipeline.plan import dry_run
from discreet.query.aggregates import Marginals
from discreet.report.findings import Findings
from discreet.report.folder.folder import write_sums
from discreet.report.pages._attacks import member_table, member_verdict
from tests.release.synthetic_tables import plain_rows, plain_schema

if TYPE_CHECKING:
    from pathlib import Path

    from discreet.pipeline import Published

PROMISE = GaussianDP(mu=1)
AREAS = {"shadow models", "nearest row", "likelihood"}


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Published:
    return publish(
        plain_rows(400),
        schema=plain_schema(),
        method="synthetic",
        privacy=PROMISE,
        ledger=False,
        out=tmp_path_factory.mktemp("attacked") / "release",
    )


def test_what_is_computed_from_real_rows_stays_internal(done: Published) -> None:
    stated = done.statement.attacks
    assert {one["on"] for one in stated} == {"made-up"}
    assert {one["on"] for one in done.findings.members} == {"made-up", "rows"}
    assert [one for one in done.findings.members if one["on"] == "made-up"] == stated
    real = [one for one in done.findings.members if one["on"] == "rows"]
    # The release has 400 rows, and the tables made for the attacks half of those there are.
    assert {one["rows"] for one in real} == {200}
    assert {one["rows"] for one in stated} == {400}
    assert {one["attack"] for one in real if one["members"] is None} == AREAS
    published = (done.public / "statement.json").read_text()
    # Short numbers, such as 0.5, stand there for other reasons.
    told = [digits for one in real if len(digits := repr(one["upper"])) > 8]
    assert told
    assert not [digits for digits in told if digits in published]


@pytest.mark.slow
def test_a_stranger_gets_the_same_results_from_the_published_answers(done: Published) -> None:
    found = {check.name: check for check in verify(done.public).checks}
    assert found["attacks"].verdict == "passed"
    path = done.public / "statement.json"
    before = path.read_text()
    document = json.loads(before)
    document["attacks"][0]["value"] -= 0.01
    path.write_text(json.dumps(document))
    write_sums(done.public)
    try:
        assert {check.name for check in verify(done.public).failures} >= {"attacks"}
    finally:
        path.write_text(before)
        write_sums(done.public)


def test_the_report_explains_members_and_others_and_the_statement_shows_made_up_ones(done: Published) -> None:
    report = (done.internal / "report.html").read_text()
    page = (done.public / "statement.html").read_text()
    assert "the whole release was rehearsed on made-up rows" in report
    assert "May it be published?" in report
    assert "Real people: a random half makes a table anew" in report
    assert "Only the difference is about the people in the table" in page
    assert "Real people" not in page
    assert "No attack on" not in report


def test_a_release_that_breaks_its_promise_is_withheld_before_it_is_charged(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    bind = Marginals.bind

    def bind_cheaper(self: Marginals, curation: Any, neighbors: Any) -> Any:
        bound = bind(self, curation, neighbors)
        return replace(bound, squared=bound.squared // 2)

    monkeypatch.setattr(Marginals, "bind", bind_cheaper)
    ledger = Ledger.open(":memory:")
    options: dict[str, Any] = {"schema": plain_schema(), "method": "synthetic", "privacy": PROMISE}
    with pytest.raises(SelfAttackFailed, match="tables of counts exceeds the promise"):
        publish(plain_rows(400), ledger=ledger, out=tmp_path / "release", **options)
    assert ledger.entries() == []
    assert not (tmp_path / "release").exists()
    with pytest.raises(SelfAttackFailed):
        dry_run(plain_rows(400), **options)


@pytest.mark.slow
def test_a_table_too_small_to_be_halved_says_so(tmp_path: Path) -> None:
    done = publish(
        plain_rows(150), schema=plain_schema(), method="synthetic", privacy=GaussianDP(mu=20), ledger=False,
        out=tmp_path / "release",
    )  # fmt: skip
    assert {one["on"] for one in done.findings.members} == {"made-up"}
    assert "too few to make a table of one half" in (done.internal / "report.html").read_text()


def test_comparisons_are_shown_with_their_bound() -> None:
    result = {
        "attack": "exact match", "value": 0.1, "lower": 0.05, "upper": 0.15, "chance": 0.0, "bound": 0.04,
        "members": 0.3, "others": 0.2, "n": 50, "rows": 100, "failure_probability": 0.05, "on": "rows",
        "knowledge": "a lot", "sentence": "So it is.",
    }  # fmt: skip
    assert member_verdict(result)[0] == "bad"
    assert member_verdict({**result, "bound": 0.06})[0] == "warn"
    assert member_verdict({**result, "lower": -0.01})[0] == "ok"
    table = member_table([result], on="rows", synthetic=True)
    assert table is not None
    assert [str(cell) for cell in table.rows[0]][1:3] == ["30\xa0%", "20\xa0%"]
    assert "5.0\xa0pp to 15.0\xa0pp" in str(table.rows[0][3])
    assert member_table([result], on="made-up", synthetic=True) is None
    assert Findings(members=[result]).members == [result]
