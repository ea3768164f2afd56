"""Readable copy of a published table: cells clamped to their declared range and rounded to a public step."""

from __future__ import annotations

import contextlib
import datetime
import math
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import TYPE_CHECKING

import duckdb

from discreet.errors import SourceError
from discreet.noise_law import Additive, Clear, InRangeLaw, InvariantLaw, SampledLaw
from discreet.release.publication import Publication, published_fields
from discreet.tables.duckdb import connect_for, identifier, literal, quote_path
from discreet.tables.writers import is_wide, moment_expression

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from discreet.noise_law import Law
    from discreet.release.publication import ReleasePlan
    from discreet.schema import Column
    from discreet.tables import Field

_MOST_DIGITS = 15  # of a number in the copy: as many as a float holds
_MOST_DECIMALS = 9  # of a declared grid that is written as it is
_STEPS_OF_NOISE = 10  # in a standard deviation: rounding then adds below 0.1 % to the variance
_STEPS_OF_RANGE = 1_000
_STEPS_WITHOUT_NOISE = 100_000  # in the range of a column whose law has no scale


@dataclass(frozen=True, slots=True)
class ReadableColumn:
    """Column of the readable copy; everything in it follows from the schema and the noise law.

    Parameters
    ----------
    name : str
        Name of the column in both files.
    step : Decimal or None
        Step between two neighboring values of the copy; None where cells are copied as they are.
    anchor : Decimal
        Value from which the steps are counted.
    first, last : int
        Smallest and largest number of steps from the anchor inside the declared range.
    origin : datetime.date or None
        Date or datetime from which the published steps of such a column are counted; None for other types.
    length : timedelta
        Step in which dates and datetimes are counted.

    Privacy
    -------
    Follows from what is declared and published: the copy costs nothing and reveals nothing more.

    Notes
    -----
    A published number ``x`` is written as ``anchor + k step`` with ``k = (x - anchor) / step`` clamped to
    ``first`` and ``last`` and rounded, ties to even. Steps are those of the declared grid, 1 for integers and
    dates, and else the largest power of ten that is at most a tenth of the noise's standard deviation and a
    thousandth of the range; without a scale of noise a hundred-thousandth of the range, and at most 1.
    """

    name: str
    step: Decimal | None = None
    anchor: Decimal = Decimal(0)
    first: int = 0
    last: int = 0
    origin: datetime.date | None = None
    length: datetime.timedelta = datetime.timedelta(days=1)

    @classmethod
    def from_column(cls, column: Column, law: Law, field: Field) -> ReadableColumn:
        """Return the readable form of a published column.

        Parameters
        ----------
        column : Column
            Column of the published table.
        law : Law
            Distribution of its published cells given the true ones.
        field : Field
            Field of the column in the published file.
        """
        if field.type != "number" or isinstance(law, Clear):
            return cls(column.name)
        lower, upper = (Decimal(repr(bound)) for bound in column.range)
        origin = column.lower if isinstance(column.lower, datetime.date) else None
        declared = Decimal(repr(float(column.grid or 1)))
        if column.type != "number" or (column.grid is not None and _is_short(declared, lower, upper)):
            last = int(((upper - lower) / declared).to_integral_value())
            return cls(column.name, declared, lower, 0, last, origin, column.step_length)
        step = _power_of_ten(column, law, max(abs(lower), abs(upper)))
        first = int((lower / step).to_integral_value(ROUND_CEILING))
        last = int((upper / step).to_integral_value(ROUND_FLOOR))
        return cls(column.name, step, first=first, last=last)

    @property
    def expression(self) -> str:
        """SQL of the written cell; a missing one stays missing."""
        cell = identifier(self.name)
        if self.step is None:
            return cell
        decimals = max(0, *(-_exponent(part) for part in (self.step, self.anchor)))
        start, size = (int(part.scaleb(decimals)) for part in (self.anchor, self.step))
        steps = f"({cell} - {float(self.anchor)!r}::DOUBLE) / {float(self.step)!r}::DOUBLE"
        # Not least() and greatest(), which would turn a missing cell into a bound.
        ends = f"WHEN {steps} < {self.first} THEN {self.first} WHEN {steps} > {self.last} THEN {self.last}"
        inside = f"CASE {ends} ELSE {steps} END"
        whole = f"({start} + CAST(round_even({inside}, 0) AS BIGINT) * {size})"
        if self.origin is not None:
            return moment_expression(whole, self.origin, self.length)
        if decimals == 0:
            return whole
        digits = len(str(max(abs(start + k * size) for k in (self.first, self.last))))
        unit = f"CAST('{Decimal(1).scaleb(-decimals):f}' AS DECIMAL({decimals + 1}, {decimals}))"
        return f"CAST({whole} AS DECIMAL({digits}, 0)) * {unit}"


def _is_short(step: Decimal, lower: Decimal, upper: Decimal) -> bool:
    """Return whether all values on a grid have few enough digits to be written exactly."""
    decimals = max(0, -_exponent(step), -_exponent(lower))
    largest = max(abs(lower), abs(upper)).scaleb(decimals)
    return decimals <= _MOST_DECIMALS and largest < Decimal(10) ** _MOST_DIGITS


def _exponent(number: Decimal) -> int:
    """Return the exponent of the last digit that is not zero."""
    exponent = number.normalize().as_tuple().exponent
    assert isinstance(exponent, int)
    return exponent


def _power_of_ten(column: Column, law: Law, largest: Decimal) -> Decimal:
    """Return the step of a column of numbers, from the noise and the range alone."""
    width, scale = column.width, _noise_scale(law)
    if column.grid is not None:
        finest = column.grid / _STEPS_OF_RANGE
    elif scale is None:
        # Never coarser than the unit of the column: most incomes in a range up to 1e9 are far below 10,000.
        finest = min(width / _STEPS_WITHOUT_NOISE, 1.0)
    else:
        finest = min(scale / _STEPS_OF_NOISE, width / _STEPS_OF_RANGE)
    # Six digits, so that 0.9999999999999999 and 1 have one step on every processor.
    exponent = max(Decimal(f"{finest:.6g}").adjusted(), largest.adjusted() + 1 - _MOST_DIGITS)
    return Decimal(1).scaleb(exponent)


def _noise_scale(law: Law) -> float | None:
    """Return the standard deviation of the noise on a cell, or its order of magnitude; None if unknown."""
    if isinstance(law, SampledLaw):
        return _noise_scale(law.law)
    if isinstance(law, InRangeLaw):
        # Without the range, the law would be Gaussian with this standard deviation.
        return math.sqrt(1 / math.sqrt(law.regularization))
    variance = law.variance if isinstance(law, Additive | InvariantLaw) else None
    return math.sqrt(variance) if variance else None


def readable_columns(planned: ReleasePlan | Publication) -> tuple[ReadableColumn, ...]:
    """Return the columns of the readable copy of a planned or published table."""
    summaries = planned.summary if isinstance(planned, Publication) else planned.columns
    laws = {summary.column: summary.law for summary in summaries}
    return tuple(
        ReadableColumn.from_column(planned.schema.column(field.name), laws[field.name], field)
        for field in published_fields(planned.schema, typed=planned.typed)
    )


def write_readable(
    data: Path, target: Path, columns: Sequence[ReadableColumn], *, header: bool = True
) -> None:
    """Write the readable copy of a published Parquet file as CSV, in the same order of rows.

    Parameters
    ----------
    data : Path
        Published Parquet file, or folder of such files, that is copied.
    target : Path
        CSV file to write: UTF-8 with a header, dates as YYYY-MM-DD, datetimes with hh:mm:ss behind, missing
        cells empty.
    columns : sequence of ReadableColumn
        Columns in the order of the file.
    header : bool
        Whether the first line has the names of the columns.
    """
    cells = ", ".join(f"{column.expression} AS {identifier(column.name)}" for column in columns)
    paths = sorted(data.iterdir()) if data.is_dir() else [data]
    files = ", ".join(map(quote_path, paths))
    rows = f"SELECT {cells} FROM read_parquet([{files}], hive_partitioning=false)"  # noqa: S608 - quoted
    options = f"FORMAT csv, HEADER {header}, DELIMITER ',', COMPRESSION none, USE_TMP_FILE false"
    with contextlib.closing(connect_for(paths)) as connection:
        if is_wide(len(columns)):
            # Each thread holds rows that wait for their turn.
            connection.execute("SET threads = 1")
        try:
            connection.execute(f"COPY ({rows}) TO {literal(str(target))} ({options})")
        except duckdb.Error as problem:
            raise SourceError(
                f"The file {target.name} cannot be written: the engine stopped with "
                f"{type(problem).__name__}. Check that the folder may be written to and has room."
            ) from None
