"""Sums and differences of paid answers: noise that answers share is counted once, and as what it is."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from scipy import integrate

from discreet import Database, GaussianDP, PureDP
from discreet.errors import ParameterError
from discreet.ledger import Ledger
from discreet.query.combination import CombinedResult, ResultTerm, combine_results
from discreet.query.costs import describe_charges, describe_used, remaining_amounts
from discreet.query.intervals import LEVEL, UNBOUNDED, ResultInterval, interval_width
from discreet.query.language.query import parse_query
from discreet.query.result_cells import ResultCell
from discreet.query.text_query import run_query
from tests.query.survey import ROWS, SCHEMA

if TYPE_CHECKING:
    from collections.abc import Iterator

    from discreet.query.results import QueryResult

MU = GaussianDP(mu=0.5)


@pytest.fixture
def db() -> Iterator[Database]:
    # A new one for each test: the noise of a seeded table depends on what was asked of it before.
    with Database(ROWS, schema=SCHEMA, random_state=5) as made:
        yield made


def asked(db: Database, text: str, **how: Any) -> QueryResult:
    return run_query(db, parse_query(text, SCHEMA), **{"privacy": MU, **how})


def term(reply: QueryResult, times: float = 1.0, place: int = 0) -> ResultTerm:
    return ResultTerm.from_cell(reply, reply.cells[place], times)


def made(**changed: Any) -> ResultTerm:
    plain: dict[str, Any] = {"question": "count", "key": (), "value": 1.0, "law": "gaussian"}
    plain |= {"times": 1.0, "sd": 1.0, "interval": UNBOUNDED, "parts": (("a-1",),)}
    return ResultTerm(**plain | changed)


def half(result: CombinedResult) -> float:
    return (result.interval.upper - result.interval.lower) / 2


def test_answers_of_their_own_draws_add_in_squares(db: Database) -> None:
    young, old = asked(db, "count where age < 40"), asked(db, "count where age >= 60")
    total = combine_results([term(young), term(old, -2.0)])
    (y,), (o,) = young.cells, old.cells
    assert y.value is not None
    assert o.value is not None
    assert y.sd is not None
    assert total.value == pytest.approx(y.value - 2 * o.value)
    assert total.sd == pytest.approx(y.sd * math.sqrt(5))
    assert total.sd is not None
    assert half(total) == pytest.approx(1.959964 * total.sd, rel=1e-6)
    assert total.formula == "count where age < 40 - 2 * count where 60 <= age"
    assert total.measure == "rows"


def test_groups_of_one_answer_have_noises_of_their_own(db: Database) -> None:
    groups = asked(db, "count by sex")
    women, men = term(groups), term(groups, -1.0, 1)
    assert women.sd is not None
    assert combine_results([women, men]).sd == pytest.approx(women.sd * math.sqrt(2))


def test_the_same_answer_twice_is_no_second_look(db: Database) -> None:
    first = asked(db, "count where age < 41")
    again = asked(db, "age < 41")
    twice = combine_results([term(first), term(again)])
    assert twice.sd == pytest.approx(2 * (term(first).sd or 0.0))
    nothing = combine_results([term(first), term(again, -1.0)])
    assert (nothing.value, nothing.sd, nothing.interval) == (0.0, 0.0, (0.0, 0.0))
    assert "the same noise on both sides" in nothing.words


def test_an_answer_and_its_refinement_share_the_part_that_they_share(db: Database) -> None:
    first = asked(db, "count where age < 42")
    refined = asked(db, "count where age < 42", privacy=GaussianDP(mu=0.8), refines=[first.receipts[0]])
    old, new = term(first), term(refined, -1.0)
    assert old.sd is not None
    assert new.sd is not None
    # The refinement is w * old + (1 - w) * fresh, with weights by precision.
    fresh_sd = 1 / 0.8
    weight = old.sd**-2 / (old.sd**-2 + fresh_sd**-2)
    assert new.sd == pytest.approx(math.hypot(weight * old.sd, (1 - weight) * fresh_sd), rel=1e-6)
    expected = math.hypot((1 - weight) * old.sd, (1 - weight) * fresh_sd)
    assert combine_results([old, new]).sd == pytest.approx(expected, rel=1e-6)
    # As if they were independent it would be far too much.
    assert math.hypot(old.sd, new.sd) > 1.3 * expected


def test_draws_of_a_refinement_confirm_the_standard_deviation_of_the_difference() -> None:
    # Many answers of the same kind: the spread of old - refined is what was computed.
    found, said = [], 0.0
    with Database(ROWS, schema=SCHEMA, random_state=11) as db:
        for age in range(20, 60):
            first = asked(db, f"count where age < {age} AND smoker")
            refined = asked(db, f"count where age < {age} AND smoker", refines=[first.receipts[0]])
            both = combine_results([term(first), term(refined, -1.0)])
            found.append(both.value)
            said = both.sd or 0.0
    # 40 squares of a standard normal are between 13 and 90, but once in a hundred thousand.
    assert 13 < sum((value / said) ** 2 for value in found) < 90


def test_noise_that_is_shared_in_another_way_is_refused(db: Database) -> None:
    first = asked(db, "count where age < 43")
    one, other = (
        asked(db, "count where age < 43", privacy=GaussianDP(mu=mu), refines=[first.receipts[0]])
        for mu in (0.6, 0.7)
    )
    with pytest.raises(ParameterError, match="some of the same draws"):
        combine_results([term(one), term(other)])
    old_mean = asked(db, "mean(age) by sex")
    new_mean = asked(db, "mean(age) by sex", refines=old_mean.receipts)
    with pytest.raises(ParameterError, match="some of the same draws"):
        combine_results([term(old_mean), term(new_mean)])
    mean, total = asked(db, "mean(age)"), asked(db, "sum(age)")
    assert mean.receipts == total.receipts
    with pytest.raises(ParameterError, match="some of the same draws"):
        combine_results([term(mean), term(total)])
    # Where a mean stands on counts that were asked before, the same group is refused and others are not.
    a = made(question="mean(age) by sex", key=("f",), parts=(("a-1",), ("a-2",)))
    b = made(question="count by sex", key=("f",), parts=(("a-1",),))
    with pytest.raises(ParameterError, match="some of the same draws"):
        combine_results([a, b])
    assert combine_results([a, replace(b, key=("m",))]).sd == pytest.approx(math.sqrt(2))


def test_units_are_not_mixed() -> None:
    with pytest.raises(ParameterError, match="must be in one unit, and are in rows, years"):
        combine_results([made(measure="rows"), made(measure="years", parts=(("a-2",),))])
    assert combine_results([made(measure="rows"), made(parts=(("a-2",),))]).measure is None
    with pytest.raises(ParameterError, match="at least one"):
        combine_results([])


def test_a_group_without_a_number_is_refused(db: Database) -> None:
    reply = asked(db, "mean(age) by sex")
    empty = ResultCell(key=("x",), value=None, sd=None, lower=17.0, upper=90.0)
    with pytest.raises(ParameterError, match="over no rows"):
        ResultTerm.from_cell(reply, empty)


def inside(laplace: list[float], gaussian: float, reach: float) -> float:
    """Return how likely a sum of Laplace noises (by their scales) and a Gaussian one is within a reach."""

    def transform(t: float) -> float:
        shape = np.prod([1 / (1 + (scale * t) ** 2) for scale in laplace]) * math.exp(
            -((gaussian * t) ** 2) / 2
        )
        return float(shape * reach * np.sinc(t * reach / math.pi))

    return float(2 / math.pi * integrate.quad(transform, 0, 400, limit=4000)[0])


@pytest.mark.parametrize(
    ("sds", "gaussian"),
    [
        ([1.0, 1.0], 0.0),
        ([1.0, 0.3], 0.0),
        ([1.0, 0.9, 0.1], 0.0),
        ([1.0], 0.2),
        ([1.0], 1.0),
        ([1.0] * 6, 0.5),
    ],
)
def test_an_interval_with_laplace_noise_holds_at_least_as_often_as_it_says(
    sds: list[float], gaussian: float
) -> None:
    terms = [made(sd=sd, law="laplace", parts=((f"a-{i}",),)) for i, sd in enumerate(sds)]
    if gaussian:
        terms.append(made(sd=gaussian, parts=(("b-1",),)))
    total = combine_results(terms)
    share = inside([sd / math.sqrt(2) for sd in sds], gaussian, half(total))
    assert LEVEL < share < 0.97
    # The Gaussian width would promise too much where one Laplace dominates, and is caught doing so.
    assert inside([1 / math.sqrt(2)], 0.0, interval_width("gaussian")) < 0.95


def test_means_of_groups_are_compared_by_their_intervals(db: Database) -> None:
    groups = asked(db, "mean(age) by sex")
    (f, m, x), women, men = groups.cells, term(groups), term(groups, -1.0, 1)
    both = combine_results([women, men])
    assert both.sd is None
    assert women.sd is None
    assert both.value == pytest.approx(women.value - men.value)
    below = math.hypot(women.value - f.lower, m.upper - men.value)
    assert both.interval.lower == pytest.approx(both.value - below)
    # Of a group that may be empty every mean is possible: nothing is gained by the other group's noise.
    unknown = combine_results([women, term(groups, -1.0, 2)])
    assert unknown.interval.lower == pytest.approx(f.lower - x.upper)
    assert unknown.interval.upper == pytest.approx(f.upper - x.lower)
    # The same mean twice is the same noise.
    assert combine_results([women, replace(women, times=-1.0)]).interval == (0.0, 0.0)
    assert half(combine_results([women, women])) == pytest.approx(f.upper - f.lower)


def test_the_interval_of_a_sum_is_cut_to_what_is_possible(db: Database) -> None:
    nobody = asked(db, "count where age < 18 AND sex = 'x'")
    (cell,) = nobody.cells
    assert (cell.lower, nobody.columns[0].bounds) == (0.0, (0.0, len(ROWS["age"])))
    total = combine_results([term(nobody), replace(term(nobody), parts=(("b-1",),))])
    assert total.interval.lower == 0.0
    assert total.interval.upper > cell.upper


def test_words_say_whether_a_difference_is_different_from_zero(db: Database) -> None:
    interval = ResultInterval(10.2, 29.8)
    said = CombinedResult(formula="a - b", value=20.0, sd=5.0, interval=interval, measure="rows")
    assert said.words == "a - b = 20.0 rows, between 10.2 and 29.8: different from zero at 95 %."
    assert replace(said, interval=ResultInterval(-1.0, 18.6)).words.endswith(
        ": not different from zero at 95 %."
    )
    pure = asked(db, "count where age < 50", privacy=PureDP(epsilon=1))
    assert combine_results([term(pure)]).interval == pytest.approx(pure.cells[0].interval)


def test_equal_charges_are_added_up() -> None:
    assert describe_charges([PureDP(epsilon=0.2)] * 2) == "ε = 0.4"
    assert describe_charges([PureDP(epsilon=0.1)] * 3) == "ε = 0.3"
    assert describe_charges([GaussianDP(mu=0.5), PureDP(epsilon=0.1)]) == "μ = 0.5 and ε = 0.1"


def test_the_nearer_budget_is_told() -> None:
    cost = (PureDP(epsilon=0.1),)
    with Ledger.open(":memory:", limit=PureDP(epsilon=1)) as ledger:
        ledger.set_owner_limit("ann", PureDP(epsilon=0.9))
        ledger.charge(PureDP(epsilon=0.5), owner="ben")
        own, total = ledger.accounts("ann", None)
        told = remaining_amounts(cost, own, total)
    assert (told["nearer"], told["used"], told["takes"]) == ("total", total.used, total.takes(cost))
    assert describe_used(told["used"]) == "50.0\u00a0% of the budget is used; epsilon so far 0.5 of 1"
