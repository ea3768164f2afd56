"""A private table that answers questions: exact sums in an engine, noise in the curator's process."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from discreet.errors import DataError
from discreet.ledger import Ledger
from discreet.query.curation import Curation
from discreet.query.engines import engine_for
from discreet.query.execution import QueryExecutor
from discreet.query.interface import PrivateTable
from discreet.query.language.query import parse_query
from discreet.query.text_query import is_free, preview_query, run_query
from discreet.query.unit_rows import check_matrix_allowed, ledger_salt

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Self

    from discreet._types import AnyArray
    from discreet.privacy import Promise
    from discreet.query.aggregates import Aggregate
    from discreet.query.calibration import Asked
    from discreet.query.engines import Engine
    from discreet.query.results import Preview, QueryResult
    from discreet.schema import Schema


class Database(QueryExecutor, PrivateTable):
    """A table about people that answers sums, counts and histograms with noise.

    Parameters
    ----------
    source : frame, array, path, URL or Spark session
        A frame of pandas, polars or pyarrow, or a mapping of arrays; an array of shape (n_rows, n_columns)
        with the released columns of the schema in their order; a ``.csv``, ``.parquet`` or
        ``.duckdb`` file; ``duckdb://file?table=name``; ``postgresql://host/database?table=schema.name``; a
        Spark data frame or ``spark://path-or-table``.
    schema : Schema
        What is public about the table: columns, bounds, lists, neighbors.
    ledger : Ledger, optional
        What questions are charged to. Without one they are counted in memory, under no limit.
    engine : Engine, optional
        Who adds up; chosen by the source if left out.
    random_state : int, optional
        A seed, which makes the noise public: for tests, and marked on every receipt.
    version : str, optional
        A public name for this state of the rows, such as a date. By default a secret fingerprint of the
        rows tells the ledger whether it has seen them, as long as the ledger's key is there.
    keep_ids : bool
        Whether fingerprints of ``schema.id_column`` are kept beside the rows, for
        :class:`~discreet.query.vertical.VerticalDatabases`. Every id must then occur once.
    slots : float or mapping of str to float, optional
        Seconds, the same or one for each kind of question: an answer, or the failure of an engine, leaves a
        whole number of them after the engine was asked. None is for a curator who asks about her own table;
        whoever lets others ask gives about four times what a question usually takes, such as 1.

    Attributes
    ----------
    schema, n_rows, neighbors
        What is public. ``n_rows`` is None where neighbors differ in it.
    ledger : Ledger
        What has been charged.

    Privacy
    -------
    At registration every cell becomes a small integer; from there on all arithmetic before the noise is
    exact, and no question can fail or overflow because of a row. A question is charged the exact cost of
    its noise, for the largest change that one person can cause in its whole vector of sums. Protected is
    one ``unit`` of the schema; under replace-one, with as many rows. Open: the schema, the questions, the
    time an answer takes (with ``slots`` only how many of them), and under replace-one the number of rows.

    Reference
    ---------
    Blum, Dwork, McSherry and Nissim (2005): docs/explanation/theorems/sulq-sensitivity.md, sulq-odds.md.

    Examples
    --------
    >>> from discreet import ApproxDP, Column, Schema
    >>> schema = Schema(columns=[Column("age", type="integer", lower=0, upper=120)])
    >>> with Database({"age": [34, 51, 27] * 1000}, schema=schema, random_state=1) as db:
    ...     answer = db.sum("age", privacy=ApproxDP(epsilon=1.0, delta=1e-6))
    >>> abs(answer.value - 112_000) < 5 * answer.sd, round(answer.sd, 1)
    (True, 507.0)
    """

    def __init__(
        self,
        source: Any,
        *,
        schema: Schema,
        ledger: Ledger | None = None,
        engine: Engine | None = None,
        random_state: int | None = None,
        version: str | None = None,
        keep_ids: bool = False,
        slots: float | Mapping[str, float] | None = None,
    ) -> None:
        curation = Curation.from_schema(schema, ids=keep_ids)
        if isinstance(source, np.ndarray):
            source = _named_columns(source, curation)
        chosen = engine_for(source) if engine is None else engine
        try:
            charged = Ledger.open(":memory:") if ledger is None else ledger
            chosen.register(source, curation, salt=ledger_salt(charged, schema))
            super().__init__(
                chosen, curation, ledger=charged, random_state=random_state, version=version, slots=slots
            )
        except BaseException:
            chosen.close()
            raise

    def query(
        self,
        text: str,
        *,
        privacy: Promise | None = None,
        sd: float | None = None,
        refines: str | Sequence[str] = (),
        owner: str | None = None,
    ) -> QueryResult:
        """Charge and answer a query in words or as a SELECT.

        Parameters
        ----------
        text : str
            Query such as ``mean(age) where job = 'clerk' by town``, or the same as a SELECT.
        privacy : PureDP, ApproxDP, ZCDP or GaussianDP
            Promise that the whole result keeps; None where `sd` is given instead.
        sd : float
            Standard deviation of the noise on a count or a sum, in its unit; None where `privacy` is given.
        refines : str or sequence of str
            Receipt ids of an earlier result of the same query, which the new one is merged with.
        owner : str, optional
            Name that is charged beside the total; None charges the total alone.

        Raises
        ------
        ExpressionRefused
            The text is not in the language; nothing was charged.
        ParameterError
            Neither or both of `privacy` and `sd` are given; nothing was charged.
        BudgetExceeded
            The ledger's limit does not allow it; nothing was charged.

        Privacy
        -------
        Charged before the engine is asked; the same query about the same rows is free and gets the same
        result. A mean by groups is two charges of half of the promise each.

        Reference
        ---------
        docs/explanation/theorems/sulq-sensitivity.md, composition.md.

        Examples
        --------
        >>> from discreet import Column, GaussianDP, Schema
        >>> schema = Schema(columns=[Column("age", type="integer", lower=0, upper=120)])
        >>> with Database({"age": [34, 51, 27] * 1000}, schema=schema, random_state=1) as db:
        ...     result = db.query("count where age > 30", privacy=GaussianDP(mu=1))
        >>> abs(result.cells[0].value - 2000) < 5
        True
        """
        merged = (refines,) if isinstance(refines, str) else tuple(refines)
        asked = parse_query(text, self.schema)
        return run_query(self, asked, privacy=privacy, sd=sd, refines=merged, owner=owner)

    def preview(
        self, text: str, *, privacy: Promise | None = None, sd: float | None = None, owner: str | None = None
    ) -> Preview:
        """Return what :meth:`query` would charge, and how noisy its result would be. Free.

        Parameters
        ----------
        text, privacy, sd, owner
            As for :meth:`query`.

        Privacy
        -------
        Follows from the schema, the public number of rows and what this owner has paid.

        Reference
        ---------
        docs/explanation/theorems/sulq-sensitivity.md.
        """
        asked = parse_query(text, self.schema)
        cost = preview_query(self.schema, self.n_rows, asked, privacy=privacy, sd=sd)
        paid = is_free(self, asked, privacy=privacy, sd=sd, owner=owner)
        return dataclasses.replace(cost, is_free=paid)

    def is_free(
        self,
        question: Aggregate,
        *,
        privacy: Asked | None = None,
        variance: float | None = None,
        owner: str | None = None,
        refines: str | None = None,
    ) -> bool:
        """Say whether :meth:`ask` would charge nothing: it needs no noise, or the same was paid for. Free.

        Parameters
        ----------
        question, privacy, variance, refines
            As for :meth:`ask`.
        owner : str, optional
            Who would ask. What others paid does not count: their share would have to be paid.

        Privacy
        -------
        Read from the ledger. With an owner it tells nothing about what others have asked.
        """
        bound, noise = self.calibrate(question, privacy=privacy, variance=variance)
        if noise.promise is None:
            return True
        digest, _ = self._named(bound, noise, refines, owner)
        return self.ledger.has_paid(digest, owner)

    def __enter__(self) -> Self:
        return self

    def __repr__(self) -> str:
        return f"Database({len(self.curation.columns)} columns, {self.neighbors}, ledger={self.ledger!r})"


def _named_columns(matrix: AnyArray, curation: Curation) -> dict[str, AnyArray]:
    """Return the columns of a matrix under the names of the schema's released columns, in their order."""
    check_matrix_allowed(curation.schema, "source of Database")
    size = len(curation.columns)
    if matrix.ndim != 2 or matrix.shape[1] != size:
        raise DataError(
            f"source of Database must have one column for each of the {size} columns that leave, had shape "
            f"{matrix.shape}. Give a mapping of names to arrays otherwise."
        )
    return {column.name: np.ascontiguousarray(matrix[:, i]) for i, column in enumerate(curation.columns)}
