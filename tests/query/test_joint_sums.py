"""Sensitivities of several sums by groups and of joint aggregates, by trying all neighbors."""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from scipy import stats
from sqlglot import exp

from discreet.privacy import GaussianDP, PureDP
from discreet.query import Database
from discreet.query.aggregates import (
    Aggregate,
    DistinctUnits,
    GroupedSums,
    HierarchicalHistogram,
    Histogram,
    JointAggregate,
    Sums,
    aggregate_from_dict,
)
from discreet.query.aggregates._joint import balanced_weights
from discreet.query.costs import CostModel
from discreet.query.curation import Curation
from discreet.query.engines.tasks import EngineCells
from discreet.query.language.query import parse_query
from discreet.query.statistics import plan_query
from discreet.schema import Column, Schema
from tests.query.single_rows import SingleRows

if TYPE_CHECKING:
    from discreet.query.aggregates import BoundAggregate
    from discreet.schema.schema import Neighbors

NEIGHBORS: tuple[Neighbors, ...] = ("replace-one", "add-remove")
SCHEMA = Schema(
    columns=[
        Column("x", lower=10, upper=11),
        Column("a", type="integer", lower=0, upper=2),
        Column("opt", lower=-3, upper=5, required=False),
        Column("job", values=("p", "q"), closed=True),
    ]
)
CURATION = Curation.from_schema(SCHEMA)
ROWS = [
    {"x": x, "a": a, "opt": opt, "job": job}
    for x, a, opt, job in itertools.product((10.0, 10.5, 11.0), (0, 1, 2), (None, -3.0, 1.0, 5.0), "pq")
]


SINGLE = SingleRows(SCHEMA, ROWS)
MIDDLE, SQUARE = "x - 10.5", "POWER(x - 10.5, 2) - 0.125"
WHERE = "CASE WHEN a >= 1 THEN x - 10.5 ELSE 0 END"
BY: dict[str, Any] = {"columns": ("job",)}
# Aggregate, and for each notion of neighbors whether its sensitivity is attained.
CASES: list[tuple[Aggregate, bool, bool]] = [
    (GroupedSums(**BY, expressions=(None,)), True, True),
    (GroupedSums(**BY, expressions=("x", None)), True, True),
    (GroupedSums(**BY, expressions=(MIDDLE, None)), True, True),
    (GroupedSums(**BY, expressions=("x", "a", "a >= 1")), True, True),
    (GroupedSums(**BY, expressions=(None, "opt", "opt IS NOT NULL")), True, True),
    (GroupedSums(**BY, expressions=("opt - 1", "opt IS NULL")), False, False),
    # A row that is chosen and stays so moves no count, so that not all of it is attained.
    (GroupedSums(**BY, expressions=(WHERE, "a >= 1")), False, True),
    (GroupedSums(**BY, expressions=("CASE WHEN job = 'p' THEN x WHEN a = 1 THEN -a END", "a")), False, False),
    (GroupedSums(**BY, expressions=("7", "a", None)), True, True),
    (GroupedSums(**BY, expressions=("0", "a")), True, True),
    # Squares are never far where displacements are: of staying the bound is not attained, of leaving it is.
    (GroupedSums(**BY, expressions=(MIDDLE, SQUARE, None)), False, True),
    (GroupedSums(("job", "a"), expressions=("x", None)), True, True),
    (GroupedSums(("a", "opt"), {"opt": [0.0]}, ("x", MIDDLE, None)), False, True),
    # Rows that a condition chooses are in a cell, the others in none.
    (GroupedSums(expressions=(MIDDLE, None), where="a >= 1"), True, True),
    (GroupedSums(expressions=("x", "a", None), where="opt IS NOT NULL"), True, True),
    (GroupedSums(expressions=(MIDDLE, SQUARE, None), where="opt > 0"), False, True),
    (GroupedSums(expressions=("opt", "opt IS NOT NULL", None), where="a < 2"), True, True),
    (GroupedSums(**BY, expressions=(MIDDLE, None), where="a >= 1"), True, True),
    (GroupedSums(("a", "job"), expressions=("opt", None), where="x > 10.2"), True, True),
    (GroupedSums(expressions=("x", None), where="1 = 2"), False, False),
    (JointAggregate((Histogram("job"),), (3,)), True, True),
    (JointAggregate((Histogram("job"), Histogram("a")), (1, 1)), True, True),
    (JointAggregate((Histogram("job"), Sums("x")), (1, 3)), True, True),
    (JointAggregate((GroupedSums(**BY, expressions=("x", None)), Histogram("a")), (2, 1)), True, True),
    (JointAggregate((Sums(("x", "a >= 1")), Histogram("job", expression="opt")), (5, 2)), True, True),
    (JointAggregate((Sums("TRUE"), Histogram("job")), (1, 1)), True, True),
    (JointAggregate((HierarchicalHistogram("x"), Histogram("job")), (1, 2)), True, True),
    (JointAggregate((HierarchicalHistogram("a", ("job",)), Sums(MIDDLE)), (1, 1)), True, True),
]


def _id(value: object) -> str:
    return f"{value.kind}-{json.dumps(value.to_dict())[8:90]}" if isinstance(value, Aggregate) else str(value)


@pytest.mark.slow
@pytest.mark.parametrize("neighbors", NEIGHBORS)
@pytest.mark.parametrize(("aggregate", "tight", "tight_alone"), CASES, ids=_id)
def test_no_neighbor_moves_joint_sums_further_than_is_charged(
    aggregate: Aggregate, tight: bool, tight_alone: bool, neighbors: Neighbors
) -> None:
    bound = aggregate.bind(CURATION, neighbors)
    squared, absolute = SINGLE.distances(bound, neighbors)
    assert squared <= bound.squared
    assert absolute <= bound.absolute
    if tight if neighbors == "replace-one" else tight_alone:
        assert squared == bound.squared
        assert absolute == bound.absolute


@pytest.mark.parametrize(("aggregate", "_", "__"), CASES, ids=_id)
def test_joint_sums_add_up_over_rows_and_travel_as_json(aggregate: Aggregate, _: bool, __: bool) -> None:
    bound = aggregate.bind(CURATION, "add-remove")
    chosen = [0, 5, 5, 31, 70]
    together = SINGLE.open([ROWS[i] for i in chosen])
    parts = [bound.exact(SINGLE.engines[i]) for i in chosen]
    assert bound.exact(together) == [sum(column) for column in zip(*parts, strict=True)]
    together.close()
    assert bound.places.size == bound.size == len(bound.weight) == len(bound.unit) == len(bound.shift)
    read = aggregate_from_dict(json.loads(json.dumps(aggregate.to_dict())))
    assert read.bind(CURATION, "add-remove").canonical == bound.canonical
    assert json.loads(json.dumps(bound.canonical)) == bound.canonical


@pytest.mark.parametrize("neighbors", NEIGHBORS)
@pytest.mark.parametrize("expressions", [("x", "a", None), (MIDDLE, None, "7"), ("x",), (None, "7")])
def test_of_one_cell_no_row_leaves_it_for_another(
    expressions: tuple[str | None, ...], neighbors: Neighbors, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = EngineCells(((exp.Literal.number(0), 1),))
    monkeypatch.setattr("discreet.query.aggregates._joint.bind_keys", lambda *_: (one, (("all",),)))
    bound = GroupedSums("job", expressions=expressions).bind(CURATION, neighbors)
    assert bound.size == len(expressions)
    assert SINGLE.distances(bound, neighbors) == (bound.squared, bound.absolute)


# The same of the noise itself: the farthest neighbors are as far apart as the promise says, in its units.


@pytest.mark.slow
@pytest.mark.parametrize("neighbors", NEIGHBORS)
@pytest.mark.parametrize(("aggregate", "tight", "tight_alone"), CASES, ids=_id)
def test_neighbors_are_as_far_apart_in_the_noise_as_the_promise_says(
    aggregate: Aggregate, tight: bool, tight_alone: bool, neighbors: Neighbors
) -> None:
    costs = CostModel(replace(SCHEMA, neighbors=neighbors), len(ROWS))
    attained = tight if neighbors == "replace-one" else tight_alone
    for privacy in (GaussianDP(mu=0.7, neighbors=neighbors), PureDP(epsilon=0.7, neighbors=neighbors)):
        bound, noise = costs.calibrate(aggregate, privacy=privacy)
        if noise.promise is None:
            assert not SINGLE.changes(bound, neighbors).any()
            continue
        steps = np.abs(bound.unit)
        moved = SINGLE.changes(bound, neighbors).astype(float) * steps / np.where(steps, noise.sd(bound), 1.0)
        apart = np.sqrt((moved**2).sum(axis=1)) if noise.law == "gaussian" else abs(moved).sum(axis=1)
        farthest = apart.max() * (1 if noise.law == "gaussian" else math.sqrt(2))
        assert farthest <= 0.7 * (1 + 1e-9)
        assert farthest >= 0.7 * (1 - 1e-9) or not attained


def _wide(mu: float, neighbors: Neighbors) -> tuple[Schema, Any]:
    """A table of many groups, most of them empty, and a promise for it."""
    columns = [Column("g", values=tuple(range(400)), closed=True), Column("x", lower=0, upper=10)]
    schema = Schema(columns=[*columns, Column("a", type="integer", lower=0, upper=2)], neighbors=neighbors)
    return schema, GaussianDP(mu=mu, neighbors=neighbors)


@pytest.mark.parametrize("neighbors", NEIGHBORS)
@pytest.mark.parametrize("law", ["gaussian", "laplace"])
def test_noise_is_drawn_with_these_scales(law: str, neighbors: Neighbors) -> None:
    schema, privacy = _wide(0.7, neighbors)
    if law == "laplace":
        privacy = PureDP(epsilon=0.7, neighbors=neighbors)
    grouped = GroupedSums("g", expressions=("x - 5", "POWER(x - 5, 2) - 12.5", "a >= 1", None))
    joint = JointAggregate((grouped, Histogram("g", expression="x")), (3, 1))
    table = {"g": [0, 1, 1], "x": [1.0, 5.0, 10.0], "a": [0, 1, 2]}
    with Database(table, schema=schema, random_state=7) as db:
        for aggregate, kinds in ((grouped, 4), (joint, 5)):
            answer = db.ask(aggregate, privacy=privacy)
            bound = aggregate.bind(db.curation, neighbors)
            exact = bound.arrange(np.array(bound.exact(db._engine)) * bound.unit, 0.0)
            drawn = ((np.asarray(answer.value) - exact) / np.asarray(answer.sd)).reshape(kinds, 400)
            for one in drawn:
                # Squares of Gaussian noise add up to chi-square, absolute values of Laplace noise to gamma.
                total = (one**2).sum() if law == "gaussian" else 2 * math.sqrt(2) * abs(one).sum()
                chance = stats.chi2(400 if law == "gaussian" else 800).cdf(total)
                assert 2.5e-11 < chance < 1 - 2.5e-11  # of 20 checks, either way
            wrong = stats.chi2(400 if law == "gaussian" else 800).cdf(2 * total)
            assert wrong > 1 - 1e-9  # noise of another share would be seen


# What joining is worth.


def test_weights_make_the_product_of_the_noises_least() -> None:
    def product(weights: Any, stays: Any, leaves: Any) -> float:
        w = np.array(weights, dtype=float)
        return float(max(w @ stays, w @ leaves) ** len(w) / np.prod(w))

    for stays, leaves in (
        ((4, 0), (2, 2)),
        ((4, 4, 0), (2, 2, 2)),
        ((1, 0), (2, 2)),
        ((9, 1), (0, 0)),
        ((0, 0, 4), (2, 2, 2)),
    ):
        found = product(balanced_weights(stays, leaves), stays, leaves)
        grid = itertools.product(np.geomspace(1 / 64, 64, 97), repeat=len(stays) - 1)
        best = min(product((1.0, *rest), stays, leaves) for rest in grid)
        assert found <= best * 1.001


@pytest.mark.parametrize("neighbors", NEIGHBORS)
def test_a_mean_by_groups_costs_less_than_two_halves(neighbors: Neighbors) -> None:
    """By staying a row moves a sum the most, by leaving a count: it does not do both."""
    costs = CostModel(replace(SCHEMA, neighbors=neighbors), 100)

    def sds(aggregate: Aggregate, mu: float) -> Any:
        found = costs.expected_sd(aggregate, privacy=GaussianDP(mu=mu, neighbors=neighbors))
        return np.reshape(found, (-1, 2))[:, 0]

    def ratios(*expressions: str | None) -> Any:
        part = len(expressions) ** -0.5
        halves = [sds(Histogram("job", expression=one), part)[0] for one in expressions]
        return sds(GroupedSums(**BY, expressions=expressions), 1.0) / halves

    mean = plan_query(parse_query("mean(x) by job", costs.schema), 100).aggregate
    assert isinstance(mean, GroupedSums)
    chosen = GroupedSums(expressions=(MIDDLE, None), where="a >= 1")
    summed = costs.expected_sd(Sums((WHERE, "a >= 1")), privacy=GaussianDP(mu=1, neighbors=neighbors))
    least = costs.expected_sd(chosen, privacy=GaussianDP(mu=1, neighbors=neighbors)) / summed
    assert least == pytest.approx([1, 1] if neighbors == "add-remove" else [0.5**0.5, (2 / 3) ** 0.5])
    if neighbors == "add-remove":
        assert ratios(MIDDLE, None) == pytest.approx([1, 1])
        assert ratios(MIDDLE, SQUARE, None) == pytest.approx([1, 1, 1])
    else:
        assert ratios(MIDDLE, None) == pytest.approx([math.sqrt(0.5), 1])
        assert ratios(MIDDLE, SQUARE, None) == pytest.approx([math.sqrt(2 / 3)] * 3)
        assert ratios("a >= 1", None) == pytest.approx([1, 1])


def test_shares_divide_the_promise() -> None:
    """Alone under its share of the promise, a part would have the noise that it has among others."""
    parts = (GroupedSums(**BY, expressions=("x", None)), Histogram("a"), Sums("x"))
    shares = (5, 2, 1)
    costs = CostModel(SCHEMA, 100)
    for joint, alone in (
        (GaussianDP(mu=1), [GaussianDP(mu=math.sqrt(share / 8)) for share in shares]),
        (PureDP(epsilon=1), [PureDP(epsilon=share / 8) for share in shares]),
    ):
        together = costs.expected_sd(JointAggregate(parts, shares), privacy=joint)
        each = [np.ravel(costs.expected_sd(p, privacy=q)) for p, q in zip(parts, alone, strict=True)]
        assert together == pytest.approx(np.concatenate(each), rel=1e-3)


def test_rows_of_a_unit_are_counted_once() -> None:
    """Of units counted once, several rows are in the charge already; of sums beside them they are not."""
    columns = [Column("id", role="id"), *SCHEMA.columns]
    schema = Schema(columns=columns, id_column="id", max_rows_per_unit=3)
    costs = CostModel(schema, 100)
    parts = (DistinctUnits(), Histogram("job"))
    together = costs.expected_sd(JointAggregate(parts, (1, 1)), privacy=GaussianDP(mu=1))
    each = [
        np.ravel(costs.expected_sd(part, privacy=GaussianDP(mu=math.sqrt(0.5)))).tolist() for part in parts
    ]
    assert np.ravel(together).tolist() == pytest.approx([one for part in each for one in part], rel=1e-3)
    rows = JointAggregate((Histogram("a"), Histogram("job")), (1, 1)).bind(
        Curation.from_schema(schema), "replace-one"
    )
    assert not rows.by_unit


def test_a_variance_is_that_of_every_entry() -> None:
    costs = CostModel(SCHEMA, 100)
    for aggregate in (Sums(("a = 0", "a = 1")), Sums("x"), GroupedSums(**BY, expressions=("a",))):
        assert np.ravel(costs.expected_sd(aggregate, variance=4.0)) == pytest.approx(2.0)
    with pytest.raises(ValueError, match="in one unit"):
        costs.expected_sd(GroupedSums(**BY, expressions=("a", None)), variance=4.0)
    with pytest.raises(ValueError, match="in one unit"):
        CostModel(replace(SCHEMA, neighbors="add-remove")).expected_sd(Sums(("a", "a - 1")), variance=4.0)


# Wrong twins.


def _is_caught(bound: BoundAggregate, neighbors: Neighbors) -> bool:
    squared, absolute = SINGLE.distances(bound, neighbors)
    return squared > bound.squared and absolute > bound.absolute


@pytest.mark.parametrize("neighbors", NEIGHBORS)
def test_a_charge_that_forgets_an_expression_is_caught(neighbors: Neighbors) -> None:
    whole = GroupedSums(**BY, expressions=("x", "a", None)).bind(CURATION, neighbors)
    part = GroupedSums(**BY, expressions=("x", "a")).bind(CURATION, neighbors)
    share = whole.precision[0] / part.precision[0], whole.weight[0] / part.weight[0]
    forgot = replace(whole, squared=round(part.squared * share[0]), absolute=round(part.absolute * share[1]))
    assert not _is_caught(whole, neighbors)
    assert _is_caught(forgot, neighbors)


def test_a_row_that_leaves_one_cell_and_enters_none_is_caught() -> None:
    for expressions in (("x", None), (MIDDLE, None, "a")):
        bound = GroupedSums(**BY, expressions=expressions).bind(CURATION, "replace-one")
        alone = GroupedSums(**BY, expressions=expressions).bind(CURATION, "add-remove")
        # What one cell can move, by the weights of the first.
        reaches = abs(SINGLE.changes(alone, "add-remove")).max(axis=0)[::2].tolist()
        squared = sum(p * r**2 for p, r in zip(bound.precision[::2], reaches, strict=True))
        absolute = sum(w * r for w, r in zip(bound.weight[::2], reaches, strict=True))
        assert _is_caught(replace(bound, squared=squared, absolute=absolute), "replace-one")


def test_a_chosen_row_that_is_not_let_go_is_caught() -> None:
    """The wrong twin: as if a condition held for the same rows in both tables."""
    bound = GroupedSums(expressions=(MIDDLE, None), where="a >= 1").bind(CURATION, "replace-one")
    top = max(abs(SINGLE.changes(bound, "replace-one")[:, 0]))
    stays = replace(bound, squared=bound.precision[0] * top**2, absolute=bound.weight[0] * top)
    assert not _is_caught(bound, "replace-one")
    assert stays.squared <= bound.squared  # balanced: as far as by leaving
    far = replace(bound, precision=(1, 4 * top**2), weight=(1, 2 * top))
    assert _is_caught(replace(far, squared=top**2, absolute=top), "replace-one")


def test_a_charge_for_staying_alone_or_for_leaving_alone_is_caught() -> None:
    """Each is the worse one for some expressions, and neither the sum of what is worse for each."""
    bound = GroupedSums(**BY, expressions=("a - 1", "x - 10.5", None)).bind(CURATION, "replace-one")
    tops = [max(abs(c) for c in SINGLE.changes(bound, "replace-one")[:, i]) for i in range(0, bound.size, 2)]
    stays = [top**2 for top in (tops[0], tops[1], 0)]
    leaves = [2 * (top // 2 + top % 2) ** 2 for top in tops[:2]] + [2]
    precision = bound.precision[::2]
    worst = sum(p * max(s, m) for p, s, m in zip(precision, stays, leaves, strict=True))
    either = [sum(p * move for p, move in zip(precision, moves, strict=True)) for moves in (stays, leaves)]
    assert max(either) == bound.squared < worst
    assert SINGLE.distances(bound, "replace-one")[0] == bound.squared
    few = GroupedSums(**BY, expressions=(None, "a")).bind(CURATION, "replace-one")
    assert (
        SINGLE.distances(replace(few, squared=few.precision[2] * 4), "replace-one")[0] > few.precision[2] * 4
    )


def test_shares_that_are_not_in_the_noise_are_caught() -> None:
    parts, shares = (Histogram("job"), Sums("x")), (1, 3)
    bound = JointAggregate(parts, shares).bind(CURATION, "replace-one")
    plain = [part.bind(CURATION, "replace-one") for part in parts]
    unscaled = replace(
        bound,
        precision=tuple(p for one in plain for p in one.precision),
        weight=tuple(w for one in plain for w in one.weight),
    )
    assert SINGLE.distances(unscaled, "replace-one")[0] * 1000 < bound.squared
    cheap = replace(
        bound, squared=sum(one.squared for one in plain), absolute=sum(one.absolute for one in plain)
    )
    assert _is_caught(cheap, "replace-one")
    one_share = replace(bound, squared=bound.squared // 4, absolute=bound.absolute // 4)
    assert _is_caught(one_share, "replace-one")
