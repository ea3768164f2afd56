"""The default classifier: its rules, its curves, its score, and twins of it that break the promise."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
from scipy import special

from discreet.errors import BudgetExceeded, DataError, ParameterError
from discreet.learn import PrivateClassifier
from discreet.learn.budget_schedule import BudgetSchedule
from discreet.learn.classifier._curves import combine_totals, estimate_shares, make_curves, prior_covariance
from discreet.learn.classifier._rules import (
    PublicFacts,
    count_share_for,
    curve_weight,
    largest_weight,
    make_plan,
)
from discreet.learn.classifier._weights import StageRows, line_places
from discreet.learn.paid_score import ModelScore, ScoreCounts
from discreet.ledger import Ledger
from discreet.noise import Stream
from discreet.privacy import ApproxDP, GaussianDP, NoPromise, PureDP, gaussian_mu
from discreet.query import Answer, Database, Histogram
from discreet.schema import Column, Schema
from tests.learn.noisy_sums import (
    fitted_in_memory_and_in_an_engine,
    fitted_on_answers_alone,
    spent,
    townsfolk,
    townsfolk_schema,
)

if TYPE_CHECKING:
    from pathlib import Path

    from discreet._types import Floats

EXACT = NoPromise("the rows are made up")
MU = GaussianDP(mu=1.0)


def facts(n: float, d: int, epsilon: float, **other: Any) -> PublicFacts:
    mu = gaussian_mu(epsilon, 1e-6)
    given = {"n_classes": 2, "lines": True, "gaussian": True, "score_sd": 1 / (mu * math.sqrt(0.05)), **other}
    return PublicFacts(n_rows=n, mu=mu, signal=n * mu / math.sqrt(2 * d), n_columns=d, **given)


# Rules.


@pytest.mark.parametrize(
    ("n", "d", "epsilon", "signal", "share"),
    [(614, 8, 0.1, 4.23, 0.3496), (614, 8, 1.0, 36.33, 0.03), (4000, 40, 0.1, 12.32, 0.03)],
)
def test_signal_and_share_of_the_class_counts_are_those_of_the_reference(
    n: int, d: int, epsilon: float, signal: float, share: float
) -> None:
    given = facts(n, d, epsilon)
    assert given.signal == pytest.approx(signal, abs=0.005)
    assert count_share_for(n, given.mu) == pytest.approx(share, abs=5e-5)


def test_stages_and_grid_follow_from_public_facts() -> None:
    one, two = (make_plan(facts(n, 8, 1.0), wants_score=False) for n in (300, 1200))
    assert (one.stages, one.level, two.stages, two.level) == (1, 0, 2, 1)
    assert set(one.shares) == {"classes", "tables"}
    assert math.fsum(two.shares.values()) == pytest.approx(1.0)
    assert two.shares["products"] == pytest.approx(0.075)
    assert two.shares["gradient 5"] == pytest.approx(0.085)
    assert make_plan(facts(10**6, 8, 1.0), wants_score=False).level == 3
    assert make_plan(facts(10**6, 8, 1.0, n_classes=3), wants_score=False).stages == 2
    assert make_plan(facts(1200, 8, 1.0, n_classes=3), wants_score=False).stages == 1
    assert make_plan(facts(10**6, 8, 1.0, n_classes=3, lines=False), wants_score=False).stages == 1
    assert make_plan(facts(10**6, 8, 1.0, gaussian=False), wants_score=False).stages == 1
    # Weights of categories gain less than those of lines; and few rows for each column fit chance.
    assert make_plan(facts(1200, 8, 1.0, lines=False), wants_score=False).stages == 1
    assert [make_plan(facts(n, 30, 10.0), wants_score=False).stages for n in (740, 760)] == [1, 2]
    assert [make_plan(facts(n, 60, 1.0), wants_score=False).stages for n in (4000, 4300)] == [1, 2]


def test_a_score_that_would_tell_nothing_is_not_asked() -> None:
    few, many = (make_plan(facts(n, 8, 0.1), wants_score=True) for n in (614, 4000))
    assert not few.scored
    assert "score" not in few.shares
    assert many.scored
    assert many.shares["score"] == 0.05
    assert math.fsum(many.shares.values()) == pytest.approx(1.0)


def test_the_signal_of_a_fit_is_rows_over_the_noise_on_a_cell() -> None:
    rows = townsfolk(3000)
    for promise, sd in ((MU, math.sqrt(2 * 5)), (PureDP(epsilon=1.0), math.sqrt(2) * 2 * 5)):
        model = PrivateClassifier(privacy=promise, schema=townsfolk_schema(), random_state=1)
        model.fit(rows, rows["owner"])
        assert model.signal_ == pytest.approx(3000 / sd, rel=1e-6)
        assert model.stages_ == (2 if promise is MU else 1)


# First stage.


def test_class_totals_weigh_counts_and_margins_by_their_noise() -> None:
    tables = [np.full((4, 2), [10.0, 30.0]), np.full((9, 2), [5.0, 12.0])]
    found = combine_totals(np.array([44.0, 116.0]), 2.0, tables, 1.0, 160.0)
    weights = np.array([1 / 4, 1 / 4, 1 / 9])
    mean = weights @ np.array([[44, 116], [40, 120], [45, 108]]) / weights.sum()
    assert found == pytest.approx(mean + (160 - mean.sum()) / 2)
    # No class is below a hundredth of the rows, before all are scaled to add up.
    low = combine_totals(np.array([-50.0, 210.0]), 2.0, tables, 0.0, 160.0)
    assert low == pytest.approx(np.array([1.6, 210.0]) * 160 / 211.6)


def test_without_noise_curves_are_log_ratios_shrunk_by_counting_alone() -> None:
    table = np.array([[3000.0, 1000.0], [1000.0, 3000.0], [0.0, 0.0]])
    (curve,) = make_curves(
        [table], [prior_covariance(3, ordered=False, missing=False)], table.sum(axis=0), 0.0
    )
    assert curve.shares == pytest.approx([0.5, 0.5, 0.0], abs=1e-3)
    expected = np.log([[1.5, 0.5], [0.5, 1.5]])
    assert curve.values[:2] == pytest.approx(expected, abs=0.02)
    assert curve.values[2] == pytest.approx(0.0, abs=0.02)
    assert curve.sd[2].min() > 5 * curve.sd[:2].max()  # nothing is known about a cell without rows


def test_shares_of_cells_are_positive_and_add_up() -> None:
    table = np.array([[50.0, 40.0], [-30.0, 10.0], [5.0, 5.0]])
    found = estimate_shares(table, 10.0, 100.0)
    assert found.sum() == pytest.approx(1.0)
    assert found[0] > 0.7
    assert 0 < found[1] < found[2] < 0.2
    assert estimate_shares(table, 0.0, 100.0)[0] > found[0]


def test_neighboring_cells_lend_each_other_strength() -> None:
    prior = prior_covariance(6, ordered=True, missing=True)
    assert np.all(prior[5] == [0, 0, 0, 0, 0, 1])
    assert prior[0, 1] > prior[0, 2]
    assert prior[0, 4] < 0  # a line has two ends
    assert np.linalg.eigvalsh(prior).min() > 0
    slope = np.linspace(-0.5, 0.5, 8)
    table = np.column_stack([100 * (1 + slope), 100 * (1 - slope)])
    noise = np.where(np.arange(8) % 2 == 0, 30.0, -30.0)
    table[:, 0] += noise
    priors = [prior_covariance(8, ordered=ordered, missing=False) for ordered in (True, False)]
    smooth, rough = (make_curves([table], [prior], table.sum(axis=0), 20.0)[0].values for prior in priors)
    truth = np.log(1 + slope)
    assert np.abs(smooth[:, 0] - truth).mean() < np.abs(rough[:, 0] - truth).mean()


def test_curves_of_noise_alone_are_taken_for_noise() -> None:
    # Quantiles of a normal distribution in the order of a golden section: noise without luck.
    normal = special.ndtri((np.arange(160) * 0.6180339887 + 0.1) % 1)
    noise = (60.0 * normal).reshape(10, 8, 2)
    priors = [prior_covariance(8, ordered=False, missing=False)] * 10
    totals = np.array([700.0, 300.0])
    weak = make_curves([np.full((8, 2), totals / 8) + part for part in noise], priors, totals, 60.0)
    real = [np.array([[80.0, 5.0], [5.0, 80.0]] * 4) * 8.0 + part for part in noise]
    strong = make_curves(real, priors, np.array([2720.0, 2720.0]), 60.0)
    assert max(np.abs(curve.values).max() for curve in weak) < 0.4
    assert min(np.abs(curve.values).min() for curve in strong) > 0.4


# The model.


def test_both_stages_learn_what_a_table_shows() -> None:
    rows = townsfolk(8000)
    vote = max(np.mean(rows["owner"] == "yes"), np.mean(rows["owner"] == "no"))
    for promise in (MU, EXACT, PureDP(epsilon=5.0), ApproxDP(epsilon=1.0, delta=1e-6)):
        model = PrivateClassifier(privacy=promise, schema=townsfolk_schema(), random_state=1)
        model.fit(rows, rows["owner"])
        assert np.mean(model.predict(rows) == rows["owner"]) > vote + 0.1
        shares = model.predict_proba(rows)
        assert np.allclose(shares.sum(axis=1), 1)
        assert np.array_equal(model.classes_[shares.argmax(axis=1)], model.predict(rows))
        assert np.allclose(np.diff(np.log(shares), axis=1)[:, 0], model.decision_function(rows))
        # Mean confidence is about the accuracy; with one stage it is below.
        gap = np.mean(model.predict(rows) == rows["owner"]) - shares.max(axis=1).mean()
        assert abs(gap) < (0.03 if model.stages_ == 2 else 0.15)


@pytest.mark.parametrize(("mu", "stages"), [(1.0, 2), (0.03, 1)])
def test_more_than_two_classes_have_lines_by_class_where_rows_allow(mu: float, stages: int) -> None:
    rows = townsfolk(6000)
    y = np.array(["a", "b", "c"])[(rows["age"].to_numpy() > 25).astype(int) + (rows["age"].to_numpy() > 55)]
    columns = [column for column in townsfolk_schema().columns if column.name != "owner"]
    promise = GaussianDP(mu=mu)
    model = PrivateClassifier(
        privacy=promise, schema=Schema(columns=columns), classes=["a", "b", "c"], random_state=1
    )
    model.fit(rows.drop(columns="owner"), y)
    assert model.stages_ == stages
    assert model.slopes_.shape == (3 if stages == 2 else 0, 3)
    assert model.decision_function(rows).shape == (6000, 3)
    assert np.mean(model.predict(rows) == y) > (0.9 if stages == 2 else 0.7)
    assert model.score_ is not None
    assert abs(model.score_.accuracy - np.mean(model.predict(rows) == y)) < 0.02 / mu**0.5
    assert spent(model.answers_) <= mu


def test_caution_lowers_curves_only_where_there_is_something_to_lose() -> None:
    even, uneven = np.array([500.0, 500.0]), np.array([800.0, 200.0])
    assert curve_weight(4.0, even, 0.6) == 0.6
    assert curve_weight(4.0, uneven, 0.6) == pytest.approx(4 / 16)
    assert curve_weight(1000.0, uneven, 0.6) == 0.6
    assert curve_weight(math.inf, uneven, 0.6) == 0.6
    assert curve_weight(1000.0, np.array([700.0, 200.0, 100.0]), 1.0) == pytest.approx(1000 / 1012)
    # Of several classes, curves stand up to the prior, unless one class has most of the rows.
    assert largest_weight(even) == largest_weight(np.array([700.0, 200.0, 100.0])) == 0.6
    assert largest_weight(np.array([490.0, 400.0, 110.0])) == 1


@pytest.mark.parametrize(("copies", "known", "best"), [(1, 0.3, 1.0), (6, 0.12, 0.6)])
def test_the_weight_of_curves_is_the_one_that_gets_more_rows_right(
    copies: int, known: float, best: float
) -> None:
    """Six columns that are one say too much together; six of their own do not."""
    draws = Stream.from_seed(7).generator()
    y = draws.choice(3, size=20_000, p=[0.6, 0.25, 0.15])
    own = np.where(
        draws.random((len(y), 6 // copies)) < known, y[:, None], draws.integers(0, 3, (len(y), 6 // copies))
    )
    rows = pd.DataFrame(np.repeat(own, copies, axis=1)).rename(columns=lambda i: f"c{i}")
    columns = [Column(str(name), values=(0, 1, 2)) for name in rows]
    schema = Schema(columns=[*columns, Column("y", values=(0, 1, 2), role="target")])
    model = PrivateClassifier(privacy=GaussianDP(mu=0.2), schema=schema, random_state=1).fit(rows, y)
    assert model.stages_ == 1
    assert sum(model.split_.values()) == pytest.approx(1, abs=1e-9)
    right = {weight: float(model.answers_[f"weight {weight:g}"].value) for weight in (0.6, 1.0)}
    assert max(right, key=right.__getitem__) == best
    assert model.weights_[0] == pytest.approx(best * model.factor_)


def test_numbers_are_read_in_standard_deviations_from_their_noisy_mean() -> None:
    rows = townsfolk(4000)
    model = PrivateClassifier(privacy=MU, schema=townsfolk_schema(), random_state=1)
    model.fit(rows, rows["owner"])
    begun = StageRows.from_curves(model.curves_, model.cells_, 2)
    assert set(begun.lines) == {"age", "income", "share"}
    for origin, units in begun.lines.values():
        assert 0.2 < origin < 0.8
        assert 2.5 < units < 6  # about sqrt(12) standard deviations of an even column


def test_a_number_is_a_line_and_what_the_line_leaves_of_its_curve() -> None:
    """One column is a line, one a parabola: only the second needs a curve beside its line."""
    grid = np.linspace(-1, 1, 16)
    bounds = ([-1.0, -1.0], [1.0, 1.0])
    rows = np.array([(a, b) for a in grid for b in grid] * 8)
    odds = 2 * rows[:, 0] + 6 * (rows[:, 1] ** 2 - 0.35)
    y = np.where(1 / (1 + np.exp(-odds)) > np.repeat((np.arange(8) + 0.5) / 8, len(grid) ** 2), "yes", "no")
    model = PrivateClassifier(privacy=EXACT, bounds=bounds, classes=["no", "yes"])
    model.fit(rows, y)
    assert model.stages_ == 2
    assert list(model.lines_) == ["x0", "x1"]
    assert model.weights_[0] == 0
    assert not model.curves_["x0"].values.any()
    assert model.weights_[1] > 0.3
    assert model.slopes_[0, 1] > 0.5 > 0.1 > abs(model.slopes_[1, 1])
    # A curve and its line together are the curve that was split, and the line is its best one.
    whole = StageRows.from_curves(model.curves_, model.cells_, 3).curves["x1"]
    tilted = replace(
        whole, values=whole.values + np.outer(np.linspace(-1, 1, len(whole.values)), [-0.5, 0.5])
    )
    split = StageRows.from_curves(model.curves_ | {"x1": tilted}, model.cells_, 2)
    places = line_places(
        model.layout_.schema.columns[1], model.cells_.edges["x1"], split.lines["x1"], len(whole.values)
    )
    again = split.curves["x1"].values + np.outer(split.slopes["x1"] * places, [-0.5, 0.5])
    assert np.allclose(again, tilted.values)
    left = split.curves["x1"].values[:, 1] - split.curves["x1"].values[:, 0]
    spread = places - whole.shares @ places
    assert abs((whole.shares * spread) @ left) < 1e-9


@pytest.mark.parametrize("classes", [2, 3])
def test_where_curves_are_bent_the_tables_are_counted_twice(classes: int) -> None:
    draws = Stream.from_seed(5).generator()
    rows = draws.standard_normal((6000, 4)).clip(-2.5, 2.5)
    length = (rows**2).sum(axis=1)
    y = np.searchsorted(np.quantile(length, np.arange(1, classes) / classes), length)
    model = PrivateClassifier(
        privacy=GaussianDP(mu=0.5), bounds=(-2.5, 2.5), classes=range(classes), random_state=3
    )
    model.fit(rows, y)
    assert model.stages_ == 1
    assert not model.lines_
    assert list(model.split_) == ["classes", "tables", "score", "tables again"]
    assert sum(model.split_.values()) == pytest.approx(1, abs=1e-9)
    assert "counted twice" in model.status_
    assert "Two stages" not in model.status_
    assert model.score(rows, y) > 1 / classes + 0.25
    # Both answers count: curves of the second alone are others.
    again = model.answers_["tables again"]
    assert np.max(again.sd) != np.max(model.answers_["tables"].sd)
    both = Answer.merge(model.answers_["tables"], again)
    assert np.max(both.sd) < np.min(again.sd)


def test_the_noise_on_a_slope_is_as_large_as_is_said() -> None:
    """Rows stay the same, so that fits differ by their noise, of which the stated deviation is made here."""
    draws = Stream.from_seed(6).generator()
    rows = draws.uniform(-1, 1, (4000, 3))
    y = (rows @ [2.0, -1.0, 0.5] + draws.logistic(size=len(rows)) > 0).astype(int)
    promise = GaussianDP(mu=0.1)
    models = [
        PrivateClassifier(privacy=promise, bounds=(-1, 1), classes=[0, 1], random_state=seed).fit(rows, y)
        for seed in range(40)
    ]
    assert {model.stages_ for model in models} == {2}
    # The slope of the log-odds in declared units, as each fit has units of its own.
    units = np.array([[line[1] for line in model.lines_.values()] for model in models])
    slopes = np.array([2 * model.slopes_[:, 1] for model in models]) * units
    stated = np.array([model.slopes_sd_ for model in models]) * units
    ratio = slopes.std(axis=0) / np.sqrt((stated**2).mean(axis=0))
    assert np.all((ratio > 0.4) & (ratio < 1.6)), ratio
    # A column that is a line alone has a band all the same.
    flat = [(m, n) for m in models for n, weight in zip(m.curves_, m.weights_, strict=True) if not weight]
    assert flat
    assert all(model.effect_sd(name).max() > 0 for model, name in flat)


def test_the_same_keystream_gives_the_same_model_on_rows_and_in_an_engine() -> None:
    first, second = fitted_in_memory_and_in_an_engine(
        lambda: PrivateClassifier(privacy=MU), townsfolk_schema()
    )
    assert first.curves_ == second.curves_
    assert np.array_equal(first.weights_, second.weights_)
    assert first.score_ == second.score_


def test_a_saved_model_says_the_same(tmp_path: Path) -> None:
    rows = townsfolk(2000)
    model = PrivateClassifier(privacy=MU, schema=townsfolk_schema(), random_state=1).fit(rows, rows["owner"])
    model.save(tmp_path / "model.npz")
    loaded = PrivateClassifier.load(tmp_path / "model.npz")
    assert np.array_equal(model.predict_joint_log_proba(rows), loaded.predict_joint_log_proba(rows))
    assert (loaded.score_, loaded.status_, loaded.signal_) == (model.score_, model.status_, model.signal_)


def test_with_few_rows_the_model_is_the_vote_and_says_so() -> None:
    rows = townsfolk(400)
    owner = np.where(np.arange(400) % 10 < 3, "yes", "no")
    promise = ApproxDP(epsilon=0.1, delta=1e-6)
    model = PrivateClassifier(privacy=promise, schema=townsfolk_schema(), random_state=3).fit(rows, owner)
    assert model.status_.startswith("With 400 rows and epsilon 0.1 even the most common class")
    assert "too few rows for a score" in model.status_
    assert model.score_ is None
    assert len(set(model.predict(rows))) == 1
    off = PrivateClassifier(privacy=promise, schema=townsfolk_schema(), floor=False, random_state=3)
    assert "may be worse" in off.fit(rows, owner).status_
    assert off.factor_ == 1.0 > model.factor_


# Score.


def test_the_score_is_the_accuracy_on_the_rows_up_to_its_noise() -> None:
    rows = townsfolk(5000)
    for paid in (True, "table"):
        model = PrivateClassifier(
            privacy=GaussianDP(mu=2.0), schema=townsfolk_schema(), paid_score=paid, random_state=2
        ).fit(rows, rows["owner"])
        assert model.score_ is not None
        exact = np.mean(model.predict(rows) == rows["owner"])
        sd = float(np.max(model.answers_["score"].sd))
        moved = 2.0 if paid == "table" else 1.0
        assert sd == pytest.approx(math.sqrt(moved) / (2 * math.sqrt(0.05)), rel=1e-6)
        assert abs(model.score_.accuracy - exact) < 6 * sd * math.sqrt(moved) / 5000 + 0.002
        assert model.score_.lower < exact < model.score_.upper
        assert "better than naming the most common class by" in model.score_.verdict
        assert (model.score_.table is not None) == (paid == "table")
    off = PrivateClassifier(privacy=MU, schema=townsfolk_schema(), paid_score=False, random_state=2)
    assert off.fit(rows, rows["owner"]).score_ is None
    assert "score" not in off.split_


def test_the_verdict_follows_a_fixed_rule() -> None:
    def score(right: float) -> ModelScore:
        counts = ScoreCounts(np.array([600.0, 400.0]), 10.0, "gaussian")
        return ModelScore.from_counts(ScoreCounts(right, 10.0, "gaussian"), counts, 1000.0, 64)

    good, poor = score(800.0), score(610.0)
    assert good.verdict == "better than naming the most common class by 12.4 to 23.7 points"
    assert poor.verdict == "not shown to be better than naming the most common class"
    half = 1.96 * math.sqrt(0.01**2 + 0.16 / 1000)
    allowed = 0.01 + 0.25 * math.sqrt(0.064) * 2 * (0.2 + half)
    assert good.lower == pytest.approx(0.8 - half - allowed)
    assert good.upper == pytest.approx(0.8 + half)
    assert ModelScore.from_dict(good.to_dict()) == good


# Privacy.


@pytest.mark.parametrize("neighbors", ["replace-one", "add-remove"])
def test_all_passes_together_cost_the_promise(neighbors: Any) -> None:
    rows = townsfolk(4000)
    promise = GaussianDP(mu=0.5, neighbors=neighbors)
    ledger = Ledger.open(":memory:", limit=promise)
    model = PrivateClassifier(
        privacy=promise, schema=townsfolk_schema(neighbors), ledger=ledger, random_state=1
    )
    model.fit(rows, rows["owner"])
    assert 0.5 * (1 - 1e-9) < spent(model.answers_) <= 0.5
    assert len(model.receipts_) == len(model.split_) == 9
    assert math.fsum(model.split_.values()) == pytest.approx(1.0)


def test_where_few_rows_are_counted_the_later_shares_go_to_the_tables() -> None:
    rows = townsfolk(100)
    promise = GaussianDP(mu=0.1, neighbors="add-remove")
    model = PrivateClassifier(privacy=promise, schema=townsfolk_schema("add-remove"), random_state=1)
    model.fit(rows, rows["owner"])
    assert model.stages_ == 1
    assert set(model.split_) == {"classes", "tables"}
    assert math.fsum(model.split_.values()) == pytest.approx(1.0)
    assert 0.1 * (1 - 1e-9) < spent(model.answers_) <= 0.1


def test_a_budget_for_half_of_the_passes_is_refused_before_the_first() -> None:
    rows = townsfolk(4000)
    ledger = Ledger.open(":memory:", limit=GaussianDP(mu=0.9))
    with pytest.raises(BudgetExceeded):
        PrivateClassifier(privacy=MU, schema=townsfolk_schema(), ledger=ledger, random_state=1).fit(
            rows, rows["owner"]
        )
    assert not list(ledger.entries())


def test_several_rows_of_a_person_multiply_the_noise() -> None:
    rows = townsfolk(4000).assign(who=np.arange(4000) // 2)
    columns = [*townsfolk_schema().columns, Column("who", type="id")]
    schema = Schema(columns=columns, id_column="who", max_rows_per_unit=2, target="owner", unit="person")
    with Database(rows, schema=schema, random_state=1) as db:
        model = PrivateClassifier(privacy=GaussianDP(mu=1.0, unit="person")).fit_database(db)
    alone = PrivateClassifier(privacy=MU, schema=townsfolk_schema(), random_state=1)
    alone.fit(rows, rows["owner"])
    for name in ("tables", "score"):
        ratio = np.max(model.answers_[name].sd) / np.max(alone.answers_[name].sd)
        assert ratio == pytest.approx(2.0, rel=1e-6)
    assert model.signal_ == pytest.approx(alone.signal_ / 2, rel=1e-6)


@pytest.mark.parametrize("neighbors", ["replace-one", "add-remove"])
def test_the_model_is_a_function_of_the_noisy_answers(neighbors: Any) -> None:
    def make() -> PrivateClassifier:
        return PrivateClassifier(privacy=GaussianDP(mu=0.5))

    first, second = fitted_on_answers_alone(make(), make(), townsfolk_schema(neighbors))
    assert first.curves_ == second.curves_
    assert np.array_equal(first.weights_, second.weights_)
    assert np.array_equal(first.intercept_, second.intercept_)
    assert first.score_ == second.score_
    assert first.status_ == second.status_


class ExactTables(PrivateClassifier):
    """A twin whose curves are those of the exact tables, though noisy ones were paid for."""

    def _learn_curves(self, schedule: BudgetSchedule, *rest: Any, **options: Any) -> Floats:
        ask = schedule.ask

        def peek(name: str, question: Any) -> Any:
            answer = ask(name, question)
            sums: Any = getattr(schedule.sums, "_sums", schedule.sums)
            bound = question.bind(sums.curation, sums.neighbors)
            exact = np.array([float(v) for v in bound.exact(sums._engine)])
            object.__setattr__(answer, "value", exact)
            return answer

        schedule.ask = peek  # type: ignore[method-assign]
        try:
            return super()._learn_curves(schedule, *rest, **options)
        finally:
            schedule.ask = ask  # type: ignore[method-assign]


def test_curves_of_exact_tables_are_caught() -> None:
    def make() -> PrivateClassifier:
        return ExactTables(privacy=GaussianDP(mu=0.5))

    # The twin's later questions are about curves that other rows do not have.
    with pytest.raises(AssertionError):
        fitted_on_answers_alone(make(), make(), townsfolk_schema())


class ExactRows(PrivateClassifier):
    """A twin whose rules are on the exact number of rows, though it is private."""

    def _check_size(self, sums: Any, layout: Any) -> int | None:
        super()._check_size(sums, layout)
        return int(getattr(sums, "_sums", sums)._engine.count())


def test_rules_on_an_exact_number_of_rows_are_caught() -> None:
    def make() -> PrivateClassifier:
        return ExactRows(privacy=GaussianDP(mu=0.05))

    schema = townsfolk_schema("add-remove")
    with Database(townsfolk(3000), schema=schema) as db:
        assert db.n_rows is None
    first, second = fitted_on_answers_alone(make(), make(), schema)
    assert first.signal_ == second.signal_ == pytest.approx(3000 * 0.05 / math.sqrt(5))  # as many rows
    fewer = make()
    fewer.privacy = GaussianDP(mu=0.05, neighbors="add-remove")
    with Database(townsfolk(2999), schema=schema, random_state=5) as db:
        fewer.fit_database(db)
    # What is published tells how many rows there are, without noise.
    assert fewer.signal_ * math.sqrt(5) / 0.05 == pytest.approx(2999, abs=1e-6)
    honest = PrivateClassifier(privacy=GaussianDP(mu=0.05, neighbors="add-remove"))
    with Database(townsfolk(2999), schema=schema, random_state=5) as db:
        honest.fit_database(db)
    assert honest.signal_ * math.sqrt(5) / 0.05 != pytest.approx(2999, abs=1e-6)


class UnpaidScore(PrivateClassifier):
    """A twin that gives the whole promise to the model and asks for the score beside it."""

    def _learn(self, sums: Any, *rest: Any) -> BudgetSchedule:
        self.paid_score = False
        schedule = super()._learn(sums, *rest)
        extra = BudgetSchedule(sums, GaussianDP(mu=0.2, neighbors=sums.neighbors), {"score": 1.0})
        schedule.answers["score"] = extra.ask("score", self._count_query("owner"))
        return schedule


def test_a_score_that_is_not_charged_is_caught() -> None:
    rows = townsfolk(4000)
    model = UnpaidScore(privacy=GaussianDP(mu=0.5), schema=townsfolk_schema(), random_state=1)
    assert spent(model.fit(rows, rows["owner"]).answers_) > 0.5
    limited = Ledger.open(":memory:", limit=GaussianDP(mu=0.5))
    with pytest.raises(BudgetExceeded):
        UnpaidScore(
            privacy=GaussianDP(mu=0.5), schema=townsfolk_schema(), ledger=limited, random_state=1
        ).fit(rows, rows["owner"])


# Bad input.


def test_tables_that_cannot_be_learned_from_are_refused_before_the_charge() -> None:
    ledger = Ledger.open(":memory:")
    wide = Column("code", values=tuple(f"v{i}" for i in range(1200)), closed=True)
    target = Column("y", values=(0, 1), role="target")
    with pytest.raises(ParameterError, match=r"at most 2,000, and are 2,400 in column 'code'"):
        PrivateClassifier(privacy=MU, schema=Schema(columns=[wide, target]), ledger=ledger).fit(
            {"code": ["v1", "v2"]}, [0, 1]
        )
    schema = Schema(columns=[Column("x", lower=0, upper=1), target])
    with Database({"x": [], "y": []}, schema=schema, ledger=ledger) as db, pytest.raises(DataError):
        PrivateClassifier(privacy=MU).fit_database(db)
    with pytest.raises(ParameterError, match="paid_score"):
        PrivateClassifier(privacy=MU, bounds=(0, 1), classes=[0, 1], paid_score="all").fit(
            [[0.1], [1.0]], [0, 1]
        )
    assert not list(ledger.entries())


def test_a_column_that_is_constant_gives_the_vote() -> None:
    schema = Schema(
        columns=[
            Column("only", values=("x", "y"), closed=True),
            Column("y", values=("no", "yes"), role="target"),
        ]
    )
    y = np.array(["no", "yes", "no"] * 300)
    model = PrivateClassifier(privacy=MU, schema=schema, random_state=1).fit({"only": ["x"] * 900}, y)
    assert set(model.predict({"only": ["x"] * 3})) == {"no"}


def test_a_column_that_may_be_missing_has_no_effect_on_its_line() -> None:
    i = np.arange(6000)
    schema = Schema(
        columns=[
            Column("flat", lower=0, upper=1, required=False),
            Column("age", type="integer", lower=0, upper=99),
            Column("y", values=("no", "yes"), role="target"),
        ]
    )
    rows = pd.DataFrame({"flat": np.where(i % 5 == 0, np.nan, (i * 31 % 97) / 97), "age": i % 100})
    y = np.where(i % 100 > 40, "yes", "no")
    model = PrivateClassifier(privacy=GaussianDP(mu=5.0), schema=schema, random_state=1).fit(rows, y)
    assert model.stages_ == 2
    assert np.mean(model.predict(rows) == y) > 0.95


def test_the_class_counts_are_in_the_order_of_the_sorted_classes() -> None:
    schema = Schema(
        columns=[Column("x", lower=0, upper=1), Column("y", values=("yes", "no"), closed=True, role="target")]
    )
    y = np.array(["yes"] * 900 + ["no"] * 100)
    model = PrivateClassifier(privacy=MU, schema=schema, random_state=1).fit(np.full((1000, 1), 0.5), y)
    assert model.classes_.tolist() == ["no", "yes"]
    assert set(model.predict([[0.5]])) == {"yes"}
    with Database({"x": [0.5] * 1000, "y": y}, schema=schema, random_state=1) as db:
        answer = db.ask(Histogram(("y",)), privacy=MU)
    assert np.asarray(answer.value)[0] > 800
