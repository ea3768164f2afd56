"""A published folder read back: the same law, the same cells, and nothing that was changed."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from discreet import Column, GaussianRelease, NoiseAwareClassifier, Schema, load_release
from discreet.errors import DiscreetError, SourceError
from discreet.noise_law import ResponseLaw, SampledLaw
from discreet.report.folder._metadata import data_package
from discreet.report.folder.folder import DATA, STATEMENT, SUMS, write_sums
from discreet.report.folder.loading import noise_law_of
from tests.contracts.cases import SCHEMA
from tests.report.published import METHODS, publish

if TYPE_CHECKING:
    from pathlib import Path

LEARNABLE = Schema(
    columns=[
        Column("x", lower=0, upper=10),
        Column("job", values=("clerk", "nurse"), required=False),
        Column("y", values=("no", "yes")),
    ],
    target="y",
)


def rows() -> dict[str, Any]:
    x = np.linspace(0, 10, 4000)
    return {"x": x, "job": np.where(x > 4, "clerk", "nurse"), "y": np.where(x > 7, "yes", "no")}


@pytest.mark.parametrize("name", METHODS)
def test_the_law_of_a_folder_is_that_of_the_release(name: str, tmp_path: Path) -> None:
    method = METHODS[name]()
    publish(tmp_path / "public", method)
    loaded = load_release(tmp_path)
    plan = method.plan(method.schema or SCHEMA, loaded.statement.what.rows_read or 0)
    laws = {summary.column: summary.law for summary in plan.columns}
    assert {column.name: column.law for column in loaded.noise_law.columns} == laws
    assert list(loaded.data) == [column.name for column in loaded.noise_law.columns]
    assert {len(cells) for cells in loaded.data.values()} == {loaded.statement.what.rows_published}


def test_an_analyst_gets_statistics_with_intervals_of_what_the_law_allows(tmp_path: Path) -> None:
    publish(tmp_path, GaussianRelease(scale={"x": 3.0}, label="clear", schema=LEARNABLE), rows())
    release, truth = load_release(tmp_path), rows()
    for found, exact in (
        (release.count("job = 'nurse'"), np.sum(truth["job"] == "nurse")),
        (release.mean("x"), truth["x"].mean()),
        (release.proportion("y = 'yes'"), np.mean(truth["y"] == "yes")),
    ):
        assert found.basis == "rows"
        assert found.cost == ()
        middle, half = sum(found.interval()) / 2, (found.interval().upper - found.interval().lower) / 2
        assert abs(middle - exact) <= 6 * half
    assert len(release.crosstab("job", "y").cells) == 8
    with pytest.raises(DiscreetError, match="must name categories"):
        release.count("x > 4")


def test_an_analyst_learns_in_three_lines(tmp_path: Path) -> None:
    method = GaussianRelease(scale={"x": 3.0}, label="clear", schema=LEARNABLE)
    publish(tmp_path, method, rows())
    release = load_release(tmp_path)
    model = NoiseAwareClassifier().fit(release)
    assert model.status_ == "ok"
    assert model.law_ == release.noise_law
    truth = rows()
    assert model.score({"x": truth["x"], "job": truth["job"]}, truth["y"]) > 0.9
    assert set(release.data["job"]) <= {"clerk", "nurse", "other", None}
    assert release.data["x"].dtype == np.float64


@pytest.mark.parametrize("name", [DATA, STATEMENT])
def test_a_file_that_was_changed_is_refused(name: str, tmp_path: Path) -> None:
    publish(tmp_path, GaussianRelease(scale={"x": 3.0}, schema=LEARNABLE), rows())
    path = tmp_path / name
    path.write_bytes(path.read_bytes() + b"\n")
    with pytest.raises(SourceError, match=f"{name} is not the file that {SUMS} lists"):
        load_release(tmp_path)


def test_another_table_under_fresh_hashes_is_refused_as_well(tmp_path: Path) -> None:
    method = GaussianRelease(scale={"x": 3.0}, schema=LEARNABLE)
    publish(tmp_path / "one", method, rows())
    publish(tmp_path / "two", method, rows(), key=bytes(32))
    (tmp_path / "one" / DATA).write_bytes((tmp_path / "two" / DATA).read_bytes())
    write_sums(tmp_path / "one")
    with pytest.raises(SourceError, match=f"is not the file that {STATEMENT} speaks of"):
        load_release(tmp_path / "one")


def test_a_folder_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="must be the public folder of a release"):
        load_release(tmp_path)
    publish(tmp_path, GaussianRelease(scale={"x": 3.0}, schema=LEARNABLE), rows())
    (tmp_path / SUMS).unlink()
    with pytest.raises(DiscreetError, match=SUMS):
        load_release(tmp_path)


def test_a_sampled_column_goes_through_statement_and_data_package(tmp_path: Path) -> None:
    statement = publish(tmp_path, GaussianRelease(scale={"x": 3.0}, schema=LEARNABLE), rows())
    (job,) = [c for c in statement.numbers.columns if c.column == "job"]
    law = SampledLaw(law=ResponseLaw(levels=4, keep=0.75), picked=1, among=1)
    levels = [*(job.levels or []), law.unpublished]
    changed = job.model_copy(update={"law": law.to_dict(), "law_in_words": law.words(), "levels": levels})
    columns = [changed if c.column == "job" else c for c in statement.numbers.columns]
    other = statement.model_copy(
        update={"numbers": statement.numbers.model_copy(update={"columns": columns})}
    )
    (read,) = [c for c in noise_law_of(other).columns if c.name == "job"]
    assert read.law == law
    assert read.levels == ("clerk", "nurse", "other", None)
    _, data = json.loads(data_package(other))["resources"]
    (field,) = [field for field in data["schema"]["fields"] if field["name"] == "job"]
    assert field["privacy"]["law"] == law.to_dict()
    assert field["constraints"]["enum"] == ["clerk", "nurse", "other", "not published"]
    assert dataclasses.is_dataclass(read)
