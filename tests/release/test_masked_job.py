"""A masked release through the main job: two folders, a statement, and a stranger who checks them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from discreet import publish, verify
from discreet.errors import ParameterError, PromiseError
from discreet.pipeline.plan import dry_run, plan_noise_levels
from discreet.pipeline.plan_basis import PlanBasis
from discreet.privacy import ApproxDP, PureDP
from discreet.release import published_schema
from discreet.release.masked.encoding import Encoding
from discreet.report.folder.model_files import read_classifier
from discreet.tables import open_table
from tests.contracts.cases import ROWS, SCHEMA

if TYPE_CHECKING:
    from pathlib import Path

    from discreet.pipeline import Published

N = 300
TABLE: dict[str, Any] = {name: np.resize(values, N) for name, values in ROWS.items()}
TABLE["age"] = np.arange(N) % 120
TABLE["owner"] = np.where(TABLE["age"] > 60, 1, 0)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Published:
    return publish(
        TABLE,
        schema=SCHEMA,
        method="masked",
        privacy=ApproxDP(epsilon=4, delta=1e-6),
        n_records=200,
        ledger=False,
        out=tmp_path_factory.mktemp("job") / "release",
    )


def test_a_stranger_finds_nothing_wrong(done: Published) -> None:
    result = verify(done.public)
    assert [check for check in result.checks if check.verdict == "failed"] == []
    assert done.statement.what.rows_read == N
    assert done.statement.what.rows_published == 200


def test_the_statement_says_what_the_points_carry_and_what_not(done: Published) -> None:
    statement = done.statement
    assert statement.definition.differential_privacy
    assert statement.numbers.epsilon is not None
    assert statement.numbers.epsilon <= 4
    assert statement.definition.deployment.startswith("Central model")
    said = " ".join(statement.not_protected)
    assert "released classifier" in said
    assert "Nothing beside that classifier can be learned" in said
    assert {theorem.id for theorem in statement.numbers.theorems} >= {"masked-existence", "masked-labels"}
    # Those on real rows are for the curator alone.
    assert {attack["attack"] for attack in statement.attacks} == {
        "shadow models", "margin", "influence", "nearest point"
    }  # fmt: skip
    assert all(attack["on"] == "made-up" for attack in statement.attacks)
    assert "made-up points" in statement.numbers.columns[0].sentence


def test_the_data_package_is_all_that_it_takes_to_train_and_to_use_the_classifier(done: Published) -> None:
    package = json.loads((done.public / "datapackage.json").read_text(encoding="utf-8"))
    (fields,) = [one["schema"]["fields"] for one in package["resources"] if one["name"] == "data"]
    laws = {field["name"]: field["privacy"]["law"] for field in fields}
    *names, target = laws
    with open_table(done.public / "data.parquet") as table:
        (batch,) = table.batches(_published())
    X = np.column_stack([batch[name] for name in names])
    penalty = laws["age"]["regularization"]
    model = LogisticRegression(
        C=1 / (penalty * len(X)), fit_intercept=False, tol=1e-13, max_iter=50_000, solver="newton-cholesky"
    ).fit(X, batch[target])
    # Two people, carried over by the laws of the columns alone.
    people = [
        {"age": 20.0, "income": 4e4, "job=clerk": 1.0, "region=north": 1.0},
        {"age": 110.0, "income": 4e4, "job=clerk": 1.0, "region=north": 1.0},
    ]
    coordinates = [
        [laws[name]["scale"] * person.get(name, 0.0) + laws[name]["shift"] for name in names]
        for person in people
    ]
    # What it says of them depends on the noise; that it says what the private classifier says does not.
    scores = np.array(coordinates) @ read_classifier(done.public).weights[0]
    np.testing.assert_allclose(model.decision_function(coordinates), scores, rtol=1e-6, atol=1e-9)


def _published() -> Any:
    encoding = Encoding.from_schema(
        SCHEMA, norm_bound=None, intercept=True, bounded=True, owner="MaskedRelease"
    )
    return published_schema(encoding.published_schema(1.0))


def test_what_it_is_worth_is_measured_and_no_point_is_anybodys(done: Published) -> None:
    learning = done.findings.learning
    assert learning is not None
    scores = {score.trained_on: score.accuracy for score in learning.scores}
    assert scores["release"] is not None
    assert scores["release"] > 0.9
    assert "no real person" in learning.note
    assert done.findings.exposures == []
    assert [guess for guess in done.findings.guesses if guess["on"] == "rows"] == []
    assert {audit["verdict"] for audit in done.findings.audits} == {"not tested"}
    said = {stage.name: stage.said for stage in done.findings.stages}
    assert "nobody's" in said["test"]
    assert "tables made anew" in said["attack"]
    assert len(done.findings.what_if) > 3
    assert done.rows == ()
    assert (done.internal / "report.html").exists()


def test_a_plan_and_a_rehearsal_need_no_cell(tmp_path: Path) -> None:
    planned = plan_noise_levels(
        TABLE, schema=SCHEMA, method="masked", privacy=PureDP(epsilon=2), basis=PlanBasis(n_rows=2000)
    )
    by_factor = {round(position.factor, 3): position for position in planned.positions}
    assert by_factor[1.0].epsilon == pytest.approx(2, rel=1e-6)
    assert by_factor[2.0].epsilon == pytest.approx(1, rel=1e-6)
    assert {position.accuracy for position in planned.positions} == {None}
    rehearsed = dry_run(TABLE, schema=SCHEMA, method="masked", privacy=PureDP(epsilon=2))
    assert rehearsed.rows == ()
    assert any("epsilon 2" in sentence for sentence in rehearsed.sentences)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"privacy": PureDP(epsilon=1), "clamp": True}, "'clamp' is no option of the method masked"),
        ({"privacy": PureDP(epsilon=1), "protect": {"job": 0.2}}, "protect of 'job' asks for a floor"),
        ({"protect": {"age": 9}}, "privacy of MaskedRelease must be a PureDP"),
        ({"privacy": PureDP(epsilon=1), "infeasible": "lambda"}, "for a file"),
    ],
)
def test_what_masked_data_cannot_do_is_refused(tmp_path: Path, asked: dict[str, Any], message: str) -> None:
    with pytest.raises((ParameterError, PromiseError), match=message):
        publish(TABLE, schema=SCHEMA, method="masked", ledger=False, out=tmp_path / "release", **asked)
    assert not (tmp_path / "release").exists()


def test_cells_cannot_be_decoded_back_into_a_table(done: Published) -> None:
    from discreet.release import MaskedRelease

    release = MaskedRelease(privacy=PureDP(epsilon=4), schema=SCHEMA, random_state=1).release(TABLE)
    with pytest.raises(ParameterError, match="'job'"):
        release.decoded("job")
