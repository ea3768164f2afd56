"""A text query on a file: opens the table and its ledger, and answers or prices the query."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from discreet.errors import DataError
from discreet.pipeline._registry import charged_ledger
from discreet.pipeline.sources import LedgerPlace, label_of, schema_of, table_of
from discreet.query import Database
from discreet.query.language.query import parse_query
from discreet.query.results import remaining_amounts
from discreet.query.text_query import preview_query, run_query
from discreet.tables import open_table

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from discreet.privacy import Promise
    from discreet.query.results import QueryResult
    from discreet.schema import Schema


def ask(
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
    """Answer one question about a table.

    Parameters
    ----------
    source : path, URL, frame or "demo:census"
        The table.
    question : str
        As :func:`~discreet.query.language.query.parse_query` reads it.
    schema : Schema or path, optional
        What is declared; by default the file beside the table.
    ledger : Ledger, path, URL, False or None
        Where it is charged; by default beside the table, as a release is. False: nobody counts.
    new_ledger : bool
        Whether a table that is known to another ledger may be charged to this one all the same.
    privacy, sd, refines
        As for :func:`run_query`.

    Raises
    ------
    ExpressionRefused
        The question is not in the language; nothing was charged.
    BudgetExceeded
        The ledger's limit does not allow it; nothing was charged.
    OtherLedger
        The table was charged to another ledger before; nothing was charged.

    Privacy
    -------
    Charged before the engine is asked; an identical question about the same rows is free, and gets the
    identical answer. A group without rows is answered like all others.

    Reference
    ---------
    docs/explanation/theorems/sulq-sensitivity.md.
    """
    declared = schema_of(source, schema)
    asked = parse_query(question, declared)
    # Whatever is refused is refused before a ledger is made.
    preview_query(declared, None, asked, privacy=privacy, sd=sd)
    table = _opened(source, declared)
    book = charged_ledger(source, declared, ledger, new_ledger=new_ledger, log=True)
    try:
        with Database(table, schema=declared, ledger=book) as db:
            if db.n_rows == 0:
                raise DataError(f"{label_of(source)} must have at least one row, and has none.")
            reply = run_query(db, asked, privacy=privacy, sd=sd, refines=refines)
        if book is None:
            return reply
        left = remaining_amounts(reply.cost, None, book.remaining())
        return dataclasses.replace(reply, ledger=book.identity, remaining=left, spent=book.spent())
    finally:
        if book is not None and book is not ledger:
            book.close()


def price(
    source: Any,
    question: str,
    *,
    schema: Schema | str | os.PathLike[str] | None = None,
    privacy: Promise | None = None,
    sd: float | None = None,
) -> QueryResult:
    """Say what a question would cost, and how noisy its answer would be; no cell is read, nothing charged.

    Parameters
    ----------
    source, question, schema, privacy, sd
        As for :func:`ask`.

    Privacy
    -------
    Follows from the schema, and for a mean from the number of rows where that is public.

    Reference
    ---------
    docs/explanation/theorems/sulq-sensitivity.md.
    """
    declared = schema_of(source, schema)
    asked = parse_query(question, declared)
    public = declared.neighbors == "replace-one" and declared.row_count == "public"
    n_rows = None
    if asked.verb == "mean" and public and not asked.by:
        with open_table(table_of(source)) as table:
            n_rows = table.count()
    return preview_query(declared, n_rows, asked, privacy=privacy, sd=sd)


def _opened(source: Any, schema: Schema) -> Any:
    """Return what an engine reads, after a look at its names: a ledger is not made for a wrong table."""
    table = table_of(source)
    if not (isinstance(table, str) and table.startswith("spark://")) and (
        isinstance(table, str) or hasattr(table, "__fspath__")
    ):
        with open_table(table) as opened:
            opened.batches(schema, ids=schema.id_column is not None)
    return table
