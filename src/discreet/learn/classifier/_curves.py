"""First stage of the classifier: class totals and shrunk step curves from noisy counts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from discreet.learn.classifier._rules import SPREAD

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from discreet._types import Floats

MOST_RUNS = 16
"""Largest number of runs of cells that are told apart after merging."""
_LEAST_EVIDENCE = 4.0  # squared standard errors between two sides of a cut
_LARGEST_RATIO = 20.0
_LEAST_FACTOR = 0.02


@dataclass(frozen=True, eq=False)
class Curve:
    """The effect of one column: a step curve over its cells.

    Attributes
    ----------
    values : array of shape (n_cells, n_classes)
        Logarithm by which a cell makes each class more likely, shrunk towards 0.
    sd : array of shape (n_cells, n_classes)
        Standard deviation of each value by noise and by the number of rows.
    """

    values: Floats
    sd: Floats

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Curve) and self.to_dict() == other.to_dict()

    __hash__ = None  # type: ignore[assignment]

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values, from which :meth:`from_dict` makes an equal curve."""
        return {"values": self.values.tolist(), "sd": self.sd.tolist()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Return the curve that :meth:`to_dict` wrote."""
        return cls(np.array(values["values"]), np.array(values["sd"]))


def combine_totals(counts: Floats, count_sd: float, tables: Sequence[Floats], sd: float, n: float) -> Floats:
    """Return the number of rows of each class, from the class counts and the margins of all tables.

    Parameters
    ----------
    counts : array of shape (n_classes,)
        Noisy number of rows of each class.
    count_sd, sd : float
        Standard deviation of the noise on a class count, and on a cell of a table.
    tables : sequence of array of shape (n_cells, n_classes)
        Noisy counts of the cells of each column by class.
    n : float
        Number of rows, public or estimated.

    Notes
    -----
    The mean by inverse variances, a margin of ``m`` cells having ``m`` times the variance of a cell. What is
    missing to ``n`` is given to all classes alike. No class is below a hundredth of the rows, so that noise
    excludes none.
    """
    totals = counts
    if sd > 0:
        weights = [count_sd**-2, *((sd * sd * len(table)) ** -1 for table in tables)]
        totals = np.average([counts, *(table.sum(axis=0) for table in tables)], axis=0, weights=weights)
    totals = totals + (n - totals.sum()) / len(totals)
    totals = np.maximum(totals, n * min(0.01, 0.1 / len(totals)))
    return np.asarray(totals * (n / totals.sum()))


def make_curves(
    tables: Sequence[Floats], widths: Sequence[Floats], totals: Floats, sd: float, *, floor: bool
) -> tuple[list[Curve], float]:
    """Return the shrunk curves of all columns, and the factor that keeps noise below the vote.

    Parameters
    ----------
    tables : sequence of array of shape (n_cells, n_classes)
        Noisy counts of each column by class.
    widths : sequence of array of shape (n_cells,)
        Number of cells that were added up for each cell of the tables; 1 if none were merged.
    totals : array of shape (n_classes,)
        Number of rows of each class.
    sd : float
        Standard deviation of the noise on a cell that was not merged.
    floor : bool
        Whether all curves are multiplied by one factor that is small where noise explains them.

    Notes
    -----
    For a cell with the share ``q`` of the rows, the relative effect on class ``k`` is ``x = (T / N_k - q) /
    q``, with the variance ``v`` of noise and of counting. It is shrunk by ``t / (t + v)``, then by a
    James-Stein factor that is common to all columns, with a margin of noise that grows as the vote gets
    unbalanced: where the vote is good, there is something to lose. The curve is ``log(1 + x)``.
    """
    n = float(totals.sum())
    effects = [
        _relative_effects(table, width, totals, sd) for table, width in zip(tables, widths, strict=True)
    ]
    factor = _common_factor(effects, totals, sd / n) if floor else 1.0
    curves = []
    for effect, variance, _ in effects:
        kappa = SPREAD / (SPREAD + variance)
        ratio = np.clip(1 + kappa * effect, 1 / _LARGEST_RATIO, _LARGEST_RATIO)
        curves.append(Curve(factor * np.log(ratio), factor * kappa * np.sqrt(variance) / ratio))
    return curves, factor


def _relative_effects(
    table: Floats, width: Floats, totals: Floats, sd: float
) -> tuple[Floats, Floats, Floats]:
    """Return the relative effect of each cell on each class, its variance, and the weight of the cell."""
    n, n_classes = float(totals.sum()), len(totals)
    part = totals / n
    rows = np.maximum(table.sum(axis=1), 0.0)
    # At least its own noise, or one row, because effects divide by it.
    size = np.maximum(rows, np.maximum(sd * np.sqrt(width * n_classes), 1.0))[:, None] / n
    effect = (table / totals - rows[:, None] / n) / size
    noise = sd * sd * width[:, None] * (1 - 2 * part + n_classes * part**2)
    variance = (noise + np.maximum(table, 0.0) + 1) / (totals * size) ** 2
    return effect, variance, size * part


def _common_factor(effects: Sequence[tuple[Floats, Floats, Floats]], totals: Floats, noise: float) -> float:
    """Return the James-Stein factor of all curves together, from 0.02 to 1."""
    effect = np.concatenate([part.ravel() for part, _, _ in effects])
    variance = np.concatenate([part.ravel() for _, part, _ in effects])
    weight = np.concatenate([part.ravel() for _, _, part in effects])
    kappa = SPREAD / (SPREAD + variance)
    found = float((weight * kappa * (effect**2 - variance)).sum())
    error = math.sqrt(float((weight**2 * kappa**2 * 2 * variance**2).sum()))
    unbalanced = min(max((float(totals.max() / totals.sum()) - 1 / len(totals)) / 0.15, 0.0), 1.0)
    largest = float((weight * kappa**2 * effect**2).sum())
    if largest <= 0:
        return _LEAST_FACTOR
    return min(max((found - unbalanced * (0.5 + 3 * noise) * error) / largest, _LEAST_FACTOR), 1.0)


def merge_cells(table: Floats, sd: float) -> list[int]:
    """Return where runs of cells with different class shares begin, without the first.

    Parameters
    ----------
    table : array of shape (n_cells, n_classes)
        Noisy counts of the cells of a number, in their order, by class.
    sd : float
        Standard deviation of the noise on a cell.

    Notes
    -----
    Top-down: the cut with the largest squared difference of class shares, in standard errors, is made as long
    as it is at least 4, up to 16 runs. A side whose rows do not exceed its own noise may not be cut off.
    """
    cuts: list[int] = []
    # The best cut of each run that may still be divided.
    found = {(0, len(table)): _best_cut(table, sd)}
    while len(cuts) < MOST_RUNS - 1:
        (start, end), (evidence, at) = max(found.items(), key=lambda item: item[1][0])
        if evidence < _LEAST_EVIDENCE:
            break
        del found[start, end]
        cuts.append(start + at)
        for run in ((start, start + at), (start + at, end)):
            found[run] = _best_cut(table[slice(*run)], sd)
    return sorted(cuts)


def _best_cut(table: Floats, sd: float) -> tuple[float, int]:
    """Return the evidence for the best cut of a run of cells, and its place; 0 if there is none."""
    length, n_classes = table.shape
    if length < 2:
        return 0.0, 0
    left = np.cumsum(table, axis=0)[:-1]
    right = table.sum(axis=0) - left
    a = np.arange(1, length, dtype=np.float64)
    b = length - a
    rows_left, rows_right = left.sum(axis=1), right.sum(axis=1)
    allowed = (rows_left > np.maximum(5.0, 2 * sd * np.sqrt(n_classes * a))) & (
        rows_right > np.maximum(5.0, 2 * sd * np.sqrt(n_classes * b))
    )
    if not allowed.any():
        return 0.0, 0
    i, j = np.where(allowed, rows_left, 1.0), np.where(allowed, rows_right, 1.0)
    pooled = np.clip((left + right) / (i + j)[:, None], 0.02, 0.98)
    counting = pooled * (1 - pooled) * (1 / i + 1 / j)[:, None]
    noise = sd * sd * (1 - 2 * pooled + n_classes * pooled**2) * (a / i**2 + b / j**2)[:, None]
    difference = left / i[:, None] - right / j[:, None]
    evidence = (n_classes - 1) / n_classes * (difference**2 / (counting + noise)).sum(axis=1)
    best = int(np.argmax(np.where(allowed, evidence, 0.0)))
    return float(evidence[best]), best + 1
