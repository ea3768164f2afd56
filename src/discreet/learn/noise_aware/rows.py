"""Reading of published rows in batches, checked against their noise law, and encoding of their labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from discreet.arguments import nearest
from discreet.errors import DataError, ParameterError
from discreet.learn.arguments import check_finite
from discreet.learn.noise_aware._blocks import write_indicators
from discreet.noise_law import Additive, NoiseLaw, SampledLaw
from discreet.schema import Column, Schema, unclipped_column
from discreet.schema.column import unbounded_calendar
from discreet.tables import open_table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from discreet._types import AnyArray, Floats
    from discreet.learn.noise_aware._blocks import ResponseLevels
    from discreet.noise_law import ColumnLaw


@dataclass(frozen=True, slots=True)
class ClassLabel:
    """Encoding of a class label, published in the clear or by randomized response.

    Attributes
    ----------
    answers : ResponseLevels
        Law of randomized response on the classes.
    """

    answers: ResponseLevels

    counts = True

    @property
    def n_raw(self) -> int:
        """Number of raw entries of the label."""
        return self.answers.levels

    @property
    def debias(self) -> Floats:
        """Map from raw entries to numbers whose means are the indicators of the true class."""
        levels = self.answers.levels
        return np.asarray((np.eye(levels) - self.answers.other) / self.answers.gap)

    @property
    def variance(self) -> float:
        """Variance of noise that does not depend on the true class: 0 for randomized response."""
        return 0.0

    def encode(self, labels: AnyArray, out: AnyArray) -> None:
        """Write indicators of the classes into the last columns."""
        write_indicators(out, labels, out.shape[1] - self.n_raw)


@dataclass(frozen=True, slots=True)
class NumberLabel:
    """Encoding of a numeric label, published in the clear or with noise of a known variance.

    Attributes
    ----------
    origin, width : float
        Value from which the label is counted, and the unit in which it is.
    mean, variance : float
        Mean and variance of the noise, in units of ``width``.
    column : ColumnLaw or None
        Law of the label's column; None where labels are given apart from the table.
    """

    origin: float
    width: float
    mean: float = 0.0
    variance: float = 0.0
    column: ColumnLaw | None = None

    counts = False

    @property
    def n_raw(self) -> int:
        """Number of raw entries of the label."""
        return 1

    @property
    def debias(self) -> Floats:
        """Map from the raw entry to a number whose mean is the true value: the identity."""
        return np.ones((1, 1))

    def encode(self, labels: AnyArray, out: AnyArray) -> None:
        """Write the labels, in units of ``width``, into the last column."""
        out[:, -1] = (labels - self.origin) / self.width - self.mean


Label = ClassLabel | NumberLabel


BATCH_ROWS = 1 << 16
"""Rows of a matrix that are read at a time."""
_SAMPLE = 4096
_FEWEST = 64
"""Least number of cells in which rounding can be detected."""


def law_of(source: Any) -> NoiseLaw | None:
    """Return the noise law of a release; None for rows without one."""
    carried = getattr(source, "noise_law", None)
    law = carried() if callable(carried) else carried
    return law if isinstance(law, NoiseLaw) else None


def rows_of(source: Any) -> Any:
    """Return the rows of a release for :func:`~discreet.tables.open_table`: its file, or its columns."""
    if law_of(source) is None:
        return source
    path = getattr(source, "path", None)
    if path is not None:
        return path
    return {name: source.decoded(name) for name in source.columns}


def is_matrix(source: Any) -> bool:
    """Whether rows come without column names."""
    return isinstance(source, np.ndarray | list)


def reading_schema(columns: Sequence[ColumnLaw], *, published: bool) -> Schema:
    """Return the schema under which rows of these columns are read, without clipping a cell.

    Codes are positions in the list of a column; "not published" comes after it.
    """
    return Schema(columns=[_reading_column(column, published=published) for column in columns])


def _reading_column(column: ColumnLaw, *, published: bool) -> Column:
    """Return the schema column under which the cells of a law's column are read."""
    sampled = published and isinstance(column.law, SampledLaw)
    if column.origin is not None:
        return unbounded_calendar(column.name, column.step, required=not column.missing)  # type: ignore[arg-type]
    if not column.is_category:
        return unclipped_column(column.name, required=not (column.missing or sampled))
    levels = tuple(level for level in column.levels or () if level is not None)
    if sampled:
        assert isinstance(column.law, SampledLaw)
        levels = (*levels, column.law.unpublished)
    return Column(column.name, values=levels, closed=True, required=None not in (column.levels or ()))


def read_rows(
    source: Any,
    columns: Sequence[ColumnLaw],
    owner: str,
    *,
    published: bool = True,
    beside: str | None = None,
) -> Iterator[dict[str, AnyArray]]:
    """Yield batches of columns: numbers as floats, categories as positions in their lists.

    Parameters
    ----------
    source : matrix, frame, path, mapping or release
        A matrix has one column for each of `columns`, in order; anything else has them by name.
    columns : sequence of ColumnLaw
        Laws of the columns to read.
    owner : str
        Name of the calling method, for error messages.
    published : bool
        Whether rows are published ones, in which cells may be left out.
    beside : str, optional
        Name of a column that is allowed in the source and not read.
    """
    if is_matrix(source):
        matrix = np.asarray(source)
        if matrix.ndim != 2 or matrix.shape[1] != len(columns):
            raise ParameterError(
                f"X of {owner} must have one column for each of the {len(columns)} features of its law, had "
                f"shape {matrix.shape}. Give the features in the order of the law, or a frame with names."
            )
        if matrix.dtype.kind in "biuf" and all(_is_plain(column) for column in columns):
            yield from _read_matrix(matrix, columns, owner, published=published)
            return
        source = {column.name: matrix[:, j] for j, column in enumerate(columns)}
    with open_table(rows_of(source)) as table:
        known = [*(column.name for column in columns), *(() if beside is None else (beside,))]
        _check_names(table.names, [c.name for c in columns], known, owner)
        finish = [_cell_decoder(column, published=published) for column in columns]
        for batch in table.batches(reading_schema(columns, published=published)):
            yield {column.name: end(batch[column.name]) for column, end in zip(columns, finish, strict=True)}


def _cell_decoder(column: ColumnLaw, *, published: bool) -> Callable[[AnyArray], AnyArray]:
    """Return the function from cells as the schema reads them to cells as the law counts them."""
    if column.origin is not None:
        read = _reading_column(column, published=published)
        start = float(read.count_steps(np.array([column.origin], "datetime64[us]"))[0])
        return lambda steps: steps - start
    if not column.is_category or column.levels is None:
        return lambda cells: cells
    there = _reading_column(column, published=published).levels
    # By repr, because 1 and True are equal as keys and different levels.
    places = {repr(level): i for i, level in enumerate(column.levels)}
    order = np.array([places.get(repr(level), len(column.levels)) for level in there])
    return lambda codes: order[codes]


def _check_names(there: Sequence[str], wanted: Sequence[str], known: Sequence[str], owner: str) -> None:
    """Refuse a table that lacks a wanted column or has one that the law does not know."""
    missing = [name for name in wanted if name not in there]
    if missing:
        close = nearest(missing[0], there)
        hint = f"Did you mean {close!r}?" if close else "Give the table that the law was published with."
        raise ParameterError(
            f"X of {owner} must have the column {missing[0]!r} of its noise law, and has not. {hint}"
        )
    unknown = [name for name in there if name not in known]
    if unknown:
        raise ParameterError(
            f"X of {owner} must have columns of its noise law alone, and has {unknown[0]!r}, which the law "
            "does not know. Drop it, or take the law of the release that it comes from."
        )


def _is_plain(column: ColumnLaw) -> bool:
    """Whether a column can be read from a matrix of numbers: a number, or a list of small integers."""
    if not column.is_category:
        return True
    other = column.law.unpublished if isinstance(column.law, SampledLaw) else 0
    whole = all(type(level) is int for level in column.levels or ()) and type(other) is int
    return whole and max(map(abs, (*(column.levels or ()), other))) < 1 << 20  # type: ignore[arg-type]


def _read_matrix(
    matrix: AnyArray, columns: Sequence[ColumnLaw], owner: str, *, published: bool
) -> Iterator[dict[str, AnyArray]]:
    """Yield batches of a matrix of numbers, after a check for cells that must be finite."""
    for j, column in enumerate(columns):
        sampled = published and isinstance(column.law, SampledLaw)
        if not (column.is_category or column.missing or sampled):
            check_finite(matrix[:, j : j + 1], f"X of {owner}", np.array([column.name]))
    for start in range(0, len(matrix), BATCH_ROWS):
        rows = matrix[start : start + BATCH_ROWS]
        yield {
            column.name: _level_codes(rows[:, j], column, owner, start, published=published)
            if column.is_category
            else rows[:, j].astype(np.float64, copy=False)
            for j, column in enumerate(columns)
        }


def _level_codes(cells: AnyArray, column: ColumnLaw, owner: str, start: int, *, published: bool) -> AnyArray:
    """Return the position of each cell in the list of its column; ``start`` rows came before."""
    levels = list(column.levels or ())
    if published and isinstance(column.law, SampledLaw):
        levels.append(column.law.unpublished)
    if cells.dtype.kind in "iu" and levels == list(range(len(levels))):
        good = (cells >= 0) & (cells < len(levels))
        codes = cells
    else:
        known = np.array(levels)
        order = np.argsort(known)
        places = np.clip(np.searchsorted(known[order], cells), 0, len(levels) - 1)
        codes = order[places]
        # searchsorted gives every cell a place, also one that was not declared.
        good = known[codes] == cells
    if not good.all():
        line = start + int(np.argmin(good)) + 1
        raise DataError(
            f"X of {owner} must hold the declared levels of column {column.name!r} alone, and row {line} "
            "holds something else. Rows are counted from 1; read the table under the schema of its release.",
            column=column.name,
            line=line,
        )
    return np.asarray(codes)


def check_unrounded(batch: Mapping[str, AnyArray], columns: Sequence[ColumnLaw], owner: str) -> None:
    """Refuse noised numbers that were rounded or clamped after the noise, which their law does not say.

    Noise is drawn on a lattice so fine that equal cells are rare; of rounded ones most have an equal.
    """
    for column in columns:
        if column.is_category or not isinstance(column.cell_law, Additive) or column.cell_law.variance == 0:
            continue
        cells = batch[column.name][:_SAMPLE]
        cells = cells[~np.isnan(cells)]
        if len(cells) < _FEWEST:
            continue
        _, counts = np.unique(cells, return_counts=True)
        # One value that is frequent shows clamping, few different ones show rounding.
        if counts.max() > max(3, 0.01 * len(cells)) or len(counts) < len(cells) / 2:
            raise DataError(
                f"Column {column.name!r} of X of {owner} must be as the noise left it, and many of its cells "
                "are equal: it was rounded or clamped after the noise. Take the file as it was released.",
                column=column.name,
            )


def names_of(source: Any) -> list[str] | None:
    """Return the column names of rows; None for a matrix."""
    if is_matrix(source):
        return None
    if isinstance(source, str | Path):
        with open_table(source) as table:
            return list(table.names)
    rows = rows_of(source)
    if isinstance(rows, str | Path):
        return names_of(rows)
    if isinstance(rows, Mapping):
        return list(rows)
    try:
        import narwhals as nw

        return list(nw.from_native(rows).columns)
    except TypeError:
        return None
