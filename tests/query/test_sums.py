"""Noise, charges, answers and repeats, on rows in memory."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import stats

from discreet.errors import BudgetExceeded, DataError, EngineFailed, ParameterError, PromiseError
from discreet.ledger import Ledger
from discreet.noise import samplers
from discreet.privacy import ZCDP, ApproxDP, ErrorFloor, GaussianDP, NoPromise, PureDP, gaussian_delta
from discreet.query import (
    ClusterSums,
    Database,
    Gram,
    HalfspaceSums,
    Histogram,
    NoisySums,
    PosteriorOdds,
    Sums,
)
from discreet.query.calibration import QueryNoise, SeededNoise
from discreet.query.curation import Curation
from discreet.schema import Column, Schema
from tests.query.people import people, people_schema, under

if TYPE_CHECKING:
    from pathlib import Path

    from discreet._types import Ints
    from discreet.query.aggregates import Aggregate

SCHEMA = people_schema()
CURATION = Curation.from_schema(SCHEMA)
CLASSIC = ApproxDP(epsilon=1.0, delta=1e-6)
QUESTIONS: list[Aggregate] = [
    Sums("height"),
    Sums(("height", "age", "owner = 1")),
    Histogram(("job", "owner")),
    Gram(("height", "age")),
    ClusterSums(("height", "age"), [(0.2, 0.2), (0.7, 0.7)], radius=0.5),
    HalfspaceSums(("height", "age"), "owner", 1, (1, 0.5, 0.1)),
]


class Recorder:
    """Noise of zero that remembers which law, scale and number were asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, float, int]] = []

    def gaussian(self, s: float, n: int = 1) -> Ints:
        self.asked.append(("gaussian", s, n))
        return np.zeros(n, np.int64)

    def laplace(self, scale: float, n: int = 1) -> Ints:
        self.asked.append(("laplace", scale, n))
        return np.zeros(n, np.int64)


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda q: q.kind)
@pytest.mark.parametrize(
    "privacy",
    [
        CLASSIC,
        GaussianDP(mu=0.5),
        ZCDP(rho=0.01),
        PosteriorOdds(epsilon=1, delta=1e-6, queries=10),
        ApproxDP(epsilon=1e-3, delta=1e-9),
        GaussianDP(mu=30),
    ],
    ids=str,
)
def test_gaussian_noise_is_wide_enough_for_the_charge_on_every_lattice(
    question: Aggregate, privacy: Any
) -> None:
    bound = question.bind(CURATION, "replace-one")
    noise = QueryNoise.calibrate(bound, SCHEMA, privacy=privacy, law="gaussian")
    assert isinstance(noise.promise, GaussianDP)
    draws = Recorder()
    noisy = noise.add_noise([1] * bound.size, draws)
    assert sum(n for _, _, n in draws.asked) == bound.size
    scales = [noise.groups[group] for group in noise.group]
    # mu^2 = sum over entries of change^2 / sd^2 at most, in exact arithmetic: weights are the precisions.
    least = min(
        (Fraction(s) / 2**bits) ** 2 * p for (s, bits), p in zip(scales, bound.precision, strict=True)
    )
    assert Fraction(bound.squared) / least <= Fraction(noise.promise.mu) ** 2
    assert all(2.0**16 <= s <= 2.0**50 for s, _ in noise.groups)
    # The integers themselves are carried to the same lattice.
    assert noisy == [1 << bits for _, bits in scales]
    assert noise.promise.total_variation == bound.size * samplers.GAUSSIAN_TOTAL_VARIATION


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda q: q.kind)
@pytest.mark.parametrize(
    "privacy",
    [
        PureDP(epsilon=0.3),
        ApproxDP(epsilon=0.3, delta=1e-9),
        PosteriorOdds(epsilon=1, delta=0.5, queries=4, theorem="theorem 5"),
    ],
    ids=str,
)
def test_laplace_noise_is_wide_enough_by_absolute_changes(question: Aggregate, privacy: Any) -> None:
    bound = question.bind(CURATION, "replace-one")
    noise = QueryNoise.calibrate(bound, SCHEMA, privacy=privacy, law="laplace")
    assert isinstance(noise.promise, PureDP)
    scales = [noise.groups[group] for group in noise.group]
    least = min(Fraction(s) / 2**bits * w for (s, bits), w in zip(scales, bound.weight, strict=True))
    assert Fraction(bound.absolute) / least <= Fraction(noise.promise.epsilon)
    asked = 0.25 if isinstance(privacy, PosteriorOdds) else 0.3
    assert noise.promise.epsilon == pytest.approx(asked, rel=1e-12)
    draws = Recorder()
    noise.add_noise([0] * bound.size, draws)
    assert {law for law, _, _ in draws.asked} == {"laplace"}
    assert noise.promise.total_variation == bound.size * samplers.LAPLACE_TOTAL_VARIATION


@settings(max_examples=60, deadline=None)
@example(1.3913976965004624, 0.06173090827438215)
@given(st.floats(1e-3, 20), st.floats(1e-12, 0.1))
def test_the_charge_of_a_point_promise_keeps_it_and_wastes_nothing(epsilon: float, delta: float) -> None:
    bound = Sums("age").bind(CURATION, "replace-one")
    noises = QueryNoise.candidates(bound, SCHEMA, privacy=ApproxDP(epsilon=epsilon, delta=delta))
    for noise in noises:
        assert noise.promise is not None
        assert noise.promise.delta_at(epsilon) <= delta
        if isinstance(noise.promise, GaussianDP):
            assert gaussian_delta(epsilon, noise.promise.mu * (1 + 1e-9)) > delta * (1 - 1e-6)
        else:
            assert isinstance(noise.promise, PureDP)
            assert epsilon * (1 - 1e-12) <= noise.promise.epsilon <= epsilon
    assert {noise.law for noise in noises} == {"gaussian", "laplace"}


def test_a_matrix_gets_exactly_half_the_variance_off_the_diagonal() -> None:
    bound = Gram(("height", "age", "income"), with_sums=False).bind(CURATION, "replace-one")
    noise = QueryNoise.calibrate(bound, SCHEMA, privacy=CLASSIC, law="gaussian")
    sd = bound.arrange(noise.sd(bound), 0.0)
    assert sd[0, 1] == pytest.approx(sd[0, 0] / math.sqrt(2), rel=1e-15)
    draws = Recorder()
    noise.add_noise([0] * 6, draws)
    (_, diagonal, three), (_, off, also_three) = draws.asked
    assert (three, also_three) == (3, 3)
    assert 2 * Fraction(off) ** 2 >= Fraction(diagonal) ** 2 > 2 * Fraction(math.nextafter(off, 0)) ** 2


def test_answers_are_distributed_as_they_say() -> None:
    schema = Schema(columns=[Column("x", type="integer", lower=0, upper=4000)])
    with Database({"x": np.zeros(0)}, schema=schema, random_state=7) as sums:
        for privacy, law in ((GaussianDP(mu=1), stats.norm), (PureDP(epsilon=1), stats.laplace)):
            answer = sums.ask(Histogram("x"), privacy=privacy)
            assert isinstance(answer.value, np.ndarray)
            spread = answer.sd if law is stats.norm else np.asarray(answer.sd) / math.sqrt(2)
            assert stats.kstest(answer.value / spread, law.cdf).pvalue > 1e-9
            # The same test sees noise that is too small.
            assert stats.kstest(0.75 * answer.value / spread, law.cdf).pvalue < 1e-6
            low, high = answer.interval(0.9)
            inside = int(np.sum((low <= 0) & (high >= 0)))
            assert abs(inside - 0.9 * 4001) < 6 * math.sqrt(0.09 * 4001)


def test_values_are_in_the_units_of_the_columns() -> None:
    rows = {"x": np.array([10.0, 10.5, 11.0, 99.0]), "n": np.array([-3, 0, 4, 4])}
    for neighbors in ("replace-one", "add-remove"):
        schema = Schema(
            columns=[Column("x", lower=10, upper=11), Column("n", type="integer", lower=-5, upper=4)],
            neighbors=neighbors,
        )
        privacy = GaussianDP(mu=1e6, neighbors=schema.neighbors)
        with Database(rows, schema=schema) as sums:
            answer = sums.ask(Sums(("x", "n", "n > 0")), privacy=privacy)
            assert np.asarray(answer.value) == pytest.approx([42.5, 5.0, 2.0], abs=1e-3)
            counts = sums.ask(Histogram("n", expression="x"), privacy=privacy)
            assert np.asarray(counts.value) == pytest.approx([0, 0, 10, 0, 0, 10.5, 0, 0, 0, 22], abs=1e-3)
            gram = np.asarray(sums.ask(Gram(("x", "n")), privacy=privacy).value)
            centered = np.column_stack([np.ones(4), [-0.5, 0, 0.5, 0.5], (rows["n"] + 5) / 9 - 0.5])
            assert gram == pytest.approx(centered.T @ centered, abs=1e-4)
            assert (gram == gram.T).all()


def test_previews_are_free_and_say_what_the_answer_then_says() -> None:
    with Database(people(100), schema=SCHEMA) as sums:
        for question in QUESTIONS:
            cost = sums.cost(question, privacy=CLASSIC)
            sd = np.asarray(sums.expected_sd(question, privacy=CLASSIC))
            assert sums.ledger.spent().charges == QUESTIONS.index(question)
            answer = sums.ask(question, privacy=CLASSIC)
            assert answer.cost == cost
            assert (np.asarray(answer.sd) == sd).all()
            assert answer.receipt.promises == cost


def test_a_repeat_is_free_and_the_same_and_another_promise_is_not() -> None:
    ledger = Ledger.open(":memory:", limit=GaussianDP(mu=1))
    with Database(people(100), schema=SCHEMA, ledger=ledger) as sums:
        first = sums.ask(Histogram("job"), privacy=GaussianDP(mu=0.5))
        again = sums.ask(Histogram("job"), privacy=GaussianDP(mu=0.5))
        assert (first.cached, again.cached) == (False, True)
        assert np.array_equal(first.value, again.value)
        assert ledger.spent().charges == 1
        other = sums.ask(Histogram("job"), privacy=GaussianDP(mu=0.25))
        assert not np.array_equal(first.value, other.value)
        assert ledger.spent().charges == 2
        with pytest.raises(BudgetExceeded):
            sums.ask(Histogram("owner"), privacy=GaussianDP(mu=0.9))
        assert ledger.spent().charges == 2


def test_a_ledger_on_file_recognizes_the_rows_and_not_others(tmp_path: Path) -> None:
    path = tmp_path / "survey.ledger"
    question, privacy = Sums("age"), GaussianDP(mu=0.1)
    values = []
    for rows in (people(100), people(100), people(101)):
        ledger = Ledger.open(path)
        with Database(rows, schema=SCHEMA, ledger=ledger) as sums:
            values.append(np.asarray(sums.ask(question, privacy=privacy).value).tolist())
        ledger.close()
    assert values[0] == values[1] != values[2]
    assert Ledger.open(path).spent().charges == 2
    key = tmp_path / "survey.ledger.version-key"
    assert key.stat().st_mode & 0o777 == 0o600
    # Without the key nobody can say which rows a digest is about, and the record holds nothing else of them.
    key.unlink()
    with Database(people(100), schema=SCHEMA, ledger=Ledger.open(path)) as sums:
        sums.ask(question, privacy=privacy)
        assert sums.ledger.spent().charges == 3


def test_a_ledger_in_a_server_recognizes_the_rows_from_any_machine(postgres_url: str) -> None:
    url = f"{postgres_url}#survey"
    question, privacy = Sums("age"), GaussianDP(mu=0.1)
    values = []
    for rows in (people(100), people(100), people(101)):
        # Opened anew each time, as another machine would.
        with Ledger.open(url) as ledger, Database(rows, schema=SCHEMA, ledger=ledger) as sums:
            values.append(np.asarray(sums.ask(question, privacy=privacy).value).tolist())
    assert values[0] == values[1] != values[2]
    with Ledger.open(url) as ledger:
        assert ledger.spent().charges == 2
        # The key is not part of what a reader of the record sees, and without it the digest says nothing.
        told = json.dumps([receipt.to_dict() for receipt in ledger.history()])
        assert ledger.secret().hex() not in told
        ledger.check()


def test_the_charge_of_an_engine_that_dies_stands_and_the_repeat_is_free(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with Database(people(100), schema=SCHEMA) as sums:
        failures, aggregate = [EngineFailed(), EngineFailed()], sums._engine.aggregate

        def fail_twice(expressions: Any) -> Any:
            if failures:
                raise failures.pop()
            return aggregate(expressions)

        monkeypatch.setattr(sums._engine, "aggregate", fail_twice)
        for _ in range(2):
            with pytest.raises(EngineFailed, match="the charge stands"):
                sums.ask(Sums("age"), privacy=CLASSIC)
            assert sums.ledger.spent().charges == 1
        answer = sums.ask(Sums("age"), privacy=CLASSIC)
        assert not answer.cached
        assert sums.ledger.spent().charges == 1
        assert sums.ask(Sums("age"), privacy=CLASSIC).cached


def test_the_charge_is_on_the_books_before_a_row_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    with Database(people(100), schema=SCHEMA) as sums:
        seen, aggregate = [], sums._engine.aggregate

        def watch(expressions: Any) -> Any:
            seen.append(sums.ledger.spent().charges)
            return aggregate(expressions)

        monkeypatch.setattr(sums._engine, "aggregate", watch)
        sums.ask(Sums("age"), privacy=CLASSIC)
        assert seen == [1]


def test_a_table_without_rows_answers_with_noise_alone() -> None:
    rows = {name: values[:0] for name, values in people(3).items()}
    with Database(rows, schema=SCHEMA) as sums:
        assert sums.n_rows == 0
        for question in QUESTIONS:
            answer = sums.ask(question, privacy=CLASSIC)
            noise = np.asarray(answer.value)[np.asarray(answer.sd) > 0]
            spread = np.asarray(answer.sd)[np.asarray(answer.sd) > 0]
            assert (np.abs(noise) < 8 * spread).all()
            assert (noise != 0).all()


def test_the_number_of_rows_is_told_only_where_it_is_public() -> None:
    for neighbors, row_count, told in (
        ("replace-one", "public", 10),
        ("replace-one", "private", None),
        ("add-remove", "private", None),
    ):
        schema = people_schema(neighbors=neighbors, row_count=row_count)  # type: ignore[arg-type]
        with Database(people(10), schema=schema) as sums:
            assert sums.n_rows == told
            value = np.asarray(sums.ask(Gram(("age",)), privacy=under(CLASSIC, sums.neighbors)).value)
            if told is not None:
                assert value[0, 0] == told
            elif neighbors == "replace-one":
                assert np.isnan(value[0, 0])
            else:
                assert value[0, 0] != 10


def test_what_no_neighbor_can_change_costs_nothing_where_the_row_count_is_public() -> None:
    with Database(people(10), schema=SCHEMA) as sums:
        answer = sums.ask(Sums("7"), privacy=CLASSIC)
        assert (np.asarray(answer.value).tolist(), answer.cost) == ([70.0], ())
        assert sums.ledger.spent().charges == 0
    hidden = people_schema(row_count="private")
    with Database(people(10), schema=hidden) as sums:
        for asked in (
            lambda: sums.ask(Sums("7"), privacy=CLASSIC),
            lambda: sums.cost(Sums("7"), privacy=CLASSIC),
            lambda: sums.preview("count", privacy=CLASSIC),
        ):
            with pytest.raises(ParameterError, match="number of rows is not public"):
                asked()
    with Database(people(10), schema=people_schema("add-remove")) as sums:
        answer = sums.ask(Sums("7"), privacy=GaussianDP(mu=1.0, neighbors="add-remove"))
        assert np.asarray(answer.sd).tolist() == [7.0]


def test_several_rows_of_one_person_are_paid_for_together() -> None:
    schema = Schema(
        columns=[Column("who", type="id"), Column("x", lower=0, upper=1)],
        id_column="who",
        max_rows_per_unit=5,
    )
    bound = Sums("x").bind(Curation.from_schema(schema), "replace-one")
    for privacy in (GaussianDP(mu=1.0), PureDP(epsilon=1.0)):
        noise = QueryNoise.calibrate(bound, schema, privacy=privacy)
        assert noise.scale == 5 * 2**30
        assert noise.promise is not None
        assert noise.promise.unit == "person"


def test_variance_is_in_the_unit_of_the_answer_and_costs_what_it_costs() -> None:
    with Database(people(10), schema=SCHEMA) as sums:
        answer = sums.ask(Sums("age"), variance=400.0)
        assert np.asarray(answer.sd) == pytest.approx([20.0], rel=1e-12)
        assert isinstance(answer.cost[0], GaussianDP)
        assert answer.cost[0].mu == pytest.approx(73 / 20, rel=1e-12)
        with pytest.raises(ParameterError, match="several"):
            sums.ask(Sums(("age", "height")), variance=1.0)


BAD: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({}, ParameterError, "neither"),
    ({"privacy": CLASSIC, "variance": 1.0}, ParameterError, "both"),
    ({"variance": 0.0}, ParameterError, "above 0"),
    ({"variance": math.nan}, ParameterError, "above 0"),
    ({"variance": math.inf}, ParameterError, "above 0"),
    ({"privacy": ErrorFloor(age=9)}, PromiseError, "was ErrorFloor"),
    ({"privacy": NoPromise("no")}, PromiseError, "was NoPromise"),
    ({"privacy": GaussianDP(mu=1, covers=("age",))}, PromiseError, "whole rows"),
    ({"privacy": PureDP(epsilon=1, covers=("age",))}, PromiseError, "whole rows"),
    ({"privacy": GaussianDP(mu=1e-60)}, PromiseError, "noise that can be drawn"),
    ({"privacy": ApproxDP(epsilon=1, delta=1e-36)}, PromiseError, "sampler itself"),
]


@pytest.mark.parametrize(("arguments", "kind", "said"), BAD, ids=[said for _, _, said in BAD])
def test_promises_that_do_not_fit_are_refused_and_nothing_is_charged(
    arguments: dict[str, Any], kind: type[Exception], said: str
) -> None:
    with Database(people(10), schema=SCHEMA) as sums:
        with pytest.raises(kind, match=said):
            sums.ask(Gram(("height", "age")), **arguments)
        assert sums.ledger.spent().charges == 0


def test_a_seed_is_marked_and_repeats_itself() -> None:
    values = []
    for _ in range(2):
        with Database(people(10), schema=SCHEMA, random_state=3) as sums:
            answer = sums.ask(Gram(("height", "age")), privacy=CLASSIC)
            assert answer.receipt.seeded
            values.append(answer.value)
    assert np.array_equal(values[0], values[1])
    with Database(people(10), schema=SCHEMA) as sums:
        answer = sums.ask(Gram(("height", "age")), privacy=CLASSIC)
        assert not answer.receipt.seeded
        assert not np.array_equal(answer.value, values[0])


def test_an_answer_travels_as_json() -> None:
    with Database(people(10), schema=SCHEMA) as sums:
        budget = PosteriorOdds(epsilon=1, delta=1e-6, queries=100)
        answer = sums.ask(Histogram("age", {"age": [30.0]}), privacy=budget)
    values = json.loads(json.dumps(answer.to_dict(), allow_nan=False))
    assert values["value"] == np.asarray(answer.value).tolist()
    assert values["labels"] == [[[None, 30.0], [30.0, None]]]
    assert values["receipt"]["promises"] == values["cost"]
    assert values["comparison"]["theorem 1"] == pytest.approx(271457.18325649)
    # The noise chosen by the corrected theorem: R of that table, for a histogram of sensitivity sqrt(2).
    assert values["sd"] == pytest.approx([math.sqrt(2 * 2862.22866635)] * 2)


def test_a_matrix_must_have_the_declared_columns() -> None:
    schema = Schema(columns=[Column("x", lower=0, upper=1), Column("y", lower=0, upper=1)])
    with Database(np.array([[0.5, 0.25], [1.0, 9.0]]), schema=schema) as sums:
        answer = sums.ask(Sums(("x", "y")), privacy=GaussianDP(mu=1e6))
        assert np.asarray(answer.value) == pytest.approx([1.5, 1.25], abs=1e-3)
    with pytest.raises(DataError, match="2 released columns"):
        Database(np.zeros((3, 5)), schema=schema)


def test_database_is_noisy_sums() -> None:
    with Database(people(10), schema=SCHEMA) as sums:
        asked: NoisySums = sums
        assert asked.neighbors == "replace-one"


def test_seeded_draws_follow_both_laws() -> None:
    from discreet.noise import Stream

    draws = SeededNoise(Stream.from_seed(1))
    assert abs(float(np.std(draws.gaussian(2.0**20, 4000))) / 2**20 - 1) < 0.08
    assert abs(float(np.abs(draws.laplace(2.0**20, 4000)).mean()) / 2**20 - 1) < 0.1
