"""Small tables as arrays: for kernels over rows in memory, where an instance of DuckDB costs more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from discreet.errors import TableChanged
from discreet.query.engines._duckdb import DuckDBEngine
from discreet.query.engines.base import ROWS, Engine, Tally, curated_batches
from discreet.tables import open_table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sqlglot.expressions import Expr as Tree

    from discreet._types import AnyArray
    from discreet.query.curation import Curation, Version


class ArraysEngine(Engine):
    """Engine that keeps the curated table in arrays of this process.

    Curation and fingerprints are those of every engine, so that its integers and the noise on them are the
    same. Where a query needs SQL after all, the rows are registered with DuckDB.

    Privacy
    -------
    See :class:`~discreet.query.engines.base.Engine`. The arrays belong to this process alone, so they cannot
    change between two passes.

    Reference
    ---------
    docs/explanation/theorems/sulq-sensitivity.md.
    """

    _failures = DuckDBEngine._failures

    def __init__(self) -> None:
        super().__init__()
        self._columns: dict[str, AnyArray] = {}
        self._source: Any = None
        self._salt = ""
        self._sql: DuckDBEngine | None = None

    def _build(self, source: Any, curation: Curation, salt: str) -> Version:
        """Read and curate all rows."""
        self._source, self._salt = source, salt
        tally = Tally(curation)
        with open_table(source, schema=curation.schema) as table:
            pieces = list(curated_batches(table, curation, tally, salt))
        for name in curation.identifiers():
            parts = [np.empty(0, curation.dtype(name)), *(piece[name] for piece in pieces)]
            self._columns[name] = np.concatenate(parts, dtype=curation.dtype(name))
        return tally.version

    def _fetch(self, query: Tree) -> list[tuple[Any, ...]]:
        if self._sql is None:
            assert self.curation is not None
            self._sql = DuckDBEngine()
            if self._sql.register(self._source, self.curation, salt=self._salt) != self.version:
                raise TableChanged
        return self._sql._fetch(query)

    def batches(self, columns: Sequence[str], rows: int = ROWS) -> Iterator[list[AnyArray]]:
        """Yield curated columns, at most ``rows`` rows at a time."""
        for start in range(0, self.count(), rows):
            yield [self._columns[name][start : start + rows] for name in columns]

    def close(self) -> None:
        """Forget the curated table."""
        self._columns, self._source = {}, None
        if self._sql is not None:
            self._sql.close()
