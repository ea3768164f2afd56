"""The risk of a release on made-up people: against brute force, and wrong twins that must be found."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import special

from discreet import Column, Schema
from discreet.audit import _risk_measurement, _row_risk, measure_risk
from discreet.audit._made_up_people import LAWS, PeopleLaw, grid_rows
from discreet.audit._mixture import log_sum_exp
from discreet.audit._row_risk import RowScores, tails
from discreet.audit._table_risk import TableScores
from discreet.audit.risk import LIMITS, largest_success
from discreet.noise import Stream
from discreet.privacy import ApproxDP, ErrorFloor, GaussianDP, NoPromise, PureDP
from discreet.release import (
    BoundedRelease,
    CoarseRelease,
    GaussianRelease,
    InputPerturbation,
    InvariantRelease,
    LaplaceRelease,
    MaskedRelease,
    SyntheticRelease,
)


def a_schema(numbers: int = 3, lists: int = 3, **changes: Any) -> Schema:
    """Return a schema of numbers from 0 to 1 and of lists of four values."""
    columns = [Column(f"x{j}", lower=0, upper=1) for j in range(numbers)]
    columns += [Column(f"c{j}", values=("a", "b", "c", "d"), closed=True) for j in range(lists)]
    return Schema(columns=columns, **changes)


def with_target() -> Schema:
    columns = [Column(f"x{j}", lower=0, upper=1) for j in range(4)]
    columns.append(Column("y", values=("no", "yes"), closed=True, role="target"))
    return Schema(columns=columns, target="y")


def risk_of(method: Any, n_rows: int) -> Any:
    return measure_risk(method, method.plan(method.schema, n_rows), n_rows, people=100)


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.name)
def test_linkage_agrees_with_brute_force(law: PeopleLaw) -> None:
    """Scores of few draws, stated for n rows, against tables in which every row is compared."""
    schema = a_schema()
    plan = GaussianRelease(scale=0.25, schema=schema).plan(schema, 600)
    stated = RowScores.draw(plan, schema, law, 600, Stream.from_seed(1))
    known = stated.by_information
    linked: list[float] = []
    told: list[float] = []
    for seed in range(4):
        table = TableScores.draw(plan, schema, law, 600, Stream.from_seed(100 + seed))
        linked += table.link(known).tolist()
        told += table.recognize(known).tolist()
    error = math.hypot(np.std(linked) / math.sqrt(len(linked)), stated.link(known).std() / math.sqrt(1_000))
    # Six standard errors: a false alarm once in 10^9.
    assert abs(stated.link(known).mean() - np.mean(linked)) < 6 * error
    assert abs(stated.recognize(known).mean() - np.mean(told)) < 6 * 0.5 / math.sqrt(len(told)) + 0.01


def test_an_estimate_that_ignores_the_number_of_rows_is_refuted() -> None:
    """The wrong twin links among as many rows as were drawn, whatever n is."""
    schema = a_schema()
    plan = GaussianRelease(scale=0.25, schema=schema).plan(schema, 20_000)
    few, many = (
        RowScores.draw(plan, schema, LAWS[0], n, Stream.from_seed(1)).link(range(6)).mean()
        for n in (64, 20_000)
    )
    table = TableScores.draw(plan, schema, LAWS[0], 1_500, Stream.from_seed(2))
    # Among 1,500 rows it is already harder than among 64, and among 20,000 harder still.
    assert few > table.link(range(6)).mean() + 0.1 > many + 0.1


def test_attribute_inference_agrees_with_brute_force() -> None:
    schema = a_schema()
    plan = GaussianRelease(scale=0.1, schema=schema).plan(schema, 300)
    stated = RowScores.draw(plan, schema, LAWS[1], 300, Stream.from_seed(1))
    for unknown in (0, 5):
        stated_right, stated_without = (x.mean() for x in stated.guess(unknown, Stream.from_seed(2)))
        pairs = [
            TableScores.draw(plan, schema, LAWS[1], 300, Stream.from_seed(9 + seed)).guess(
                unknown, Stream.from_seed(3)
            )
            for seed in range(3)
        ]
        right, without = (np.concatenate(part) for part in zip(*pairs, strict=True))
        error = 6 * 0.5 / math.sqrt(len(right))
        assert abs(stated_right - right.mean()) < error
        assert abs(stated_without - without.mean()) < error
        assert stated_right > stated_without + 0.05


def test_a_list_of_thousands_of_values_is_guessed_for_fewer_people() -> None:
    """A thousand people times a thousand values times the rows like theirs would take gigabytes."""
    codes = Column("code", values=tuple(f"c{k:04d}" for k in range(3_000)), closed=True)
    schema = Schema(columns=[codes, Column("x", lower=0, upper=1)])
    plan = GaussianRelease(scale=0.1, schema=schema).plan(schema, 300)
    scores = RowScores.draw(plan, schema, LAWS[0], 300, Stream.from_seed(1), 400)
    right, without = scores.guess(0, Stream.from_seed(2))
    assert len(right) == len(without) == 4_000_000 // (24 * 1_024)
    assert (right >= without - 1e-9).all()
    assert len(scores.guess(1, Stream.from_seed(2))[0]) == 400


def test_chances_of_strangers_follow_from_own_rows() -> None:
    """With Gaussian scores everything is known: L is normal with mean s/2 and variance s."""
    s = 9.0
    scores = s / 2 + math.sqrt(s) * special.ndtri((np.arange(4000) + 0.5) / 4000)[None, :]
    above, with_ties, own = tails(scores)
    for t in (0.0, 2.0, 5.0):
        place = int(np.argmin(np.abs(-np.sort(-scores[0]) - t)))
        exact = special.ndtr(-(t + s / 2) / math.sqrt(s))
        assert with_ties[0, place] == pytest.approx(exact, rel=0.02)
        assert above[0, place] <= with_ties[0, place]
        assert own[0, place] == pytest.approx(special.ndtr((s / 2 - t) / math.sqrt(s)), abs=0.01)


def test_ties_are_broken_at_random() -> None:
    """Where every score is 0, the row is one of n."""
    scores = RowScores([], [], [], [np.zeros((1000, 64))], [np.zeros((1, 1000, 64))], np.zeros(1000, int), 50)
    assert scores.link([0]) == pytest.approx(1 / 50)
    assert scores.recognize([0]) == pytest.approx(0.5)


def test_people_have_the_probabilities_of_the_grid() -> None:
    schema = a_schema(1, 1)
    for law in LAWS:
        place, rows = law.draw(schema, 20_000, Stream.from_seed(1))
        assert np.bincount(place, minlength=law.nodes) / 20_000 == pytest.approx(1 / law.nodes, abs=0.03)
        grid = grid_rows(schema)["c0"]
        weights = law.cell_weights(schema.column("c0"))
        for z in range(law.nodes):
            expected = np.bincount(grid, weights[:, z], minlength=4)
            assert np.bincount(rows["c0"][place == z], minlength=4) / np.count_nonzero(
                place == z
            ) == pytest.approx(expected, abs=0.08)
    assert np.corrcoef(rows["x0"], rows["c0"])[0, 1] > 0.3


def test_a_release_without_noise_must_stop() -> None:
    """The wrong twin of every release: rows as they are, or nearly."""
    schema = a_schema()
    risk = risk_of(GaussianRelease(scale=1e-4, schema=schema), 100_000)
    assert risk.stops
    assert risk.worst("linkage").success > 0.99
    assert risk.worst("membership").success > 0.99
    assert risk.worst("attribute inference").gain > 0.9
    alone = Schema(columns=[Column("x", lower=0, upper=1)])
    assert risk_of(GaussianRelease(scale=1e-7, schema=alone), 10_000).stops


def test_public_columns_that_single_people_out_must_stop() -> None:
    columns = [Column("x", lower=0, upper=1), Column("where", lower=0, upper=1, role="public")]
    risk = risk_of(GaussianRelease(scale=100.0, schema=Schema(columns=columns)), 1_000)
    assert risk.stops
    assert risk.worst("linkage").success > 0.9


def test_pure_noise_passes() -> None:
    risk = risk_of(GaussianRelease(scale=1e4, schema=a_schema()), 1_000)
    assert risk.verdict == "yes"
    for one in risk.attacks:
        assert one.success == pytest.approx(one.baseline, abs=0.01)


def test_a_mean_over_people_does_not_vouch_for_who_stands_out() -> None:
    """At a weak epsilon a lone person among equals is linked ten times as often as people are on average."""
    schema = a_schema(6, 0)
    method = GaussianRelease(privacy=ApproxDP(epsilon=8.0, delta=1e-6), schema=schema)
    risk = risk_of(method, 200)
    laws: list[Any] = [one.law for one in method.plan(schema, 200).columns]
    sd = [math.sqrt(law.variance) for law in laws]
    noise = Stream.from_seed(1).generator().normal(size=(400, 200, 6)) * sd
    noise[:, 0] += 1  # all others are at the lower ends of their ranges
    lone = float(np.mean(noise.sum(axis=2).argmax(axis=1) == 0))
    assert lone > 0.09 > 5 * risk.worst("linkage").success
    assert risk.verdict == "with care"
    assert "stands out the promise allows a gain of up to 55.7" in risk.why
    # The wrong twin calls the mean enough.
    assert not any(one.is_above for one in risk.attacks)


def test_small_tables_are_not_blamed_for_chance() -> None:
    assert risk_of(GaussianRelease(scale=1e4, schema=a_schema()), 5).verdict == "yes"


@pytest.mark.slow
def test_same_facts_give_the_same_figures() -> None:
    method = GaussianRelease(scale=0.3, schema=a_schema())
    assert risk_of(method, 1_000) == risk_of(method, 1_000)


def test_more_noise_lowers_every_figure_and_is_advised() -> None:
    risk = risk_of(GaussianRelease(scale=0.15, schema=a_schema()), 1_000)
    more = risk_of(GaussianRelease(scale=2.0, schema=a_schema()), 1_000)
    for name in ("linkage", "membership", "attribute inference"):
        assert more.worst(name).success < risk.worst(name).success
    assert any("times the noise" in advice for advice in risk.advice)
    assert "synthetic" in risk.advice[0]


METHODS: dict[str, Callable[[], Any]] = {
    "laplace": lambda: LaplaceRelease(privacy=PureDP(epsilon=2.0), schema=a_schema()),
    "bounded": lambda: BoundedRelease(support=0.5, schema=a_schema()),
    "gaussian together": lambda: GaussianRelease(
        privacy=ApproxDP(epsilon=2.0, delta=1e-6),
        weights=np.array([[2.0, 1.0], [1.0, 2.0]]),
        schema=a_schema(2, 2),
    ),
    "coarse": lambda: CoarseRelease(privacy=PureDP(epsilon=2.0), schema=a_schema()),
    "input-perturbation": lambda: InputPerturbation(privacy=PureDP(epsilon=2.0), schema=a_schema(3, 0)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
def test_every_method_of_rows_is_measured(name: str) -> None:
    risk = risk_of(METHODS[name](), 2_000)
    assert {one.attack for one in risk.attacks} == {"linkage", "membership", "attribute inference"}
    for one in risk.attacks:
        assert one.bound is None or one.lower <= one.bound


@pytest.mark.slow
@pytest.mark.parametrize("weak", [0.3, 1.0])
@pytest.mark.parametrize("name", METHODS)
def test_what_is_below_its_threshold_is_so_with_more_noise(name: str, weak: float) -> None:
    """Advice about more noise tries only the attacks that are above their thresholds."""
    method = METHODS[name]()
    plans = [method.scaled_plan(method.schema, 500, weak * factor) for factor in (1.0, 2.0, 4.0)]
    less, *more = [measure_risk(method, plan, 500, people=100) for plan in plans]
    below = [
        attack for attack in LIMITS if not any(one.is_above for one in less.attacks if one.attack == attack)
    ]
    assert not [one for risk in more for one in risk.attacks if one.attack in below and one.is_above]


@pytest.mark.slow
def test_missing_numbers_and_clamped_ones_are_measured() -> None:
    columns = [
        Column("x", lower=0, upper=1, required=False),
        Column("k", type="integer", lower=1, upper=5),
        Column("year", type="integer", lower=1900, upper=2020, required=False),
    ]
    schema = Schema(columns=columns)
    for clamp in (False, True):
        weak = {"x": 0.05, "k": 0.5, "year": 3.0}
        exact = risk_of(GaussianRelease(scale=weak, clamp=clamp, schema=schema), 100)
        noisy = risk_of(GaussianRelease(scale=1e3, clamp=clamp, schema=schema), 100)
        assert exact.stops
        assert noisy.worst("attribute inference").gain < 0.02


def test_an_invariant_release_is_found_by_its_scores() -> None:
    risk = risk_of(InvariantRelease(learner="logistic", variance=1.0, schema=with_target()), 400)
    assert risk.stops
    assert risk.worst("linkage").success > 0.5


@pytest.mark.slow
def test_tables_that_are_made_anew_are_near_chance() -> None:
    methods: tuple[Any, ...] = (
        SyntheticRelease(privacy=ApproxDP(epsilon=1.0, delta=1e-6), schema=a_schema()),
        MaskedRelease(privacy=PureDP(epsilon=1.0), schema=with_target()),
    )
    for method in methods:
        risk = measure_risk(method, method.plan(method.schema, 2_000), 2_000)
        worst = risk.worst("membership")
        assert worst is not None
        assert (risk.verdict, worst.success < 0.58) == ("yes", True)


@pytest.mark.parametrize("neighbors", ["replace-one", "add-remove"])
@pytest.mark.parametrize("others", [0.001, 0.3, 0.96])
def test_no_attack_on_a_table_succeeds_more_often_than_stated(others: float, neighbors: Any) -> None:
    """Against the best attacks there are: a Gaussian mechanism, and randomized response."""
    steps = 2 if neighbors == "add-remove" else 1
    for mu in (0.1, 0.5, 2.0):
        best = special.ndtr(special.ndtri(others) + steps * mu)
        stated = largest_success(GaussianDP(mu=mu, neighbors=neighbors), others)
        assert best <= stated <= best + 0.02 + 0.1 * (1 - best)
    for epsilon in (0.5, 1.0, 2.0):
        best = min(math.exp(steps * epsilon) * others, 1 - math.exp(-steps * epsilon) * (1 - others))
        stated = largest_success(PureDP(epsilon=epsilon, neighbors=neighbors), others)
        assert best - 1e-12 <= stated <= best + 1e-12
        # With the chance delta of a step nothing is hidden.
        weaker = largest_success(ApproxDP(epsilon=epsilon, delta=1e-3, neighbors=neighbors), others)
        hidden = 1e-3 if steps == 1 else 1e-3 * (1 + math.exp(epsilon))
        assert stated < weaker <= stated + hidden + 1e-12


def test_a_promise_of_nothing_bounds_no_attack() -> None:
    assert largest_success(NoPromise("nothing is promised"), 0.3) == 1.0


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_sums_of_exponentials_equal_those_of_scipy(axis: int) -> None:
    logs = 300 * np.sin(np.arange(60.0)).reshape(3, 4, 5)
    logs[0, 1], logs[1, :, 2], logs[2] = -np.inf, -np.inf, -np.inf
    assert log_sum_exp(logs, axis) == pytest.approx(special.logsumexp(logs, axis=axis), rel=1e-14)
    assert log_sum_exp(logs, axis, keepdims=True).ndim == 3


@pytest.mark.slow
def test_columns_are_screened_without_a_change_of_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    columns = [Column(f"x{j}", lower=0, upper=100) for j in range(5)]
    # Of the last column the noise hides little: its cells are guessed best, and it tells most.
    schema = Schema(columns=columns)
    floors = ErrorFloor(x0=25.0, x1=25.0, x2=25.0, x3=25.0, x4=3.0)
    method = GaussianRelease(privacy=floors, schema=schema)
    plan = method.plan(schema, 300)
    screened = measure_risk(method, plan, 300)
    monkeypatch.setattr(_risk_measurement, "_SCREENED", 10**9)
    whole = measure_risk(method, plan, 300)
    assert screened == whole
    guessed = screened.worst("attribute inference")
    assert guessed is not None
    assert guessed.column == "x4"
    # A twin that takes a column that tells little states another one.
    last = lambda risk, place: risk._draw(place)[0].by_information[-1:]  # noqa: E731
    monkeypatch.setattr(_risk_measurement._RowRisk, "_most_guessed", last)
    twin = measure_risk(method, plan, 300).worst("attribute inference")
    assert twin is not None
    assert twin.column != "x4"


def drawn_rows_are_stable() -> bool:
    """Return whether the drawn rows are the same with the rounding errors of another processor."""
    levels = np.array([-1.25, 0.1, 0.7, 2.3, 3.1])
    place = np.arange(200 * _row_risk.DRAWS).reshape(200, -1) * 7919 % len(levels)
    errors = np.sin(np.arange(place.size)).reshape(place.shape) * 4e-15
    first, second = (
        _row_risk._draw_strangers(scores, 5000, Stream.from_seed(3))
        for scores in (levels[place], levels[place] + errors)
    )
    return np.array_equal(first.draws, second.draws) and np.array_equal(first.there, second.there)


def test_which_strangers_are_looked_at_does_not_depend_on_rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    assert drawn_rows_are_stable()
    monkeypatch.setattr(_row_risk, "_SCORE_BITS", 60)  # a twin that sorts by all digits
    assert not drawn_rows_are_stable()
