"""Which law of noise a request gets: the least noise for a promise, the least of the budget under a limit."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import math
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from scipy import optimize, special

from discreet import Database, Ledger
from discreet.errors import BudgetExceeded, PromiseError
from discreet.privacy import ZCDP, ApproxDP, GaussianDP, Promise, PureDP
from discreet.query import Aggregate, Gram, Histogram, Sums
from discreet.query.costs import CostModel
from discreet.query.intervals import interval_width
from discreet.query.previews import Preview
from discreet.schema import Column, Schema
from tests.draws import Draws

if TYPE_CHECKING:
    from collections.abc import Iterator

    from discreet.query.calibration import QueryNoise

COLUMNS = [
    Column("age", type="integer", lower=0, upper=3),
    Column("temperature", lower=35, upper=42),
    Column("town", values=("a", "b", "c")),
]
REPLACED = Schema(columns=COLUMNS)
ADDED = Schema(columns=COLUMNS, neighbors="add-remove")
COUNT = Sums("age > 1")


def table(n: int = 600) -> dict[str, list[Any]]:
    return {
        "age": [i % 4 for i in range(n)],
        "temperature": [36.0 + (i % 11) / 4 for i in range(n)],
        "town": ["abc"[i * i % 3] for i in range(n)],
    }


@contextlib.contextmanager
def limited(limit: Promise | None, schema: Schema = ADDED, **more: Any) -> Iterator[Database]:
    with (
        contextlib.closing(Ledger.open(":memory:", limit=limit, **more)) as ledger,
        Database(table(), schema=schema, ledger=ledger, random_state=1) as db,
    ):
        yield db


def counts(k: int) -> Sums:
    """Different conditions that one row may all satisfy."""
    return Sums([f"age >= 0 AND temperature > {35 + i / 100}" for i in range(k)])


def gaussian_sd(epsilon: float, delta: float) -> float:
    """The standard deviation for a distance of 1, by the formula of Balle and Wang, without our code."""

    def excess(log_mu: float) -> float:
        mu = math.exp(log_mu)
        tail = math.exp(epsilon + special.log_ndtr(-epsilon / mu - mu / 2))
        return float(special.ndtr(-epsilon / mu + mu / 2) - tail - delta)

    return 1 / math.exp(optimize.brentq(excess, math.log(1e-2), math.log(40), xtol=1e-14))


# The promise decides.


def test_a_point_promise_gets_the_law_with_less_noise() -> None:
    draws = Draws("laws of point promises")
    costs, taken = CostModel(ADDED), set()
    for _ in range(40):
        k, epsilon = draws.choice([1, 2, 5, 10, 20, 50]), draws.uniform(0.2, 4)
        delta = 10 ** draws.uniform(-9, -3)
        _, noise = costs.calibrate(
            counts(k), privacy=ApproxDP(epsilon=epsilon, delta=delta, neighbors="add-remove")
        )
        bound = counts(k).bind(costs.curation, "add-remove")
        laplace, gaussian = math.sqrt(2) * k / epsilon, math.sqrt(k) * gaussian_sd(epsilon, delta)
        assert noise.law == ("laplace" if laplace < gaussian else "gaussian")
        assert noise.sd(bound) == pytest.approx(min(laplace, gaussian), rel=1e-6)
        taken.add(noise.law)
    assert taken == {"gaussian", "laplace"}


def test_the_figures_of_one_count_and_of_fifty() -> None:
    costs, privacy = CostModel(ADDED), ApproxDP(epsilon=1, delta=1e-6, neighbors="add-remove")
    bound, noises = costs.candidates(COUNT, privacy=privacy)
    assert [(n.law, round(float(n.sd(bound)[0]), 2)) for n in noises] == [
        ("laplace", 1.41),
        ("gaussian", 4.22),
    ]
    bound, noises = costs.candidates(counts(50), privacy=privacy)
    assert [(n.law, round(float(n.sd(bound)[0]), 1)) for n in noises] == [
        ("gaussian", 29.9),
        ("laplace", 70.7),
    ]


@pytest.mark.parametrize(
    ("privacy", "law"),
    [(GaussianDP(mu=0.3), "gaussian"), (ZCDP(rho=0.05), "gaussian"), (PureDP(epsilon=0.01), "laplace")],
    ids=str,
)
def test_other_promises_name_their_law(privacy: Promise, law: str) -> None:
    _, (noise,) = CostModel(REPLACED).candidates(COUNT, privacy=privacy)
    assert noise.law == law


def test_a_delta_below_the_error_of_one_sampler_leaves_the_other() -> None:
    # The total variation is 2^-117 for a Gaussian draw and 2^-114 for a Laplace one.
    costs = CostModel(REPLACED)
    _, (noise,) = costs.candidates(COUNT, privacy=ApproxDP(epsilon=1, delta=3 * 2.0**-116))
    assert noise.law == "gaussian"
    with pytest.raises(PromiseError, match="the sampler itself may err"):
        costs.candidates(COUNT, privacy=ApproxDP(epsilon=1, delta=2.0**-118))


# The charge covers the noise: all pairs of rows, in exact arithmetic.

QUESTIONS: list[Aggregate] = [
    COUNT,
    Sums(("age", "age > 1", "town IN ('a')")),
    Histogram("town"),
    Histogram(("town",), {}, "age"),
]


def changes(question: Aggregate, schema: Schema) -> list[list[int]]:
    """Every difference of the integers of two neighbors, by summing both; no question has a temperature."""
    values = [
        dict(zip(("age", "temperature", "town"), cells, strict=True))
        for cells in itertools.product(range(4), (38.5,), "abc")
    ]
    sums = []
    for row in [*values, None]:
        kept = [values[0]] if row is None else [values[0], row]
        columns = {name: [one[name] for one in kept] for name in values[0]}
        with Database(columns, schema=schema, random_state=1) as db:
            sums.append(question.bind(db.curation, schema.neighbors).exact(db._engine))
    *rows, without = sums
    pairs = (
        itertools.product(rows, rows)
        if schema.neighbors == "replace-one"
        else ((row, without) for row in rows)
    )
    return [[a - b for a, b in zip(one, other, strict=True)] for one, other in pairs]


def kept(noise: QueryNoise, moved: list[list[int]]) -> bool:
    """Whether noise of its law covers its promise for all changes, in exact arithmetic."""
    scales = [Fraction(scale) / 2**bits for scale, bits in (noise.groups[i] for i in noise.group)]
    if noise.law == "laplace":
        worst = max(sum(abs(c) / s for c, s in zip(change, scales, strict=True)) for change in moved)
        # A pure promise is the distance itself, and no Gaussian promise covers two Laplace tails.
        return isinstance(noise.promise, PureDP) and worst <= Fraction(noise.promise.epsilon)
    worst = max(sum((c / s) ** 2 for c, s in zip(change, scales, strict=True)) for change in moved)
    return isinstance(noise.promise, GaussianDP) and worst <= Fraction(noise.promise.mu) ** 2


@pytest.mark.parametrize("schema", [REPLACED, ADDED], ids=lambda schema: schema.neighbors)
@pytest.mark.parametrize("question", QUESTIONS, ids=str)
def test_both_laws_cover_every_pair_of_rows(question: Aggregate, schema: Schema) -> None:
    moved = changes(question, schema)
    privacy = ApproxDP(epsilon=0.7, delta=1e-5, neighbors=schema.neighbors)
    requests: list[dict[str, Any]] = [{"privacy": privacy}]
    if not isinstance(question, Sums) or len(question.expressions) == 1:
        requests.append({"variance": 9.0})
    for request in requests:
        bound, noises = CostModel(schema).candidates(question, **request)
        assert {noise.law for noise in noises} == {"gaussian", "laplace"}
        for noise in noises:
            assert kept(noise, moved)
            assert noise.promise is not None
            if "privacy" in request:
                assert noise.promise.delta_at(privacy.epsilon) <= privacy.delta
            else:
                assert noise.sd(bound) == pytest.approx(3.0, rel=1e-15)
                spread = 2 if noise.law == "laplace" else 1
                assert spread * (Fraction(noise.scale) * Fraction(bound.plain_unit or 0)) ** 2 >= 9


def test_laplace_noise_by_the_euclidean_distance_is_caught() -> None:
    question = Sums(("age", "age > 1", "town IN ('a')"))
    moved = changes(question, ADDED)
    _, noises = CostModel(ADDED).candidates(
        question, privacy=ApproxDP(epsilon=0.7, delta=1e-5, neighbors="add-remove")
    )
    laplace = next(noise for noise in noises if noise.law == "laplace")
    narrow = tuple((scale / math.sqrt(3), bits) for scale, bits in laplace.groups)
    assert kept(laplace, moved)
    assert not kept(dataclasses.replace(laplace, groups=narrow), moved)


def laplace_delta(distance: float, epsilon: float) -> float:
    """The exact delta of one Laplace answer whose two means are so many scales apart."""
    return max(0.0, -math.expm1((epsilon - distance) / 2))


def test_laplace_noise_charged_as_gaussian_is_caught() -> None:
    _, noises = CostModel(ADDED).candidates(
        COUNT, privacy=ApproxDP(epsilon=1, delta=1e-6, neighbors="add-remove")
    )
    laplace = noises[0]
    assert laplace.law == "laplace"
    grid = np.linspace(0, 1.2, 25).tolist()
    twin = GaussianDP(mu=1 / math.sqrt(2), neighbors="add-remove")  # distance by standard deviation
    for promise, covers in ((laplace.promise, True), (twin, False)):
        assert promise is not None
        assert all(laplace_delta(1.0, x) <= promise.delta_at(x) for x in grid) is covers
        assert kept(dataclasses.replace(laplace, promise=promise), changes(COUNT, ADDED)) is covers


def test_a_variance_means_the_same_by_both_laws_or_is_gaussian() -> None:
    bound, (noise,) = CostModel(REPLACED).candidates(Gram(("age", "temperature")), variance=4.0)
    # Off the diagonal a matrix has half the variance, which whole weights of Laplace noise do not.
    assert noise.law == "gaussian"
    assert noise.sd(bound).min() < 0.8 * noise.sd(bound).max()


# The budget decides.


def renyi_cost(promise: Promise, order: float) -> float:
    """The Renyi divergence that a promise allows at an order: of a Gaussian pair, or of a biased coin."""
    if isinstance(promise, GaussianDP):
        return order * promise.mu**2 / 2
    assert isinstance(promise, PureDP)
    e = promise.epsilon
    return math.log((math.sinh(order * e) - math.sinh((order - 1) * e)) / math.sinh(e)) / (order - 1)


@pytest.mark.parametrize("epsilon", [1.0, 4.0])
def test_an_sd_gets_the_law_that_takes_less_of_the_budget(epsilon: float) -> None:
    laws = set()
    with limited(ApproxDP(epsilon=epsilon, delta=1e-6, neighbors="add-remove")) as db:
        (account,) = db.ledger.accounts(None)
        assert account.order is not None
        for sd in (0.7, 1.5, 2.5, 4.0, 8.0, 14.14, 30.0, 100.0):
            cost = {
                noise.law: renyi_cost(noise.promise, account.order)
                for noise in db.cost_model.candidates(COUNT, variance=sd**2)[1]
                if noise.promise is not None
            }
            (charged,) = db.cost(COUNT, variance=sd**2)
            law = "laplace" if isinstance(charged, PureDP) else "gaussian"
            assert law == min(cost, key=lambda name: cost[name])
            assert db.expected_sd(COUNT, variance=sd**2) == pytest.approx(sd)
            laws.add(law)
    assert laws == {"gaussian", "laplace"}


@pytest.mark.parametrize(
    ("limit", "rule", "law"),
    [
        (None, "mixed", "gaussian"),
        (ZCDP(rho=1, neighbors="add-remove"), "mixed", "gaussian"),
        (GaussianDP(mu=1, neighbors="add-remove"), "mixed", "gaussian"),
        (PureDP(epsilon=1, neighbors="add-remove"), "mixed", "laplace"),
        (ApproxDP(epsilon=1, delta=1e-6, neighbors="add-remove"), "pure", "laplace"),
        (ApproxDP(epsilon=1, delta=1e-6, neighbors="add-remove"), "gaussian", "gaussian"),
    ],
    ids=str,
)
def test_a_limit_gets_a_law_that_it_admits(limit: Promise | None, rule: Any, law: str) -> None:
    asked = ApproxDP(epsilon=0.1, delta=1e-9, neighbors="add-remove")
    with limited(limit, rule=rule) as db:
        assert db.ask(COUNT, variance=900.0).law == law
        # Without a limit, a promise gets the law with less noise.
        assert db.ask(COUNT, privacy=asked).law == ("laplace" if limit is None else law)
        assert db.query("mean(age) by town", privacy=asked).law == ("laplace" if limit is None else law)


def test_under_a_limit_a_point_promise_takes_the_least_of_it() -> None:
    with limited(ApproxDP(epsilon=1, delta=1e-6, neighbors="add-remove")) as db:
        for _ in range(2):  # half of epsilon each
            assert db.ask(COUNT, privacy=ApproxDP(epsilon=0.5, delta=1e-6, neighbors="add-remove")).law
            assert db.ask(counts(2), privacy=GaussianDP(mu=0.01, neighbors="add-remove")).law == "gaussian"
        (account,) = db.ledger.accounts(None)
        assert account.used is not None
        assert 0.2 < (account.used["share"] or 0) < 0.5


def test_the_owners_own_limit_counts_too() -> None:
    total, own = (ApproxDP(epsilon=e, delta=1e-6, neighbors="add-remove") for e in (20.0, 0.5))
    with limited(total, owner_limit=own) as db:
        assert db.ask(COUNT, variance=16.0).law == "gaussian"
        (mine,) = db.cost(COUNT, variance=16.0, owner="ana")
        assert isinstance(mine, PureDP)
        assert db.preview("count where age > 1", sd=4.0, owner="ana").law == "laplace"


def test_a_repeat_gets_the_same_law_though_the_first_charge_took_all() -> None:
    with limited(ApproxDP(epsilon=1, delta=1e-6, neighbors="add-remove")) as db:
        # More than the budget at its order, which the first charge alone may take.
        first = db.ask(COUNT, variance=2.5)
        (account,) = db.ledger.accounts(None)
        assert account.caps is not None
        assert account.caps.plan is not None
        again = db.ask(COUNT, variance=2.5)
        assert (first.law, again.law, again.cached) == ("laplace", "laplace", True)
        assert again.value == first.value
        assert db.is_free(COUNT, variance=2.5)
        assert db.recall(first.receipt.id).law == "laplace"
        with pytest.raises(BudgetExceeded):
            db.ask(COUNT, variance=100.0)


def test_an_answer_is_refined_by_one_of_another_law() -> None:
    with limited(ApproxDP(epsilon=8, delta=1e-6, neighbors="add-remove")) as db:
        first = db.ask(COUNT, variance=900.0)
        second = db.ask(COUNT, variance=1.0, refines=first.receipt.id)
        assert (first.law, second.law) == ("gaussian", "laplace")
        assert second.sd < 1
        assert db.recall(second.receipt.id).value == second.value


# Previews.


def test_a_preview_shows_both_laws_and_the_query_is_charged_the_first() -> None:
    with limited(ApproxDP(epsilon=1, delta=1e-6, neighbors="add-remove")) as db:
        for sd, law in ((8.0, "laplace"), (30.0, "gaussian")):
            preview = db.preview("count where age > 1", sd=sd)
            chosen, other = preview.laws
            assert (chosen.law, chosen.cost) == (preview.law, preview.cost)
            assert chosen.law == law != other.law
            assert preview.takes is not None
            assert chosen.share == preview.takes["share"]
            assert chosen.share is not None
            assert other.share is not None
            assert chosen.share < other.share
            assert chosen.sd == pytest.approx(sd)
            assert other.sd == pytest.approx(sd)
            assert Preview.from_wire(preview.to_wire()).laws == preview.laws
            assert "which takes less of the budget here than " in (preview.law_words or "")
            result = db.query("count where age > 1", sd=sd)
            assert (result.law, result.cost) == (law, chosen.cost)
        asked = db.preview("count", privacy=GaussianDP(mu=0.1, neighbors="add-remove"))
        assert ([option.law for option in asked.laws], asked.law_words) == (["gaussian"], None)


def test_without_a_limit_a_preview_compares_the_noise() -> None:
    with limited(None) as db:
        preview = db.preview("count", privacy=ApproxDP(epsilon=1, delta=1e-6, neighbors="add-remove"))
        assert preview.law_words == "Noise: Laplace, smaller here than Gaussian (sd 1.41, not 4.22)."


def test_a_mean_by_groups_is_one_charge_by_the_law_with_less_noise() -> None:
    with limited(None) as db:
        asked = ApproxDP(epsilon=1, delta=1e-6, neighbors="add-remove")
        result = db.query("mean(temperature) by town", privacy=asked)
        assert result.law == "laplace"
        (charged,) = result.cost
        assert isinstance(charged, PureDP)
        assert charged.epsilon == 1
        assert db.query("mean(temperature) by town", privacy=asked).cached
        assert db.ledger.spent().delta_at(1.0) <= 1e-6


# Means.


@pytest.mark.parametrize("schema", [REPLACED, ADDED], ids=lambda schema: schema.neighbors)
def test_a_mean_is_the_same_as_in_a_text_query(schema: Schema) -> None:
    privacy = GaussianDP(mu=0.5, neighbors=schema.neighbors)
    with Database(table(), schema=schema, random_state=1) as db:
        answer = db.mean("temperature", privacy=privacy)
        result = db.query("mean(temperature)", privacy=privacy)
        assert result.cached
        assert result.cells == answer.cells
        lower, upper = answer.cells[0].interval
        assert abs((answer.value or 0.0) - np.mean(table()["temperature"])) < 3 * (upper - lower)


def test_a_centred_mean_of_35_to_42_has_a_fortieth_of_the_noise() -> None:
    privacy = GaussianDP(mu=0.5, neighbors="add-remove")
    narrow = {**table(), "temperature": [38.5] * 600}
    with Database(narrow, schema=ADDED, random_state=1) as db:
        lower, upper = db.mean("temperature", privacy=privacy).cells[0].interval
        centred_sd = (upper - lower) / 2 / interval_width("gaussian")
        sums = db.ask(Sums(("temperature", "TRUE")), privacy=privacy)
        (total, count), (total_sd, count_sd) = np.asarray(sums.value), np.asarray(sums.sd)
        plain = math.hypot(total_sd, total / count * count_sd) / count
        assert plain / centred_sd > 40
