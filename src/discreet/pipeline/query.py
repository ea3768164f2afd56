"""Text queries on a file: one, or several for which table and ledger are opened once, when first needed."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import TYPE_CHECKING, Any, TypeAlias

from discreet.arguments import checked_arguments
from discreet.errors import DataError
from discreet.ledger import Ledger
from discreet.pipeline.sources import LedgerPlace, describe_source, find_ledger, find_schema, resolve_source
from discreet.pipeline.table_registry import open_charged_ledger
from discreet.query import Database
from discreet.query.costs import describe_charges, remaining_amounts
from discreet.query.frames import Budget, question_words
from discreet.query.language.query import parse_query
from discreet.query.text_query import preview_query, run_query
from discreet.tables import open_table

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Sequence
    from typing import Self

    from discreet.ledger import Account
    from discreet.privacy import Promise
    from discreet.query.language.query import Query
    from discreet.query.previews import Preview
    from discreet.query.results import QueryResult
    from discreet.schema import Schema

Charges: TypeAlias = "tuple[Account | None, dict[str, list[Promise]]]"
"""Budget of a ledger, None without one; and by the text of each question what was charged for it."""


@checked_arguments
def read(
    source: Any,
    *,
    schema: Schema | str | os.PathLike[str] | None = None,
    ledger: LedgerPlace = None,
    new_ledger: bool = False,
) -> Database:
    """Open a table as a private database, with the schema and the ledger that lie beside it.

    Parameters
    ----------
    source : path, URL, frame or "demo:census"
        Table as :func:`discreet.tables.open_table` reads it, or a bundled one.
    schema : Schema or path, optional
        Schema that declares the columns. None: the file ``*.schema.yaml`` beside the table.
    ledger : Ledger, path, URL, False or None
        Ledger that is charged. None: the file beside the table, as for a release. False: nothing is counted.
    new_ledger : bool
        Whether a table that is known to another ledger may be charged to this one all the same.

    Returns
    -------
    Database
        The table, which answers queries and trains models. Close it, or use it in a ``with`` block.

    Raises
    ------
    SchemaError
        There is no schema, or it is wrong or incomplete.
    OtherLedger
        The table was charged to another ledger before; nothing was charged.

    Privacy
    -------
    Opening a table charges nothing. Queries are charged as for :class:`~discreet.Database`.

    Reference
    ---------
    docs/explanation/theorems/sulq-sensitivity.md, composition.md.

    Examples
    --------
    >>> from discreet import PureDP, read
    >>> with read("demo:census", ledger=False) as census:
    ...     answer = census.count("age >= 65", privacy=PureDP(1.0))
    >>> round(answer.sd, 2)  # of the noise; 3,800 people are counted
    1.41
    """
    declared = find_schema(source, schema)
    table = _check_columns(source, declared)
    opened = open_charged_ledger(source, declared, ledger, new_ledger=new_ledger, log=True)
    place: Any = opened
    if opened is not None and opened is not ledger and opened.url != ":memory:":
        # Opened again by the database, which then closes it.
        opened.close()
        place = opened.url
    return _refuse_empty(Database(table, schema=declared, ledger=place), source)


class QuerySession:
    """Text queries on one table; table and ledger are opened at the first answer, and kept open.

    Parameters
    ----------
    source, schema, ledger, new_ledger
        As for :func:`read`.

    Attributes
    ----------
    schema : Schema
        Schema that declares the columns of the table.

    Privacy
    -------
    A charge is made before the engine runs; the same query on the same rows is free, and gets the same
    answer. Everything that can be refused by text and schema is refused before a ledger is made.

    Reference
    ---------
    docs/explanation/theorems/sulq-sensitivity.md, composition.md.
    """

    def __init__(
        self,
        source: Any,
        *,
        schema: Schema | str | os.PathLike[str] | None = None,
        ledger: LedgerPlace = None,
        new_ledger: bool = False,
    ) -> None:
        """Find the schema; nothing is opened yet."""
        self.schema = find_schema(source, schema)
        self._source, self._place, self._new_ledger = source, ledger, new_ledger
        self._database: Database | None = None
        self._ledger: Ledger | None = None
        self._is_charged = False
        self._n_rows: int | None = None

    def preview(
        self, question: str, *, privacy: Promise | None = None, sd: float | None = None, exact: bool = False
    ) -> Preview:
        """Return the cost of a query and the noise of its answer; nothing is charged.

        Parameters
        ----------
        question, privacy, sd
            As for :meth:`query`.
        exact : bool
            Whether to open the table if the question seems to be paid for: whether the rows are still the
            same can only be seen then. Otherwise no cell is read.

        Privacy
        -------
        Follows from the schema, the public number of rows, and what was paid for.
        """
        if self._database is None or not self._is_charged:
            found = self.preview_unopened(question, privacy, sd, self.read_charges())
            if not (exact and found.cost and found.is_free):
                return found
        found = self.open(charged=True).preview(question, privacy=privacy, sd=sd)
        account = self.account()
        remaining = None if account is None else remaining_amounts(found.cost, None, account)
        return dataclasses.replace(found, remaining=remaining)

    def query(
        self,
        question: str,
        *,
        privacy: Promise | None = None,
        sd: float | None = None,
        refines: Sequence[str] = (),
        plan: Sequence[Promise] = (),
    ) -> QueryResult:
        """Charge and answer one text query.

        Parameters
        ----------
        question : str
            Text of the query, as :func:`~discreet.query.language.query.parse_query` reads it.
        privacy, sd, refines, plan
            As for :func:`run_query`.

        Raises
        ------
        ExpressionRefused
            The text is not in the query language; nothing was charged.
        BudgetExceeded
            The ledger's limit does not allow it; nothing was charged.
        OtherLedger
            The table was charged to another ledger before; nothing was charged.
        """
        query = parse_query(question, self.schema)
        cost = preview_query(self.schema, None, query, privacy=privacy, sd=sd).cost
        # What costs nothing is not charged, and a ledger that it made would have no limit for ever.
        db = self.open(charged=bool(cost), columns=query.columns or (self.schema.released[0].name,))
        return self._complete(run_query(db, query, privacy=privacy, sd=sd, refines=refines, plan=plan))

    def account(self) -> Account | None:
        """Return the budget of the ledger that is charged; None if there is no ledger yet, or none at all."""
        with self._existing_ledger() as ledger:
            return None if ledger is None else ledger.accounts(None)[0]

    def describe_budget(self) -> str | None:
        """Return what was spent and what is left as text; None without a ledger."""
        with self._existing_ledger() as ledger:
            return None if ledger is None else str(Budget.from_ledger(ledger, None).total)

    def history(self, last: int) -> list[tuple[str, str, str, str]]:
        """Return the newest charges of the ledger, oldest first: row, time, question and cost as texts."""
        with self._existing_ledger() as ledger:
            entries = [] if ledger is None else ledger.entries(last=last)
        return [
            (
                str(entry.receipt.seq),
                entry.receipt.when,
                question_words(entry.asked, entry.receipt.what),
                describe_charges(entry.receipt.promises),
            )
            for entry in entries
        ]

    def close(self) -> None:
        """Close the table and the ledger, unless the ledger was given open."""
        database, ledger = self._database, self._ledger
        self._database = self._ledger = None
        try:
            if database is not None:
                database.close()
        finally:
            if ledger is not None and ledger is not self._place:
                ledger.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def open(self, *, charged: bool, columns: tuple[str, ...] | None = None) -> Database:
        """Return the open database, which is opened again where it lacks the ledger or a column.

        Parameters
        ----------
        charged : bool
            Whether something is about to be charged, so that the ledger is needed.
        columns : tuple of str, optional
            Names of the columns that are asked about; None for all. A second question about others has all
            columns read.
        """
        if self._database is not None:
            stored = self._database.curation.stored
            has_columns = stored is None or (columns is not None and stored.issuperset(columns))
            if has_columns and (self._is_charged or not charged):
                return self._database
            columns = columns if has_columns else None
        self.close()
        table = _check_columns(self._source, self.schema)
        if charged:
            self._ledger = open_charged_ledger(
                self._source, self.schema, self._place, new_ledger=self._new_ledger, log=True
            )
        try:
            database = Database(table, schema=self.schema, ledger=self._ledger, columns=columns)
            self._database, self._is_charged = database, charged
            _refuse_empty(database, self._source)
        except BaseException:
            # Also when interrupted: a database without its rows must not answer the next question.
            self.close()
            raise
        return database

    def _complete(self, result: QueryResult) -> QueryResult:
        """Return a result with what the ledger knows about it."""
        if self._ledger is None or not result.cost:
            return result
        (account,) = self._ledger.accounts(None)
        return dataclasses.replace(
            result,
            ledger=self._ledger.identity,
            remaining=remaining_amounts(result.cost, None, account, charged=result.charged),
            spent=account.spent,
        )

    def read_charges(self) -> Charges:
        """Return the budget, and what was charged for each question; neither without a ledger."""
        paid: dict[str, list[Promise]] = {}
        with self._existing_ledger() as ledger:
            if ledger is None:
                return None, paid
            for entry in ledger.entries():
                paid.setdefault((entry.asked or {}).get("said") or "", []).extend(entry.receipt.promises)
            return ledger.accounts(None)[0], paid

    def preview_unopened(
        self, question: str, privacy: Promise | None, sd: float | None, charges: Charges
    ) -> Preview:
        """Return a preview that reads no cell; what was paid for is looked up by its text.

        Parameters
        ----------
        question, privacy, sd
            As for :meth:`query`.
        charges : tuple
            What :meth:`read_charges` returned for the present state of the ledger.
        """
        query = parse_query(question, self.schema)
        account, paid = charges
        accounts = () if account is None else (account,)
        found = preview_query(
            self.schema, self._public_rows(query), query, privacy=privacy, sd=sd, accounts=accounts
        )
        if account is None:
            return found
        free = found.is_free or all(promise in paid.get(str(query), ()) for promise in found.cost)
        return dataclasses.replace(
            found, is_free=free, remaining=remaining_amounts(found.cost, None, account)
        )

    def _public_rows(self, query: Query) -> int | None:
        """Return the number of rows where it is public and the noise of the answer depends on it."""
        public = self.schema.neighbors == "replace-one" and self.schema.row_count == "public"
        depends = any(statistic.kind not in ("count", "distinct", "sum") for statistic in query.statistics)
        if not depends or not public:
            return None
        if self._n_rows is None:
            with open_table(resolve_source(self._source), schema=self.schema) as table:
                self._n_rows = table.count()
        return self._n_rows

    @contextlib.contextmanager
    def _existing_ledger(self) -> Iterator[Ledger | None]:
        """Yield the ledger that the table is charged to if there is one; none is made."""
        if self._ledger is not None or isinstance(self._place, Ledger):
            yield self._ledger or self._place  # type: ignore[misc]
            return
        if self._place is False:
            yield None
            return
        place = find_ledger(self._source, self.schema, self._place)
        if place == ":memory:" or Ledger.identity_at(place) is None:
            yield None
            return
        with Ledger.open(place) as opened:
            yield opened


def _check_columns(source: Any, schema: Schema) -> Any:
    """Return the table as an engine reads it; refuse one without rows or with columns of another schema.

    The check comes before the ledger is made. Spark checks its tables itself.
    """
    table = resolve_source(source)
    if not (isinstance(table, str) and table.startswith("spark://")) and (
        isinstance(table, str) or hasattr(table, "__fspath__")
    ):
        with open_table(table, schema=schema) as opened:
            batches = opened.batches(schema, ids=schema.id_column is not None, rows=1)
            # The first row of a file is at hand; a server would begin to send them all.
            if "://" not in str(table) and next(batches, None) is None:
                raise _without_rows(source)
    return table


def _refuse_empty(database: Database, source: Any) -> Database:
    """Return a database; close and refuse one without rows, about which there is nothing to ask."""
    if database.n_rows == 0:
        database.close()
        raise _without_rows(source)
    return database


def _without_rows(source: Any) -> DataError:
    return DataError(f"{describe_source(source)} must have at least one row, and has none.")


def query_table(
    source: Any,
    question: str,
    *,
    schema: Schema | str | os.PathLike[str] | None = None,
    ledger: LedgerPlace = None,
    new_ledger: bool = False,
    privacy: Promise | None = None,
    sd: float | None = None,
    refines: Sequence[str] = (),
) -> QueryResult:
    """Answer one text query on a table.

    Parameters
    ----------
    source, schema, ledger, new_ledger
        As for :func:`read`.
    question : str
        Text of the query, as :func:`~discreet.query.language.query.parse_query` reads it.
    privacy, sd, refines
        As for :func:`run_query`.

    Raises
    ------
    ExpressionRefused
        The text is not in the query language; nothing was charged.
    BudgetExceeded
        The ledger's limit does not allow it; nothing was charged.
    OtherLedger
        The table was charged to another ledger before; nothing was charged.

    Privacy
    -------
    The charge is made before the engine runs; the same query on the same rows is free, and gets the same
    answer. A group without rows is answered like all others.

    Reference
    ---------
    docs/explanation/theorems/sulq-sensitivity.md.

    Examples
    --------
    >>> from discreet import ApproxDP
    >>> result = query_table("demo:census", "count where age > 40", ledger=False, privacy=ApproxDP(1, 1e-6))
    >>> len(result.cells), result.cached
    (1, False)
    """
    with QuerySession(source, schema=schema, ledger=ledger, new_ledger=new_ledger) as session:
        return session.query(question, privacy=privacy, sd=sd, refines=refines)


def preview_table_query(
    source: Any,
    question: str,
    *,
    schema: Schema | str | os.PathLike[str] | None = None,
    privacy: Promise | None = None,
    sd: float | None = None,
    ledger: LedgerPlace = None,
) -> Preview:
    """Return the cost of a text query and the noise of its answer; no cell is read, nothing is charged.

    Parameters
    ----------
    source, question, schema, privacy, sd, ledger
        As for :func:`query_table`. What the query takes is also said of a ledger that exists; none is made.

    Privacy
    -------
    Follows from the schema, and for a mean from the number of rows where that is public.

    Reference
    ---------
    docs/explanation/theorems/sulq-sensitivity.md.

    Examples
    --------
    >>> from discreet import ApproxDP
    >>> preview = preview_table_query("demo:census", "count where age > 40", privacy=ApproxDP(1, 1e-6))
    >>> preview.question
    'count where 40 < age'
    """
    with QuerySession(source, schema=schema, ledger=ledger) as session:
        return session.preview(question, privacy=privacy, sd=sd)
