"""What a release is worth: tested on people whom no model has seen, and never an exception."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from discreet import Column, ErrorFloor, GaussianRelease, InvariantRelease, Schema
from discreet.evaluation import learning
from discreet.evaluation._models import LEAST_IN_GROUP, FeatureMatrix, PredictionTask, score
from discreet.evaluation.learning import LearningRun, accuracy_meter, measure_learning
from discreet.noise import Stream
from discreet.release.invariant.plan import encoded_rows
from discreet.report.findings import Learning, Score
from tests.pipeline.people import PEOPLE, people

if TYPE_CHECKING:
    from discreet._types import AnyArray
    from discreet.release import ReleasePlan

METHOD = GaussianRelease(privacy=ErrorFloor(age=6), schema=PEOPLE)


def measured(
    rows: dict[str, AnyArray],
    published: dict[str, AnyArray] | None = None,
    schema: Schema = PEOPLE,
    **more: Any,
) -> Learning:
    """Measure with the noise of the plan, unless what was published is given; no curve unless asked for."""
    n = len(rows[schema.released[0].name])
    method = METHOD if schema is PEOPLE else GaussianRelease(scale=1.0, schema=schema)
    plan: ReleasePlan = more.pop("plan", None) or method.plan(schema, n)
    if published is None:
        published = plan.draw(rows, Stream.from_seed(3))
    options = {"seconds": 0.0, **more}
    found = measure_learning(schema, rows, published, plan=plan, stream=Stream.from_seed(4), **options)
    assert found is not None
    assert Learning.model_validate_json(found.model_dump_json()) == found
    return found


def one(found: Learning, trained_on: str, tested_on: str = "original") -> Score:
    (only,) = [s for s in found.scores if (s.trained_on, s.tested_on) == (trained_on, tested_on)]
    return only


def accuracy(found: Learning, trained_on: str, tested_on: str = "original") -> float:
    value = one(found, trained_on, tested_on).accuracy
    assert value is not None
    return value


def test_a_release_lies_between_the_majority_and_the_original() -> None:
    found = measured(people(1_500), seconds=600.0)

    assert accuracy(found, "majority") < accuracy(found, "release") < accuracy(found, "original")
    assert len(found.scores) == 7
    assert found.train_rows + found.test_rows == 1_500
    assert found.curve[-1] == (1.0, accuracy(found, "original"))
    assert "less sure" in found.note
    for s in found.scores:
        assert s.lower is not None
        assert s.upper is not None
        assert s.accuracy is not None
        assert s.lower < s.accuracy < s.upper


def test_an_unchanged_table_is_worth_all_of_its_rows() -> None:
    rows = people()
    found = measured(rows, rows, seconds=600.0)

    assert accuracy(found, "release") == accuracy(found, "original")
    assert found.equals_share == 1.0


def test_noise_alone_is_worth_less_than_the_smallest_share() -> None:
    rows = people(1_500)
    other = {name: Stream.from_seed(9).generator().permutation(values) for name, values in rows.items()}
    other["owner"] = 1 - other["owner"]
    found = measured(rows, {**other, "age": np.roll(other["age"], 700)}, seconds=600.0)

    assert accuracy(found, "release") < accuracy(found, "original") - 0.2
    assert found.equals_share is None
    assert "teach more" in found.note


def test_the_same_key_measures_the_same() -> None:
    rows = people(100)

    assert measured(rows, seconds=600.0) == measured(rows, seconds=600.0)


class Leaky(LearningRun):
    """A wrong twin: people who are tested on are trained on too."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.train = np.concatenate([self.train, self.test])


def coin(n: int) -> dict[str, AnyArray]:
    """Draw owners by a coin: there is nothing to learn."""
    return {**people(n), "owner": Stream.from_seed(5).generator().integers(0, 2, n).astype(np.int32)}


def test_a_coin_cannot_be_learned_and_a_leak_from_test_to_train_would_show(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = coin(400)
    honest = one(measured(rows, rows), "original")
    monkeypatch.setattr(learning, "LearningRun", Leaky)
    leaky = one(measured(rows, rows), "original")

    assert honest.lower is not None
    assert leaky.lower is not None
    assert honest.lower < 0.5
    assert leaky.lower > 0.6


def test_nobody_is_trained_on_and_tested_on() -> None:
    trial = LearningRun(PEOPLE, people(100), Stream.from_seed(1))

    assert sorted([*trial.train, *trial.test]) == list(range(100))
    leaky = Leaky(PEOPLE, people(100), Stream.from_seed(1))
    assert set(leaky.train) & set(leaky.test)


def test_published_rows_of_the_people_tested_on_teach_nothing() -> None:
    rows = people(300)
    published = METHOD.plan(PEOPLE, 300).draw(rows, Stream.from_seed(3))
    poisoned = {name: values.copy() for name, values in published.items()}
    test = LearningRun(PEOPLE, rows, Stream.from_seed(4)).test
    poisoned["owner"][test] = 1 - poisoned["owner"][test]
    poisoned["age"][test] = 17.0

    clean, dirty = measured(rows, published), measured(rows, poisoned)
    assert one(clean, "release") == one(dirty, "release")
    assert one(clean, "release", "release") != one(dirty, "release", "release")


def test_a_wide_table_trains_on_fewer_rows() -> None:
    wide = Schema(
        columns=[Column(f"x{j}", lower=0, upper=1) for j in range(2_000)]
        + [Column("y", values=(0, 1), role="target")]
    )
    n = 1_000
    trial = LearningRun(wide, {"y": np.zeros(n, np.int32)}, Stream.from_seed(1))

    assert len(trial.train) == learning.MOST_WORK // 2_000
    assert len(trial.test) == 300


REGRESSION = Schema(
    columns=[Column("x", lower=0, upper=1), Column("y", lower=-100, upper=300, role="target", measure="EUR")]
)


def line(n: int) -> dict[str, AnyArray]:
    g = Stream.from_seed(6).generator()
    x = g.uniform(0, 1, n)
    return {"x": x, "y": 100 * x + g.normal(0, 10, n)}


def test_a_number_is_predicted_in_its_unit() -> None:
    rows = line(2_000)
    found = measured(rows, rows, REGRESSION, seconds=600.0)
    original = one(found, "original")
    majority = one(found, "majority")

    assert found.task == "regression"
    assert original.rmse == pytest.approx(10, rel=0.15)
    assert original.r2 == pytest.approx(1 - 100 / (100 + 100**2 / 12), abs=0.03)
    assert majority.r2 == pytest.approx(0, abs=0.02)
    assert majority.rmse == pytest.approx(math.hypot(10, 100 / 12**0.5), rel=0.1)
    assert (original.accuracy, original.auc, original.calibration) == (None, None, [])
    assert found.equals_share == 1.0
    assert {g.column for g in found.subgroups} == {"x"}
    assert sum(g.rows for g in found.subgroups) == found.test_rows


def without(schema: Schema, *names: str) -> Schema:
    return dataclasses.replace(
        schema,
        columns=[c for c in schema.columns if c.name not in names],
        target=None if schema.target in names else schema.target,
    )


def test_without_a_target_there_is_nothing_to_measure() -> None:
    schema = without(PEOPLE, "owner")
    rows = {name: values for name, values in people(50).items() if name != "owner"}
    plan = GaussianRelease(privacy=ErrorFloor(age=6), schema=schema).plan(schema, 50)

    assert measure_learning(schema, rows, rows, plan=plan, stream=Stream.from_seed(1)) is None
    assert accuracy_meter(schema, rows, stream=Stream.from_seed(1))(plan, 1.0) is None


@pytest.mark.parametrize("n", [1, 2, 3, 10, 19])
def test_a_tiny_table_says_so(n: int) -> None:
    found = measured(people(n))

    assert found.scores == []
    assert "Too few rows" in found.note


def test_without_features_there_is_nothing_to_learn_from() -> None:
    schema = without(PEOPLE, "age", "pay", "sex")
    rows = {"owner": people(60)["owner"]}
    plan = GaussianRelease(privacy=ErrorFloor(owner=0.2), schema=schema).plan(schema, 60)

    assert "no column" in measured(rows, rows, schema, plan=plan).note


@pytest.mark.parametrize("n", [20, 60])
def test_a_constant_target_is_named(n: int) -> None:
    rows = {**people(n), "owner": np.zeros(n, np.int32)}
    found = measured(rows, rows)

    assert "one class in the true training rows" in found.note
    assert accuracy(found, "original") == 1.0
    assert one(found, "original").auc is None


def test_one_class_in_the_release_alone_is_named() -> None:
    rows = people(200)
    found = measured(rows, {**rows, "owner": np.zeros(200, np.int32)})

    assert "one class in the published training rows" in found.note
    assert accuracy(found, "release") <= accuracy(found, "majority")


def test_a_constant_number_has_an_error_and_no_share_explained() -> None:
    rows = {**line(100), "y": np.full(100, 7.0)}
    found = measured(rows, rows, REGRESSION)

    assert "one value" in found.note
    assert one(found, "original").r2 is None
    assert one(found, "original").rmse == pytest.approx(0, abs=1e-9)
    assert found.curve == []
    assert found.equals_share is None


def test_a_column_that_is_all_missing_does_no_harm() -> None:
    rows = people(200)
    rows["pay"] = np.full(200, np.nan)

    found = measured(rows)

    assert accuracy(found, "original") > accuracy(found, "majority")


def test_a_target_that_is_all_missing_is_named() -> None:
    schema = PEOPLE.with_columns(Column("owner", values=("no", "yes"), role="target", required=False))
    rows = {**people(100), "owner": np.full(100, 2, np.int32)}
    found = measured(
        rows, rows, schema, plan=GaussianRelease(privacy=ErrorFloor(age=6), schema=schema).plan(schema, 100)
    )

    assert "missing in all true training rows" in found.note
    assert one(found, "original").accuracy is None


def test_rows_whose_answer_is_missing_are_left_out() -> None:
    column = Column("owner", values=("no", "yes"), role="target", required=False)
    codes = PredictionTask.from_column(column).targets({"owner": np.array([0, 1, 2, 1])})

    assert codes.tolist() == [0, 1, -1, 1]
    assert PredictionTask.from_column(column).is_present(codes).tolist() == [True, True, False, True]


def test_several_classes_of_which_one_never_occurs() -> None:
    schema = PEOPLE.with_columns(Column("owner", values=("no", "some", "never", "yes"), role="target"))
    rows = people(400)
    rows["owner"] = np.array([0, 1, 3])[np.digitize(rows["age"], [40, 65])].astype(np.int32)
    plan = GaussianRelease(privacy=ErrorFloor(age=3), schema=schema).plan(schema, 400)
    found = measured(rows, rows, schema, plan=plan)

    assert accuracy(found, "original") > 0.9
    auc = one(found, "original").auc
    assert auc is not None
    assert auc > 0.95


def test_long_lists_and_dates_are_features_too() -> None:
    import datetime

    schema = Schema(
        columns=[
            Column("code", values=tuple(range(400))),
            Column("day", lower=datetime.date(2020, 1, 1), upper=datetime.date(2020, 12, 31), required=False),
            Column("y", values=(0, 1), role="target"),
        ]
    )
    code = np.arange(300) % 400
    rows: dict[str, AnyArray] = {
        "code": code.astype(np.int32),
        "day": np.where(np.arange(300) % 9 == 0, np.nan, np.arange(300.0)),
        "y": (code > 150).astype(np.int32),
    }
    plan = GaussianRelease(privacy=ErrorFloor(code=0.5), schema=schema).plan(schema, 300)

    assert FeatureMatrix(schema).unordered.tolist() == [False, False, False]
    assert accuracy(measured(rows, rows, schema, plan=plan), "original") > 0.95


def test_features_come_from_the_schema_alone() -> None:
    rows = people(30)
    X = FeatureMatrix(PEOPLE).matrix(rows)
    part = FeatureMatrix(PEOPLE).matrix({name: values[:7] for name, values in rows.items()})

    assert np.array_equal(X[:7], part)
    assert X[:, 0].tolist() == ((rows["age"] - 17) / 73).tolist()
    assert set(X[np.isnan(rows["pay"])][:, 1]) == {0.5}
    assert X[:, 2].tolist() == np.isnan(rows["pay"]).tolist()
    assert FeatureMatrix(PEOPLE).unordered.tolist() == [False, False, False, True]


def test_subgroups_are_large_enough_and_cover_the_levels() -> None:
    rows = people(900)
    rows["sex"][:] = 0
    rows["sex"][:60] = 1  # about eighteen of them are tested on
    found = measured(rows)

    assert {(g.column, g.level) for g in found.subgroups} == {("sex", "f")}
    assert all(g.rows >= LEAST_IN_GROUP for g in found.subgroups)


def test_rows_of_one_person_on_both_sides_are_mentioned() -> None:
    schema = Schema(columns=[*PEOPLE.columns, Column("who", type="id")], id_column="who", max_rows_per_unit=3)
    rows = people(60)
    plan = GaussianRelease(privacy=ErrorFloor(age=6), schema=schema).plan(schema, 60)

    assert "both sides of the split" in measured(rows, rows, schema, plan=plan).note
    assert "both sides" not in measured(rows, rows).note


CURVE = [(0.01, 0.6), (0.1, 0.7), (1.0, 0.8)]


@pytest.mark.parametrize(
    ("curve", "released", "share"),
    [
        (CURVE, 0.75, 10**-0.5),
        (CURVE, 0.65, 10**-1.5),
        (CURVE, 0.7, 0.1),
        (CURVE, 0.6, 0.01),
        (CURVE, 0.8, 1.0),
        (CURVE, 0.9, 1.0),
        (CURVE, 0.59, None),
        ([(0.01, 0.78), (0.1, 0.79), (1.0, 0.8)], 0.785, None),
        ([(0.01, 0.78), (0.1, 0.79), (1.0, 0.8)], 0.81, None),
        ([(0.01, 0.6), (0.1, 0.74), (0.2, 0.66), (1.0, 0.8)], 0.7, 0.1),
        ([(0.01, 0.6), (0.1, 0.82), (1.0, 0.8)], 0.8, 1.0),
        ([(1.0, 0.8)], 0.7, None),
        ([], None, None),
    ],
)
def test_the_share_is_read_off_the_curve_or_not_at_all(
    curve: list[tuple[float, float]], released: float | None, share: float | None
) -> None:
    assert learning._equal_share(curve, released, 0.03)[0] == (
        None if share is None else pytest.approx(share)
    )


def test_time_that_is_up_leaves_the_two_models() -> None:
    found = measured(people(200), seconds=0.0)

    assert len(found.scores) == 7
    assert len(found.curve) == 1
    assert found.equals_share is None


def test_progress_goes_from_nothing_to_all() -> None:
    told: list[float] = []
    measured(people(100), progress=told.append, seconds=600.0)

    assert told == sorted(told)
    assert told[-1] == 1.0


def test_ranking_and_calibration_are_the_textbook_ones() -> None:
    g = Stream.from_seed(8).generator()
    chance = np.round(g.uniform(0, 1, 500), 2)
    y = (g.uniform(size=500) < chance).astype(np.int64)
    task = PredictionTask.from_column(Column("y", values=(0, 1), role="target"))
    two = np.column_stack([1 - chance, chance])
    found = score(two, y, task, trained_on="original", tested_on="original")

    assert found.auc == pytest.approx(roc_auc_score(y, chance))
    assert found.accuracy == np.mean((chance > 0.5) == y)
    assert sum(share for _, _, share in found.calibration) == pytest.approx(1)
    first = (chance * 10).astype(int) == 0
    assert found.calibration[0] == pytest.approx((chance[first].mean(), y[first].mean(), first.mean()))
    three = PredictionTask.from_column(Column("y", values=(0, 1, 2), role="target"))
    chances = g.dirichlet([1, 1, 1], 500)
    answers = g.integers(0, 3, 500)
    several = score(chances, answers, three, trained_on="original", tested_on="original")
    assert several.auc == pytest.approx(roc_auc_score(answers, chances, multi_class="ovr"))


# What an invariant release keeps.

NUMBERS = Schema(
    columns=[
        *(Column(f"x{j}", lower=-3, upper=3) for j in range(3)),
        Column("sex", values=("f", "m"), closed=True),
        Column("y", values=(0, 1), role="target"),
    ]
)


def numbers(n: int) -> dict[str, AnyArray]:
    g = Stream.from_seed(11).generator()
    rows: dict[str, AnyArray] = {f"x{j}": g.uniform(-3, 3, n) for j in range(3)}
    rows["sex"] = g.integers(0, 2, n).astype(np.int32)
    rows["y"] = (rows["x0"] + 0.5 * rows["x1"] + g.normal(0, 1, n) > 0).astype(np.int32)
    return rows


def kept(learner: str, part: slice = slice(None)) -> Learning:
    variance = None if learner == "gram" else 4.0
    plan = InvariantRelease(learner=learner, variance=variance, schema=NUMBERS).plan(NUMBERS, 200)
    rows = encoded_rows(NUMBERS, numbers(200))
    published = plan.draw(rows, Stream.from_seed(12))
    some = ({name: values[part] for name, values in side.items()} for side in (rows, published))
    found = measure_learning(plan.schema, *some, plan=plan, stream=Stream.from_seed(13))
    assert found is not None
    return found


@pytest.mark.parametrize("learner", ["svm", "logistic", "multinomial", "ridge", "gram"])
def test_an_invariant_release_trains_to_the_same_model(learner: str) -> None:
    found = kept(learner)

    assert "models are the same" in found.note
    assert "No row was held back" in found.note
    assert found.equals_share == 1.0
    assert found.task == ("regression" if learner == "ridge" else "classification")
    original, release = one(found, "original"), one(found, "release")
    if learner == "ridge":
        assert release.r2 == pytest.approx(original.r2, abs=1e-9)
    else:
        assert release.accuracy == original.accuracy
    if learner in ("logistic", "multinomial"):
        assert original.calibration
    if learner == "svm":
        assert not original.calibration
        assert one(found, "release", "release").accuracy == original.accuracy


def test_a_part_of_an_invariant_release_trains_to_another_model() -> None:
    found = kept("logistic", slice(0, 150))

    assert "models differ" in found.note
    assert found.equals_share is None


def test_a_class_without_rows_is_no_exception() -> None:
    plan = InvariantRelease(learner="svm", variance=1.0, schema=NUMBERS).plan(NUMBERS, 50)
    rows = encoded_rows(NUMBERS, {**numbers(50), "y": np.zeros(50, np.int32)})
    found = measure_learning(plan.schema, rows, rows, plan=plan, stream=Stream.from_seed(1))

    assert found is not None
    assert found.task == "classification"


# The meter of the what-if table.


def test_the_meter_at_factor_one_is_what_was_measured() -> None:
    rows = people(400)
    plan = METHOD.plan(PEOPLE, 400)
    published = plan.draw(rows, Stream.from_seed(3))
    meter = accuracy_meter(PEOPLE, rows, stream=Stream.from_seed(4), published=published)

    assert meter(plan, 1.0) == accuracy(measured(rows, published), "release")


def test_less_noise_teaches_more() -> None:
    rows = people(1_000)
    meter = accuracy_meter(PEOPLE, rows, stream=Stream.from_seed(4))
    little, much = (meter(METHOD.scaled_plan(PEOPLE, 1_000, f), f) for f in (0.25, 8.0))

    assert little is not None
    assert much is not None
    assert little > much + 0.1


def test_the_meter_stops_in_time() -> None:
    meter = accuracy_meter(PEOPLE, people(100), stream=Stream.from_seed(4), seconds=-1.0)

    assert meter(METHOD.plan(PEOPLE, 100), 2.0) is None


def test_lists_stay_unordered_in_a_wide_table_while_they_are_short() -> None:
    lists = [Column("short", values=tuple(range(60))), Column("long", values=tuple(range(90)))]
    wide = Schema(columns=[*lists, *(Column(f"x{j}", lower=0, upper=1) for j in range(100))])
    narrow = Schema(columns=lists)

    assert FeatureMatrix(narrow).unordered.tolist() == [True, True]
    assert FeatureMatrix(wide).unordered[:2].tolist() == [True, False]


def test_a_wide_table_with_lists_is_learned_from() -> None:
    columns = [Column("c", values=tuple(range(64))), *(Column(f"x{j}", lower=0, upper=1) for j in range(101))]
    schema = Schema(columns=[*columns, Column("y", values=(0, 1), role="target")])
    g = Stream.from_seed(14).generator()
    rows: dict[str, AnyArray] = {f"x{j}": g.uniform(0, 1, 300) for j in range(101)}
    rows["c"] = g.integers(0, 64, 300).astype(np.int32)
    rows["y"] = (rows["x3"] > 0.5).astype(np.int32)
    plan = GaussianRelease(privacy=ErrorFloor(x3=0.1), schema=schema).plan(schema, 300)

    assert accuracy(measured(rows, rows, schema, plan=plan), "original") > 0.9
