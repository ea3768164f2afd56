"""Published tables, what is known of them, and the plan that they are drawn by."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from discreet import formatting
from discreet.errors import ParameterError
from discreet.noise_law import NoiseLaw
from discreet.schema import Schema, unclipped_column
from discreet.tables import Field, write_table

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from discreet._types import AnyArray, Floats
    from discreet.noise import Stream
    from discreet.noise_law import Law
    from discreet.privacy import ColumnFloor, Promise, Receipt
    from discreet.privacy.priors import ListPrior, Prior
    from discreet.schema import Column, Level

    Encoded = Mapping[str, AnyArray]


def published_fields(schema: Schema, *, typed: bool = False) -> tuple[Field, ...]:
    """Return the fields of the released columns in a file; noised integers and dates are plain numbers.

    Parameters
    ----------
    schema : Schema
        Schema of the published table, as a plan has it.
    typed : bool
        Whether all columns have their declared types, as ``ReleasePlan.typed`` says.
    """
    return tuple(
        Field.from_column(c) if typed or c.is_category or c.role == "public" else Field(c.name)
        for c in schema.released
    )


def published_schema(schema: Schema) -> Schema:
    """Return the schema under which a released file is read back, cell for cell.

    Noised numbers have no bounds, every list is closed, and the file has no other columns. Codes of lists are
    positions in the levels of the original column.
    """
    columns = [_published_column(c) for c in schema.released]
    return Schema(columns=columns, target=schema.target, dataset=schema.dataset, unit=schema.unit)


def _published_column(column: Column) -> Column:
    """Return one released column as it is declared for reading back."""
    if column.role == "public" and column.is_number:
        return column
    if column.is_number:
        return unclipped_column(column.name, role=column.role, required=column.required)
    plain: tuple[Level, ...] = tuple(level for level in column.levels if level is not None)
    return dataclasses.replace(column, values=plain, closed=True)


def decode_cells(column: Column, values: AnyArray) -> AnyArray:
    """Return encoded cells as they stand in a published file."""
    if column.is_category:
        levels = np.empty(len(column.levels), object)
        levels[:] = column.levels
        words = levels[values]
        return words if None in column.levels else words.astype(np.array(column.levels).dtype)
    if column.is_calendar and column.role == "public":
        return column.moments(values)
    return values


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnSummary:
    """Noise of one published column, and what it proves.

    Attributes
    ----------
    column : str
        Name of the published column.
    law : Law
        Distribution of a published cell given the true one.
    epsilon : float or None
        Pure epsilon that a unit spends on the column; None where it has none of its own, as for Gaussian
        noise, whose columns have one promise together.
    floor : ColumnFloor or None
        Least error of any guess at a cell; None where none is proven.
    prior : UniformPrior, IntegerPrior, ListPrior or None
        Prior that the floor averages over; None where cells do not follow from their own value alone.
    """

    column: str
    law: Law
    epsilon: float | None = None
    floor: ColumnFloor | None = None
    prior: Prior | ListPrior | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """Facts about a table that was released straight into a file.

    Attributes
    ----------
    n_rows : int
        Number of rows written to the file.
    n_read : int or None
        Number of rows of the source; larger where a unit had more rows than it may have. None where it is
        not public.
    schema, promises, receipt, summary, commitment
        As for :class:`Release`.
    rows_salt : str or None
        Salt that decides which rows are kept of a unit that has too many, in hexadecimal, public; None where
        every row is a unit.
    earlier : tuple of Receipt
        Receipts before the last one, for a method that asks and pays several questions.
    typed : bool
        Whether all columns have their declared types, as ``ReleasePlan.typed`` says.
    """

    n_rows: int
    n_read: int | None
    schema: Schema
    promises: tuple[Promise, ...]
    receipt: Receipt
    summary: tuple[ColumnSummary, ...]
    commitment: str
    rows_salt: str | None = None
    earlier: tuple[Receipt, ...] = ()
    typed: bool = False

    @property
    def receipts(self) -> tuple[Receipt, ...]:
        """All receipts of the release, in the order of the charges."""
        return (*self.earlier, self.receipt)


def _shown_cell(cell: object) -> str:
    """Return a published cell as a notebook shows it."""
    if isinstance(cell, float):
        return "" if np.isnan(cell) else f"{cell:.6g}"
    return "" if cell is None else formatting.name(str(cell))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Release:
    """A table that may be published, with everything it promises.

    Attributes
    ----------
    columns : mapping of str to array
        Published columns in encoded form: numbers as float64 (NaN = missing), categories as positions in
        their levels.
    schema : Schema
        Schema of the published table, declared before a row was read.
    promises : tuple of Promise
        Every promise that holds; those on different columns of one row add up.
    receipt : Receipt
        Receipt of the charge, which also says whether a seed makes the noise public.
    summary : tuple of ColumnSummary
        Noise of each published column, and what it proves.
    commitment : str
        SHA-256 of the key of the noise, in hexadecimal: shows an auditor who is given the key that it was
        this one.
    library : {"pandas", "polars"} or None
        Library of the frame that was released; None if the rows came as anything else.

    Privacy
    -------
    Only ``columns`` depends on rows, and only through the mechanism of the release. The rows of a table are
    in random order; those of a matrix keep theirs, and each promise holds against an attacker who knows it.

    Reference
    ---------
    docs/explanation/theorems/whitening.md

    Examples
    --------
    >>> from discreet import Column, ErrorFloor, GaussianRelease, Schema
    >>> schema = Schema(columns=[Column("age", type="integer", lower=17, upper=90, measure="years")])
    >>> method = GaussianRelease(privacy=ErrorFloor(age=9), schema=schema, random_state=1)
    >>> table = method.release({"age": [20, 35, 50, 65] * 250})
    >>> len(table.columns["age"]), [type(promise).__name__ for promise in table.promises]
    (1000, ['GaussianDP', 'ErrorFloor'])
    """

    columns: Encoded
    schema: Schema
    promises: tuple[Promise, ...]
    receipt: Receipt
    summary: tuple[ColumnSummary, ...]
    commitment: str
    library: Literal["pandas", "polars"] | None = None

    @property
    def frame(self) -> Any:
        """The table with its names, as a frame of the library that the rows came in."""
        if self.library is None:
            raise ParameterError(
                "frame of a release is there if a frame of pandas or polars was released, and the rows were "
                "none. Use to_pandas() or to_polars()."
            )
        return self.to_pandas() if self.library == "pandas" else self.to_polars()

    @property
    def data(self) -> Floats:
        """Numeric features as a matrix, in the order of ``schema.numeric_features``.

        Where every feature is published as a level of a list, their codes as a matrix of integers, in the
        order of ``schema.features``; :meth:`decoded` has the levels themselves.
        """
        features = self.schema.numeric_features or self.schema.features
        parts = [self.columns[c.name] for c in features]
        # A table of labels alone has rows, and no columns of features.
        return np.column_stack(parts) if parts else np.empty((len(next(iter(self.columns.values()))), 0))

    @property
    def target(self) -> AnyArray | None:
        """Published labels, decoded; None if the table has no target."""
        name = self.schema.target
        return None if name is None or name not in self.columns else self.decoded(name)

    def decoded(self, name: str) -> AnyArray:
        """Return one published column with the levels of its schema in place of codes."""
        column, values = self.schema.column(name), self.columns[name]
        if not column.is_category:
            return values
        levels = np.array(column.levels, dtype=object)
        plain = [level for level in column.levels if level is not None]
        decoded = levels[values]
        return decoded if len(plain) < len(levels) else decoded.astype(np.array(plain).dtype)

    @property
    def fields(self) -> tuple[Field, ...]:
        """Fields of the columns in a file; noised integers and dates are plain numbers."""
        return tuple(f for f in published_fields(self.schema) if f.name in self.columns)

    @property
    def cells(self) -> dict[str, AnyArray]:
        """Published columns by name as a file has them: levels, whole numbers and dates in place of codes."""
        cells: dict[str, AnyArray] = {}
        for field in self.fields:
            values = self.columns[field.name]
            if field.type == "category":
                values = self.decoded(field.name)
            elif field.type in ("date", "datetime"):
                values = self.schema.column(field.name).moments(values)
            elif field.type == "integer" and not np.isnan(values).any():
                values = values.astype(np.int64)
            cells[field.name] = values
        return cells

    def batches(self) -> Iterable[Encoded]:
        """Return the published columns in batches of rows, here in a single one."""
        return [self.columns]

    def to_pandas(self) -> Any:
        """Return the table as a pandas data frame."""
        from discreet.query.frames import import_frames  # loads pydantic, which a release alone does not need

        return import_frames("pandas").DataFrame(self.cells)

    def to_polars(self) -> Any:
        """Return the table as a polars data frame."""
        from discreet.query.frames import import_frames

        return import_frames("polars").DataFrame({name: cells.tolist() for name, cells in self.cells.items()})

    def __repr__(self) -> str:
        n_rows = len(next(iter(self.columns.values()), ()))
        kept = "; ".join(str(promise) for promise in self.promises)
        return f"<{type(self).__name__}: {n_rows:,} rows, {len(self.columns)} columns; {kept}>"

    def _repr_html_(self) -> str:
        """Return the first published rows and the promises, for a notebook."""
        from discreet import html_tables as html  # only a notebook draws

        first = {name: cells[:5].tolist() for name, cells in self.cells.items()}
        head = [html.write_heading(formatting.name(name)) for name in first]
        body = [
            [html.write_cell(_shown_cell(cell)) for cell in row] for row in zip(*first.values(), strict=True)
        ]
        n_rows = formatting.count_noun(len(next(iter(self.columns.values()), ())), "row")
        seeded = ["Noise from a known seed protects no one."] if self.receipt.seeded else []
        title = f"Released table of {n_rows}, of which {len(body)} are shown"
        return html.write_html(title, head, body, [*map(str, self.promises), *seeded])

    def noise_law(self) -> NoiseLaw:
        """Return the distribution of every published cell given the true one, for learners that use it."""
        return NoiseLaw.from_columns((self.schema.column(s.column), s.law) for s in self.summary)

    def write(self, path: str | Path, *, replace: bool = False) -> None:
        """Write the table as Parquet or CSV, whole or not at all, its rows in the order they came in."""
        write_table(path, self.fields, self.batches(), replace=replace)


class ReleasePlan(ABC):
    """Noise and promises of a release, chosen from public facts alone.

    Attributes
    ----------
    schema : Schema
        Schema of the published table.
    promises : tuple of Promise
        Promises that will hold for one unit of the schema, with all its rows.
    columns : tuple of ColumnSummary
        Noise of each published column, and what it proves.
    """

    schema: Schema
    promises: tuple[Promise, ...]
    columns: tuple[ColumnSummary, ...]
    row_level: ClassVar[bool] = True
    """Whether every published row comes from one true row, so that there is a row to attack or compare."""
    is_row_wise: ClassVar[bool] = True
    """Whether rows are noised each by itself, so that a table can be drawn a batch at a time."""
    typed: ClassVar[bool] = False
    """Whether numbers and dates are published with their declared types, not as plain noisy numbers."""
    notes: tuple[str, ...] = ()
    """Sentences about what the release will not do, and why, for the curator."""

    @abstractmethod
    def draw(self, rows: Encoded, stream: Stream) -> dict[str, AnyArray]:
        """Return the published columns of some encoded rows; the noise continues where the stream stands."""

    def truth(self, rows: Encoded) -> Encoded:
        """Return rows with the values that the published table would have without noise.

        The same rows, unless a release publishes bins or groups.
        """
        return rows

    def noise(self, truth: Encoded, stream: Stream) -> dict[str, AnyArray]:
        """Return the published columns of rows that :meth:`truth` returned."""
        return self.draw(truth, stream)

    def misfits(self, columns: Encoded) -> dict[str, str]:
        """Return the columns with cells that this plan cannot have drawn, each with the reason.

        Parameters
        ----------
        columns : mapping of str to array
            Some rows of a published table, encoded, by column name.

        Returns
        -------
        dict of str to str
            Empty when every cell is possible, which says nothing about how likely they are.
        """
        misfits = {}
        for column in self.schema.released:
            values = columns[column.name]
            if column.is_category:
                if ((values < 0) | (values >= len(column.levels))).any():
                    misfits[column.name] = "a level that was not declared"
            elif column.required and np.isnan(values).any():
                misfits[column.name] = "missing cells in a column that has none"
        return misfits

    def repeat_chance(self) -> float:
        """Return a bound on the chance that two rows agree in :meth:`noised_columns`; 1 if unknown."""
        return 1.0

    def noised_columns(self) -> tuple[str, ...]:
        """Return the names of the numeric columns that :meth:`repeat_chance` refers to."""
        return ()

    def length_misfit(self, n_read: int, n_published: int) -> str | None:
        """Return what is wrong with the number of published rows; None if nothing is."""
        if n_published > n_read:
            return "More rows were published than read."
        if self.schema.id_column is None and n_published != n_read:
            return "Rows were left out, though the schema says that every row is one unit."
        return None
