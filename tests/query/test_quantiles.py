"""Quantiles from trees of counts: least squares, exact values, and intervals that hold what they say."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

import numpy as np
import pytest
from scipy import special

from discreet import ApproxDP, Column, Database, GaussianDP, PureDP, Schema
from discreet.errors import ParameterError
from discreet.query import quantiles
from discreet.query.aggregates import HierarchicalHistogram
from discreet.query.aggregates._hierarchy import CountTree
from discreet.query.costs import CostModel
from discreet.query.quantiles import (
    _excess_noise,
    _fit_prefixes,
    estimate_quantiles,
    expected_rank_error,
    tail_quantile,
)
from tests.query.test_intervals import LAWS, PROMISES, noise

if TYPE_CHECKING:
    from discreet._types import Floats
    from discreet.query.aggregates import BoundHierarchy
    from discreet.query.calibration import Law

SCHEMA = Schema(
    columns=[
        Column("age", type="integer", lower=0, upper=120),
        Column("income", type="integer", lower=0, upper=10_000_000),
        Column("z", lower=-5, upper=5, required=False),
        Column("sex", values=("f", "m"), closed=True),
    ]
)
SIZES = (1, 20, 100, 1000, 100_000)
FRACTIONS = (0.1, 0.5, 0.9)
FEWEST = 0.82  # 164 of 200: fewer have a probability below 1e-10 if intervals hold with 0.95
# A sorted list of rows in thousandths, stretched to any number of rows.
SHARES = (np.arange(1000) + 0.5) / 1000
NORMAL = special.ndtri(SHARES)
ROWS: dict[str, dict[str, Floats]] = {
    "age": {
        "spread": np.clip(np.floor(40 + 22 * NORMAL), 0, 120),
        "two values": np.repeat([20.0, 61.0], 500),
        "three modes": np.repeat([0.0, 60.0, 120.0], [499, 2, 499]),
        "one value": np.full(1000, 120.0),
    },
    "income": {
        "skewed": np.floor(np.exp(10.4 + 0.8 * NORMAL)),
        "two values": np.repeat([20_000.0, 60_000.0], 500),
        "one value": np.full(1000, 40_000.0),
    },
}


def bound_and_sd(column: str, law: Law) -> tuple[BoundHierarchy, float]:
    """Return the tree of a column, and the standard deviation of its noise."""
    costs, question = CostModel(SCHEMA), HierarchicalHistogram(column)
    _, drawn = costs.calibrate(question, privacy=PROMISES[law])
    bound = question.bind(costs.curation, costs.neighbors)
    assert drawn.law == law
    return bound, float(drawn.sd(bound)[0])


def exact_quantile(ordered: Floats, fraction: float) -> float:
    """Return the least value of which at least a fraction of the rows are not larger."""
    return float(ordered[max(math.ceil(fraction * len(ordered) - 1e-9) - 1, 0)])


def node_counts(bound: BoundHierarchy, rows: Floats) -> Floats:
    """Return the exact counts of all nodes."""
    cells = np.searchsorted(bound.cells.starts()[:-1], rows, side="right") - 1
    counts: Floats = bound.tree.add_levels(np.bincount(cells, minlength=bound.cells.size)).astype(float)
    return counts


def coverages(column: str, law: Law, draws: int) -> dict[str, float]:
    """Return how often the intervals of many draws hold the exact quantile, for every case."""
    bound, sd = bound_and_sd(column, law)
    found = {}
    for (kind, rows), size in itertools.product(ROWS[column].items(), SIZES):
        ordered = rows[np.arange(size) * 1000 // size] if size > 1 else rows[500:501]
        drawn = noise(law, sd, f"{column} {law} {kind} {size}", draws * bound.tree.nodes)
        noisy = node_counts(bound, ordered) + drawn.reshape(draws, -1)
        told = estimate_quantiles(bound, noisy, sd, law, FRACTIONS)
        assert np.all((told.lower <= told.values) & (told.values <= told.upper))
        for i, q in enumerate(FRACTIONS):
            exact = exact_quantile(ordered, q)
            held = (told.lower[:, i] <= exact) & (exact <= told.upper[:, i])
            found[f"{kind}, {size} rows, {q}"] = float(np.mean(held))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("column", ROWS)
def test_intervals_hold_the_exact_quantile(column: str, law: Law) -> None:
    assert min(coverages(column, law, 200).values()) >= FEWEST


@pytest.mark.stats
@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("column", ROWS)
def test_intervals_hold_the_exact_quantile_in_many_draws(column: str, law: Law) -> None:
    assert min(coverages(column, law, 4000).values()) >= 0.93


def test_an_interval_that_takes_an_excess_for_one_count_would_be_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The excess at a cut is made of many counts, and has several times the noise of one."""
    right = min(coverages("age", "gaussian", 200).values())

    def one_count(tree: CountTree, fraction: float, *_: object) -> tuple[Floats, ...]:
        return tuple(np.full(size - 1, tail_quantile("gaussian", 1, 0.01)) for size in tree.sizes)

    monkeypatch.setattr(quantiles, "_margins", one_count)
    wrong = min(coverages("age", "gaussian", 200).values())
    assert wrong < FEWEST < right


@pytest.mark.parametrize("law", LAWS)
def test_the_interval_of_a_group_without_rows_is_the_whole_range(law: Law) -> None:
    bound, sd = bound_and_sd("age", law)
    noisy = noise(law, sd, f"empty {law}", 400 * bound.tree.nodes).reshape(400, -1)
    told = estimate_quantiles(bound, noisy, sd, law, [0.5])
    assert np.mean((told.lower == 0) & (told.upper == 120)) > FEWEST


@pytest.mark.parametrize(("leaves", "branching"), [(1, 2), (7, 2), (13, 3), (12, 12), (30, 4), (121, 11)])
def test_counts_are_fitted_by_least_squares_with_exact_variances(leaves: int, branching: int) -> None:
    tree = CountTree(leaves, branching)
    design = tree.add_levels(np.eye(leaves, dtype=np.int64)).T.astype(float)
    counts = 3 + 5 * noise("gaussian", 1.0, f"fit {leaves}", tree.nodes)
    inverse = np.linalg.inv(design.T @ design)
    ones = np.ones(leaves)
    fitted = inverse @ design.T @ counts
    known = fitted + inverse @ ones * (100 - fitted.sum()) / (ones @ inverse @ ones)
    for total, expected in ((None, fitted), (100, known)):
        below, rows = _fit_prefixes(tree, counts, total)
        assert np.allclose(np.append(below, rows), np.cumsum(expected))
    fixed = inverse - np.outer(inverse @ ones, inverse @ ones) / (ones @ inverse @ ones)
    for q, (covariance, total_known) in itertools.product((0.5, 0.9, 1.0), ((inverse, False), (fixed, True))):
        wanted = np.tri(leaves - 1, leaves) - q
        told = _excess_noise(tree, q, total_known)
        assert np.allclose(told.sd**2, np.einsum("ij,jk,ik->i", wanted, covariance, wanted))
        squares = (wanted @ covariance @ design.T) ** 2
        # None of the noisy counts has a larger share of the variance than one of so many equal terms.
        assert np.all(told.terms <= np.maximum(squares.sum(axis=1) / squares.max(axis=1), 1) + 1e-6)


@pytest.mark.parametrize("terms", [1, 2, 3, 8])
def test_no_sum_of_smaller_laplace_noises_is_more_often_beyond_the_margin(terms: int) -> None:
    """By the transform of the law, on a grid of shares of the variance of which none exceeds 1 / terms."""
    t = np.linspace(1e-6, 60, 60_001)

    def tail(shares: Floats, x: float) -> float:
        transform = np.prod(1 / (1 + np.outer(t**2, shares) / 2), axis=1)
        return 0.5 - float(np.trapezoid(np.sin(t * x) / t * transform, t)) / math.pi

    for failure in (0.025, 0.0133, 0.0017):
        x = tail_quantile("laplace", terms, failure)
        assert abs(tail(np.full(terms, 1 / terms), x) - failure) < 2e-4
        for few, many in itertools.product(range(terms + 1), (1, 2, 5, 40)):
            left = 1 - few / terms
            if left / many <= 1 / terms + 1e-12:
                shares = np.append(np.full(few, 1 / terms), np.full(many, left / many))
                assert tail(shares, x) <= failure + 2e-4


def test_quantiles_of_a_database_are_those_of_its_rows() -> None:
    n = 4000
    i = np.arange(n)
    rows = {
        "age": i * 37 % 97,
        "income": (i * 7919 % 90_001) * (i % 3 + 1),
        "z": np.where(i % 5 == 0, np.nan, np.sin(i) * 5),
        "sex": np.where(i % 4 == 0, "f", "m"),
    }
    qs = (0.0, 0.2537, 0.5011, 0.8973, 1.0)
    with Database(rows, schema=SCHEMA, random_state=1) as db:
        for text, exact in (("age", rows["age"]), ("income", rows["income"]), ("z", rows["z"])):
            question = HierarchicalHistogram(text, ("sex",), where="age < 90")
            answer = db.ask(question, privacy=GaussianDP(mu=1e6))
            bound = question.bind(db.curation, db.neighbors)
            told = estimate_quantiles(bound, np.asarray(answer.value), answer.sd, answer.law, qs, n_rows=n)
            for g, q in itertools.product(range(2), range(len(qs))):
                among = (rows["sex"] == "fm"[g]) & (rows["age"] < 90) & ~np.isnan(exact)
                wanted = exact_quantile(np.sort(exact[among]), qs[q])
                assert told.lower[g, q] <= wanted <= told.upper[g, q]
                if 0 < qs[q] < 1:
                    assert told.upper[g, q] - told.lower[g, q] <= max(0.004, wanted * 0.01)


def test_quantiles_rise_with_their_fractions() -> None:
    bound, sd = bound_and_sd("age", "gaussian")
    noisy = noise("gaussian", sd, "rising", 300 * bound.tree.nodes).reshape(3, 100, -1)
    told = estimate_quantiles(bound, noisy, sd, "gaussian", (0.1, 0.5, 0.9), level=1 - 1e-12)
    assert told.values.shape == (3, 100, 3)
    assert np.all(np.diff(told.values, axis=-1) >= 0)


def test_a_higher_level_widens_the_interval_and_a_public_number_of_rows_narrows_the_noise() -> None:
    bound, sd = bound_and_sd("income", "laplace")
    counts = node_counts(bound, np.repeat(ROWS["income"]["skewed"], 10))
    widths = []
    for level in (0.9, 0.95, 0.999):
        told = estimate_quantiles(bound, counts, sd, "laplace", [0.5], level=level)
        widths.append(float(told.upper[0] - told.lower[0]))
    assert widths == sorted(set(widths))
    assert expected_rank_error(bound, sd, 0.9, n_rows=10_000) < expected_rank_error(bound, sd, 0.9)
    filtered = HierarchicalHistogram("income", where="age > 3").bind(
        CostModel(SCHEMA).curation, "replace-one"
    )
    assert expected_rank_error(filtered, sd, 0.9, n_rows=10_000) == expected_rank_error(filtered, sd, 0.9)


def test_the_expected_rank_error_is_the_one_of_many_draws() -> None:
    bound, sd = bound_and_sd("age", "gaussian")
    noisy = noise("gaussian", sd, "ranks", 2000 * bound.tree.nodes).reshape(2000, -1)
    below, rows = _fit_prefixes(bound.tree, noisy, None)
    found = float(np.sqrt(np.mean((below - 0.5 * rows) ** 2)))
    assert found == pytest.approx(expected_rank_error(bound, sd, 0.5), rel=0.1)


@pytest.mark.parametrize("fractions", [[], [1.5], [-0.1, 0.5]])
def test_fractions_outside_0_to_1_are_refused(fractions: list[float]) -> None:
    bound, sd = bound_and_sd("age", "gaussian")
    with pytest.raises(ParameterError, match="numbers from 0 to 1"):
        estimate_quantiles(bound, np.zeros(bound.tree.nodes), sd, "gaussian", fractions)


def test_both_laws_are_open_to_an_approximate_promise() -> None:
    _, candidates = CostModel(SCHEMA).candidates(
        HierarchicalHistogram("age"), privacy=ApproxDP(epsilon=1.0, delta=1e-6)
    )
    assert {noise.law for noise in candidates} == set(LAWS)
    _, (pure,) = CostModel(SCHEMA).candidates(HierarchicalHistogram("age"), privacy=PureDP(epsilon=1.0))
    assert pure.law == "laplace"
