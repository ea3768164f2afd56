"""Coordinates of one column, or of several that are randomized together, with the noise on them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from discreet.errors import ParameterError
from discreet.noise_law import (
    Additive,
    Clear,
    CorrelatedGaussianLaw,
    JointBoundedLaw,
    JointResponseLaw,
    ResponseLaw,
    SampledLaw,
    SyntheticLaw,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from discreet._types import AnyArray, Floats
    from discreet.noise_law import ColumnLaw, NoiseLaw


_LEAST_GAP = 1e-9
"""Least ``keep - other`` of a randomized response that is read; a column below it says nothing."""


@dataclass(frozen=True, slots=True)
class ResponseLevels:
    """The law of randomized response on a list.

    Attributes
    ----------
    levels : int
        Number of levels, at least 2.
    keep : float
        Probability that the true level is published.
    """

    levels: int
    keep: float

    @property
    def other(self) -> float:
        """Probability that one given other level is published, ``(1 - keep) / (levels - 1)``."""
        return (1 - self.keep) / (self.levels - 1)

    @property
    def gap(self) -> float:
        """Probability of a level when it is the true one, less that when it is not: ``keep - other``."""
        return self.keep - self.other

    @classmethod
    def from_law(cls, column: ColumnLaw, levels: int) -> ResponseLevels:
        """Return the law of a column with this many levels; a column in the clear has ``keep`` 1."""
        law = column.cell_law
        if isinstance(law, ResponseLaw):
            return cls(levels, law.keep)
        if isinstance(law, JointResponseLaw):
            # A changed combination leaves these columns as they are if only the other columns changed.
            whole = cls(law.levels, law.keep)
            return cls(levels, law.keep + (law.levels // levels - 1) * whole.other)
        if isinstance(law, Clear):
            return cls(levels, 1.0)
        raise uncorrectable_error(column)


def write_indicators(out: AnyArray, codes: AnyArray, start: int) -> None:
    """Write a 1 into each row of a contiguous matrix, at column ``start`` plus the row's code."""
    n_rows, width = out.shape
    out.reshape(-1)[np.arange(start, n_rows * width, width) + codes] = 1


def uncorrectable_error(column: ColumnLaw) -> ParameterError:
    """Return the error for a column whose law cannot be corrected for."""
    if isinstance(column.cell_law, SyntheticLaw):
        return ParameterError(
            f"The law of column {column.name!r} must be one that can be corrected for, and its cells are "
            "made up: no true cell stands behind them. Train an ordinary learner on the rows, and take "
            "counts and means with their intervals from tables.json of the release."
        )
    return ParameterError(
        f"The law of column {column.name!r} must be one that can be corrected for, was: "
        f"{column.cell_law.words()}. Additive noise (Gaussian, Laplace, bounded, spherical), randomized "
        "response and clear columns can; train an ordinary learner on this release."
    )


def additive_noise(column: ColumnLaw) -> tuple[float, float]:
    """Return mean and variance of the noise on a number, in the column's unit.

    Raises
    ------
    ParameterError
        If the law is not additive, or cells were clamped or rounded after the noise.
    """
    law = column.cell_law
    if isinstance(law, Clear):
        return 0.0, 0.0
    if not isinstance(law, Additive):
        raise uncorrectable_error(column)
    if law.clamped or law.grid is not None:
        how = "moved into its range" if law.clamped else f"rounded to steps of {law.grid:g}"
        raise ParameterError(
            f"Column {column.name!r} must be published as the noise left it, was {how} after the noise: its "
            "law no longer says how to correct for it. Ask the curator for a release without clamp and grid, "
            "or bin the column."
        )
    return law.mean, law.variance


@dataclass(frozen=True, slots=True)
class Block:
    """The coordinates of one column, or of several that are randomized together.

    Attributes
    ----------
    columns : tuple of ColumnLaw
        Laws of the column, or of all columns of a group.
    levels : int
        Number of levels of a list, or of combinations of a group; 0 for a number.
    raw : slice
        Positions of its raw entries in an encoded row.
    place : slice
        Positions of its coordinates among all coordinates.
    answers : ResponseLevels or None
        Law of randomized response on the levels; None for a number.
    mean, variance : float
        Mean and variance of the noise on a number, in widths of its range; 0 for a list.
    share : float
        Share of rows in which the column is published.
    pair : ResponseLevels or None
        Law of level and label together, where both were randomized by one response; None otherwise.
    """

    columns: tuple[ColumnLaw, ...]
    levels: int
    raw: slice
    place: slice
    answers: ResponseLevels | None = None
    pair: ResponseLevels | None = None
    mean: float = 0.0
    variance: float = 0.0
    share: float = 1.0

    @property
    def is_list(self) -> bool:
        """Whether the coordinates are indicators of levels."""
        return self.levels > 0

    @property
    def is_sampled(self) -> bool:
        """Whether the column is published in a sample of the rows only."""
        return isinstance(self.columns[0].law, SampledLaw)

    @property
    def has_missing_flag(self) -> bool:
        """Whether it is a number that may be missing, whose presence is a coordinate as well."""
        return not self.is_list and self.columns[0].missing

    @property
    def presence_entry(self) -> int:
        """Position of the raw entry that is 1 where a number is published; that of the constant if always."""
        return self.raw.start + 1 if self.raw.stop - self.raw.start == 2 else 0

    @property
    def scale(self) -> float:
        """Factor from noise on a published number to noise on its debiased coordinate."""
        return 1 / (self.columns[0].width * (self.flag.keep if self.has_missing_flag else 1.0) * self.share)

    @property
    def flag(self) -> ResponseLevels:
        """Law of randomized response on whether a number is missing."""
        keep = self.columns[0].cell_law.missing_keep
        return ResponseLevels(2, 1.0 if keep is None else keep)

    def encode(self, batch: Mapping[str, AnyArray], out: AnyArray) -> None:
        """Write the raw entries of published rows: codes as indicators, numbers about their fill value.

        Parameters
        ----------
        batch : mapping of str to array
            Published cells by column: numbers as floats, NaN where missing, categories as codes.
        out : array of shape (n_rows, n_raw)
            Contiguous matrix of zeros, written in place.
        """
        if self.is_list:
            codes = batch[self.columns[0].name]
            # A group is one list of combinations, numbered like digits; "not shown" comes last.
            if len(self.columns) > 1:
                shown = codes < len(self.columns[0].levels or ())
                for column in self.columns[1:]:
                    codes = codes * len(column.levels or ()) + batch[column.name]
                codes = np.where(shown, codes, self.levels)
            write_indicators(out, codes, self.raw.start)
            return
        column = self.columns[0]
        cells = batch[column.name]
        # The mean of the noise is subtracted where the cell is published.
        scaled = (cells - column.fill) / column.width - self.mean
        if self.raw.stop - self.raw.start == 1:
            out[:, self.raw.start] = scaled
            return
        present = ~np.isnan(cells)
        out[:, self.raw.start] = np.where(present, scaled, 0.0)
        out[:, self.raw.start + 1] = present

    def fill_map(self, debias: Floats, shown: Floats) -> None:
        """Write the block's rows of the two linear maps on raw entries.

        Parameters
        ----------
        debias : array of shape (p, n_raw)
            Map to coordinates whose mean is the true one, written in place.
        shown : array of shape (p, n_raw)
            Map to a number that is 1 on average and 0 where the coordinate is not published.

        Notes
        -----
        A level: ``(1{answer = v} - q) / (gap share)``, ``q`` the probability of any one other level. A
        number: ``x / (keep share)`` with ``keep`` the probability that presence is published as it is; its
        flag: ``(1{present} - q) / gap``.

        Reference
        ---------
        docs/explanation/theorems/noise-aware.md
        """
        raw, place = self.raw, self.place
        if self.is_list:
            assert self.answers is not None
            q, gap = self.answers.other, self.answers.gap
            # One more entry, that of rows that do not show the column, says nothing about its level.
            levels = slice(raw.start, raw.start + self.levels)
            debias[place, levels] = (np.eye(self.levels) - q) / (gap * self.share)
            shown[place, levels] = 1 / self.share
            return
        keep = self.flag.keep if self.has_missing_flag else 1.0
        debias[place.start, raw.start] = 1 / (keep * self.share)
        if self.is_sampled:
            shown[place.start, raw.start + 1] = 1 / self.share
        else:
            shown[place, 0] = 1.0
        if self.has_missing_flag:
            debias[place.start + 1, raw.start + 1] = 1 / self.flag.gap
            debias[place.start + 1, 0] = -self.flag.other / self.flag.gap

    def second_moments(self, sums: Floats, means: Floats) -> Floats:
        """Return the mean products of the block's true coordinates.

        Parameters
        ----------
        sums : array of shape (n_raw, n_raw)
            Mean products of raw entries.
        means : array of shape (p,)
            Debiased means of all coordinates.

        Notes
        -----
        For levels the diagonal matrix of their shares. For a number ``(mean(x^2) - variance mean(present)) /
        (keep share)``: the noise adds its variance wherever a number is published.
        """
        inside = means[self.place]
        if self.is_list:
            # Indicators: products of different levels vanish, and the square of a level is the level.
            return np.diag(inside)
        t = self.raw.start
        # Share of rows in which a number is published: 1 where it always is.
        present = sums[t + 1, 0] if self.raw.stop - t == 2 else sums[0, 0]
        keep = self.flag.keep if self.has_missing_flag else 1.0
        square = (sums[t, t] - self.variance * present) / (keep * self.share)
        if not self.has_missing_flag:
            return np.array([[square]])
        # The number is 0 where it is missing: its product with the presence flag is the number itself.
        return np.array([[square, inside[0]], [inside[0], inside[1]]])

    def clean(self, batch: Mapping[str, AnyArray], out: AnyArray) -> None:
        """Write the coordinates of true rows."""
        if self.is_list:
            codes = batch[self.columns[0].name]
            for column in self.columns[1:]:
                codes = codes * len(column.levels or ()) + batch[column.name]
            write_indicators(out, codes, self.place.start)
            return
        column = self.columns[0]
        cells = batch[column.name]
        scaled = (cells - column.fill) / column.width
        if not self.has_missing_flag:
            out[:, self.place.start] = scaled
            return
        present = ~np.isnan(cells)
        out[:, self.place.start] = np.where(present, scaled, 0.0)
        out[:, self.place.start + 1] = present


def noise_covariances(column: ColumnLaw) -> list[tuple[str, float]]:
    """Return names and noise covariances of the columns whose noise is correlated with this one's."""
    law = column.cell_law
    if not isinstance(law, CorrelatedGaussianLaw | JointBoundedLaw):
        return []
    return list(zip(law.columns, law.covariances, strict=True))


def build_blocks(law: NoiseLaw) -> Sequence[Block]:
    """Return a block for each feature, or group of features randomized together, that says something."""
    blocks: list[Block] = []
    seen: set[str] = set()
    raw, place = 1, 0
    for column in law.features:
        if column.name in seen:
            continue
        cell = column.cell_law
        members: tuple[ColumnLaw, ...] = (column,)
        pair: ResponseLevels | None = None
        if isinstance(cell, JointResponseLaw):
            # The label may be a member of the group; it is no feature.
            members = tuple(c for name in cell.columns for c in law.features if c.name == name)
            pair = ResponseLevels(cell.levels, cell.keep) if len(members) < len(cell.columns) else None
        seen.update(c.name for c in members)
        share = column.law.share if isinstance(column.law, SampledLaw) else 1.0
        if column.is_category:
            levels = 1
            for member in members:
                levels *= len(member.levels or ())
            answers = ResponseLevels.from_law(column, levels)
            # Debiasing divides by the gap.
            if answers.gap <= _LEAST_GAP:
                continue
            extra = int(isinstance(column.law, SampledLaw))  # one more entry: not published
            blocks.append(
                Block(
                    columns=members,
                    levels=levels,
                    raw=slice(raw, raw + levels + extra),
                    place=slice(place, place + levels),
                    answers=answers,
                    pair=pair,
                    share=share,
                )
            )
            raw, place = raw + levels + extra, place + levels
            continue
        mean, variance = additive_noise(column)
        # A second raw entry says whether the number is there.
        extra = int(column.missing or isinstance(column.law, SampledLaw))
        block = Block(
            columns=members,
            levels=0,
            raw=slice(raw, raw + 1 + extra),
            place=slice(place, place + 1 + int(column.missing)),
            mean=mean / column.width,
            variance=variance / column.width**2,
            share=share,
        )
        if block.has_missing_flag and block.flag.gap <= _LEAST_GAP:
            continue
        blocks.append(block)
        raw, place = block.raw.stop, block.place.stop
    return blocks
