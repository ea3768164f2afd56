"""Public folders read back: the table, its statement and its noise law."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from discreet.arguments import checked_arguments
from discreet.errors import DataError, ParameterError, SourceError
from discreet.noise_law import ColumnLaw, NoiseLaw, SampledLaw, law_from_dict
from discreet.release import method_from_dict
from discreet.release.publication import decode_cells
from discreet.release.statistics import ReleaseStatistics
from discreet.report.folder.folder import (
    DATA,
    STATEMENT,
    SUMS,
    TABLES,
    digest_of,
    part_names,
    read_bytes,
    read_statement,
    read_sums,
)
from discreet.schema import Column, Schema
from discreet.tables import open_table

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from discreet._types import AnyArray
    from discreet.release.statistics.interface import By, StatisticResult
    from discreet.report.statement.documents import ColumnNumbers, Statement


@dataclass(frozen=True)
class PublishedTable(ReleaseStatistics):
    """Released table read back from a public folder; returned by :func:`load_release`.

    Its statistics have intervals for what the true rows have: of a synthetic release from the published
    tables of counts, of others from their rows, corrected for the noise.

    Attributes
    ----------
    path : Path
        File of data, to be read a batch at a time.
    statement : Statement
        Statement of the release, with its promises.
    noise_law : NoiseLaw
        Distribution of each published cell given the true one.

    Privacy
    -------
    Everything in it was published.

    Reference
    ---------
    docs/explanation/theorems/noise-aware.md

    Examples
    --------
    >>> from discreet import Column, Schema, load_release, publish
    >>> schema = Schema(columns=[Column("age", type="integer", lower=17, upper=90, measure="years")])
    >>> rows = {"age": [20, 35, 50, 65] * 250}
    >>> done = publish(rows, schema=schema, protect={"age": 14}, ledger=False, out="made")
    >>> release = load_release(done.public)
    >>> 35 < release.mean("age").value < 50
    True
    """

    path: Path
    statement: Statement
    noise_law: NoiseLaw

    def __repr__(self) -> str:
        """Return method, size and place: the whole statement would be some hundred lines."""
        what = self.statement.what
        return f"<{what.method.name} table {what.release}: {what.rows_published:,} rows in {self.path}>"

    @cached_property
    def data(self) -> Mapping[str, AnyArray]:
        """Columns by name, all rows: numbers, or levels of their lists with None for a missing cell."""
        whole = self._read_cells()
        return {c.name: _decode_levels(whole[c.name], c) for c in self.noise_law.columns}

    @cached_property
    def statistics(self) -> ReleaseStatistics:
        """Statistics with intervals, from published tables of counts or from rows with noise."""
        from discreet.release.statistics import RowStatistics, TableStatistics  # loaded where they are used

        tables = self.path.parent / TABLES
        if not tables.is_file():
            return RowStatistics(self.noise_law, self._read_cells)
        return TableStatistics(json.loads(read_bytes(tables)), rows=self._read_declared)

    def _answer(self, kind: str, columns: tuple[str, ...], where: str | None, by: By) -> StatisticResult:
        """Return a statistic with its interval."""
        return self.statistics._answer(kind, columns, where, by)

    def _read_cells(self) -> dict[str, AnyArray]:
        """Return all published columns: numbers, or positions of levels in their lists."""
        from discreet.learn.noise_aware.rows import read_rows  # loaded here: a check reads no rows by it

        columns = self.noise_law.columns
        batches = list(read_rows(self.path, columns, "load_release"))
        return {c.name: np.concatenate([batch[c.name] for batch in batches]) for c in columns}

    def _read_declared(self) -> dict[str, AnyArray]:
        """Return all columns of a release whose rows have the declared types."""
        with open_table(self.path) as table:
            batches = list(table.batches(Schema.from_dict(self.statement.declared).plain))
        return {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}

    def coarsen(self, rows: Any) -> dict[str, AnyArray]:
        """Return your own rows with the values of the release: bins and groups, as it publishes them.

        Parameters
        ----------
        rows : frame, path, URL or mapping of names to arrays
            Rows with the columns of the original table; columns may be left out.

        Returns
        -------
        dict of str to array
            Columns from which a model that was learned from the release predicts. Where nothing is binned or
            grouped, the rows themselves, clipped to what was declared.

        Privacy
        -------
        Reads the given rows and the public rule of the release.
        """
        declared = Schema.from_dict(self.statement.declared)
        stated = self.statement.what.method
        method = method_from_dict({"name": stated.name, "parameters": stated.parameters}, schema=declared)
        n_rows: Any = self.statement.what.rows_read
        plan = method.plan(declared, n_rows)
        if not plan.row_level:
            raise ParameterError(
                f"rows of PublishedTable.coarsen must belong to a release of rows of people, and a "
                f"{stated.name} release has none. Its classifier says how rows are brought to it."
            )
        with open_table(rows, schema=declared) as table:
            present = [column for column in declared.released if column.name in table.names]
            columns = [_feature_column(column) for column in present]
            wanted = Schema(columns=columns, missing_values=declared.missing_values, dialect=declared.dialect)
            batches = list(table.batches(wanted))
        whole = {c.name: np.concatenate([batch[c.name] for batch in batches]) for c in present}
        truth = plan.truth(whole)
        return {c.name: decode_cells(plan.schema.column(c.name), truth[c.name]) for c in present}


def _feature_column(column: Column) -> Column:
    """Return a column as a feature, so that a target may be missing."""
    return dataclasses.replace(column, role="sensitive", closed=column.is_closed if column.values else None)


@checked_arguments
def load_release(path: str | os.PathLike[str]) -> PublishedTable:
    """Return the release in a public folder, after checking the hashes of its files.

    Parameters
    ----------
    path : path
        Public folder of a release, or the folder that holds it.

    Returns
    -------
    PublishedTable
        Table with ``data``, ``noise_law`` and ``statement``, which :class:`~discreet.NoiseAwareClassifier`
        and :class:`~discreet.NoiseAwareRidge` accept as it is.

    Privacy
    -------
    Reads public files alone. Whether the promises hold is checked by :func:`discreet.verify`.

    Reference
    ---------
    docs/explanation/theorems/noise-aware.md

    Examples
    --------
    >>> import tempfile
    >>> from discreet import Column, PureDP, Schema, publish
    >>> schema = Schema(columns=[Column("owner", values=("no", "yes"), closed=True)])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     done = publish({"owner": ["no", "yes"] * 500}, schema=schema, method="coarse", privacy=PureDP(2),
    ...                    ledger=False, out=f"{folder}/release")
    ...     share = load_release(done.public).proportion("owner = 'yes'")
    >>> 0.3 < share.cells[0].value < 0.7
    True
    """
    folder = Path(path)
    if (folder / "public").is_dir() and not (folder / STATEMENT).exists():
        folder = folder / "public"
    if not (folder / STATEMENT).is_file():
        raise SourceError(
            f"path of load_release must be the public folder of a release, and {str(path)!r} has no "
            f"{STATEMENT}. Unpack the release first."
        )
    hashes = read_sums(read_bytes(folder / SUMS))
    data = part_names(folder) or [DATA]
    for name in (STATEMENT, *data, *([TABLES] if (folder / TABLES).exists() else [])):
        if hashes.get(name) != digest_of(folder / name):
            raise SourceError(
                f"{name} is not the file that {SUMS} lists: it was changed after it was published. Ask for "
                "the folder again."
            )
    statement = read_statement(folder)
    other = next((name for name in data if statement.files.get(name) != hashes[name]), None)
    if other is not None:
        raise SourceError(f"{other} is not the file that {STATEMENT} speaks of. Ask for the folder again.")
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
    """Return the noise law in a statement, column by column."""
    first = {bound.column: bound.lower for bound in statement.bounds if bound.type in ("date", "datetime")}
    steps = {field["name"]: field.get("privacy", {}).get("step") for field in statement.declared["fields"]}
    return NoiseLaw(
        columns=tuple(
            _column_law(c, first.get(c.column), steps.get(c.column)) for c in statement.numbers.columns
        )
    )


def _column_law(numbers: ColumnNumbers, first: object, step: str | None) -> ColumnLaw:
    """Return the noise law of one column in a statement."""
    written = numbers.holds in ("date", "datetime")
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
        origin=str(first) if written else None,
        step=step if written else None,
    )


def _decode_levels(cells: AnyArray, column: ColumnLaw) -> AnyArray:
    """Return the levels that codes stand for; numbers are returned as they are."""
    if column.levels is None:
        return cells
    words: list[object] = list(column.levels)
    if isinstance(column.law, SampledLaw):
        words.append(column.law.unpublished)
    lookup = np.empty(len(words), dtype=object)
    lookup[:] = words
    levels = lookup[cells]
    return levels if None in words else levels.astype(np.array(words).dtype)
