"""A masked release: what is published, what is promised, what is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from discreet.audit import attack_claims, attack_file, attack_prior, attack_records, attack_rows
from discreet.errors import DataError, ParameterError, PromiseError, SchemaError
from discreet.learn import PrivateLogisticRegression
from discreet.noise import Stream
from discreet.noise_law import Clear, MaskedLabelLaw, MaskedLaw
from discreet.privacy import ApproxDP, ErrorFloor, GaussianDP, NoPromise, PureDP, Spending
from discreet.release import MaskedRelease
from discreet.schema import Column, Schema
from tests.contracts.cases import ROWS, SCHEMA

I = np.arange(1.0, 401.0)  # noqa: E741 - the index of a deterministic table
X = np.column_stack([np.sin(I), np.cos(3 * I), np.sin(7 * I)]) / 2
Y = np.where(X[:, 0] + 0.2 * np.sin(11 * I) > 0, 1, -1)
THREE = (np.digitize(X[:, 0] + 0.3 * X[:, 1], [-0.2, 0.2])).astype(int)


def masked(**other: Any) -> MaskedRelease:
    usual: dict[str, Any] = {
        "privacy": PureDP(epsilon=4),
        "regularization": 0.05,
        "norm_bound": 1.0,
        "n_records": 250,
        "random_state": 1,
    }
    return MaskedRelease(**{**usual, **other})


def retrained(release: Any, penalty: float) -> Any:
    model = LogisticRegression(
        C=1 / (penalty * len(release.data)), fit_intercept=False, tol=1e-13, max_iter=20_000
    )
    return model.fit(release.data, release.target)


@pytest.mark.parametrize("privacy", [PureDP(epsilon=4), ApproxDP(epsilon=1, delta=1e-6), NoPromise("a test")])
def test_logistic_regression_on_the_published_points_is_the_private_one(privacy: Any) -> None:
    method = masked(privacy=privacy)
    release = method.release(X, Y)
    assert method.model_ is not None
    assert method.gradient_ is not None
    assert method.gradient_ <= 1e-12
    assert release.data.shape == (250, 3)
    assert set(release.target.tolist()) == {-1, 1}  # type: ignore[union-attr]
    assert np.abs(retrained(release, 0.05).coef_ - method.model_).max() < 1e-6


def test_without_noise_the_model_is_that_of_the_true_rows() -> None:
    method = masked(privacy=NoPromise("a test"))
    method.release(X, Y)
    true = PrivateLogisticRegression(
        privacy=NoPromise("a test"), norm_bound=1.0, regularization=0.05, fit_intercept=False
    ).fit(X, Y)
    assert method.scale_ == 1.0
    # Weights are published with 24 bits of the largest.
    np.testing.assert_allclose(method.model_, true.weights_, atol=2.0**-24 * np.abs(true.weights_).max())  # type: ignore[arg-type]


def test_several_classes_and_an_intercept_come_back_too() -> None:
    method = masked(
        classes=["low", "mid", "top"], fit_intercept=True, privacy=ApproxDP(epsilon=3, delta=1e-6)
    )
    release = method.release(X, np.array(["low", "mid", "top"])[THREE])
    assert list(release.columns) == ["x1", "x2", "x3", "intercept", "y"]
    assert len(set(release.columns["intercept"].tolist())) == 1
    assert np.abs(retrained(release, 0.05).coef_ - method.model_).max() < 1e-6


def test_a_class_that_no_row_has_stays() -> None:
    release = masked(classes=[0, 1, 2]).release(X, np.minimum(THREE, 1))
    assert set(release.target.tolist()) == {0, 1, 2}  # type: ignore[union-attr]


@pytest.mark.parametrize("n_rows", [1, 2])
def test_one_row_one_column_and_equal_rows_are_released(n_rows: int) -> None:
    for rows in (X[:n_rows], X[:n_rows, :1], np.repeat(X[:1], 30, axis=0)):
        method = masked(n_records=20)
        method.release(rows, np.where(np.arange(len(rows)) % 2 == 0, 1, -1))
        assert method.gradient_ is not None
        assert method.gradient_ <= 1e-12


def test_a_mixed_table_is_published_as_coordinates_with_their_public_map() -> None:
    method = MaskedRelease(privacy=PureDP(epsilon=4), regularization=0.1, schema=SCHEMA, random_state=1)
    release = method.release(ROWS)
    plan = method.plan(SCHEMA, 100)
    names = [c.name for c in plan.schema.released]
    assert names[:4] == ["age", "income", "income_missing", "job=clerk"]
    assert names[-2:] == ["intercept", "owner"]
    assert plan.misfits(release.columns) == {}
    # The law of each column carries true rows to where the classifier is used.
    cells = {"age": 61.0, "income": SCHEMA.column("income").fill, "income_missing": 1.0, "job=missing": 1.0}
    cells["region=south"] = 1.0
    coordinates = []
    for summary in plan.columns[:-1]:
        law = summary.law
        assert isinstance(law, MaskedLaw)
        coordinates.append(law.scale * cells.get(summary.column, 0.0) + law.shift)
    encoded = {
        "age": np.array([61.0]),
        "income": np.array([np.nan]),
        "job": np.array([4]),
        "region": np.array([1]),
    }
    np.testing.assert_allclose(plan.encoding.rows(encoded)[0], coordinates, atol=1e-12)


def test_published_cells_that_cannot_be_are_named() -> None:
    method = MaskedRelease(privacy=PureDP(epsilon=4), regularization=0.1, schema=SCHEMA, random_state=1)
    columns = dict(method.release(ROWS).columns)
    plan = method.plan(SCHEMA, 100)
    far = {**columns, "age": columns["age"] + 2}
    assert "outside the ball" in plan.misfits(far)["age"]
    moved = {**columns, "intercept": columns["intercept"] + 1e-6}
    assert "public constant" in plan.misfits(moved)["intercept"]
    assert "not declared" in plan.misfits({**columns, "owner": columns["owner"] + 5})["owner"]


def test_the_promise_is_that_of_the_classifier_for_whole_rows() -> None:
    for privacy, kind in ((PureDP(epsilon=1), ApproxDP), (ApproxDP(epsilon=1, delta=1e-6), GaussianDP)):
        method = masked(privacy=privacy, mechanism="output")
        (promise,) = method.release(X, Y).promises
        assert isinstance(promise, kind)
        assert promise.covers is None
        assert promise.epsilon_at(1e-6) <= 1
        assert promise.epsilon_at(1e-6) > 0.99


def test_noisy_counts_have_a_share_of_their_own_and_the_sum_is_what_was_asked_for() -> None:
    method = masked(labels="noisy_counts", count_share=0.25, privacy=PureDP(epsilon=2), n_records=400)
    release = method.release(X, np.where(I % 10 == 0, 1, -1))
    model, counts = release.promises
    assert isinstance(counts, PureDP)
    assert counts.epsilon == 0.5
    assert counts.covers == ("y",)
    assert model.epsilon_at(1e-6) == pytest.approx(1.5, rel=1e-6)
    assert Spending.from_promises(release.promises).epsilon_at(1e-6) <= 2
    assert 20 <= np.sum(release.target == 1) <= 70  # 40 of 400, with noise of scale 4


@pytest.mark.parametrize(
    "seeds",
    [
        range(6),
        pytest.param(range(6, 20), marks=pytest.mark.slow),
        pytest.param(range(20, 300), marks=pytest.mark.stats),
    ],
    ids=str,
)
def test_no_release_that_was_paid_for_fails_for_want_of_points(seeds: range) -> None:
    # Few rows and labels of their own: about a third of the classifiers that noise makes have no points.
    schema = Schema(
        columns=[Column("age", lower=0, upper=120), Column("owner", values=(0, 1))], target="owner"
    )
    rows = {"age": np.array([34.0, 61.0, 5.0, 118.0] * 10), "owner": np.array([0, 1, 1, 0] * 10)}
    for seed in seeds:
        method = MaskedRelease(
            privacy=ApproxDP(epsilon=2, delta=1e-6),
            labels="noisy_counts",
            n_records=20,
            schema=schema,
            random_state=seed,
        )
        assert len(method.release(rows).data) == 20
        assert method.gradient_ is not None
        assert method.gradient_ <= 1e-12


def test_labels_by_public_shares_are_counted_exactly_and_depend_on_no_row() -> None:
    for y in (Y, -Y):
        release = masked(proportions=[0.3, 0.7]).release(X, y)
        assert np.sum(release.target == 1) == 175
    (law,) = [s.law for s in release.summary if s.column == "y"]
    assert isinstance(law, MaskedLabelLaw)
    assert law.shares == (0.3, 0.7)


def test_true_labels_are_said_to_be_published_and_no_promise_covers_them() -> None:
    method = masked(labels="true", n_records=None)
    release = method.release(X, Y)
    np.testing.assert_array_equal(release.target, Y)
    (promise,) = release.promises
    assert promise.covers == ("x1", "x2", "x3")
    assert any("published as it is" in text for text in promise.assumes)
    assert isinstance(release.summary[-1].law, Clear)
    schema = Schema(columns=[Column("x1", lower=-1, upper=1), Column("y", values=(-1, 1), role="target")])
    assert any("target 'y'" in text for text in method.not_protected(schema))


def test_a_sensitive_class_is_masked_and_everybody_else_is_told_that_nothing_protects_them() -> None:
    method = masked(classes=[0, 1, 2], sensitive=2, n_records=None, regularization=0.02)
    release = method.release(X, THREE)
    others = THREE != 2
    np.testing.assert_allclose(release.data[: others.sum()], X[others], rtol=1e-8)
    assert len(release.data) == len(X)
    assert (release.target[others.sum() :] == 2).all()  # type: ignore[index]
    restricted, nobody = release.promises
    assert restricted.unit == "person whose y is 2"
    assert restricted.covers == ("x1", "x2", "x3")
    assert isinstance(nobody, NoPromise)
    assert nobody.unit == "person"
    assert Spending.from_promises(release.promises).unpromised
    assert np.abs(retrained(release, 0.02).coef_ - method.model_).max() < 1e-6


def test_given_records_stand_first_and_have_no_protection() -> None:
    fake = (np.array([[0.5, 0.5, 0.0], [0.1, -0.6, 0.2]]), [1, -1])
    method = masked(initial=fake)
    release = method.release(X, Y)
    np.testing.assert_allclose(release.data[:2], fake[0], rtol=1e-8)
    assert len(release.data) == 252
    assert any("made up" in text for text in release.promises[0].assumes)
    assert np.abs(retrained(release, 0.05).coef_ - method.model_).max() < 1e-6


def test_several_rows_of_one_person_take_so_much_more_noise() -> None:
    several = replace(
        SCHEMA, columns=[*SCHEMA.columns, Column("who", role="id")], id_column="who", max_rows_per_unit=3
    )
    rows = {**ROWS, "who": np.repeat(np.arange(20), 5)}
    make = {"privacy": ApproxDP(epsilon=1, delta=1e-6), "regularization": 0.1, "mechanism": "output"}
    method = MaskedRelease(schema=several, random_state=1, **make)  # type: ignore[arg-type]
    one = MaskedRelease(schema=SCHEMA, **make).plan(SCHEMA, 99)  # type: ignore[arg-type]
    three = method.plan(several, 99)
    assert three.training.sensitivity == pytest.approx(3 * one.training.sensitivity, rel=1e-6)  # type: ignore[attr-defined]
    assert three.promises[0].epsilon_at(1e-6) == pytest.approx(1, rel=1e-4)
    assert len(method.release(rows).columns["age"]) == 100
    with pytest.raises(PromiseError, match="mechanism of MaskedRelease must be 'output'"):
        MaskedRelease(schema=several, **{**make, "mechanism": "objective"}).plan(several, 99)  # type: ignore[arg-type]


def test_no_row_is_there_to_be_attacked_and_the_audits_say_so() -> None:
    method = MaskedRelease(privacy=PureDP(epsilon=4), regularization=0.1, schema=SCHEMA, random_state=1)
    plan = method.plan(SCHEMA, 100)
    columns = method.release(ROWS).columns
    assert attack_prior(plan) == ()
    assert attack_file(plan, columns) == ()
    assert attack_rows(plan, columns, columns) == ()
    assert attack_records(plan, columns, columns) == ()
    (result,) = attack_claims(plan)
    assert result.verdict == "not tested"
    assert "no real person" in result.reason


def test_a_file_of_another_length_does_not_fit() -> None:
    plan = MaskedRelease(privacy=PureDP(epsilon=4), n_records=70, schema=SCHEMA).plan(SCHEMA, 100)
    assert plan.length_misfit(100, 70) is None
    assert plan.length_misfit(100, 100) is not None
    true = MaskedRelease(privacy=PureDP(epsilon=4), labels="true", schema=SCHEMA).plan(SCHEMA, 100)
    assert true.length_misfit(100, 100) is None
    assert true.length_misfit(100, 99) is not None


def test_another_penalty_is_left_in_the_method_and_not_put_into_a_file(tmp_path: Any) -> None:
    method = masked(infeasible="lambda", privacy=PureDP(epsilon=0.05), mechanism="output")
    release = method.release(X, Y)
    assert method.regularization_ is not None
    assert method.regularization_ < 0.05
    assert np.abs(retrained(release, method.regularization_).coef_ - method.model_).max() < 1e-5
    with pytest.raises(ParameterError, match="'shrink' or 'error' for a file"):
        MaskedRelease(privacy=PureDP(epsilon=1), infeasible="lambda", schema=SCHEMA).publish(
            ROWS, tmp_path / "a.parquet"
        )
    with pytest.raises(PromiseError, match="no number of records"):
        masked(infeasible="error", privacy=PureDP(epsilon=0.05), mechanism="output").release(X, Y)


def test_a_larger_ball_and_the_greedy_construction_are_possible() -> None:
    wide = masked(radius=2.0)
    assert np.linalg.norm(wide.release(X, Y).data, axis=1).max() > 1
    greedy = masked(construction="greedy", n_records=40, regularization=0.5, privacy=NoPromise("a test"))
    release = greedy.release(X, Y)
    assert greedy.gradient_ is not None
    assert greedy.gradient_ < 1e-8
    law = release.summary[0].law
    assert isinstance(law, MaskedLaw)
    assert not law.exact
    assert "nearly" in law.words()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"regularization": 0}, "regularization of MaskedRelease must be a finite number above 0, was 0"),
        ({"regularization": float("nan")}, "regularization of MaskedRelease"),
        ({"norm_bound": -1.0}, "norm_bound of MaskedRelease must be a finite number above 0"),
        ({"norm_bound": None}, "exactly one of schema and bounds"),
        ({"privacy": None}, "privacy of MaskedRelease must be a PureDP"),
        ({"privacy": ErrorFloor(x1=1)}, "which proves no floor"),
        ({"privacy": PureDP(epsilon=1, neighbors="add-remove")}, "must be 'replace-one'"),
        ({"n_records": 0}, "n_records of MaskedRelease must be a whole number of at least 1"),
        ({"n_records": 2.5}, "n_records of MaskedRelease must be a whole number"),
        ({"labels": "real"}, "labels of MaskedRelease must be one of 'prior', 'noisy_counts', 'true'"),
        ({"count_share": 1.0}, "count_share of MaskedRelease must be a number above 0 and below 1"),
        ({"construction": "fast"}, "construction of MaskedRelease must be one of 'direct', 'greedy'"),
        ({"infeasible": "hope"}, "infeasible of MaskedRelease must be one of"),
        ({"radius": 0}, "radius of MaskedRelease"),
        ({"fit_intercept": "yes"}, "fit_intercept of MaskedRelease must be True, False or None"),
        ({"labels": "true", "proportions": [0.5, 0.5]}, "proportions of MaskedRelease must be left out"),
        ({"labels": "true", "sensitive": 1}, "labels of MaskedRelease must be 'prior' where sensitive="),
        ({"labels": "noisy_counts", "privacy": NoPromise("x")}, "counts have no epsilon"),
    ],
)
def test_bad_parameters_are_refused_with_a_sentence(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises((ParameterError, PromiseError), match=message):
        masked(**wrong)


@pytest.mark.parametrize(
    ("other", "rows", "labels", "message"),
    [
        ({}, X, None, "y of MaskedRelease.release must be given"),
        ({}, X, Y[:5], "one entry for each of the 400 rows"),
        ({}, X, np.where(Y == 1, 2, -1), "row 1 does not"),
        ({}, np.where(I[:, None] == 7, np.nan, X), Y, "row 7, column 1 is NaN or infinite"),
        (
            {"norm_bound": None, "bounds": (-1, 1)},
            np.where(I[:, None] == 7, np.nan, X),
            Y,
            "no missing cells",
        ),
        ({}, np.empty((0, 3)), np.empty(0), "at least one row"),
        ({"proportions": [1, 2, 3]}, X, Y, "proportions of MaskedRelease must be 2 numbers"),
        ({"labels": "true", "n_records": 7}, X, Y, "must be left out where labels='true'"),
        ({"sensitive": 5}, X, Y, "sensitive of MaskedRelease must be one of the classes -1, 1, was 5"),
        ({"initial": (X[:2, :2], [1, 1])}, X, Y, "initial of MaskedRelease must be a pair"),
        ({"initial": (X[:2], [1, 3])}, X, Y, "initial of MaskedRelease must hold the declared values"),
        ({"regularization": 1e-40, "mechanism": "output"}, X, Y, "regularization of MaskedRelease must be"),
        ({"fit_intercept": True, "radius": 0.4}, X, Y, "radius of MaskedRelease must be above 0.5"),
    ],
)
def test_bad_rows_are_refused_with_a_sentence_and_nothing_is_released(
    other: dict[str, Any], rows: Any, labels: Any, message: str
) -> None:
    method = masked(**other)
    with pytest.raises((ParameterError, DataError, PromiseError), match=message):
        method.release(rows, labels)
    assert method.model_ is None


def test_targets_that_are_no_lists_of_classes_are_refused() -> None:
    number = Schema(
        columns=[Column("a", lower=0, upper=1), Column("b", lower=0, upper=1, role="target")], target="b"
    )
    missing = Schema(
        columns=[Column("a", lower=0, upper=1), Column("b", values=(0, 1), required=False, role="target")]
    )
    for schema, kind in ((number, SchemaError), (missing, SchemaError), (SCHEMA, ParameterError)):
        method = MaskedRelease(privacy=PureDP(epsilon=1), schema=schema)
        wrong = schema if kind is SchemaError else replace(schema, columns=schema.columns[:3], target=None)
        with pytest.raises(kind, match="target"):
            method.plan(wrong, 10)


def test_a_solver_that_halts_changes_nothing_about_what_is_released(monkeypatch: pytest.MonkeyPatch) -> None:
    weights = []
    for steps in (200, 0):
        monkeypatch.setattr("discreet.learn.perturbation.mean_loss.MOST_STEPS", steps)
        method = masked(privacy=PureDP(epsilon=1))
        method.release(X, Y)
        weights.append(method.model_)
    assert weights[1] == pytest.approx(weights[0], abs=1e-6)


def test_rows_are_shortened_to_the_norm_bound_and_not_clipped_to_a_box() -> None:
    long = X * np.where(I % 2 == 0, 40.0, 1.0)[:, None]
    short = long / np.maximum(1.0, np.linalg.norm(long, axis=1))[:, None]
    models = []
    for rows in (long, short):
        method = masked(privacy=NoPromise("a test"))
        method.release(rows, Y)
        models.append(method.model_)
    np.testing.assert_allclose(models[0], models[1], atol=1e-9)  # type: ignore[arg-type]


def test_the_released_weights_are_drawn_by_the_audited_mechanism() -> None:
    method = masked(mechanism="output", privacy=PureDP(epsilon=1))
    plan = method.plan(*_declared())
    rows = {**{f"x{j + 1}": X[:, j] for j in range(3)}, "y": (Y > 0).astype(np.int64)}
    key = Stream.from_seed(3)
    weights = plan.train(rows, key)
    noise = plan.training.noise.draw(Stream.from_seed(3).spawn())  # type: ignore[attr-defined]
    exact = PrivateLogisticRegression(
        privacy=NoPromise("a test"), norm_bound=1.0, regularization=0.05, fit_intercept=False
    ).fit(X, Y)
    np.testing.assert_allclose(weights - noise, exact.weights_, atol=1e-6)


def _declared() -> tuple[Schema, int]:
    from discreet.release.masked._arguments import bare_schema

    return bare_schema(3, (-1, 1), None, 1.0), len(X)
