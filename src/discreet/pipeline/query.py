"""One text query on a file: opens the table and its ledger, and answers the query or previews its cost."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from discreet.errors import DataError
from discreet.ledger import Ledger
from discreet.pipeline.sources import LedgerPlace, describe_source, find_ledger, find_schema, resolve_source
from discreet.pipeline.table_registry import open_charged_ledger
from discreet.query import Database
from discreet.query.language.query import parse_query
from discreet.query.results import remaining_amounts
from discreet.query.text_query import preview_query, run_query
from discreet.tables import open_table

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from discreet.ledger import Account
    from discreet.privacy import Promise
    from discreet.query.results import Preview, QueryResult
    from discreet.schema import Schema


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
    source : path, URL, frame or "demo:census"
        Table as :func:`discreet.tables.open_table` reads it, or a bundled one.
    question : str
        Text of the query, as :func:`~discreet.query.language.query.parse_query` reads it.
    schema : Schema or path, optional
        Schema that declares the columns. None: the file ``*.schema.yaml`` beside the table.
    ledger : Ledger, path, URL, False or None
        Ledger that is charged. None: the file beside the table, as for a release. False: nothing is counted.
    new_ledger : bool
        Whether a table that is known to another ledger may be charged to this one all the same.
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
    """
    declared = find_schema(source, schema)
    query = parse_query(question, declared)
    # Everything that can be refused is refused before a ledger is made.
    cost = preview_query(declared, None, query, privacy=privacy, sd=sd).cost
    table = _check_columns(source, declared)
    # What costs nothing is not charged, and a ledger that it made would have no limit for ever.
    table_ledger = (
        open_charged_ledger(source, declared, ledger, new_ledger=new_ledger, log=True) if cost else None
    )
    try:
        with Database(table, schema=declared, ledger=table_ledger) as db:
            if db.n_rows == 0:
                raise DataError(f"{describe_source(source)} must have at least one row, and has none.")
            result = run_query(db, query, privacy=privacy, sd=sd, refines=refines)
        if table_ledger is None:
            return result
        (account,) = table_ledger.accounts(None)
        return dataclasses.replace(
            result,
            ledger=table_ledger.identity,
            remaining=remaining_amounts(result.cost, None, account, charged=result.charged),
            spent=account.spent,
        )
    finally:
        if table_ledger is not None and table_ledger is not ledger:
            table_ledger.close()


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
    """
    declared = find_schema(source, schema)
    query = parse_query(question, declared)
    public = declared.neighbors == "replace-one" and declared.row_count == "public"
    n_rows = None
    if public and any(statistic.kind not in ("count", "sum") for statistic in query.statistics):
        with open_table(resolve_source(source)) as table:
            n_rows = table.count()
    account, paid = _existing_account(source, declared, ledger, str(query))
    accounts = () if account is None else (account,)
    preview = preview_query(declared, n_rows, query, privacy=privacy, sd=sd, accounts=accounts)
    if account is None:
        return preview
    free = preview.is_free or all(promise in paid for promise in preview.cost)
    return dataclasses.replace(
        preview, is_free=free, remaining=remaining_amounts(preview.cost, None, account)
    )


def _existing_account(
    source: Any, schema: Schema, ledger: LedgerPlace, question: str
) -> tuple[Account | None, list[Promise]]:
    """Return the account of the ledger that a table would be charged to, and what a question was charged.

    Parameters
    ----------
    source, schema, ledger
        Table, its schema and the place of its ledger.
    question : str
        Query as it is written in the ledger.

    Returns
    -------
    (Account or None, list of Promise)
        The account, None if there is no ledger yet; and the promises of the charges for the question.
    """
    if ledger is False:
        return None, []
    if isinstance(ledger, Ledger):
        charges = [entry for entry in ledger.entries() if (entry.asked or {}).get("said") == question]
        return ledger.accounts(None)[0], [promise for entry in charges for promise in entry.receipt.promises]
    place = find_ledger(source, schema, ledger)
    if place == ":memory:" or Ledger.identity_at(place) is None:
        return None, []
    with Ledger.open(place) as opened:
        return _existing_account(source, schema, opened, question)


def _check_columns(source: Any, schema: Schema) -> Any:
    """Return the table as an engine reads it; refuse one whose columns are not those of the schema.

    The check comes before the ledger is made. Spark checks its tables itself.
    """
    table = resolve_source(source)
    if not (isinstance(table, str) and table.startswith("spark://")) and (
        isinstance(table, str) or hasattr(table, "__fspath__")
    ):
        with open_table(table) as opened:
            opened.batches(schema, ids=schema.id_column is not None)
    return table
