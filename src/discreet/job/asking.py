"""One question about a table, from what somebody typed to an answer with its price."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from discreet.errors import DataError, ParameterError
from discreet.job.declared import LedgerPlace, label_of, ledger_of, schema_of, table_of
from discreet.job.sentence import Sentence, read_sentence
from discreet.privacy import PureDP, Spending
from discreet.query import Database, Histogram, Sums
from discreet.query.curation import Curation
from discreet.query.noising import Noise
from discreet.tables import open_table

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from discreet._typing import Floats
    from discreet.learn.passes import Passes
    from discreet.privacy import Promise
    from discreet.query import Answer, Question
    from discreet.schema import Schema

LEVEL = 0.95
_LEAST_COUNT = 3.0  # standard deviations of its noise that a count must have to be divided by


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One number of an answer.

    Attributes
    ----------
    key : tuple of str
        Which group, in words; empty where there are none.
    value : float or None
        The noisy number; None for a mean over too few rows, and for a price.
    sd, margin : float or None
        Standard deviation of its noise, and how far it may be off at :data:`LEVEL`.
    """

    key: tuple[str, ...]
    value: float | None
    sd: float | None
    margin: float | None

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {"key": list(self.key), "value": self.value, "sd": self.sd, "margin": self.margin}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What a question was answered with, or what it would cost.

    Attributes
    ----------
    question : str
        As it was understood.
    measure : str or None
        The unit of the answer.
    axes : tuple of str
        Columns of the groups.
    cells : tuple of Cell
        One, or one for each group; also for those that no row is in.
    cost : tuple of Promise
        What was charged, or would be; empty if it is free.
    cached : bool
        Whether it had been paid for before, and is the same answer again.
    rows : tuple of int
        Of the ledger, where it was charged.
    ledger : str or None
        Which; None if nobody counts.
    left : mapping of str to float or None
        What is left in each currency of the ledger's limit; None if it has none, or nobody counts.
    spent : Spending or None
        What all charges of the ledger come to.

    Privacy
    -------
    The cells are noisy and paid for; everything else is the same for every table.

    Reference
    ---------
    docs/explanation/theorems/sulq-sensitivity.md.
    """

    question: str
    measure: str | None
    axes: tuple[str, ...]
    cells: tuple[Cell, ...]
    cost: tuple[Promise, ...]
    cached: bool = False
    rows: tuple[int, ...] = ()
    ledger: str | None = None
    left: Mapping[str, float] | None = None
    spent: Spending | None = None

    @property
    def more(self) -> int | None:
        """How often what is left would pay for as much again; None without a limit, or for what is free."""
        if self.left is None or not self.cost:
            return None
        spent = Spending.of(self.cost[0])
        for promise in self.cost[1:]:
            spent += Spending.of(promise)
        pure = all(isinstance(promise, PureDP) for promise in self.cost)
        currency = "epsilon" if pure and "epsilon" in self.left else "rho"
        if currency not in self.left:
            return None
        price = float(spent.pure if currency == "epsilon" else spent.pooled if pure else spent.gaussian)
        return math.floor(self.left[currency] / price) if price else None

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "question": self.question,
            "measure": self.measure,
            "by": list(self.axes),
            "level": LEVEL,
            "answers": [cell.to_dict() for cell in self.cells],
            "cost": [promise.to_dict() for promise in self.cost],
            "cached": self.cached,
            "ledger": self.ledger,
            "rows": list(self.rows),
            "left": None if self.left is None else dict(self.left),
            "more": self.more,
        }


class Quoted:
    """Says what questions would cost, from the schema alone."""

    def __init__(self, schema: Schema, n_rows: int | None) -> None:
        self.schema = schema
        self.neighbors = schema.neighbors
        self.n_rows = n_rows
        self._curation = Curation.of(schema)

    def fit(self, question: Question, privacy: Promise | None, variance: float | None) -> tuple[Noise, Any]:
        """Return the noise of a question, and its standard deviation at every place."""
        bound = question.bind(self._curation, self.neighbors)
        noise = Noise.fit(bound, self.schema, privacy=privacy, variance=variance)
        return noise, bound.arrange(noise.sd(bound), 0.0)


def ask(
    source: Any,
    question: str,
    *,
    schema: Schema | str | os.PathLike[str] | None = None,
    ledger: LedgerPlace = None,
    privacy: Promise | None = None,
    sd: float | None = None,
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
    privacy : PureDP, ApproxDP, ZCDP or GaussianDP
        What the answer shall promise.
    sd : float
        Instead of a promise: how noisy a count or a sum may be, in its unit.

    Raises
    ------
    ExpressionRefused
        The question is not in the language; nothing was charged.
    BudgetExceeded
        The ledger's limit does not allow it; nothing was charged.

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
    _priced(asked, Quoted(declared, None), privacy, sd)
    table, book = _opened(source, declared), ledger_of(source, declared, ledger)
    try:
        with Database(table, schema=declared, ledger=book) as db:
            if db.n_rows == 0:
                raise DataError(f"{label_of(source)} must have at least one row, and has none.")
            answers, cells = _answered(asked, db, privacy, sd)
        paid = [answer for answer in answers if answer.cost]
        return Reply(
            question=str(asked),
            measure=asked.measure,
            axes=tuple(axis.column for axis in asked.by),
            cells=cells,
            cost=tuple(promise for answer in paid for promise in answer.cost),
            cached=bool(paid) and all(answer.cached for answer in paid),
            rows=tuple(answer.receipt.seq for answer in paid if answer.receipt.seq is not None),
            ledger=None if book is None else book.identity,
            left=None if book is None else book.remaining(),
            spent=None if book is None else book.spent(),
        )
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
    cells, cost = _priced(asked, Quoted(declared, n_rows), privacy, sd)
    return Reply(
        question=str(asked),
        measure=asked.measure,
        axes=tuple(axis.column for axis in asked.by),
        cells=cells,
        cost=cost,
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


# What a sentence asks of noisy sums.


def _scalar(asked: Sentence) -> Any:
    """Return the expression whose sum over all rows answers a count or a sum."""
    if asked.expression is None:
        return asked.where or "TRUE"
    if asked.where is None:
        return asked.expression
    if asked.expression.is_condition:
        return f"({asked.where.canonical}) AND ({asked.expression.canonical})"
    return _among(asked, asked.expression.canonical)


def _among(asked: Sentence, text: str) -> str:
    return text if asked.where is None else f"CASE WHEN {asked.where.canonical} THEN {text} ELSE 0 END"


def _middle(asked: Sentence) -> float:
    """Return the middle of what is averaged: counted from there, one row moves a sum the least."""
    assert asked.expression is not None
    return asked.expression.lower / 2 + asked.expression.upper / 2


def _displacement(asked: Sentence) -> str:
    assert asked.expression is not None
    middle = _middle(asked)
    text = asked.expression.canonical
    if asked.expression.is_condition:
        text = f"CASE WHEN {text} THEN 1 ELSE 0 END"
    return _among(asked, f"({text}) - ({middle!r})" if middle else text)


def _plain_mean(asked: Sentence, n_rows: int | None) -> bool:
    """Whether a mean is over all rows, whose number is public."""
    return asked.verb == "mean" and not asked.by and asked.where is None and n_rows is not None


def _grouped(asked: Sentence, expression: Any) -> Histogram:
    edges = {axis.column: axis.edges for axis in asked.by if axis.edges}
    return Histogram([axis.column for axis in asked.by], edges, expression)


def _question(asked: Sentence, n_rows: int | None) -> Question:
    """Return the one question that answers a sentence; a mean by groups takes two."""
    if asked.by:
        return _grouped(asked, None if asked.expression is None and asked.where is None else _scalar(asked))
    if asked.verb == "mean" and not _plain_mean(asked, n_rows):
        return Sums((_displacement(asked), asked.where or "TRUE"))
    return Sums((_scalar(asked),))


_SHARES = {"counts": 1.0, "sums": 1.0}


def _pair(asked: Sentence) -> dict[str, Histogram]:
    """Return the two questions of a mean by groups."""
    return {"counts": _grouped(asked, asked.where), "sums": _grouped(asked, _displacement(asked))}


def _variance(asked: Sentence, privacy: Promise | None, sd: float | None) -> float | None:
    if (privacy is None) == (sd is None):
        raise ParameterError(
            "A question must be told how much to protect, by exactly one of a promise and a noise, and was "
            f"given {'neither' if sd is None else 'both'}. Give --epsilon 0.1, with --delta 1e-6 for "
            "Gaussian noise, or --mu, or --rho, or --sd; --dry-run shows the price first."
        )
    if sd is not None and asked.verb == "mean":
        raise ParameterError(
            "sd must be of a count or a sum, and a mean was asked for, whose noise depends on how many rows "
            "there are. Give --epsilon, --mu or --rho."
        )
    return None if sd is None else float(sd) ** 2


def _answered(
    asked: Sentence, db: Database, privacy: Promise | None, sd: float | None
) -> tuple[list[Answer], tuple[Cell, ...]]:
    variance = _variance(asked, privacy, sd)
    if asked.verb == "mean" and asked.by:
        passes = _passes(db, privacy)
        for name, question in _pair(asked).items():
            passes.ask(name, question)
        counts, sums = passes.answers["counts"], passes.answers["sums"]
        values, sds = _ratio(asked, sums.value, sums.sd, counts.value, counts.sd)
        return [counts, sums], _cells(asked, counts.labels, values, sds, counts.law)
    answer = db.ask(_question(asked, db.n_rows), privacy=privacy, variance=variance)
    value, spread = np.asarray(answer.value), np.asarray(answer.sd)
    if asked.verb == "mean":
        if _plain_mean(asked, db.n_rows):
            assert db.n_rows
            value, spread = value / db.n_rows, spread / db.n_rows
        else:
            value, spread = _ratio(asked, value[:1], spread[:1], value[1:], spread[1:])
    return [answer], _cells(asked, answer.labels, value, spread, answer.law)


def _priced(
    asked: Sentence, quoted: Quoted, privacy: Promise | None, sd: float | None
) -> tuple[tuple[Cell, ...], tuple[Promise, ...]]:
    variance = _variance(asked, privacy, sd)
    if asked.verb == "mean" and asked.by:
        passes = _passes(quoted, privacy)
        fits = [quoted.fit(question, passes.privacy(name), None) for name, question in _pair(asked).items()]
        cost = tuple(noise.promise for noise, _ in fits if noise.promise is not None)
        # How many rows a group has is not public, so that the noise of its mean is not either.
        return (), cost
    noise, spread = quoted.fit(_question(asked, quoted.n_rows), privacy, variance)
    cost = () if noise.promise is None else (noise.promise,)
    if asked.verb == "mean":
        if not quoted.n_rows:
            return (), cost
        # With a condition fewer rows are averaged, and the answer is noisier.
        spread = spread[:1] / quoted.n_rows
    one = float(np.ravel(spread)[0])  # all groups have the same noise
    return (Cell(key=(), value=None, sd=one, margin=one * _width(noise.law)),), cost


def _passes(sums: Any, privacy: Any) -> Passes:
    """Split a promise over the two questions of a mean by groups."""
    from discreet.learn.passes import Passes  # brings all learners with it, which other questions do not need

    return Passes(sums, privacy, _SHARES)


def _ratio(asked: Sentence, sums: Any, sum_sd: Any, counts: Any, count_sd: Any) -> tuple[Floats, Floats]:
    """Divide sums of displacements by counts; where a count is within its noise there is no mean."""
    enough = np.asarray(counts) > _LEAST_COUNT * np.asarray(count_sd)
    divisor = np.where(enough, counts, np.nan)
    offset = np.asarray(sums) / divisor
    spread = np.hypot(sum_sd, offset * count_sd) / divisor
    return offset + _middle(asked), spread


def _width(law: str) -> float:
    """Return how many standard deviations a margin is."""
    return 1.959963984540054 if law == "gaussian" else -math.log1p(-LEVEL) / math.sqrt(2)


def _cells(
    asked: Sentence, labels: tuple[tuple[Any, ...], ...] | None, values: Floats, sds: Floats, law: str
) -> tuple[Cell, ...]:
    keys: Any = [()]
    if asked.by:
        assert labels is not None
        keys = itertools.product(*([_label(value) for value in axis] for axis in labels))
    flat = zip(keys, np.ravel(values).tolist(), np.ravel(sds).tolist(), strict=True)
    return tuple(
        Cell(key=key, value=None, sd=None, margin=None)
        if math.isnan(value)
        else Cell(key=key, value=value, sd=sd, margin=sd * _width(law))
        for key, value, sd in flat
    )


def _label(value: Any) -> str:
    """Write a value of a column, or the two ends of a cell, for people."""
    if value is None:
        return "(missing)"
    if isinstance(value, tuple):
        low, high = value
        if math.isinf(low):
            return f"below {high:g}"
        return f"{low:g} or more" if math.isinf(high) else f"{low:g} to below {high:g}"
    return str(value)
