"""Bounds from noisy counts of public cells: what they prove, how often they fail, what one person moves."""

from __future__ import annotations

import datetime
import itertools
import math
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import pytest
from scipy import special

from discreet.noise import Stream
from discreet.pipeline.draft import bounds_question
from discreet.query.curation import Curation
from discreet.query.engines._duckdb import DuckDBEngine
from discreet.query.range_cells import RangeCells, estimate_range, noise_limit
from discreet.schema import Column, Schema
from discreet.schema.schema import Neighbors

if TYPE_CHECKING:
    from discreet._types import Floats

TYPES = ("number", "integer", "date", "datetime")
TRIALS, FEW = 400, 10  # at a chance of 0.001 each, ten failures in 400 happen once in 10^10


def exact_counts(cells: RangeCells, values: list[Any]) -> Floats:
    """The counts of the cells, the missing ones last, as an engine has them."""
    curation = Curation.from_schema(Schema(columns=[cells.column]))
    engine = DuckDBEngine()
    engine.register({cells.column.name: values}, curation)
    question = bounds_question({cells.column.name: cells})
    found = question.bind(curation, "replace-one").exact(engine)
    engine.close()
    return np.array(found, np.float64)


@pytest.mark.parametrize("type_", TYPES)
def test_every_cell_holds_its_own_ends_and_no_other(type_: str) -> None:
    cells = RangeCells.from_type("x", type_)
    assert len(cells.ends) == len(cells.starts) + 1
    assert all(low <= high for low, high in cells.ends)
    assert all(a[1] <= b[0] or type_ == "integer" for a, b in itertools.pairwise(cells.ends))
    # The end of a cell that is farther from 0, or its last day, is in the cell.
    values = [high if type_.startswith("date") or high > 0 else low for low, high in cells.ends]
    assert exact_counts(cells, values).tolist() == [1.0] * len(cells.ends) + [0.0]


@pytest.mark.parametrize(
    ("type_", "values", "bounds"),
    [
        ("integer", [1, 5, 3, None], (1, 5)),
        ("integer", [18, 64, 97], (15, 100)),
        ("integer", [0, 1], (0, 1)),
        ("integer", [-3, 250], (-3, 300)),
        ("integer", [7], (7, 8)),
        ("integer", [10**12, 10**13], (700_000_000_000, 10**12)),
        ("number", [0.02, 0.99], (0.0, 1.0)),
        ("number", [36.6, 41.0], (30.0, 50.0)),
        ("number", [-273.15, -5.0], (-300.0, 0.0)),
        ("number", [0.0], (0.0, 0.001)),
        ("number", [-1e-200, 1e-300, 0.0005], (0.0, 0.001)),
        ("date", [datetime.date(2020, 2, 29), datetime.date(2024, 1, 1)], ("2020-01-01", "2024-12-31")),
        ("date", [datetime.date(1843, 1, 1)], ("1800-01-01", "1849-12-31")),
    ],
)
def test_bounds_are_round_and_hold_the_values(type_: str, values: list[Any], bounds: tuple[Any, Any]) -> None:
    cells = RangeCells.from_type("x", type_)
    found = estimate_range(cells, exact_counts(cells, values), 1e-6, len(values))
    assert found is not None
    ends = (found.lower, found.upper) if type_ != "date" else (str(found.lower), str(found.upper))
    assert ends == bounds
    assert found.outside < 1e-4
    Column("x", type=type_, lower=found.lower, upper=found.upper)  # type: ignore[arg-type]


def test_a_column_without_proven_rows_gets_no_bounds() -> None:
    cells = RangeCells.from_type("x", "integer")
    assert estimate_range(cells, exact_counts(cells, [None, None]), 0.5, 2) is None


def noisy_trials(counts: Floats, sd: float, seed: int) -> Floats:
    words = Stream.from_seed(seed).words(TRIALS * counts.size) >> np.uint64(12)
    noise = special.ndtri((words.astype(np.float64) + 0.5) * 2.0**-52)
    noisy: Floats = counts + sd * noise.reshape(TRIALS, -1)
    return noisy


def spread_counts(cells: RangeCells) -> Floats:
    """Incomes, most of them between 1,000 and 100,000, some negative and a few large; some are missing."""
    counts = np.zeros(len(cells.ends) + 1)
    for place, (low, high) in enumerate(cells.ends):
        if low >= 1_000 and high <= 100_000:
            counts[place] = 2_000
        elif low >= 100_000 and high <= 2_000_000:
            counts[place] = 150
        elif -5_000 <= low < 0:
            counts[place] = 20
    counts[-1] = 900
    return counts


def failures(limit: float, sd: float, n_rows: int | None) -> int:
    """In how many of the trials a bound is beyond the extreme rows, or more rows are outside than is said."""
    cells = RangeCells.from_type("x", "number")
    counts = spread_counts(cells)
    held = np.flatnonzero(counts[:-1])
    widest = cells.ends[held[0]][0], cells.ends[held[-1]][1]
    total, wrong = counts.sum(), 0
    for noisy in noisy_trials(counts, sd, 7):
        found = estimate_range(cells, noisy, limit, n_rows)
        if found is None:
            continue
        outside = sum(
            count
            for count, (low, high) in zip(counts[:-1], cells.ends, strict=True)
            if high <= found.lower or low >= found.upper
        )
        wrong += found.lower < widest[0] or found.upper > widest[1] or outside > found.outside * total
    return wrong


@pytest.mark.parametrize("sd", [5.0, 60.0])
@pytest.mark.parametrize("is_public", [True, False])
def test_bounds_are_no_wider_than_the_rows_and_clip_no_more_than_is_said(
    sd: float, *, is_public: bool
) -> None:
    cells = RangeCells.from_type("x", "number")
    n_rows = round(spread_counts(cells).sum()) if is_public else None
    assert failures(noise_limit(sd, "gaussian", len(cells.ends), 1), sd, n_rows) < FEW


def test_a_limit_for_one_cell_alone_is_caught() -> None:
    # A cell chosen among many because its noise is large proves nothing at the level of one cell.
    assert failures(60 * NormalDist().inv_cdf(0.9995), 60.0, None) > 3 * FEW


def test_thin_tails_are_noticed_that_no_single_cell_shows() -> None:
    cells = RangeCells.from_type("x", "number")
    counts = np.zeros(len(cells.ends) + 1)
    tail = [place for place, (low, high) in enumerate(cells.ends) if low >= 1_000 and high <= 1_000_000]
    counts[[place for place, (low, _) in enumerate(cells.ends) if low == 500.0]] = 20_000
    counts[tail] = 500
    limit = noise_limit(100.0, "gaussian", len(cells.ends), 1)
    assert counts[tail].max() < limit  # each alone is hidden by noise; together they are a third of all rows
    ends = []
    for noisy in noisy_trials(counts, 100.0, 11)[:50]:
        found = estimate_range(cells, noisy, limit, round(counts.sum()))
        assert found is not None
        ends.append(found.upper)
    assert min(ends) >= 50_000


def test_noise_limits_hold_for_sums_of_laplace_noise_too() -> None:
    assert noise_limit(1.0, "laplace", 183, 4) > noise_limit(1.0, "gaussian", 183, 4)
    events = 4 * 183 * 184
    assert noise_limit(1.0, "laplace", 183, 4) == pytest.approx(math.log(events / 0.001) / math.sqrt(2))


ROWS: list[tuple[Any, ...]] = list(
    itertools.product((0.5, None), (3, -70), (datetime.date(2001, 5, 5), datetime.date(1999, 5, 5)))
)


def exact_answer(bound: Any, rows: list[tuple[Any, ...]], curation: Curation) -> Floats:
    """The exact counts of all columns."""
    engine = DuckDBEngine()
    engine.register({name: [row[i] for row in rows] for i, name in enumerate("xyz")}, curation)
    found = bound.exact(engine)
    engine.close()
    return np.array(found, np.float64)


@pytest.mark.parametrize("neighbors", get_args(Neighbors))
def test_one_person_moves_the_counts_of_all_columns_as_far_as_is_charged(neighbors: Neighbors) -> None:
    cells = {name: RangeCells.from_type(name, type_) for name, type_ in zip("xyz", TYPES, strict=False)}
    curation = Curation.from_schema(Schema(columns=[one.column for one in cells.values()]))
    bound = bounds_question(cells).bind(curation, neighbors)
    rest = [ROWS[0], ROWS[5]]
    for most in (1, 2):
        sets = list(itertools.combinations_with_replacement(ROWS[:1] + ROWS[6:], most))
        before = [exact_answer(bound, [*rest, *rows], curation) for rows in sets]
        after = before if neighbors == "replace-one" else [exact_answer(bound, rest, curation)]
        largest = max(((one - other) ** 2).sum() for one in before for other in after)
        assert largest == most**2 * bound.squared
    # The twin that charges for one column, or for one cell of each.
    assert bound.squared > (2 if neighbors == "replace-one" else 1)
    assert neighbors == "add-remove" or bound.squared > len(cells)
