"""Noise that stays in the declared range: its table, its draws, its information."""

from __future__ import annotations

import numpy as np
import pytest

from discreet.errors import ParameterError
from discreet.noise import InRange, Stream
from discreet.noise import polynomial as ground
from tests.statistical import ALPHA
from tests.statistical.checks import chi_square


def exact_masses(law: InRange, x: float) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Cell masses from the one-dimensional ground state, by another road than the table's."""
    half = 0.5 * (law.upper - law.lower)
    pairs = ground.solve_ground_state(-((x - law.lower) / half - 1), law.kappa / 64).pairs
    series = np.concatenate([pairs, [0.0, 0.0]])
    series[2:] -= pairs
    legendre = np.polynomial.legendre
    cdf = legendre.legint(legendre.legmul(series, series), lbnd=-1)
    masses = np.diff(legendre.legval(np.linspace(-1, 1, law.cells + 1), cdf))
    return np.asarray(masses / masses.sum())


@pytest.mark.parametrize("kappa", [1.0, 100.0, 3000.0])
def test_rows_are_the_cell_masses_of_the_ground_states(kappa: float) -> None:
    law = InRange(lower=2, upper=4, regularization=kappa / 16, inputs=9, cells=64)
    for i, x in enumerate(law.grid):
        assert law.masses[i] * 2.0**-63 == pytest.approx(exact_masses(law, float(x)), abs=1e-13)


@pytest.mark.parametrize("inputs", [2, 9, 74])
def test_every_row_sums_to_the_same_whole_and_no_cell_is_empty(inputs: int) -> None:
    law = InRange(lower=0, upper=1, regularization=1e4, inputs=inputs, cells=512)
    assert all(sum(row) == 1 << 63 for row in law.masses.tolist())
    assert law.masses.min() >= 1


def test_rows_move_with_their_input_and_mirror_each_other() -> None:
    law = InRange(lower=0, upper=1, regularization=300, inputs=33, cells=256)
    means = law.masses @ law.outputs * 2.0**-63
    assert np.all(np.diff(means) > 0)
    assert means + means[::-1] == pytest.approx(np.ones(33), abs=1e-12)


@pytest.mark.parametrize(
    ("regularization", "x", "expected"),
    [(100, 0.5, 0.3381), (100, 0.0, 0.3085), (1, 0.5, 3.7e-5)],
)
def test_information_about_the_value_is_not_that_of_a_shift(
    regularization: float, x: float, expected: float
) -> None:
    law = InRange(lower=0, upper=1, regularization=regularization)
    assert law.fisher_information(x) == pytest.approx(expected, rel=2e-3)
    # the location information of the density around x = 1/2 is a hundred times larger
    assert law.fisher_information(x) < 39 / 100


def test_information_agrees_with_the_table_by_differences() -> None:
    law = InRange(lower=0, upper=1, regularization=100, inputs=2049, cells=256)
    i, h = 1024, law.grid[1]
    before, at, after = law.masses[i - 1 : i + 2] * 2.0**-63
    table = float(np.sum(((after - before) / (2 * h)) ** 2 / at))
    # Cells keep nearly all of it, and never more.
    exact = law.fisher_information(0.5)
    assert exact * (1 - 1e-3) < table < exact * (1 + 1e-5)


def test_draws_follow_the_row_of_each_input() -> None:
    law = InRange(lower=0, upper=1, regularization=200, inputs=3, cells=64)
    index = np.arange(600_000) % 3
    cells = law.draw_cells(index, Stream.from_seed(6))
    for i in range(3):
        counts = np.bincount(cells[index == i], minlength=64)
        assert chi_square(counts, law.masses[i] * 2.0**-63) > ALPHA
    # and the check would see the row of another input
    assert chi_square(np.bincount(cells[index == 0], minlength=64), law.masses[1] * 2.0**-63) < ALPHA


def test_a_number_below_a_threshold_falls_into_its_cell_and_the_threshold_into_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    law = InRange(lower=0, upper=1, regularization=50, inputs=2, cells=8)
    ends = np.cumsum(law.masses[1].astype(np.uint64))
    numbers = np.concatenate([[np.uint64(0)], ends[:-1] - np.uint64(1), ends[:-1], ends[-1:] - np.uint64(1)])
    monkeypatch.setattr(Stream, "words", lambda _, n: numbers[:n] << np.uint64(1))
    cells = law.draw_cells(np.ones(numbers.size, np.int64), Stream.from_seed(0))
    assert cells.tolist() == [0, *range(7), *range(1, 8), 7]


def test_outputs_stay_inside_the_range_and_inputs_outside_count_as_its_ends() -> None:
    law = InRange(lower=17, upper=90, regularization=100 / 73**4, inputs=74)
    x = np.array([-np.inf, 17.0, 89.6, 90.0, 1e9])
    assert law.quantize(x).tolist() == [0, 0, 73, 73, 73]
    z = law.draw(np.repeat(x, 1000), Stream.from_seed(8))
    assert z.min() > 17
    assert z.max() < 90
    assert np.isin(z, law.outputs).all()


def test_missing_values_are_refused() -> None:
    law = InRange(lower=0, upper=1, regularization=1, inputs=2, cells=4)
    with pytest.raises(ParameterError, match="missing"):
        law.draw(np.array([0.5, np.nan]))


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"upper": 0.0}, "lower and upper"),
        ({"lower": -np.inf}, "lower and upper"),
        ({"regularization": 0.0}, "regularization"),
        ({"regularization": 1e5}, "regularization"),
        ({"inputs": 1}, "inputs"),
        ({"inputs": 5000}, "inputs"),
        ({"cells": 100}, "cells"),
    ],
)
def test_wrong_parameters_are_named(change: dict[str, float], named: str) -> None:
    arguments = {"lower": 0.0, "upper": 1.0, "regularization": 1.0} | change
    with pytest.raises(ParameterError, match=f"^{named} of InRange must be"):
        InRange(**arguments)  # type: ignore[arg-type]
