"""One text query on a file: opens the table and its ledger, and answers the query or previews its cost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from discreet.pipeline.query_session import QuerySession

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from discreet.pipeline.sources import LedgerPlace
    from discreet.privacy import Promise
    from discreet.query.previews import Preview
    from discreet.query.results import QueryResult
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
