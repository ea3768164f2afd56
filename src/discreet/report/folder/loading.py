"""A published folder read back: the table, what is promised about it, and its noise law."""

from __future__ import annotations

import dataclasses
import datetime
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from discreet.errors import DataError, ParameterError, SourceError
from discreet.learn.noise_aware.rows import read
from discreet.noise_law import ColumnLaw, NoiseLaw, SampledLaw, law_from_dict
from discreet.release import method_from_dict
from discreet.release.publication import in_words
from discreet.report.folder._metadata import dictionary
from discreet.report.folder.folder import (
    DATA,
    DICTIONARY,
    STATEMENT,
    SUMS,
    digest_of,
    read_bytes,
    read_statement,
    read_sums,
)
from discreet.schema import Column, Schema, unclipped_column
from discreet.tables import Table, open_table
from discreet.tables.files import CsvSource, ParquetSource

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Mapping

    from discreet._types import AnyArray
    from discreet.report.statement.documents import ColumnNumbers, Statement


ATTACKED_ROWS = 20_000
"""Number of rows, the first of the file, that the public attacks look at."""
_FIRST_DAY, _LAST_DAY = datetime.date(1, 1, 1), datetime.date(9999, 12, 31)


@dataclass(frozen=True)
class PublishedTable:
    """A released table as a stranger has it; made by :func:`load_release`.

    Attributes
    ----------
    path : Path
        The file of data, for whoever reads it a batch at a time.
    statement : Statement
        What is promised.
    noise_law : NoiseLaw
        How each cell follows from the true one.

    Privacy
    -------
    Everything in it was published.

    Reference
    ---------
    docs/explanation/theorems/noise-aware.md
    """

    path: Path
    statement: Statement
    noise_law: NoiseLaw

    @cached_property
    def data(self) -> Mapping[str, AnyArray]:
        """The columns by name, all rows: numbers, or words of their lists with None for a missing cell."""
        columns = self.noise_law.columns
        batches = list(read(self.path, columns, "load_release"))
        whole = {c.name: np.concatenate([batch[c.name] for batch in batches]) for c in columns}
        return {c.name: _decode_levels(whole[c.name], c) for c in columns}

    def coarsen(self, rows: Any) -> dict[str, AnyArray]:
        """Bring rows of your own into the values of the release: bins and groups, as it publishes them.

        Parameters
        ----------
        rows : frame, path, URL or mapping of names to arrays
            True rows, as the original table is declared; columns may be left out.

        Returns
        -------
        dict of str to array
            What a model that was learned from the release predicts from. Where nothing is binned or grouped,
            the rows themselves, moved into what was declared.

        Privacy
        -------
        Reads the rows that it is given, and the public rule of the release.
        """
        declared = Schema.from_dict(self.statement.declared)
        told = self.statement.what.method
        method = method_from_dict({"name": told.name, "parameters": told.parameters}, schema=declared)
        plan = method.plan(declared, self.statement.what.rows_read)
        if not plan.row_level:
            raise ParameterError(
                f"rows of PublishedTable.coarsen must belong to a release of rows of people, and a "
                f"{told.name} release has none. Its classifier says how rows are brought to it."
            )
        with open_table(rows) as table:
            there = [column for column in declared.released if column.name in table.names]
            batches = list(table.batches(Schema(columns=[_feature_column(column) for column in there])))
        whole = {c.name: np.concatenate([batch[c.name] for batch in batches]) for c in there}
        truth = plan.truth(whole)
        return {c.name: in_words(plan.schema.column(c.name), truth[c.name]) for c in there}


def _feature_column(column: Column) -> Column:
    """Return the same column as a feature; a label is not asked for."""
    return dataclasses.replace(column, role="sensitive", closed=column.is_closed if column.values else None)


def load_release(path: str | os.PathLike[str]) -> PublishedTable:
    """Read a published folder back, after checking that its files are the ones that were hashed.

    Parameters
    ----------
    path : path
        A ``public`` folder, or the folder that holds one.

    Returns
    -------
    PublishedTable
        Its ``data``, ``noise_law`` and ``statement``. Give it to
        :class:`~discreet.NoiseAwareClassifier` or :class:`~discreet.NoiseAwareRidge` as it is.

    Privacy
    -------
    Reads what was published. Whether the promises hold is for :func:`discreet.verify` to say.

    Reference
    ---------
    docs/explanation/theorems/noise-aware.md
    """
    folder = Path(path)
    if (folder / "public").is_dir() and not (folder / STATEMENT).exists():
        folder = folder / "public"
    if not (folder / STATEMENT).is_file():
        raise SourceError(
            f"path of load_release must be the public folder of a release, and {str(path)!r} has no "
            f"{STATEMENT}. Unpack the release first."
        )
    listed = read_sums(read_bytes(folder / SUMS))
    for name in (STATEMENT, DICTIONARY, DATA):
        if listed.get(name) != digest_of(folder / name):
            raise SourceError(
                f"{name} is not the file that {SUMS} lists: it was changed after it was published. Ask for "
                "the folder again."
            )
    statement = read_statement(folder)
    if statement.files.get(DATA) != listed[DATA]:
        raise SourceError(f"{DATA} is not the file that {STATEMENT} speaks of. Ask for the folder again.")
    if read_bytes(folder / DICTIONARY) != dictionary(statement).encode("utf-8"):
        raise SourceError(f"{DICTIONARY} does not say what {STATEMENT} says. Ask for the folder again.")
    law = noise_law_of(statement)
    with open_table(folder / DATA) as table:
        names = [column.name for column in law.columns]
        if list(table.names) != names or table.count() != statement.what.rows_published:
            raise DataError(
                f"{DATA} must have the columns and the number of rows that {STATEMENT} says, and has others. "
                "Ask for the folder again."
            )
    return PublishedTable(folder / DATA, statement, law)


def noise_law_of(statement: Statement) -> NoiseLaw:
    """Return the noise law that a statement spells out, column by column."""
    days = {bound.column: bound.lower for bound in statement.bounds if bound.type == "date"}
    return NoiseLaw(columns=tuple(_column_law(c, days.get(c.column)) for c in statement.numbers.columns))


def _column_law(numbers: ColumnNumbers, first_day: object) -> ColumnLaw:
    """Return the noise law of one column as its statement spells it out."""
    law = law_from_dict(numbers.law)
    levels = numbers.levels
    if levels is not None and isinstance(law, SampledLaw):
        levels = [level for level in levels if level != law.unpublished]
    return ColumnLaw(
        name=numbers.column,
        law=law,
        type=numbers.type,
        role=numbers.role,
        lower=numbers.lower,
        upper=numbers.upper,
        levels=None if levels is None else tuple(levels),
        missing=numbers.missing,
        origin=str(first_day) if numbers.holds == "date" else None,
    )


def _decode_levels(cells: AnyArray, column: ColumnLaw) -> AnyArray:
    """Return levels, not codes."""
    if column.levels is None:
        return cells
    words: list[object] = list(column.levels)
    if isinstance(column.law, SampledLaw):
        words.append(column.law.unpublished)
    lookup = np.empty(len(words), dtype=object)
    lookup[:] = words
    found = lookup[cells]
    return found if None in words else found.astype(np.array(words).dtype)


def published_batches(path: Path, schema: Schema) -> Iterator[dict[str, AnyArray]]:
    """Yield the batches of a published file exactly as it is: nothing clipped, no level taken for another.

    Parameters
    ----------
    path : Path
        The file of data, Parquet or gzipped CSV.
    schema : Schema
        Schema of what was published, as a plan has it.

    Yields
    ------
    dict of str to array
        The columns of a batch by name: numbers, codes of levels, days since the declared lower bound.
    """
    csv = path.name.endswith(".gz")
    source = CsvSource(path, delimiter=",", encoding="utf-8") if csv else ParquetSource(path)
    wide = Schema(columns=[_unbounded_column(column) for column in schema.released])
    shifts = {
        column.name: float((column.lower - _FIRST_DAY).days)
        for column in schema.released
        if column.type == "date" and column.role == "public" and isinstance(column.lower, datetime.date)
    }
    with Table(source) as table:
        for batch in table.batches(wide):
            yield {
                name: values - shifts[name] if name in shifts else values for name, values in batch.items()
            }


def _unbounded_column(column: Column) -> Column:
    """Return a column under which any cell can be read, also those out of bounds."""
    if column.is_category:
        plain = tuple(level for level in column.levels if level is not None)
        return Column(column.name, values=plain, closed=True, required=False)
    if column.type == "date" and column.role == "public":
        return Column(column.name, lower=_FIRST_DAY, upper=_LAST_DAY, required=column.required)
    return unclipped_column(column.name, required=column.required)
