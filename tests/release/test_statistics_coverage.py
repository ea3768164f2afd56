"""How often intervals of published statistics hold the exact number, and that wrong ones would be seen.

An interval at 95 % holds for 93 to 97 % of counts, and for at least 93 % of means. The sizes are such that
honest intervals are outside these limits less than once in 10**9 runs.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest

from discreet import ApproxDP, PureDP
from discreet.query.database import Database
from discreet.query.intervals import (
    LEVEL,
    ResultInterval,
    count_intervals,
    one_sided_width,
    sum_intervals,
    two_sided_width,
)
from discreet.release.statistics import TableStatistics, _estimates
from discreet.release.statistics._published_counts import cell_ends
from discreet.release.synthetic import SyntheticRelease
from tests.release.redrawn_tables import CELLS, N_ROWS, SCHEMA, covered, redraw, true_rows

PRIVACIES: dict[str, Any] = {
    "0.1": ApproxDP(epsilon=0.1, delta=1e-6),
    "1": ApproxDP(epsilon=1, delta=1e-6),
    "10": ApproxDP(epsilon=10, delta=1e-6),
    "pure": PureDP(epsilon=20),
}
LEVELS: dict[str, list[Any]] = {
    "town": ["east", "west", "north", None],
    "size": [0, 1, 2, 3],
    "ill": [0, 1],
}
Change = Callable[[dict[str, Any]], None]


def codes(rows: dict[str, Any], name: str) -> Any:
    """Return the cell of each row."""
    if name == "age":
        return np.searchsorted(CELLS["age"], rows["age"], side="right")
    if name == "pay":
        found = np.searchsorted(CELLS["pay"], rows["pay"], side="right")
        return np.where(np.isnan(rows["pay"]), len(CELLS["pay"]) + 1, found)
    return np.array([LEVELS[name].index(value) for value in rows[name]])


def exact_table(names: Iterable[str], rows: dict[str, Any] | None = None) -> Any:
    """Return the exact counts of all cells of some columns, in C order."""
    made = true_rows() if rows is None else rows
    sizes = [
        len(LEVELS[name]) if name in LEVELS else len(CELLS[name]) + 1 + (name == "pay") for name in names
    ]
    places = np.ravel_multi_index([codes(made, name) for name in names], sizes)
    return np.bincount(places, minlength=int(np.prod(sizes)))


def held_pairs(document: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the pairs of columns that a table of a release holds."""
    names = [column.name for column in SCHEMA.columns]
    asked = document["questions"]
    held = [set(table["columns"]) for one in asked for table in one.get("tables", ())]
    return [pair for pair in itertools.combinations(names, 2) if any(set(pair) <= one for one in held)]


def count_coverage(privacy: Any, draws: range, change: Change = lambda document: None) -> float:
    """Return the share of cells of all columns and pairs whose intervals hold the exact count."""
    found: list[bool] = []
    for seed in draws:
        document = redraw(privacy, seed)
        change(document)
        statistics = TableStatistics(document)
        for pair in held_pairs(document):
            found += covered(statistics.crosstab(*pair), exact_table(pair))
        for name in LEVELS:
            found += covered(statistics.count(by=name), exact_table([name]))
    return float(np.mean(found))


def mean_coverage(statistics: TableStatistics) -> list[bool]:
    """Return for some means whether their intervals hold the exact ones."""
    rows = true_rows()
    found = covered(statistics.mean("age"), rows["age"].mean())
    found += covered(statistics.mean("pay"), np.nanmean(rows["pay"]))
    found += covered(statistics.mean("size"), rows["size"].mean())
    for name in ("age", "size"):
        exact = [rows[name][rows["ill"] == ill].mean() for ill in (0, 1)]
        found += covered(statistics.mean(name, by="ill"), exact)
    return found


def halve_noise(document: dict[str, Any]) -> None:
    """Say half of the noise that there is."""
    for asked in document["questions"]:
        asked["sd"] = [sd / 2 for sd in asked["sd"]]


def repeat_tables(document: dict[str, Any]) -> None:
    """Count every table twice, as if it had been asked again."""
    document["questions"] += document["questions"]


@pytest.mark.parametrize(
    "name", ["10", *(pytest.param(name, marks=pytest.mark.slow) for name in ("0.1", "pure"))]
)
def test_counts_and_cross_tables_are_covered_as_often_as_they_say(name: str) -> None:
    # At epsilon 0.1 a release has fewer tables.
    assert 0.93 <= count_coverage(PRIVACIES[name], range(200 if name == "0.1" else 120)) <= 0.97


@pytest.mark.parametrize("change", [halve_noise, repeat_tables])
def test_half_of_the_noise_and_tables_counted_twice_would_be_seen(change: Change) -> None:
    assert count_coverage(PRIVACIES["10"], range(30), change) < 0.9


@pytest.mark.slow
@pytest.mark.parametrize("name", PRIVACIES)
def test_means_are_covered_at_least_as_often_as_they_say(name: str) -> None:
    found = [mean_coverage(TableStatistics(redraw(PRIVACIES[name], seed))) for seed in range(700)]
    assert np.mean(found) >= 0.93


@pytest.mark.slow
def test_means_that_forget_what_is_inside_cells_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = cell_ends

    def middles(axis: Any) -> Any:
        low, high = honest(axis)
        return (low + high) / 2, (low + high) / 2

    monkeypatch.setattr(_estimates, "cell_ends", middles)
    found = [mean_coverage(TableStatistics(redraw(PRIVACIES["10"], seed))) for seed in range(60)]
    assert np.mean(found) < 0.9


def release_coverage(epsilon: float, seeds: range, cells: Any) -> dict[str, float]:
    """Return how often intervals of whole releases hold, and those of their rows taken as data."""
    rows, found = true_rows(), {"counts": [], "means": [], "rows": []}  # type: dict[str, Any], dict[str, list[bool]]
    privacy = ApproxDP(epsilon=epsilon, delta=1e-6)
    for seed in seeds:
        with Database(rows, schema=SCHEMA, random_state=seed) as database:
            method = SyntheticRelease(privacy, schema=SCHEMA, cells=cells, anyway=True)
            made = method.release_database(database)
        statistics = TableStatistics(method.tables_)
        found["means"] += mean_coverage(statistics)
        for pair in (("town", "ill"), ("size", "ill")):
            counted = statistics.crosstab(*pair)
            assert counted.basis == "tables"
            found["counts"] += covered(counted, exact_table(pair))
            as_data = np.bincount(
                np.ravel_multi_index([_made_codes(made, name) for name in pair], (4, 2)), minlength=8
            )
            margin = 1.96 * np.sqrt(as_data * (1 - as_data / N_ROWS))
            found["rows"] += (abs(as_data - exact_table(pair)) <= margin).tolist()
    return {kind: float(np.mean(values)) for kind, values in found.items()}


def _made_codes(made: Any, name: str) -> Any:
    return np.asarray(made.columns[name]).astype(np.int64)


@pytest.mark.slow
def test_intervals_of_whole_releases_hold_and_those_of_rows_taken_as_data_do_not() -> None:
    found = release_coverage(1, range(40), CELLS)
    assert found["counts"] >= 0.88  # 640 intervals: honest ones are above it but once in 10**12
    assert found["means"] >= 0.85
    assert found["rows"] < 0.85


@pytest.mark.stats
@pytest.mark.parametrize("epsilon", [0.1, 1, 10])
@pytest.mark.parametrize("cells", [CELLS, None])
def test_intervals_of_many_whole_releases_hold(epsilon: float, cells: Any) -> None:
    found = release_coverage(epsilon, range(600), cells)
    assert 0.93 <= found["counts"] <= 0.97
    assert found["means"] >= 0.93


@pytest.mark.stats
@pytest.mark.parametrize("name", PRIVACIES)
def test_counts_are_covered_in_many_draws(name: str) -> None:
    assert 0.94 <= count_coverage(PRIVACIES[name], range(1000)) <= (0.97 if name == "pure" else 0.96)


@pytest.mark.parametrize("count", [0.0, 0.3, 1.5, 1.9, 2.0, 3.0, 50.0])
def test_intervals_of_counts_hold_exactly_at_their_level(count: float) -> None:
    from scipy import special

    noise = special.ndtri((np.arange(400_000) + 0.5) / 400_000)
    values = count + noise
    for level in (0.8, LEVEL, 0.99):
        lower, upper = count_intervals(values, np.ones_like(values), "gaussian", level, np.inf)
        assert np.mean((lower <= count) & (count <= upper)) == pytest.approx(level, abs=1e-5)
        assert np.all(lower <= upper)
    wide = sum_intervals(
        values, np.ones_like(values), two_sided_width("gaussian", LEVEL), ResultInterval(0, np.inf)
    )
    if count == 0:
        assert np.mean((wide[0] <= count) & (count <= wide[1])) == pytest.approx((1 + LEVEL) / 2, abs=1e-5)


def test_no_sum_of_laplace_noises_exceeds_the_width_of_one_side_more_often() -> None:
    # The density of a sum of k equal Laplace noises follows from its transform; k = 1 and many are the ends.
    grid = np.linspace(-40, 40, 2**16, endpoint=False)
    step = grid[1] - grid[0]
    waves = 2 * np.pi * np.fft.fftfreq(len(grid), step)
    for k in (1, 2, 3, 5, 10, 100):
        density = np.fft.fftshift(np.fft.ifft((1 + waves**2 / (2 * k)) ** -k).real) / step
        for level in (0.9, 0.95, 0.975, 0.995):
            beyond = density[grid > one_sided_width("laplace", level)].sum() * step
            assert beyond <= 1 - level + 4e-4
