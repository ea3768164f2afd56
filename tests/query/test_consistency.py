"""Adjusted results: nearer to the truth, possible, and with intervals that hold."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import TYPE_CHECKING

import pytest
from scipy import stats

from discreet import Database, GaussianDP
from discreet.errors import ParameterError
from discreet.noise import Stream
from discreet.query import ConsistentResult
from discreet.query.consistency import project_counts, round_counts
from discreet.query.intervals import LEVEL, ResultInterval, interval_width, sum_intervals
from discreet.query.result_table import CellNumbers, ResultTable, TableColumn, TableRow
from tests.query.survey import ROWS, SCHEMA, N

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MU = GaussianDP(mu=0.05)
SD = 25.0


@pytest.fixture(scope="module")
def db() -> Iterator[Database]:
    with Database(ROWS, schema=SCHEMA, random_state=5) as made:
        yield made


def draw_tables() -> Iterator[tuple[list[int], list[Fraction]]]:
    """Yield exact counts, many of them 0, and the same with noise of a few or of many rows."""
    rng = Stream.from_seed(7).generator()
    for size, spread, _ in itertools.product((1, 2, 3, 9, 40), (1.0, 30.0), range(30)):
        exact = [
            int(count) * int(kept)
            for count, kept in zip(rng.integers(0, 90, size), rng.integers(0, 2, size), strict=True)
        ]
        yield (
            exact,
            [
                count + Fraction(float(noise))
                for count, noise in zip(exact, rng.normal(0, spread, size), strict=True)
            ],
        )


def squared(one: Sequence[Fraction | int], other: Sequence[Fraction | int]) -> Fraction:
    return sum(((Fraction(a) - b) ** 2 for a, b in zip(one, other, strict=True)), Fraction(0))


def test_a_projection_is_never_farther_from_the_exact_counts() -> None:
    for exact, noisy in draw_tables():
        total = Fraction(sum(exact))
        before = squared(noisy, exact)
        free = project_counts(noisy, None)
        added = project_counts(noisy, total)
        limited = project_counts(noisy, total + 3, exactly=False)
        for found in (free, added, limited):
            assert min(found) >= 0
            assert squared(found, exact) <= before  # exactly: these are fractions
        assert sum(added) == total
        assert sum(limited) <= total + 3
        # What only cuts off, and what scales to the total, is sometimes farther: the test can tell.
    scaled = [
        [value * sum(exact) / (sum(cut) or 1) for value in cut]
        for exact, noisy in draw_tables()
        for cut in [project_counts(noisy, None)]
    ]
    assert any(
        squared(found, exact) > squared(noisy, exact)
        for found, (exact, noisy) in zip(scaled, draw_tables(), strict=True)
    )


def test_a_projection_is_the_nearest_point() -> None:
    """At the nearest point, no move towards another possible one comes closer."""
    for exact, noisy in draw_tables():
        found = project_counts(noisy, Fraction(sum(exact)))
        for to in range(len(exact)):
            corner = [sum(exact) if i == to else 0 for i in range(len(exact))]
            inner = sum(
                ((y - x) * (c - x) for y, x, c in zip(noisy, found, corner, strict=True)), Fraction(0)
            )
            assert inner <= 0


def test_rounding_keeps_the_total_and_moves_no_count_by_one() -> None:
    for exact, noisy in draw_tables():
        values = project_counts(noisy, Fraction(sum(exact)))
        whole = round_counts(values, sum(exact))
        assert sum(whole) == sum(exact)
        assert all(abs(a - b) < 1 and a >= 0 for a, b in zip(whole, values, strict=True))
    assert round_counts([Fraction(1, 2), Fraction(5, 2), Fraction(7, 4)], None) == [0, 2, 2]
    assert project_counts([Fraction(3), Fraction(-1)], Fraction(0)) == [0, 0]


def test_groups_add_up_to_the_public_number_of_rows(db: Database) -> None:
    result = db.query("count by sex, select", privacy=MU)
    adjusted = result.consistent()
    values = adjusted.frame.columns["value"]
    assert any((cell.value or 0) < 0 for cell in result.cells)
    assert sum(values) == N
    assert all(value >= 0 and value == int(value) for value in values)
    assert set(adjusted.frame.columns["sd"]) == {None}
    assert result.consistent().raw.rows == result.table.rows  # the noisy numbers stay
    assert "add up to 4,000 rows" in str(adjusted)
    assert "add up to 4,000 rows" in adjusted._repr_html_()
    assert "<svg" in (adjusted.to_svg() or "")


def test_subtotals_add_up_and_their_intervals_are_of_sums(db: Database) -> None:
    adjusted = db.query("count by sex, select", privacy=MU).consistent()
    by_sex, everyone = adjusted.subtotals("sex"), adjusted.subtotals()
    assert by_sex.table.group_by == ("sex",)
    assert [row.key for row in by_sex.table.rows] == [("f",), ("m",), ("x",)]
    assert sum(by_sex.frame.columns["value"]) == N
    assert (everyone.value, everyone.interval) == (N, (N, N))
    assert by_sex.subtotals().value == N
    cells = [row.numbers["count"] for row in by_sex.table.rows]
    assert all(cell.lower <= (cell.value or 0) <= cell.upper for cell in cells)
    with pytest.raises(ParameterError, match="must be from sex, select, was 'age'"):
        adjusted.subtotals("age")
    with pytest.raises(ParameterError, match=r"the result has mean\(age\)"):
        db.query("mean(age) by sex", privacy=MU).consistent().subtotals()


def test_counts_of_some_rows_do_not_add_up_to_all_of_them(db: Database) -> None:
    some = db.query("count where age > 60 by sex", privacy=MU).consistent()
    assert not some.totals
    assert sum(some.frame.columns["value"]) < N
    one = db.query("count where age < 18 AND sex = 'x'", privacy=MU)
    assert one.consistent().value == max(0, round(one.value or 0))
    assert "add up" not in str(some)


def test_other_numbers_stay_as_they_are(db: Database) -> None:
    mean = db.query("mean(age) by sex", privacy=MU)
    assert mean.consistent().frame.columns["value"] == mean.frame.columns["value"]
    total = db.query("sum(age) by sex", privacy=MU)
    values, bounds = total.consistent().frame.columns["value"], total.columns[0].bounds
    assert values == [min(max(cell.value or 0, bounds.lower), bounds.upper) for cell in total.cells]


# Intervals.

COUNT = TableColumn("count", "rows", ResultInterval(0.0, 300.0), None)


def adjust(values: Sequence[float], total: float | None) -> ConsistentResult:
    """Return the adjusted table of noisy counts by one key, or two if there are four."""
    width = interval_width("gaussian")
    rows = []
    for key, value in zip(itertools.product("ab", "xy"), values, strict=False):
        ends = sum_intervals(value, SD, width, COUNT.bounds)  # type: ignore[arg-type]
        rows.append(TableRow(key, {"count": CellNumbers(value, SD, *map(float, ends))}))
    table = ResultTable(
        title="count by one, two", group_by=("one", "two"), columns=(COUNT,), rows=tuple(rows)
    )
    return ConsistentResult.from_table(table, "gaussian", {} if total is None else {"count": total})


def covered(found: CellNumbers, exact: float) -> bool:
    return found.lower <= exact <= found.upper


@pytest.mark.slow
@pytest.mark.parametrize("exact", [(150, 150, 0, 0), (300, 0, 0, 0), (70, 80, 90, 60)])
@pytest.mark.parametrize("total", [300.0, None])
def test_intervals_hold_as_often_as_they_say(exact: tuple[int, ...], total: float | None) -> None:
    rng, runs = Stream.from_seed(3).generator(), 1500
    hits = dict.fromkeys(("cell", "empty", "subtotal", "narrow twin"), 0)
    for noise in rng.normal(0, SD, (runs, 4)):
        noisy = [count + float(one) for count, one in zip(exact, noise, strict=True)]
        found = adjust(noisy, total)
        cells = [row.numbers["count"] for row in found.table.rows]
        hits["cell"] += covered(cells[0], exact[0])
        hits["empty"] += covered(cells[2], exact[2])
        hits["subtotal"] += covered(found.subtotals("one").table.rows[0].numbers["count"], sum(exact[:2]))
        # The wrong twin is narrower without using the total.
        hits["narrow twin"] += abs(noisy[1] - exact[1]) <= interval_width("gaussian") * SD / math.sqrt(2)
    least = stats.binom.ppf(1e-10, runs, LEVEL)
    assert min(hits["cell"], hits["empty"], hits["subtotal"]) >= least
    assert hits["narrow twin"] < least


def test_a_public_total_makes_intervals_narrower() -> None:
    with_total, without = (adjust((70.3, 80.9, 92.2, 61.5), total) for total in (300.0, None))

    def width(found: ConsistentResult) -> float:
        cell = found.table.rows[0].numbers["count"]
        return cell.upper - cell.lower

    assert width(with_total) == pytest.approx(width(without) * math.sqrt(3 / 4), abs=2)
    assert width(with_total.subtotals("one")) == pytest.approx(
        width(without.subtotals("one")) * math.sqrt(1 / 2), abs=2
    )
    assert adjust((70.3, 80.9, 92.2, 61.5), 300.0).subtotals().interval == (300.0, 300.0)


def test_an_adjusted_number_is_in_its_interval() -> None:
    """In a table of many empty groups the projection lowers a large one beyond its margin."""
    width = interval_width("gaussian")
    rng = Stream.from_seed(4).generator()
    rows = []
    for i, noise in enumerate(rng.normal(0, SD, 4000)):
        value = float(noise) + (300.0 if i == 0 else 0.0)
        ends = sum_intervals(value, SD, width, COUNT.bounds)  # type: ignore[arg-type]
        rows.append(TableRow((str(i),), {"count": CellNumbers(value, SD, *map(float, ends))}))
    table = ResultTable(title="count by i", group_by=("i",), columns=(COUNT,), rows=tuple(rows))
    found = ConsistentResult.from_table(table, "gaussian", {"count": 300.0})
    cells = [row.numbers["count"] for row in found.table.rows]
    assert sum(cell.value or 0 for cell in cells) == 300
    assert all(cell.lower <= (cell.value or 0) <= cell.upper for cell in cells)
    assert cells[0].value == cells[0].lower < 300 - width * SD - 1
