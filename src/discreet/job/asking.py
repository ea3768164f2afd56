"""One question about a table, from what somebody typed to an answer with its price."""

from __future__ import annotations

import dataclasses
import itertools
import math
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

import numpy as np

from discreet.batching import run_one
from discreet.errors import DataError, ParameterError
from discreet.job.axes import write_edge
from discreet.job.behind import PAIR, asks_of, numbers_of
from discreet.job.declared import LedgerPlace, label_of, schema_of, table_of
from discreet.job.registry import charged_ledger
from discreet.job.reply import Cell, Reply, width
from discreet.job.sentence import Sentence, read_sentence
from discreet.query import Database
from discreet.query.pricing import Pricing
from discreet.tables import open_table

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from discreet._typing import Floats
    from discreet.batching import QueryTask
    from discreet.job.behind import Ask
    from discreet.privacy import Promise
    from discreet.query import Answer
    from discreet.query.noising import Law
    from discreet.query.sums import RefinableSums
    from discreet.schema import Column, Schema


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
) -> Reply:
    """Answer one question about a table.

    Parameters
    ----------
    source : path, URL, frame or "demo:census"
        The table.
    question : str
        As :func:`~discreet.job.sentence.read_sentence` reads it.
    schema : Schema or path, optional
        What is declared; by default the file beside the table.
    ledger : Ledger, path, URL, False or None
        Where it is charged; by default beside the table, as a release is. False: nobody counts.
    new_ledger : bool
        Whether a table that is known to another ledger may be charged to this one all the same.
    privacy, sd, refines
        As for :func:`answered`.

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
    asked = read_sentence(question, declared)
    # Whatever is refused is refused before a ledger is made.
    priced(declared, None, asked, privacy=privacy, sd=sd)
    table = _opened(source, declared)
    book = charged_ledger(source, declared, ledger, new_ledger=new_ledger, log=True)
    try:
        with Database(table, schema=declared, ledger=book) as db:
            if db.n_rows == 0:
                raise DataError(f"{label_of(source)} must have at least one row, and has none.")
            reply = answered(db, asked, privacy=privacy, sd=sd, refines=refines)
        if book is None:
            return reply
        return dataclasses.replace(reply, ledger=book.identity, left=book.remaining(), spent=book.spent())
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
) -> Reply:
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
    asked = read_sentence(question, declared)
    public = declared.neighbors == "replace-one" and declared.row_count == "public"
    n_rows = None
    if asked.verb == "mean" and public and not asked.by:
        with open_table(table_of(source)) as table:
            n_rows = table.count()
    return priced(declared, n_rows, asked, privacy=privacy, sd=sd)


def answered(
    db: RefinableSums,
    asked: Sentence,
    *,
    privacy: Promise | None = None,
    sd: float | None = None,
    owner: str | None = None,
    refines: Sequence[str] = (),
    request: str | None = None,
) -> Reply:
    """Have a question answered by whoever answers noisy sums.

    Parameters
    ----------
    db : RefinableSums
        A database, rows in memory, or a client of a server.
    asked : Sentence
        The question.
    privacy : PureDP, ApproxDP, ZCDP or GaussianDP
        What the answer shall promise.
    sd : float
        Instead of a promise: how noisy a count or a sum may be, in its unit.
    owner : str, optional
        Who asks: charged beside the total.
    refines : sequence of str
        Receipts of an earlier answer to the same question, as :attr:`Reply.receipts` names them: another one
        is paid for, and all are merged.
    request : str, optional
        A key for this request: sent again with the same key it is never charged twice.

    Returns
    -------
    Reply
        Without the fields that only a ledger knows.

    Raises
    ------
    BudgetExceeded
        The ledger's limit does not allow it; nothing was charged.

    Privacy
    -------
    A mean by groups asks two questions, each with half of the promise; the first is refused unless both fit
    what is left.

    Reference
    ---------
    docs/explanation/theorems/sulq-sensitivity.md, composition.md.
    """
    return run_one(
        answering(db, asked, privacy=privacy, sd=sd, owner=owner, refines=refines, request=request)
    )


class Manner(TypedDict, total=False):
    """How a sentence is answered; see :func:`answered`."""

    privacy: Promise | None
    sd: float | None
    owner: str | None
    refines: Sequence[str]
    request: str | None


def answering(db: RefinableSums, asked: Sentence, **manner: Unpack[Manner]) -> QueryTask[Reply]:
    """Return the flow of a question, which is carried out together with those of others.

    Parameters
    ----------
    db, asked, **manner
        As for :func:`answered`. A `db` that has no flows of its own, as a client of a server, is asked
        question by question.

    Privacy
    -------
    As for :func:`answered`.

    Reference
    ---------
    docs/explanation/theorems/sulq-sensitivity.md, composition.md.
    """
    owner, refines, request = manner.get("owner"), manner.get("refines", ()), manner.get("request")
    asks = _asks(db, asked, manner.get("privacy"), manner.get("sd"), refines)
    if refines and len(asks) > 1:
        # All of them before the first is charged; a client has to leave that to its server.
        check: Any = getattr(db, "check_refines", None)
        for one, receipt in zip(asks, refines, strict=True) if check is not None else ():
            check(one.question, receipt, owner=owner)
    answers: list[Answer] = []
    words, flow = str(asked), getattr(db, "asking", None)
    for i, one in enumerate(asks):
        suffix = "" if len(asks) == 1 else f"/{PAIR[i]}"
        how: dict[str, Any] = {
            "privacy": one.privacy,
            "variance": one.variance,
            "owner": owner,
            "plan": [later.privacy for later in asks[i + 1 :] if later.privacy is not None],
            "refines": refines[i] if refines else None,
            "request": None if request is None else request + suffix,
            "said": words,
        }
        if flow is None:
            answers.append(db.ask(one.question, **how))
        else:
            answers.append((yield from flow(one.question, **how)))
    values, spreads, count_sd = numbers_of(
        asked,
        [np.asarray(answer.value) for answer in answers],
        [np.asarray(answer.sd) for answer in answers],
        db.n_rows,
    )
    paid = [answer for answer in answers if answer.cost]
    law = answers[0].law
    return Reply(
        question=words,
        measure=asked.measure,
        axes=tuple(axis.column for axis in asked.by),
        cells=_cells(asked, answers[0].labels, values, spreads, law),
        law=law,
        cost=tuple(promise for answer in paid for promise in answer.receipt.promises),
        count_margin=None if count_sd is None else count_sd * width(law),
        cached=bool(paid) and all(answer.cached for answer in paid),
        receipts=tuple(answer.receipt for answer in paid),
        parts=tuple(answer.parts for answer in paid),
    )


def is_free(
    db: Database,
    asked: Sentence,
    *,
    privacy: Promise | None = None,
    sd: float | None = None,
    owner: str | None = None,
    refines: Sequence[str] = (),
) -> bool:
    """Say whether :func:`answered` would charge nothing. Free.

    Parameters
    ----------
    db, asked, privacy, sd, owner, refines
        As for :func:`answered`.

    Privacy
    -------
    Follows from the schema and from what this owner has paid; of a mean by groups, for both questions.

    Reference
    ---------
    docs/explanation/theorems/composition.md.
    """
    asks = _asks(db, asked, privacy, sd, refines)
    receipts: Sequence[str | None] = refines or [None] * len(asks)
    return all(
        db.is_free(one.question, privacy=one.privacy, variance=one.variance, owner=owner, refines=receipt)
        for one, receipt in zip(asks, receipts, strict=True)
    )


def _asks(
    db: RefinableSums, asked: Sentence, privacy: Promise | None, sd: float | None, refines: Sequence[str]
) -> list[Ask]:
    asks = asks_of(asked, db, privacy, sd)
    if len(refines) not in (0, len(asks)):
        raise ParameterError(
            f"refines must name one receipt for each noisy question behind an answer, here {len(asks)}, and "
            f"named {len(refines)}. Give all receipts of the earlier answer, in their order."
        )
    return asks


def priced(
    schema: Schema,
    n_rows: int | None,
    asked: Sentence,
    *,
    privacy: Promise | None = None,
    sd: float | None = None,
) -> Reply:
    """Say what a question would cost, and how noisy its answer would be. Free.

    Parameters
    ----------
    schema : Schema
        What is declared.
    n_rows : int or None
        The number of rows where it is public; None otherwise, and if nobody looked.
    asked : Sentence
        The question.
    privacy, sd
        As for :func:`answered`.

    Returns
    -------
    Reply
        With the noise of one group, which is that of all; with no cell where it depends on how many rows a
        mean is over. A mean over chosen rows is at least as noisy as it says.

    Privacy
    -------
    Follows from the schema and the public number of rows.

    Reference
    ---------
    docs/explanation/theorems/sulq-sensitivity.md.
    """
    pricing = Pricing(schema, n_rows)
    fits = [
        pricing.fit(one.question, privacy=one.privacy, variance=one.variance)
        for one in asks_of(asked, pricing, privacy, sd)
    ]
    bound, noise = fits[0]
    law, spread = noise.law, np.ravel(bound.arrange(noise.sd(bound), 0.0))
    one: float | None = float(spread[0])  # all groups have the same noise
    count_sd = None
    if asked.verb == "count":
        count_sd = one
    elif asked.verb == "mean" and asked.by:
        # How many rows a group has is not public, so that the noise of its mean is not either.
        one, count_sd = None, one
    elif asked.verb == "mean":
        # With a condition fewer rows are averaged, and the answer is noisier.
        one = float(spread[0]) / n_rows if n_rows else None
    return Reply(
        question=str(asked),
        measure=asked.measure,
        axes=tuple(axis.column for axis in asked.by),
        cells=() if one is None else (Cell(key=(), value=None, sd=one, margin=one * width(law)),),
        law=law,
        cost=tuple(noise.promise for _, noise in fits if noise.promise is not None),
        count_margin=None if count_sd is None else count_sd * width(law),
    )


def _opened(source: Any, schema: Schema) -> Any:
    """Return what an engine reads, after a look at its names: a ledger is not made for a wrong table."""
    table = table_of(source)
    if not (isinstance(table, str) and table.startswith("spark://")) and (
        isinstance(table, str) or hasattr(table, "__fspath__")
    ):
        with open_table(table) as opened:
            opened.batches(schema, ids=schema.id_column is not None)
    return table


def _cells(
    asked: Sentence, labels: tuple[tuple[Any, ...], ...] | None, values: Floats, sds: Floats, law: Law
) -> tuple[Cell, ...]:
    keys: Any = [()]
    if asked.by:
        assert labels is not None
        columns = [asked.schema.column(axis.column) for axis in asked.by]
        named = ([_label(value, of) for value in axis] for axis, of in zip(labels, columns, strict=True))
        keys = itertools.product(*named)
    flat = zip(keys, np.ravel(values).tolist(), np.ravel(sds).tolist(), strict=True)
    return tuple(
        Cell(key=key, value=None, sd=None, margin=None)
        if math.isnan(value)
        else Cell(key=key, value=value, sd=sd, margin=sd * width(law))
        for key, value, sd in flat
    )


def _label(value: Any, column: Column) -> str:
    """Write a value of a column, or the two ends of a cell, for people."""
    if value is None:
        return "(missing)"
    if isinstance(value, tuple):
        low, high = (write_edge(end, column).strip("'") for end in value)
        if math.isinf(value[0]):
            return f"below {high}"
        return f"{low} or more" if math.isinf(value[1]) else f"{low} to below {high}"
    return write_edge(float(value), column).strip("'") if column.type == "date" else str(value)
