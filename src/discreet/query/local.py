"""Noisy sums over rows in memory: what a learner asks when it is given a matrix instead of a database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from discreet.errors import DataError
from discreet.ledger import Ledger
from discreet.query.answering import EngineSums
from discreet.query.curation import Curation
from discreet.query.engines.duckdb import DuckDBEngine
from discreet.query.unit_rows import check_matrix_allowed, ledger_salt

if TYPE_CHECKING:
    from discreet.schema import Schema


class LocalSums(EngineSums):
    """Noisy sums over rows in memory.

    Parameters
    ----------
    rows : array of shape (n_rows, n_columns), frame or mapping of arrays
        A matrix has the columns of the schema that leave, in order. Copied: later changes do not matter.
    schema : Schema
        What is public about them.
    ledger, random_state
        As for :class:`~discreet.query.database.Database`.

    Privacy
    -------
    As :class:`~discreet.query.database.Database`: the same question gives the same exact integers.

    Reference
    ---------
    docs/explanation/theorems/sulq-sensitivity.md.
    """

    def __init__(
        self,
        rows: Any,
        *,
        schema: Schema,
        ledger: Ledger | None = None,
        random_state: int | None = None,
    ) -> None:
        curation = Curation.of(schema)
        engine = DuckDBEngine()
        if isinstance(rows, np.ndarray):
            check_matrix_allowed(schema, "rows of LocalSums")
            if rows.ndim != 2 or rows.shape[1] != len(curation.columns):
                raise DataError(
                    f"rows of LocalSums must have one column for each of the {len(curation.columns)} columns "
                    f"that leave, had shape {rows.shape}. Give a mapping of names to arrays otherwise."
                )
            rows = {
                column.name: np.ascontiguousarray(rows[:, i]) for i, column in enumerate(curation.columns)
            }
        try:
            charged = Ledger.open(":memory:") if ledger is None else ledger
            engine.register(rows, curation, salt=ledger_salt(charged, schema))
            super().__init__(engine, curation, ledger=charged, random_state=random_state)
        except BaseException:
            engine.close()
            raise
