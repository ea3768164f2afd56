"""People in a synthetic table against others: what a promise allows, and tables that give them away."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import roc_auc_score

from discreet import ApproxDP, Column, GaussianDP, PureDP, Schema
from discreet.audit import MemberComparison, attack_members, max_roc_area
from discreet.audit._members import roc_area
from discreet.audit._shadow_tables import cell_codes
from discreet.errors import ParameterError
from discreet.noise import Stream
from discreet.query.dummy import rows_from_schema
from discreet.release.synthetic import SyntheticRelease
from discreet.release.synthetic.columns import DrawnColumns, NarrowColumn
from tests.release.synthetic_tables import mixed_schema

if TYPE_CHECKING:
    from discreet.release.synthetic import SyntheticTable

NAMES = ["shadow models", "nearest row", "likelihood", "exact match", "distance", "guessed cells"]
WIDE = Schema(columns=[Column(f"c{i}", values=tuple(range(6)), closed=True) for i in range(8)])


def people(schema: Schema, n: int, seed: int = 1) -> dict[str, Any]:
    """Encoded rows that nobody has."""
    return rows_from_schema(schema, n, Stream.from_seed(seed))


class Copies(SyntheticRelease):
    """A table that is no synthetic one: it publishes the very rows."""

    def release(self, X: Any, y: Any = None, *, shuffle: bool | None = None) -> SyntheticTable:
        made = super().release(X)
        rows = {name: NarrowColumn(np.asarray(X[name], np.int32)) for name in made.columns}
        return replace(made, columns=DrawnColumns(rows))


def test_a_promise_is_kept_on_people_of_all_kinds_of_columns() -> None:
    schema = mixed_schema()
    method = SyntheticRelease(ApproxDP(epsilon=1, delta=1e-6), schema=schema)
    results = attack_members(method, people(schema, 3000), on="made-up", stream=Stream.from_seed(2))
    assert [result.attack for result in results] == NAMES
    assert not any(result.exceeds_bound for result in results)
    for result in results:
        assert result.lower <= result.value <= result.upper
        assert (result.n, result.rows, result.on) == (500, 1500, "made-up")
        assert MemberComparison.from_dict(result.to_dict()) == result
    assert not hasattr(method, "tables_")


def test_a_table_of_copies_gives_its_people_away() -> None:
    method = Copies(ApproxDP(epsilon=1, delta=1e-6), schema=WIDE)
    results = {
        r.attack: r for r in attack_members(method, people(WIDE, 1200), on="rows", stream=Stream.from_seed(2))
    }
    for attack in ("shadow models", "nearest row", "exact match", "guessed cells"):
        assert results[attack].exceeds_bound
    assert results["exact match"].members == 1.0
    assert results["nearest row"].value > 0.95


def test_noise_that_is_next_to_none_lets_noisy_counts_give_people_away() -> None:
    true, weak = (SyntheticRelease(GaussianDP(mu=mu), schema=WIDE) for mu in (0.3, 300.0))
    rows = people(WIDE, 400)
    found = [attack_members(m, rows, on="rows", stream=Stream.from_seed(2))[0] for m in (true, weak)]
    bound = max_roc_area(GaussianDP(mu=0.3))
    assert found[0].lower <= bound < found[1].lower


def test_too_few_people_are_not_attacked() -> None:
    method = SyntheticRelease(GaussianDP(mu=1), schema=WIDE)
    assert attack_members(method, people(WIDE, 199), on="rows") == ()


def test_the_area_is_that_of_scikit_learn_and_its_interval_covers() -> None:
    draws = Stream.from_seed(3).generator()
    truth, hits = stats.norm.cdf(0.5 / math.sqrt(2)), 0
    for i in range(200):
        a, b = draws.normal(0.5, size=80), draws.normal(size=120)
        area, lower, upper = roc_area(a, b)
        if i < 5:
            a, b = np.round(a), np.round(b)
            area = roc_area(a, b)[0]
            labels = np.repeat([1, 0], [80, 120])
            assert area == pytest.approx(roc_auc_score(labels, np.concatenate([a, b])))
        hits += lower <= truth <= upper
    # Of 200 intervals of 95 %, fewer than 168 cover less than once in 10**9.
    assert hits >= 168
    with pytest.raises(ParameterError, match="at least one score"):
        roc_area(np.empty(0), np.ones(1))


@pytest.mark.parametrize("mu", [0.0275, 0.2367, 0.8379, 1.8481])
def test_the_largest_area_is_the_closed_form_and_never_below(mu: float) -> None:
    exact = stats.norm.cdf(mu / math.sqrt(2))
    assert exact <= max_roc_area(GaussianDP(mu=mu)) <= exact + 2e-4
    assert max_roc_area(PureDP(epsilon=mu)) == pytest.approx(1 / (1 + math.exp(-mu)), abs=1e-9)


def test_cells_follow_published_edges_and_groups() -> None:
    question = {"edges": {"x": [0.25, 0.5]}, "groups": {"b": [0, 1, 1, 1]}}
    x = Column("x", lower=0, upper=1, required=False)
    b = Column("b", values=("u", "v", "w"))
    assert cell_codes(x, np.array([0.0, 0.25, 0.7, np.nan]), question).tolist() == [0, 1, 2, 3]
    assert cell_codes(b, np.array([3, 0, 1]), question).tolist() == [1, 0, 1]


def test_under_add_remove_an_exchange_is_two_steps() -> None:
    schema = replace(WIDE, neighbors="add-remove")
    method = SyntheticRelease(GaussianDP(mu=0.3, neighbors="add-remove"), schema=schema)
    first, *_, last = attack_members(method, people(schema, 400), on="rows", stream=Stream.from_seed(2))
    assert first.bound == pytest.approx(max_roc_area(GaussianDP(mu=0.6)), abs=1e-6)
    assert last.bound == pytest.approx(2 * stats.norm.cdf(0.3) - 1, abs=1e-6)
