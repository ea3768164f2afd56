"""A private table at hand: exact sums in an engine, noise in the curator's process."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from discreet.arguments import checked_arguments
from discreet.errors import DataError, ParameterError
from discreet.ledger import Ledger
from discreet.query.costs import remaining_amounts
from discreet.query.curation import Curation
from discreet.query.dummy import dummy_frame, dummy_rows
from discreet.query.engines import engine_for
from discreet.query.execution import QueryExecutor
from discreet.query.frames import Budget, Frame, History
from discreet.query.interface import PrivateTable
from discreet.query.language.query import parse_query
from discreet.query.past_results import past_numbers, recall_results
from discreet.query.text_query import is_free, preview_query, run_query
from discreet.query.unit_rows import check_matrix_allowed, ledger_salt

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Self

    from discreet._types import AnyArray
    from discreet.ledger import Account, Entry
    from discreet.privacy import Promise
    from discreet.query.aggregates.base import Aggregate
    from discreet.query.answers import Answer
    from discreet.query.engines import Engine
    from discreet.query.previews import Preview
    from discreet.query.results import QueryResult
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
        Declared columns, bounds, lists of values, unit and neighbors. Public.
    ledger : Ledger, path or URL, optional
        Ledger that is charged; the one at a path or URL is opened, and closed with the database. Without
        one, charges are counted in memory, under no limit.
    engine : Engine, optional
        Engine that computes the exact sums; chosen by the source if left out.
    random_state : int, optional
        A seed, which makes the noise public: for tests, and marked on every receipt.
    version : str, optional
        Public name of this state of the rows, such as a date. By default a secret fingerprint of the rows,
        by which the ledger recognizes them as long as its key is there.
    keep_ids : bool
        Whether fingerprints of ``schema.id_column`` are kept beside the rows, for
        :class:`~discreet.query.vertical.VerticalDatabases`. Every id must then occur once.
    slots : float or mapping of str to float, optional
        Seconds, the same or one for each kind of aggregate: an answer, or the failure of an engine, leaves a
        whole number of them after the engine was called. None is for curators who query their own table; to
        let others query it, give about four times what a query usually takes, such as 1.
    keep : path, optional
        Folder in which an encrypted copy of the curated table is kept. The next start finds it there, and
        reads the source again only if a file of it has changed. For tables in files, under a ledger that
        lasts: the key follows from the ledger's secret. None keeps nothing.
    columns : sequence of str, optional
        Names of the columns that will be asked about. The others are not stored, and queries that name them
        are refused. Of a large table in files the version of its rows is kept, encrypted, beside a ledger in
        a file, so that the next start reads these columns alone. None stores all columns.

    Attributes
    ----------
    schema, n_rows, neighbors, dataset
        Public facts about the table. ``n_rows`` is None where neighbors differ in it.
    ledger : Ledger
        Ledger with the charges made so far.

    Privacy
    -------
    At registration every cell becomes a small integer; from there on all arithmetic before the noise is
    exact, and no query can fail or overflow because of a row. A query is charged the exact cost of its
    noise, for the largest change that one person can cause in its whole vector of sums. Protected is one
    ``unit`` of the schema; under replace-one, with as many rows. Public are the schema, the queries, the
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
    (True, 169.7)
    """

    _own_ledger: Ledger | None = None

    def __init__(
        self,
        source: Any,
        *,
        schema: Schema,
        ledger: Ledger | str | os.PathLike[str] | None = None,
        engine: Engine | None = None,
        random_state: int | None = None,
        version: str | None = None,
        keep_ids: bool = False,
        slots: float | Mapping[str, float] | None = None,
        keep: str | os.PathLike[str] | None = None,
        columns: Sequence[str] | None = None,
    ) -> None:
        """Register the rows with the engine; the engine is closed if that fails."""
        curation = Curation.from_schema(schema, ids=keep_ids, stored=columns)
        if isinstance(source, np.ndarray):
            source = _named_columns(source, curation)
        if ledger is not None and not isinstance(ledger, Ledger):
            ledger = self._own_ledger = Ledger.open(ledger)
        chosen: Engine | None = None
        try:
            if keep is not None:
                engine = _keeping_engine(keep, source, engine, ledger, columns)
            elif columns is not None and engine is None and ledger is not None:
                engine = _projecting_engine(ledger, source, curation)
            chosen = engine_for(source) if engine is None else engine
            charged = Ledger.open(":memory:") if ledger is None else ledger
            chosen.register(source, curation, salt=ledger_salt(charged, schema))
            super().__init__(
                chosen, curation, ledger=charged, random_state=random_state, version=version, slots=slots
            )
        except BaseException:
            # Also when interrupted: the caller has no reference to close it by.
            if chosen is not None:
                chosen.close()
            if self._own_ledger is not None:
                self._own_ledger.close()
            raise

    def close(self) -> None:
        """Drop the curated table, close the engine, and the ledger if it was opened here."""
        try:
            super().close()
        finally:
            if self._own_ledger is not None:
                self._own_ledger.close()

    @checked_arguments
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
        text, privacy, sd, refines
            As for :meth:`PrivateTable.query <discreet.query.PrivateTable.query>`.
        owner : str, optional
            Name that is charged beside the total; None charges the total alone.

        Privacy
        -------
        Charged before the engine is called; the same query about the same rows is free and gets the same
        result. One charge for all statistics of the query.

        Reference
        ---------
        docs/explanation/theorems/sulq-sensitivity.md.

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
        query = parse_query(text, self.schema)
        result = run_query(self, query, privacy=privacy, sd=sd, refines=merged, owner=owner)
        accounts = result.charges[-1].accounts if result.charges else None
        remaining = self._remaining_amounts(result.cost, owner, accounts, result.charged)
        return dataclasses.replace(result, remaining=remaining)

    @checked_arguments
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
        query = parse_query(text, self.schema)
        preview = preview_query(
            self.schema,
            self.n_rows,
            query,
            privacy=privacy,
            sd=sd,
            earlier=partial(self.find_answer, owner=owner),
            accounts=self.accounts(owner),
        )
        free = is_free(self, query, privacy=privacy, sd=sd, owner=owner)
        remaining = self._remaining_amounts(preview.cost, owner)
        return dataclasses.replace(preview, is_free=free, remaining=remaining)

    def _remaining_amounts(
        self,
        cost: tuple[Promise, ...],
        owner: str | None,
        accounts: Sequence[Account] | None = None,
        charged: tuple[Promise, ...] | None = None,
    ) -> dict[str, Any]:
        """Return what is left to the owner and in total, as :func:`remaining_amounts` does."""
        own, total = self.ledger.accounts(owner, None) if accounts is None else accounts
        return remaining_amounts(cost, None if owner is None else own, total, charged=charged)

    @property
    def dataset(self) -> str | None:
        """Lasting name of the table; None where the schema declares none."""
        return self.schema.dataset

    def budget(self, *, owner: str | None = None) -> Budget:
        """Return what the ledger's limits allow, what was spent and what is left. Free.

        Parameters
        ----------
        owner : str, optional
            Name whose own budget is returned beside the total; None for the total alone.
        """
        return Budget.from_ledger(self.ledger, owner)

    def history(self, *, after: int = 0, last: int | None = None, owner: str | None = None) -> History:
        """Return the charges of the ledger with their answers, oldest first. Free.

        Parameters
        ----------
        after : int
            Row of the ledger after which the history begins.
        last : int, optional
            Maximum number of charges, the newest of the rest; None for all of them.
        owner : str, optional
            Name whose charges are returned; None for those of all.

        Privacy
        -------
        Noisy answers that were paid for, and public facts.
        """
        entries = self.ledger.entries(owner, after=after, last=last)
        recall = cache(self.recall)
        results = recall_results(self, entries, recall)
        lines = [_history_entry(entry, recall) for entry in entries]
        return History.from_entries(
            {**line, "numbers": past_numbers(results, line["receipt"])} for line in lines
        )

    def dummy(self, n: int = 100, seed: int = 0) -> Frame:
        """Return rows drawn from the schema alone, to try a program on. Free.

        Parameters
        ----------
        n : int
            Number of rows, from 1 to 100,000.
        seed : int
            Seed of the draw; the same rows for the same seed.

        Privacy
        -------
        No row is read: every column is uniform on what was declared.
        """
        return dummy_frame(self.schema, dummy_rows(self.schema, n, seed))

    def is_free(
        self,
        question: Aggregate,
        *,
        privacy: Promise | None = None,
        variance: float | None = None,
        owner: str | None = None,
        refines: str | None = None,
    ) -> bool:
        """Return whether :meth:`ask` would charge nothing: it needs no noise, or was paid for before. Free.

        Parameters
        ----------
        question, privacy, variance, refines
            As for :meth:`ask`.
        owner : str, optional
            Name that would be charged. What others paid does not count: their share would have to be paid.

        Privacy
        -------
        Read from the ledger. With an owner it reveals nothing about the queries of others.
        """
        bound, noise = self._calibrate(question, privacy=privacy, variance=variance, owner=owner)
        if noise.promise is None:
            return True
        digest, _ = self._find_question(bound, noise, refines, owner)
        return self.ledger.has_paid(digest, owner)

    def __enter__(self) -> Self:
        return self

    def __repr__(self) -> str:
        return f"Database({len(self.schema.released)} columns, {self.neighbors}, ledger={self.ledger!r})"

    def _repr_html_(self) -> str:
        """Return public facts and the budget, for a notebook; no row is read."""
        from discreet.formatting import list_names
        from discreet.html_tables import draw_facts  # only a notebook draws

        facts = {
            "columns": list_names(self.schema.names),
            "rows": "not public" if self.n_rows is None else f"{self.n_rows:,}",
            "protects": f"each {self.schema.unit} ({self.neighbors})",
            "budget": "recorded, without a limit",
        }
        budget = self.budget().total
        if budget is not None and budget.limit is not None:
            facts["budget"] = str(budget)
        return draw_facts(self.schema.title or "Private database", facts.items())


def _keeping_engine(
    keep: str | os.PathLike[str],
    source: Any,
    engine: Engine | None,
    ledger: Ledger | None,
    columns: Sequence[str] | None,
) -> Engine:
    """Return the engine that keeps a copy of its table; refuses where no later start would find it."""
    if columns is not None:
        raise ParameterError(
            "columns of a Database must be left out with keep, whose copy has all of them. Leave one out."
        )
    if engine is not None or ledger is None or not isinstance(source, str | os.PathLike):
        raise ParameterError(
            "keep of a Database must be left out unless the source is a path, read by the default engine, "
            "and a ledger is given, beside which the key of the copy lasts. Give ledger=Ledger.open(path)."
        )
    from discreet.query.engines._duckdb import DuckDBEngine

    return DuckDBEngine(keep=keep, secret=ledger.secret())


def _projecting_engine(ledger: Ledger, source: Any, curation: Curation) -> Engine | None:
    """Return the engine that reads few columns of a table whose version is kept; None if none is kept."""
    from discreet.query.engines._kept_copy import KeptVersion

    kept = KeptVersion.beside(ledger, source, curation)
    if kept is None:
        return None
    from discreet.query.engines._duckdb import DuckDBEngine

    return DuckDBEngine(kept_version=kept)


def _named_columns(matrix: AnyArray, curation: Curation) -> dict[str, AnyArray]:
    """Return the columns of a matrix under the names of the schema's released columns, in their order."""
    check_matrix_allowed(curation.schema, "source of Database")
    size = len(curation.columns)
    if matrix.ndim != 2 or matrix.shape[1] != size:
        raise DataError(
            f"source of Database must have one column for each of the {size} released columns, had shape "
            f"{matrix.shape}. Give a mapping of names to arrays otherwise."
        )
    return {column.name: np.ascontiguousarray(matrix[:, i]) for i, column in enumerate(curation.columns)}


def _history_entry(entry: Entry, recall: Callable[[str], Answer]) -> dict[str, Any]:
    """Return one charge as the history of a service has it; value, sd and law are None without an answer."""
    receipt = entry.receipt
    answer: dict[str, Any] = {}
    if entry.answer is not None and (entry.asked or {}).get("question") is not None:
        with contextlib.suppress(ParameterError):  # answered under an earlier schema
            answer = recall(receipt.id).to_dict()
    return {
        "receipt": receipt.id,
        "row": receipt.seq,
        "when": receipt.when,
        "what": receipt.what,
        "asked": entry.asked or {},
        "cost": [promise.to_dict() for promise in receipt.promises],
        **{name: answer.get(name) for name in ("value", "sd", "law")},
    }
