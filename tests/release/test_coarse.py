"""The coarse release: few values, some columns of each row, and what that promises."""

from __future__ import annotations

import datetime
import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from scipy import stats

from discreet.audit import EveryRow, attack_claims, attack_file, attack_prior, row_law, run_audit
from discreet.errors import ParameterError, PromiseError
from discreet.noise import Stream, subsets
from discreet.noise_law import JointResponseLaw, NoiseLaw, ResponseLaw, SampledLaw
from discreet.privacy import ApproxDP, ErrorFloor, PureDP
from discreet.release import CoarseRelease
from discreet.schema import Column, Protect, Schema

if TYPE_CHECKING:
    from collections.abc import Mapping

    from discreet._types import AnyArray
    from discreet.release.coarse import CoarsePlan

SCHEMA = Schema(
    dataset="coarse",
    columns=[
        Column("age", type="integer", lower=17, upper=90, measure="years"),
        Column("gain", lower=0, upper=100_000, required=False),
        Column("job", values=("clerk", "nurse", "pilot"), closed=True),
        Column("income", values=("low", "high")),
    ],
    target="income",
)
SMALL = Schema(
    columns=[
        Column("a", type="integer", lower=0, upper=2),
        Column("b", values=("x", "y"), closed=True, required=False),
        Column("c", values=(True, False)),
        Column("y", values=(0, 1)),
    ],
    target="y",
)


def planned(epsilon: float = 4.0, schema: Schema = SCHEMA, **options: Any) -> CoarsePlan:
    return CoarseRelease(privacy=PureDP(epsilon=epsilon), schema=schema, **options).plan(schema, 1000)


def levels(plan: CoarsePlan) -> dict[str, tuple[Any, ...]]:
    return {c.name: c.levels for c in plan.schema.released}


def test_numbers_are_cut_at_public_points_and_named_as_people_say_them() -> None:
    days = Column("born", lower=datetime.date(2000, 1, 1), upper=datetime.date(2009, 12, 31))
    schema = Schema(columns=[*SCHEMA.columns, days], target="income")
    cuts = {"age": [25, 64.5], "gain": [0.5, 5000], "born": ["2005-01-01"]}
    found = levels(planned(schema=schema, cuts=cuts, per_row=4))
    assert found["age"] == ("17 to 24", "25 to 64", "65 to 90")
    assert found["gain"] == ("0 to under 0.5", "0.5 to under 5000", "5000 to 100000", None)
    assert found["born"] == ("2000-01-01 to 2004-12-31", "2005-01-01 to 2009-12-31")
    assert found["job"] == ("clerk", "nurse", "pilot")


def test_by_default_a_number_has_six_values_missing_included() -> None:
    found = levels(planned())
    assert found["age"] == (
        *("17 to 29", "30 to 41", "42 to 53", "54 to 66", "67 to 78", "79 to 90"),
        "not published",
    )
    assert found["gain"][:2] == ("0 to under 6000", "6000 to under 12000")
    assert found["gain"][-2:] == ("not published", None)
    assert len(found["gain"]) == 7
    assert levels(planned(schema=SMALL))["a"] == (0, 1, 2, -1)
    assert levels(planned(schema=SMALL))["c"] == ("true", "false", "not published")


def test_by_default_large_amounts_are_cut_where_they_double() -> None:
    columns = {
        "amount": Column("amount", lower=0, upper=99_999),
        "count": Column("count", type="integer", lower=0, upper=1_023),
        "credit": Column("credit", lower=250, upper=20_000),
        "year": Column("year", type="integer", lower=1_900, upper=2_020),  # not from 0 on
        "balance": Column("balance", lower=-50_000, upper=50_000),  # may be negative
        "pulse": Column("pulse", lower=0, upper=999),  # not large
        "entry": Column("entry", lower=datetime.date(2000, 1, 1), upper=datetime.date(2019, 12, 31)),
    }
    schema = Schema(columns=list(columns.values()))
    found = CoarseRelease(privacy=PureDP(epsilon=8), per_row=7, schema=schema).plan(schema, 100)
    starts = {
        coding.name: [] if coding.cuts is None else coding.cuts.tolist()
        for cell in found.cells
        for coding in cell.codings
    }
    assert starts["amount"] == [3_100, 6_200, 12_500, 25_000, 50_000]
    assert starts["count"] == [30, 60, 130, 260, 510]
    assert starts["credit"] == [600, 1_200, 2_500, 5_000, 10_000]
    for name in ("year", "balance", "pulse", "entry"):
        lower, upper = columns[name].range
        steps = np.diff([lower, *starts[name], upper])
        assert steps.max() < 1.2 * steps.min()


def test_a_value_begins_exactly_at_its_cut() -> None:
    plan = planned(cuts={"age": [25, 65], "gain": [0.5]}, per_row=3)
    rows = {
        "age": np.array([17.0, 24, 25, 64, 65, 90]),
        "gain": np.array([0.0, 0.49, 0.5, 1e5, np.nan, 0.5]),
        "job": np.array([0, 1, 2, 0, 1, 2]),
        "income": np.zeros(6, int),
    }
    truth = plan.truth(rows)
    assert truth["age"].tolist() == [0, 0, 1, 1, 2, 2]
    assert truth["gain"].tolist() == [0, 0, 1, 1, 2, 1]
    partly = planned(cuts={"gain": [0.5]}).truth(rows)["gain"]
    assert partly.tolist() == [0, 0, 1, 1, 3, 1]  # "not published" stands before a missing cell


def test_levels_go_together_as_declared_and_others_stay() -> None:
    plan = planned(groups={"job": {"at work": ["clerk", "pilot"]}}, per_row=3)
    assert levels(plan)["job"] == ("at work", "nurse")
    rows = {
        "age": np.full(3, 20.0),
        "gain": np.zeros(3),
        "job": np.array([0, 1, 2]),
        "income": np.zeros(3, int),
    }
    assert plan.truth(rows)["job"].tolist() == [0, 1, 0]


@pytest.mark.parametrize(
    ("epsilon", "options", "shown"),
    [(3.9, {"label": "clear"}, 1), (4.0, {"label": "clear"}, 2), (7.9, {}, 1), (8.0, {}, 2)],
)
def test_a_row_shows_one_column_below_an_epsilon_of_four_and_two_from_there_on(
    epsilon: float, options: dict[str, Any], shown: int
) -> None:
    plan = planned(epsilon, **options)
    assert plan.picked == shown
    law = plan.columns[0].law
    assert isinstance(law, SampledLaw)
    assert (law.picked, law.among) == (shown, 3)
    spent = epsilon if options else epsilon / 2
    assert plan.columns[0].epsilon == pytest.approx(spent / shown, rel=1e-9)
    assert plan.promises[0].epsilon == pytest.approx(epsilon, rel=1e-9)  # type: ignore[attr-defined]
    assert plan.promises[0].epsilon <= epsilon  # type: ignore[attr-defined]


def test_every_row_shows_so_many_columns_and_every_choice_is_as_frequent() -> None:
    n = 60_000
    marked = subsets(5, 2, n, Stream.from_seed(1))
    assert (marked.sum(axis=1) == 2).all()
    choices = np.bincount(marked @ (1 << np.arange(5)))
    found = choices[choices > 0]
    assert found.size == 10
    assert stats.chisquare(found).pvalue > 1e-6
    assert not subsets(3, 0, 5).any()
    assert subsets(3, 3, 5).all()
    with pytest.raises(ParameterError, match="size of subsets"):
        subsets(3, 4, 5)


CASES: dict[str, dict[str, Any]] = {
    "default": {},
    "two of three": {"per_row": 2},
    "all": {"per_row": 3},
    "with the label": {"joint": ("b", "y")},
    "together": {"joint": ("a", "c"), "per_row": 1},
    "all together": {"joint": ("a", "b", "c", "y")},
    "clear": {"label": "clear"},
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("epsilon", [0.5, 3.0])
def test_every_pair_of_rows_keeps_the_promise_and_no_smaller_one(name: str, epsilon: float) -> None:
    plan = planned(epsilon, SMALL, **CASES[name])
    (claim, _) = plan.promises
    result = run_audit(EveryRow(plan=plan, claim=claim))
    assert (result.attack, result.verdict) == ("enumerate", "holds")
    assert result.measured == pytest.approx(epsilon, rel=1e-9)
    smaller = PureDP(epsilon=epsilon * 0.999)
    assert run_audit(EveryRow(plan=plan, claim=smaller)).verdict == "broken"


def frequencies(plan: CoarsePlan, row: AnyArray, n: int, stream: Stream) -> tuple[AnyArray, AnyArray]:
    """Return how often each possible row is published of one row, and how often it should be."""
    law = row_law(plan)
    assert law is not None
    clear = {c.name: np.zeros(n, np.int64) for c in plan.schema.released}
    truth = {**clear, **{name: np.full(n, code) for name, code in zip(law.columns, row, strict=True)}}
    drawn = plan.noise(truth, stream)
    code = {tuple(out): i for i, out in enumerate(law.outputs.tolist())}
    rows = np.column_stack([drawn[name] for name in law.columns]).tolist()
    seen = np.bincount([code[tuple(out)] for out in rows], minlength=len(code))
    place = law.rows.tolist().index(list(row))
    return seen, law.chances[place] * n


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_what_is_drawn_follows_the_law_that_is_published(name: str) -> None:
    plan = planned(2.0, SMALL, **CASES[name])
    law = row_law(plan)
    assert law is not None
    assert np.allclose(law.chances.sum(axis=1), 1.0, rtol=1e-12)
    for seed, row in enumerate((law.rows[0], law.rows[-1])):
        seen, expected = frequencies(plan, row, 60_000, Stream.from_seed(seed))
        assert stats.chisquare(seen, expected).pvalue > 1e-6


@pytest.mark.slow
def test_attacks_on_made_up_people_stay_above_every_floor_and_come_close() -> None:
    for options in ({}, {"joint": ("job", "income")}, {"joint": ("age", "job"), "per_row": 1}):
        plan = planned(6.0, **options)
        guesses = attack_prior(plan, n=20_000, stream=Stream.from_seed(3))
        assert {g.column for g in guesses} == {"age", "gain", "job", "income"}
        assert {g.verdict for g in guesses} == {"holds"}
        for guess in guesses:
            if guess.attack == "response inversion":
                assert guess.floor is not None
                assert guess.error == pytest.approx(guess.floor, abs=0.02)
        assert {r.verdict for r in attack_claims(plan, stream=Stream.from_seed(4))} == {"holds"}


def test_the_floor_of_several_rows_is_that_of_all_that_they_may_show() -> None:
    several = Schema(
        columns=[*SMALL.columns, Column("who", role="id")],
        target="y",
        id_column="who",
        max_rows_per_unit=3,
    )
    plan = planned(6.0, several)
    assert plan.promises[0].epsilon == pytest.approx(6.0, rel=1e-9)  # type: ignore[attr-defined]
    each = plan.cells[0].epsilon
    wrong = [2 * math.exp(-j * each) / (1 + 2 * math.exp(-j * each)) for j in range(4)]
    expected = sum(math.comb(3, j) * (1 / 3) ** j * (2 / 3) ** (3 - j) * wrong[j] for j in range(4))
    floor = plan.columns[0].floor
    assert floor is not None
    assert floor.error == pytest.approx(expected, rel=1e-9)
    guesses = attack_prior(plan, n=20_000, stream=Stream.from_seed(5))
    assert {g.verdict for g in guesses} == {"holds"}


def test_the_noise_law_says_what_was_done_to_every_column() -> None:
    rows: Mapping[str, Any] = {
        "age": np.arange(17, 91),
        "gain": np.linspace(0, 1e5, 74),
        "job": np.array(["clerk", "pilot"] * 37),
        "income": np.array(["low", "high"] * 37),
    }
    method = CoarseRelease(privacy=PureDP(epsilon=3), joint=("job", "income"), schema=SCHEMA)
    release = method.release(rows)
    law = release.noise_law()
    assert law.column_sample == (1, 2)
    assert NoiseLaw.from_dict(law.to_dict()) == law
    age, gain, job, income = law.columns
    assert isinstance(age.cell_law, ResponseLaw)
    assert age.levels == levels(method.plan(SCHEMA, 74))["age"][:-1]
    assert gain.levels is not None
    assert gain.levels[-1] is None
    assert isinstance(job.law, JointResponseLaw)
    assert job.law == income.law
    assert set(release.decoded("age")) <= {*age.levels, "not published"}


def test_a_file_with_a_row_that_shows_more_or_less_is_a_forgery() -> None:
    plan = planned(joint=("age", "job"), label="clear", per_row=1)
    rows = {
        "age": np.full(50, 30.0),
        "gain": np.zeros(50),
        "job": np.zeros(50, np.int64),
        "income": np.zeros(50, np.int64),
    }
    drawn = plan.draw(rows, Stream.from_seed(1))
    assert plan.misfits(drawn) == {}
    more = {**drawn, "gain": np.zeros(50, np.int64)}
    assert list(plan.misfits(more).values()) == ["rows that do not show 1 of 2 answers"]
    apart = {**drawn, "job": np.zeros(50, np.int64)}
    assert set(plan.misfits(apart)) == {"age", "job"} or set(plan.misfits(apart)) == {"job"}


def test_attacks_on_the_file_count_the_rows_that_show_nothing() -> None:
    n = 20_000
    plan = planned(4.0, label="clear", per_row=1, cuts={"age": [40]})
    generator = Stream.from_seed(2).generator()
    rows = {
        "age": np.where(generator.random(n) < 0.3, 60.0, 20.0),
        "gain": np.zeros(n),
        "job": np.zeros(n, np.int64),
        "income": np.zeros(n, np.int64),
    }
    drawn = plan.draw(rows, Stream.from_seed(3))
    (age,) = [g for g in attack_file(plan, drawn) if g.column == "age"]
    keep = plan.cells[0].keep
    assert age.without == pytest.approx(0.3, abs=0.02)
    # One row in three shows the age, and then it is wrong as often as it was changed.
    assert age.error == pytest.approx((1 - keep) / 3 + 0.3 * 2 / 3, abs=0.02)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"cuts": {"job": [1]}}, "cuts of CoarseRelease must name protected numbers"),
        ({"cuts": {"age": [30, 20]}}, "each larger than the one before"),
        ({"cuts": {"age": [17]}}, "inside the declared range"),
        ({"cuts": {"age": [95]}}, "inside the declared range"),
        ({"cuts": {"age": []}}, "must be 1 to 1000 points"),
        ({"cuts": {"age": ["x"]}}, "must be numbers"),
        ({"cuts": {"age": 30}}, "must be a list"),
        ({"cuts": [30]}, "must be a mapping"),
        ({"groups": {"age": {"a": [1]}}}, "groups of CoarseRelease must name protected lists"),
        ({"groups": {"job": {"a": ["clerk"], "b": ["clerk"]}}}, "is in two groups"),
        ({"groups": {"job": {"a": ["baker"]}}}, "is none"),
        ({"groups": {"job": {"nurse": ["clerk"]}}}, "must not call a group 'nurse'"),
        ({"groups": {"job": {"a": ["clerk", "nurse", "pilot"]}}}, "at least two values"),
        ({"groups": {"job": {"a": "clerk"}}}, "a list of levels"),
        ({"groups": {"job": {"not published": ["clerk"]}}}, "stands for cells"),
        ({"joint": ("age",)}, "at least two columns"),
        ({"joint": ("age", "age")}, "each once"),
        ({"joint": ("age", "nobody")}, "joint of CoarseRelease must name protected columns"),
        (
            {"joint": ("age", "income"), "label": "clear"},
            "joint of CoarseRelease must name protected columns",
        ),
        ({"per_row": 0}, "at least 1"),
        ({"per_row": 4}, "at most 3"),
        ({"label": "open"}, "'randomized' or 'clear'"),
        ({"label_share": 1.0}, "between 0 and 1"),
        ({"privacy": None}, "must be a PureDP, was None"),
    ],
)
def test_what_cannot_be_is_refused_with_the_way_out(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ParameterError, match=said):
        CoarseRelease(**{"privacy": PureDP(epsilon=2), "schema": SCHEMA, **options}).plan(SCHEMA, 10)


@pytest.mark.parametrize("privacy", [ApproxDP(epsilon=1, delta=1e-6), ErrorFloor(age=9)])
def test_other_promises_are_refused(privacy: Any) -> None:
    with pytest.raises(PromiseError, match="must be a PureDP, was"):
        CoarseRelease(privacy=privacy, schema=SCHEMA)


def test_only_the_label_can_have_a_share_of_its_own() -> None:
    label = Column("income", values=("low", "high"), role="target", protect=Protect(share=0.25))
    plan = planned(4.0, SCHEMA.with_columns(label))
    assert plan.cells[-1].epsilon == pytest.approx(1.0, rel=1e-9)
    age = Column("age", lower=0, upper=99, protect=Protect(share=0.25))
    with pytest.raises(ParameterError, match="Only the target's can be set"):
        planned(4.0, SCHEMA.with_columns(age))


def test_a_number_as_target_is_published_in_bins() -> None:
    schema = Schema(columns=[Column("a", values=(0, 1)), Column("y", lower=0, upper=6)], target="y")
    plan = planned(2.0, schema)
    target = plan.schema.column("y")
    assert target.role == "target"
    assert target.levels[:2] == ("0 to under 1", "1 to under 2")
