"""How often intervals from published rows hold the exact number, for every method with a known noise law.

A number of draws of which honest 95 % intervals hold fewer than the limit comes once in 10**9 runs.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from scipy.stats import binom

from discreet import Column, Schema
from discreet.noise import Stream
from discreet.noise_law import ColumnLaw, GaussianLaw, NoiseLaw
from discreet.privacy import ApproxDP, PureDP
from discreet.release import BoundedRelease, CoarseRelease, GaussianRelease, InputPerturbation, LaplaceRelease
from discreet.release.statistics import RowStatistics
from discreet.release.statistics import rows as rows_module

if TYPE_CHECKING:
    from collections.abc import Callable

    from discreet.release import ReleaseMethod

N, DRAWS = 600, 400
LIMIT = int(binom.ppf(1e-10, DRAWS, 0.95))
SCHEMA = Schema(
    columns=[
        Column("age", type="integer", lower=0, upper=100),
        Column("pay", lower=0, upper=1000, required=False),
        Column("rent", lower=0, upper=1000, grid=50),
        Column("job", values=("clerk", "nurse", "pilot"), required=False, closed=True),
    ]
)
PLACES = np.arange(N)
ROWS: dict[str, Any] = {
    "age": 20 + PLACES % 37,
    # Mostly far from the middle of the range, at which missing numbers are noised.
    "pay": np.where(PLACES % 5 == 1, np.nan, 100.0 + PLACES % 90),
    "rent": 120.0 + (PLACES % 11) * 31,
    "job": np.array(["clerk", "clerk", "clerk", "nurse", "pilot", None], dtype=object)[PLACES % 6],
}
METHODS: dict[str, Callable[[int], ReleaseMethod]] = {
    "gaussian": lambda seed: GaussianRelease(
        privacy=ApproxDP(epsilon=50, delta=1e-5), schema=SCHEMA, random_state=seed
    ),
    "laplace": lambda seed: LaplaceRelease(privacy=PureDP(epsilon=60), schema=SCHEMA, random_state=seed),
    "input-perturbation": lambda seed: InputPerturbation(
        privacy=PureDP(epsilon=30), schema=SCHEMA, random_state=seed
    ),
    "bounded": lambda seed: BoundedRelease(
        support={"age": 60.0, "pay": 500.0, "rent": 500.0}, schema=SCHEMA, random_state=seed
    ),
    "coarse": lambda seed: CoarseRelease(privacy=PureDP(epsilon=12), schema=SCHEMA, random_state=seed),
}
EXACT = {
    "age": float(ROWS["age"].mean()),
    "pay": float(np.nanmean(ROWS["pay"])),
    "rent": float(ROWS["rent"].mean()),
    "clerk": float(np.sum(ROWS["job"] == "clerk")),
    "pay of clerks": float(np.nanmean(ROWS["pay"][ROWS["job"] == "clerk"])),
}


def statistics(name: str, draws: int) -> list[RowStatistics]:
    """Publish the rows so many times in one release, whose noise is independent, and read each time alone."""
    repeated = {column: np.tile(cells, draws) for column, cells in ROWS.items()}
    release = METHODS[name](1).release(repeated, shuffle=False)
    law = release.noise_law()

    def read(draw: int) -> dict[str, Any]:
        return {column: cells[N * draw : N * (draw + 1)] for column, cells in release.columns.items()}

    return [RowStatistics(law, functools.partial(read, draw)) for draw in range(draws)]


def ask(asked: RowStatistics, what: str) -> Any:
    if what == "clerk":
        return asked.count("job = 'clerk'").cells[0]
    if what == "pay of clerks":
        return asked.mean("pay", where="job = 'clerk'").cells[0]
    return asked.mean(what).cells[0]


@functools.cache
def held(name: str) -> dict[str, list[bool]]:
    found: dict[str, list[bool]] = {what: [] for what in EXACT if name != "coarse" or what == "clerk"}
    for asked in statistics(name, DRAWS):
        for what, holds in found.items():
            result = ask(asked, what)
            holds.append(result.lower <= EXACT[what] <= result.upper)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
def test_intervals_hold_in_95_of_100_draws(name: str) -> None:
    for what, holds in held(name).items():
        assert sum(holds) >= LIMIT, (what, sum(holds))


@pytest.mark.parametrize("name", METHODS)
def test_intervals_are_short_enough_to_say_something(name: str) -> None:
    (asked,) = statistics(name, 1)
    widths = {"age": 100, "pay": 1000, "rent": 1000, "clerk": N, "pay of clerks": 1000}
    for what in [what for what in EXACT if name != "coarse" or what == "clerk"]:
        result = ask(asked, what)
        assert result.upper - result.lower < 0.5 * widths[what], what


def test_missing_numbers_that_are_not_told_apart_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mean that takes shown cells for true ones is drawn to the middle of the range."""

    def naive(cells: Any, column: ColumnLaw) -> Any:
        honest = numbers(cells, column)
        shown = (~np.isnan(cells)).astype(float)
        keep = column.law.missing_keep or 1.0
        return honest._replace(present=shown, offsets=honest.offsets * keep, squares=honest.squares * keep)

    numbers = rows_module._Numbers.from_cells
    law = NoiseLaw(
        columns=(
            ColumnLaw(
                name="pay",
                law=GaussianLaw(variance=100.0, missing_keep=0.7),
                lower=0.0,
                upper=1000.0,
                missing=True,
            ),
        )
    )
    true, known = ROWS["pay"], ~np.isnan(ROWS["pay"])
    for twin in (False, True):
        if twin:
            monkeypatch.setattr(rows_module._Numbers, "from_cells", naive)
        misses = 0
        for seed in range(60):
            draws = Stream.from_seed(seed).generator()
            noisy = np.where(known, true, 500.0) + 10 * draws.standard_normal(N)
            cells = np.where((draws.random(N) < 0.7) == known, noisy, np.nan)
            cell = ask(RowStatistics(law, lambda: {"pay": cells}), "pay")  # noqa: B023
            misses += not cell.lower <= EXACT["pay"] <= cell.upper
        # Honest intervals miss more than 20 of 60 times with probability 2e-12.
        assert (misses > 20) is twin, misses
