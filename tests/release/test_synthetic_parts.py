"""Parts of a synthetic table: cells, projections, choices and draws, each against its definition."""

from __future__ import annotations

import datetime
import itertools
import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from discreet import Column, Schema
from discreet.errors import ParameterError
from discreet.noise import Stream
from discreet.privacy import GaussianDP, PureDP
from discreet.query.curation import LEAST_MAGNITUDE
from discreet.release.synthetic import rows
from discreet.release.synthetic.arithmetic import (
    add_along,
    add_up,
    multiply_rounded,
    order_rows,
    root_two_thirds,
)
from discreet.release.synthetic.cells import ColumnCells, make_cells
from discreet.release.synthetic.hidden_classes import fit_hidden_classes
from discreet.release.synthetic.plan import SHARES, make_plan
from discreet.release.synthetic.projection import (
    fit_falling,
    independent,
    project,
    project_rows,
    rake,
    shrink,
)
from discreet.release.synthetic.questions import NoisyTable
from discreet.release.synthetic.rows import draw_values
from discreet.release.synthetic.sampling import apportion, draw_levels, fit_weights, resample
from discreet.release.synthetic.selection import NoiseBudget, choose_edges, expected_fluctuation, find_tree
from discreet.release.synthetic.tree import TreeModel, estimate_edge, estimate_one_way, estimate_rows

DRAWS = Stream.from_seed(3).generator()


def make_one(column: Column, *declared: Any) -> ColumnCells:
    """Return the cells of one column, declared or not."""
    return make_cells(Schema(columns=[column]), {column.name: declared} if declared else None)[0]


def stream() -> Stream:
    """Return public random words."""
    return Stream.from_seed(11)


@pytest.mark.parametrize("a", [1, 2, 7, 8, 1000, 123_456_789])
@pytest.mark.parametrize("b", [1, 2])
def test_roots_are_right_to_thirty_binary_places(a: int, b: int) -> None:
    root = Fraction(root_two_thirds(a, b))
    assert root**3 <= Fraction(a, b) ** 2 < (root + Fraction(1, 2**29)) ** 3


def test_rows_are_ordered_by_the_first_key_and_ties_stay() -> None:
    keys = [DRAWS.integers(0, 3, 50), DRAWS.integers(0, 70_000, 50)]
    expected = sorted(range(50), key=lambda i: (keys[0][i], keys[1][i]))
    assert order_rows(keys, 50).tolist() == expected


@pytest.mark.parametrize("total", [0.5, 10.0, 300.0])
def test_no_point_of_the_simplex_is_nearer_than_the_projection(total: float) -> None:
    noisy = DRAWS.normal(scale=20, size=12)
    found = project(noisy, total)
    assert found.min() >= 0
    assert found.sum() == pytest.approx(total)
    for _ in range(100):
        other = DRAWS.dirichlet(np.ones(12)) * total
        assert ((found - noisy) ** 2).sum() <= ((other - noisy) ** 2).sum() + 1e-9


@pytest.mark.parametrize("noisy", [np.full(4, -9.0), np.zeros(4), np.array([-1.0, -2.0, -3.0, -4.0])])
def test_projections_survive_totals_of_0_and_negative_counts(noisy: Any) -> None:
    assert project(noisy, 0.0).tolist() == [0, 0, 0, 0]
    assert project(noisy, -3.0).tolist() == [0, 0, 0, 0]
    assert project(noisy, 8.0).sum() == pytest.approx(8)
    assert project_rows(noisy[None], np.array([8.0])).min() >= 0


def test_shrinkage_ignores_noise_and_keeps_what_the_data_say() -> None:
    reference = np.full((2, 8, 8), 50.0)
    noise = DRAWS.normal(scale=30, size=reference.shape)
    quiet = shrink(reference + noise, 30.0, reference)
    assert np.abs(quiet - reference).mean() < np.abs(noise).mean() / 3
    truth = reference.copy()
    truth[:, :4] *= 1.5
    truth[:, 4:] *= 0.5
    loud = shrink(truth + DRAWS.normal(scale=2, size=truth.shape), 2.0, reference)
    assert np.abs(loud - truth).mean() < 3


def test_groups_of_cells_show_what_single_cells_do_not() -> None:
    reference = np.full((2, 1, 12), 50.0)
    truth = reference + np.linspace(-30, 30, 12) * np.array([1, -1])[:, None, None]
    errors = np.zeros(2)
    for _ in range(100):
        noisy = truth + DRAWS.normal(scale=60, size=truth.shape)
        for i in (False, True):
            errors[int(i)] += np.abs(shrink(noisy, 60.0, reference, in_groups=i) - truth).mean()
    assert errors[1] < errors[0]


@pytest.mark.parametrize("empty", [False, True])
def test_raking_gives_the_margins(empty: bool) -> None:
    table = DRAWS.integers(1, 90, (2, 4, 5)).astype(float)
    goal = DRAWS.integers(1, 90, (2, 4, 5)).astype(float)
    if empty:
        goal[1] = 0
        goal[0, 2] = 0
    first, second = goal.sum(axis=2), goal.sum(axis=1)
    found = rake(table, first, second, rounds=60)
    assert np.isfinite(found).all()
    np.testing.assert_allclose(found.sum(axis=2), first, atol=1e-4)
    np.testing.assert_allclose(found.sum(axis=1), second, atol=1e-4)


def test_independent_tables_have_the_margins_of_their_columns() -> None:
    first, second = np.array([[1.0, 3.0], [0.0, 0.0]]), np.array([[2.0, 2.0], [0.0, 0.0]])
    table = independent(first, second)
    assert table[0].tolist() == [[0.5, 0.5], [1.5, 1.5]]
    assert table[1].tolist() == [[0, 0], [0, 0]]


def test_apportioned_counts_are_within_one_and_levels_within_two_of_what_they_should_be() -> None:
    shares = DRAWS.dirichlet(np.ones(6) / 2, 40)
    shares[3] = 0.0
    counts = DRAWS.integers(0, 60, 40)
    found = apportion(counts, shares, stream().words(6))
    assert found.sum(axis=1).tolist() == counts.tolist()
    shares[3] = 1 / 6
    expected = shares * counts[:, None]
    assert np.abs(found - expected).max() < 1 + 1e-9
    assert np.abs((found - expected).sum(axis=0)).max() < 3


def test_levels_of_probability_0_are_never_drawn() -> None:
    groups = np.repeat(np.arange(3), 7)
    shares = np.array([[0.3, 0.0, 0.7], [0.0, 1.0, 0.0], [0.5, 0.5, 0.0]])
    drawn = draw_levels(groups, shares, stream())
    assert not set(zip(groups.tolist(), drawn.tolist(), strict=True)) & {(0, 1), (1, 0), (1, 2), (2, 2)}


def test_columns_with_one_parent_are_drawn_independently_of_each_other() -> None:
    groups = np.zeros(4000, np.int64)
    words = stream()
    first, second = (draw_levels(groups, np.array([[0.5, 0.5]]), words) for _ in range(2))
    both = np.bincount(first * 2 + second, minlength=4)
    # A table of 4000 rows with both margins at half varies by 16 about 1000: 7 of that.
    assert np.abs(both - 1000).max() < 112


def test_weights_fit_tables_that_a_sample_does_not_have() -> None:
    codes = [DRAWS.integers(0, 3, 3000), DRAWS.integers(0, 2, 3000)]
    wanted = np.array([[500.0, 10.0], [100.0, 200.0], [50.0, 140.0]])
    weights = fit_weights(codes, [((0, 1), wanted)], 1.0, 12)
    found = np.bincount(codes[0] * 2 + codes[1], weights, 6).reshape(3, 2)
    np.testing.assert_allclose(found, wanted)
    picked = resample(np.arange(3000), weights, 1000, stream())
    counts = np.bincount(codes[0][picked] * 2 + codes[1][picked], minlength=6).reshape(3, 2)
    assert np.abs(counts - wanted).max() < 60


def test_weights_fit_tables_that_share_columns() -> None:
    codes = [DRAWS.integers(0, size, 4000) for size in (3, 4, 2, 5)]
    true = DRAWS.random((3, 4, 2, 5))
    true *= 4000 / true.sum()
    columns = [(0, 1), (2, 1), (0, 2, 3), (3, 1), (3,)]
    letters = ["".join("abcd"[column] for column in table) for table in columns]
    wanted = [np.einsum(f"abcd->{part}", true) for part in letters]
    weights = fit_weights(codes, list(zip(columns, wanted, strict=True)), 1.0, 60)
    for table, counts in zip(columns, wanted, strict=True):
        place = np.ravel_multi_index([codes[column] for column in table], counts.shape)
        found = np.bincount(place, weights, counts.size)
        assert np.abs(found - counts.ravel()).sum() < 0.003 * 4000


def test_products_of_rounded_matrices_are_exact() -> None:
    first, second = DRAWS.random((3, 40)), 256 * DRAWS.random((40, 2))
    found = multiply_rounded(first, 18, second, 14)
    for i, j in itertools.product(range(3), range(2)):
        pairs = zip(first[i].tolist(), second[:, j].tolist(), strict=True)
        exact = sum(math.floor(a * 2**18 + 0.5) * math.floor(b * 2**14 + 0.5) for a, b in pairs)
        assert Fraction(float(found[i, j])) == Fraction(exact, 2**32)


def test_hidden_classes_have_the_tables_that_they_are_fitted_to() -> None:
    sizes, shares = [3, 4, 2], DRAWS.dirichlet([1.0, 1.0])
    true = [DRAWS.dirichlet(np.ones(size), 2) for size in sizes]
    pairs = [(0, 1), (0, 2), (1, 2)]
    tables = {(a, b): 500 * np.einsum("k,ka,kb->ab", shares, true[a], true[b]) for a, b in pairs}
    found = fit_hidden_classes(tables, sizes, stream())
    for (a, b), table in tables.items():
        model = np.einsum("k,ka,kb->ab", found.classes, found.columns[a], found.columns[b])
        assert np.abs(500 * model - table).sum() < 0.01 * 500
    rows = found.draw(1000, stream(), {1: 2})
    assert set(rows[1]) == {2}
    given = tables[0, 1][:, 2] / tables[0, 1][:, 2].sum()
    assert np.abs(np.bincount(rows[0], minlength=3) / 1000 - given).max() < 0.05


@pytest.mark.parametrize(
    ("column", "least", "most"),
    [
        (Column("x", lower=-1, upper=1), 127, 127),
        (Column("x", lower=0, upper=1), 128, 128),
        (Column("x", type="integer", lower=0, upper=40), 40, 40),
        (Column("x", type="integer", lower=5, upper=1_000_000), 90, 127),
        (Column("x", lower=0, upper=50, grid=0.5), 100, 100),
        (Column("x", lower=datetime.date(2000, 1, 1), upper=datetime.date(2020, 1, 1)), 127, 128),
    ],
)
def test_fine_edges_rise_within_the_bounds(column: Column, least: int, most: int) -> None:
    cells = make_one(column)
    lower, upper = column.range
    assert cells.is_cut
    assert least <= len(cells.fine) <= most
    assert all(a < b for a, b in itertools.pairwise([lower, *cells.fine]))
    assert cells.fine[-1] <= upper


def test_zero_has_a_cell_of_its_own() -> None:
    assert make_one(Column("x", lower=0, upper=1)).fine[0] == LEAST_MAGNITUDE
    assert make_one(Column("x", type="integer", lower=0, upper=99_999)).fine[0] == 1


def test_whole_numbers_with_few_values_are_their_own_cells() -> None:
    cells = make_one(Column("x", type="integer", lower=-2, upper=13, required=False))
    assert (cells.size, cells.has_fine) == (17, False)
    assert cells.edges[0] == -1


def test_cuts_are_at_equal_mass_and_beside_atoms() -> None:
    cells = make_one(Column("x", type="integer", lower=0, upper=120, required=False))
    counts = np.full(cells.fine_size, 10.0)
    counts[0] = 5000.0
    settled = cells.settle(counts, 1.0, float(counts.sum()))
    assert settled.edges[0] == 1
    assert settled.size == 1 + 8 + 1
    sizes = np.bincount(settled.cell_of_fine, counts)[1:-1]
    assert sizes.max() - sizes.min() <= 20
    even = cells.settle(np.full(cells.fine_size, 10.0), 1.0, 10.0 * cells.fine_size)
    assert even.size == 12 + 1


@pytest.mark.parametrize("counts", [0.0, -50.0])
def test_cuts_survive_counts_that_are_noise(counts: float) -> None:
    for required in (True, False):
        cells = make_one(Column("x", lower=0, upper=1, required=required))
        settled = cells.settle(np.full(cells.fine_size, counts), 1e6, 100.0)
        assert settled.size == (1 if required else 3)


def test_rare_levels_share_a_cell_and_are_drawn_by_their_counts() -> None:
    cells = make_one(Column("x", values=tuple(f"v{i}" for i in range(80)), closed=True))
    counts = np.full(80, 1.0)
    counts[:3] = 500.0
    counts[5] = 40.0
    settled = cells.settle(counts, 20.0, float(counts.sum()))
    assert settled.size == 4
    assert settled.groups is not None
    assert settled.groups[:3] == (0, 1, 2)
    assert set(settled.groups[3:]) == {3}
    drawn = draw_values(settled, np.full(200, 3), NoisyTable(("x",), counts, 0.5), stream()).expand()
    assert 5 in drawn
    assert drawn.min() >= 3


def test_values_stay_in_their_cells_and_on_the_grid() -> None:
    columns = [
        (Column("x", type="integer", lower=0, upper=100), (10, 11, 50)),
        (Column("x", lower=-3, upper=3, required=False), (-1, 0.25)),
        (Column("x", lower=0, upper=10, grid=0.5), (1, 5)),
    ]
    for column, edges in columns:
        cells = make_one(column, *edges)
        codes = np.repeat(np.arange(cells.size), 50)
        numbers = draw_values(cells, codes, None, stream()).expand()
        known = ~np.isnan(numbers)
        assert (np.searchsorted(np.array(edges), numbers[known], side="right") == codes[known]).all()
        assert known.sum() == 50 * (len(edges) + 1)
        if column.grid:
            assert (np.round(numbers * 2) == numbers * 2).all()
        if column.type == "integer":
            assert (numbers == np.round(numbers)).all()
            assert set(numbers[codes == 1]) == {10.0}


@pytest.mark.parametrize("edges", [(0.5, 0.5), (0.0,), (2.0,), (), ("a",), (float("nan"),)])
def test_declared_cells_must_rise_within_the_bounds(edges: tuple[Any, ...]) -> None:
    with pytest.raises(ParameterError, match="rising values"):
        make_cells(Schema(columns=[Column("x", lower=0, upper=1)]), {"x": edges})


def test_the_forest_is_the_one_with_the_most_dependence() -> None:
    pairs = list(itertools.combinations(range(5), 2))
    dependence = DRAWS.normal(100, 50, len(pairs)).tolist()
    found = find_tree(pairs, dependence, -1e9, 5)
    known = dict(zip(pairs, dependence, strict=True))
    best = max(
        sum(known[e] for e in edges)
        for edges in itertools.combinations(pairs, 4)
        if len(find_tree(list(edges), [1.0] * 4, 0.0, 5)) == 4
    )
    assert sum(known[e] for e in found) == pytest.approx(best)
    assert find_tree(pairs, dependence, 1e9, 5) == []


def test_precisions_are_the_ones_with_the_least_error() -> None:
    budget = NoiseBudget.from_promise(GaussianDP(mu=1.0), "replace-one", None)
    coefficients = [3, 50, 700]
    weights = [budget.weigh(a) for a in coefficients]

    def error(precisions: list[float]) -> float:
        scale = math.sqrt(2 * sum(precisions))
        return 0.399 * sum(a * scale / math.sqrt(p) for a, p in zip(coefficients, precisions, strict=True))

    best = budget.error(add_up(weights), 1.0)
    assert error(weights) == pytest.approx(best)
    assert error([float(p) for p in budget.precisions(weights)]) == pytest.approx(best, rel=1e-3)
    for _ in range(20):
        assert error((np.array(weights) * DRAWS.uniform(0.5, 2, 3)).tolist()) >= best
    laplace = NoiseBudget.from_promise(PureDP(epsilon=1.0), "replace-one", None)
    assert laplace.count_sd(4) == pytest.approx(2**0.5 * 2 * 4)
    assert laplace.precisions([1.0, 2.0]) == [64, 256]


def test_with_little_budget_no_edge_is_worth_its_noise_and_with_much_all_are() -> None:
    edges = {(0, 1): 400.0, (1, 2): 300.0}
    one = 100.0
    for mu, count in ((0.001, 0), (100.0, 2)):
        budget = NoiseBudget.from_promise(GaussianDP(mu=mu), "replace-one", None)
        choice = choose_edges(budget, 0.45, edges, [8, 8, 8], 2, one)
        assert len(choice.pairs) == count
        assert choice.by_class or not count


def test_fluctuation_is_what_samples_of_independent_columns_show() -> None:
    shares = DRAWS.dirichlet(np.ones(30))
    samples = DRAWS.multinomial(5000, shares, size=400)
    off = np.abs(samples - 5000 * shares).sum(axis=1) / 2
    assert expected_fluctuation(5000 * shares) == pytest.approx(off.mean(), rel=0.05)


def test_one_way_counts_agree_with_each_other() -> None:
    truth = [DRAWS.integers(0, 300, (m, 3)).astype(float) for m in (4, 7)]
    truth[1] *= truth[0].sum(axis=0) / truth[1].sum(axis=0)
    n = truth[0].sum()
    noisy = [NoisyTable(("c", "y"), table + DRAWS.normal(scale=4, size=table.shape), 4.0) for table in truth]
    found = estimate_one_way(noisy, n, has_target=True, ordered=[True, False])
    assert found.classes.sum() == pytest.approx(n)
    for column, table in zip(found.columns, truth, strict=True):
        np.testing.assert_allclose(add_along(column, 1), found.classes)
        assert np.abs(column.T - table).mean() < 6
    rows, sd = estimate_rows(noisy)
    assert abs(rows - n) < 7 * sd


def test_rows_drawn_along_a_tree_have_its_tables() -> None:
    truth = DRAWS.integers(0, 90, (4, 5, 2)).astype(float)
    tables = [NoisyTable(("u", "y"), truth.sum(axis=1), 0.0), NoisyTable(("v", "y"), truth.sum(axis=0), 0.0)]
    one_way = estimate_one_way(tables, truth.sum(), has_target=True, ordered=[True, True])
    edge = estimate_edge(NoisyTable(("u", "v", "y"), truth, 0.0), (0, 1), one_way, has_class=True)
    classes = np.repeat(np.arange(2), truth.sum(axis=(0, 1)).astype(int))
    u, v = TreeModel(one_way, {(0, 1): edge}).draw(classes, stream())
    found = np.bincount((u * 5 + v) * 2 + classes, minlength=40).reshape(4, 5, 2)
    assert np.abs(found - truth).max() <= 2


def test_shares_add_up_and_follow_from_public_facts() -> None:
    columns = [Column(f"c{i}", values=tuple(range(4))) for i in range(5)]
    schema = Schema(columns=columns, target="c4")
    rich = make_plan(schema, 50_000, GaussianDP(mu=0.3))
    assert list(rich.shares) == [name for name in SHARES if name != "fine"]
    poor = make_plan(schema, 4000, GaussianDP(mu=0.1))
    assert list(poor.shares) == ["one", "scores", "tables"]
    assert poor.shares["tables"] == pytest.approx(0.8)
    none = make_plan(schema, 400, GaussianDP(mu=0.1))
    assert list(none.shares) == ["one"]
    for plan in (rich, poor, none):
        assert add_up(plan.shares.values()) == pytest.approx(1.0)
    assert any("second round" in note for note in poor.notes)
    assert any("independent" in note for note in none.notes)


def test_cells_and_scale_of_the_schema_are_used_unless_others_are_given() -> None:
    column = Column("x", lower=0, upper=100, cells=(10, 50))
    assert make_one(column).edges == (10, 50)
    assert make_one(column, 20).edges == (20,)
    first = datetime.date(2020, 1, 1)
    day = Column("x", lower=first, upper=datetime.date(2021, 1, 1), cells=(datetime.date(2020, 1, 31),))
    assert make_one(day).edges == make_one(replace(day, cells=None), "2020-01-31").edges == (30,)
    linear, log = (make_one(Column("x", lower=0, upper=5000, scale=s)).fine for s in ("linear", "log"))
    assert linear[2] == pytest.approx(2 * 5000 / 128)
    assert log == make_one(Column("x", lower=0, upper=5000)).fine
    assert log[2] < 1
    ratios = make_one(Column("x", lower=1e-6, upper=1e-2, scale="log")).fine
    assert all(b / a == pytest.approx(10 ** (4 / 128)) for a, b in itertools.pairwise(ratios))
    days = make_one(Column("x", lower=first, upper=datetime.date(2030, 1, 1), scale="log")).fine
    assert days[:4] == (1, 2, 3, 4)


def test_numbers_that_fall_are_the_nearest_ones_with_the_same_sum() -> None:
    assert fit_falling(np.array([5.0, 3.0, 3.0, 0.0])).tolist() == [5.0, 3.0, 3.0, 0.0]
    assert fit_falling(np.array([1.0, 2.0, 6.0])).tolist() == [3.0, 3.0, 3.0]
    assert fit_falling(np.array([4.0, 1.0, 3.0, -2.0, 0.0])).tolist() == [4.0, 2.0, 2.0, -1.0, -1.0]
    draws = Stream.from_seed(1).generator()
    for _ in range(50):
        noisy = draws.normal(size=6)
        fitted = fit_falling(noisy)
        assert (np.diff(fitted) <= 0).all()
        assert math.isclose(fitted.sum(), noisy.sum(), abs_tol=1e-12)
        others = -np.sort(-draws.normal(size=(500, 6)), axis=1)
        assert (((others - noisy) ** 2).sum(axis=1) >= ((fitted - noisy) ** 2).sum()).all()


def test_a_long_tail_is_not_filled_with_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows next to the last edge stay near it; spread as in other cells, they reach far into the tail."""
    cells = make_one(Column("x", lower=0, upper=1000), 1, 2, 3)
    tail = np.flatnonzero(cells.cell_of_fine == 3)
    fine = np.zeros(len(cells.cell_of_fine))
    fine[tail] = 300.0 * (tail == tail[0]) + np.where(tail % 2 == 0, 100.0, -100.0)
    codes, counts = np.full(300, 3), NoisyTable(("x",), fine, 100.0)
    assert draw_values(cells, codes, counts, stream()).expand().mean() < 150
    monkeypatch.setattr(rows, "_LEAST_CELLS", 5)
    assert draw_values(cells, codes, counts, stream()).expand().mean() > 180
