"""Questions of a release, their shares of the promise, and the record of their noisy answers."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from discreet.errors import ParameterError
from discreet.learn.budget_schedule import BudgetSchedule
from discreet.privacy import PureDP, Receipt, promise_from_dict
from discreet.privacy.receipt import canonical
from discreet.query import Answer, Dependence, Marginals
from discreet.query.curation import Curation
from discreet.release.synthetic.arithmetic import add_up
from discreet.schema import Schema

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from discreet._types import Floats
    from discreet.privacy import Promise
    from discreet.privacy.budget_split import Privacy
    from discreet.query import Aggregate, NoisySums
    from discreet.release.synthetic.cells import ColumnCells
    from discreet.schema.schema import Neighbors

_KIND = "discreet synthetic tables"
MOST_BYTES, MOST_NUMBERS, MOST_COUNTED = 1_000_000, 2**16, 2**20
"""Largest question, in bytes of JSON, numbers of its answer, and cells that are counted for scores: what a
service takes unless it says otherwise. Larger ones are asked in parts wherever the rows are, so that the same
table comes of them."""
_DIGITS = 11  # of a count with its comma, in a question


@dataclass(frozen=True, eq=False)
class NoisyTable:
    """Noisy counts of the cells of some columns.

    Attributes
    ----------
    columns : tuple of str
        Names of the columns, one for each axis.
    values : array
        Noisy counts, not rounded; some may be negative.
    sd : float
        Standard deviation of the noise on each count.
    """

    columns: tuple[str, ...]
    values: Floats
    sd: float

    def merge(self, other: NoisyTable) -> NoisyTable:
        """Return the mean with another answer about the same cells, each weighted by its precision."""
        own, its = self.sd * self.sd, other.sd * other.sd
        if own + its <= 0:
            return self
        weight = its / (own + its)
        values = self.values * weight + other.values * (1 - weight)
        return NoisyTable(self.columns, values, float(np.sqrt(own * weight)))


class Questions:
    """Questions of one release: each is asked once, paid with its share, and recorded with its answer.

    Parameters
    ----------
    sums : NoisySums
        Table that answers: a database, at hand or behind a service, or a record of earlier answers.
    privacy : PureDP, ApproxDP, ZCDP or GaussianDP
        Promise of all questions together.
    shares : mapping of str to float
        Weight of each question by its name; fixed by public facts before the first one.
    owner : str, optional
        Name that is charged beside the total; None charges the total alone.
    counted : bool
        Whether a lasting ledger is charged; receipts of one in memory alone name none.

    Attributes
    ----------
    receipts : tuple of Receipt
        Receipts of the questions that were asked, in their order.

    Privacy
    -------
    Adaptive: a question may depend on earlier answers, its share may not.

    Reference
    ---------
    docs/explanation/theorems/composition.md, marginals.md.
    """

    def __init__(
        self,
        sums: NoisySums,
        privacy: Privacy,
        shares: Mapping[str, float],
        *,
        owner: str | None = None,
        counted: bool = True,
    ) -> None:
        """Split the promise over the questions; nothing is charged yet."""
        self._counted = counted
        self._schedule = BudgetSchedule(sums, privacy, shares, owner=owner)
        self._curation = Curation.from_schema(sums.schema)
        self._sums = sums
        self._record: list[dict[str, Any]] = []
        self._hashed: list[str] = []
        self.receipts: tuple[Receipt, ...] = ()

    @property
    def promises(self) -> tuple[Promise, ...]:
        """Promise of all questions together."""
        return self._schedule.promises

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all questions, asked or not."""
        return tuple(self._schedule.split)

    def ask_tables(
        self,
        name: str,
        tables: Sequence[tuple[str, ...]],
        cells: Mapping[str, ColumnCells],
        precisions: Sequence[int] | None = None,
        *,
        fine: bool = False,
    ) -> list[NoisyTable]:
        """Return noisy tables of counts.

        Parameters
        ----------
        name : str
            Name of the question among the shares.
        tables : sequence of tuple of str
            Columns of each table, one to three.
        cells : mapping of str to ColumnCells
            Cells of every column.
        precisions : sequence of int, optional
            Precision of each table; None for the same for all.
        fine : bool
            Whether fine cells are counted instead of cells.
        """

        def make(start: int, end: int) -> Marginals:
            part = tables[start:end]
            named = {column for table in part for column in table}
            groups = {} if fine else _groups(cells, named)
            weights = None if precisions is None else precisions[start:end]
            return Marginals(part, _edges(cells, named, fine=fine), weights, groups)

        weights = [1] * len(tables) if precisions is None else list(precisions)
        if isinstance(self.promises[0], PureDP):
            weights = [math.isqrt(weight << 16) for weight in weights]
        sizes = [math.prod(cells[c].fine_size if fine else cells[c].size for c in table) for table in tables]
        parts = self._ask(name, split_question(make, sizes, MOST_NUMBERS), weights)
        made: list[NoisyTable] = []
        for i, (question, answer) in enumerate(parts, start=len(self._record) - len(parts)):
            assert isinstance(question, Marginals)
            values = question.split(np.asarray(answer.value), self._curation)
            sds = question.split(np.asarray(answer.sd), self._curation)
            own = [
                NoisyTable(tuple(table), np.asarray(value), float(sd.flat[0]))
                for table, value, sd in zip(question.tables, values, sds, strict=True)
            ]
            self._record[i].update(_describe_tables(own, cells, fine=fine))
            made += own
        return made

    def ask_scores(
        self,
        name: str,
        pairs: Sequence[tuple[str, str]],
        cells: Mapping[str, ColumnCells],
        reference: Mapping[str, Any],
    ) -> tuple[Floats, float]:
        """Return for each pair of columns the noisy number of rows off a reference, and the noise's sd.

        Parameters
        ----------
        name : str
            Name of the question among the shares.
        pairs : sequence of (str, str)
            Names of two columns each.
        cells : mapping of str to ColumnCells
            Cells of every column.
        reference : mapping
            Public counts to compare with, as of :class:`~discreet.query.Dependence`.
        """
        by = reference.get("by")

        def make(start: int, end: int) -> Dependence:
            part = pairs[start:end]
            named = {column for pair in part for column in pair}
            own = {**reference}
            if own["kind"] == "tables":
                own["values"] = own["values"][start:end]
            else:
                own["margins"] = {name: own["margins"][name] for name in sorted(named)}
            named |= {by} if by else set()
            return Dependence(part, _edges(cells, named), own, _groups(cells, named))

        sizes = [cells[first].size * cells[second].size for first, second in pairs]
        parts = self._ask(name, split_question(make, sizes, MOST_COUNTED), [1] * len(pairs))
        values = np.concatenate([np.asarray(answer.value) for _, answer in parts])
        return values, float(np.asarray(parts[0][1].sd).flat[0])

    def _ask(
        self, name: str, parts: Sequence[tuple[Aggregate, int, int]], weights: Sequence[int]
    ) -> list[tuple[Aggregate, Answer]]:
        """Ask a question in its parts, and record them with their answers.

        Parameters
        ----------
        name : str
            Name of the question among the shares.
        parts : sequence of (Aggregate, int, int)
            Parts, each with its first table and the one after its last.
        weights : sequence of int
            Weight of each table in the sensitivity of the whole.
        """
        questions = [question for question, _, _ in parts]
        totals = [int(add_up(weights[start:end])) for _, start, end in parts]
        answers = self._schedule.ask_parts(name, questions, totals)
        for i, (question, answer) in enumerate(zip(questions, answers, strict=True)):
            receipt = answer.receipt
            if not self._counted:
                receipt = replace(receipt, ledger=None, seq=None, hash=None, question=None)
            self.receipts = (*self.receipts, receipt)
            self._record.append(
                {
                    "name": name,
                    "question": question.to_dict(),
                    "share": self._schedule.split[name] * totals[i] / add_up(totals),
                    "promise": self._schedule.part_privacy(name, totals, i).to_dict(),
                    "law": answer.law,
                    "values": np.ravel(answer.value).tolist(),
                    "sd": np.ravel(answer.sd).tolist(),
                    "earlier": answer.cached,
                    "receipt": receipt.to_dict(),
                }
            )
        return list(zip(questions, answers, strict=True))

    def digest(self) -> str:
        """Return the SHA-256, in hexadecimal, of the questions so far with their answers."""
        # Asked for several times, while questions are added.
        for one in self._record[len(self._hashed) :]:
            self._hashed.append(canonical([one[key] for key in ("name", "question", "values", "sd")]))
        text = f"[{canonical(_KIND)},[{','.join(self._hashed)}]]"
        return hashlib.sha256(text.encode()).hexdigest()

    def to_dict(self) -> dict[str, Any]:
        """Return the questions with their answers as plain JSON values, from which rows can be made again."""
        (promise,) = self.promises
        return {
            "kind": _KIND,
            "schema": self._sums.schema.to_dict(),
            "neighbors": self._sums.neighbors,
            "rows": self._sums.n_rows,
            "promise": promise.to_dict(),
            "questions": [dict(one) for one in self._record],
        }


def split_question(
    make: Callable[[int, int], Aggregate], sizes: Sequence[int], most: int
) -> list[tuple[Aggregate, int, int]]:
    """Return a question in parts that a service takes, each with its first table and the one after its last.

    Parameters
    ----------
    make : callable
        Function of the first table and the one after the last that returns the question about these.
    sizes : sequence of int
        Number of cells of each table.
    most : int
        Largest number of cells of a part.
    """
    waiting, parts = [(0, len(sizes))], []
    while waiting:
        start, end = waiting.pop()
        question = make(start, end)
        small = add_up(sizes[start:end]) <= most and len(_write(question)) <= MOST_BYTES
        if small or end - start == 1:
            parts.append((question, start, end))
        else:
            middle = (start + end) // 2
            waiting += [(middle, end), (start, middle)]
    return parts


def _write(question: Aggregate) -> str:
    """Return a question as a service gets it."""
    return json.dumps(question.to_dict(), separators=(",", ":"))


def can_ask(columns: Sequence[ColumnCells]) -> bool:
    """Return whether the table of some columns, and a question with public counts of it, fit a service."""
    cells = math.prod(one.size for one in columns)
    levels = int(add_up(len(one.groups or ()) for one in columns))
    return cells <= MOST_NUMBERS and _DIGITS * (cells + levels) <= MOST_BYTES


def check_service(sums: NoisySums, cells: Sequence[ColumnCells]) -> None:
    """Refuse a service whose limits the questions may exceed, before any of them is paid for.

    Parameters
    ----------
    sums : NoisySums
        Table that will be asked; only one behind a service has limits.
    cells : sequence of ColumnCells
        Cells of every column, before any is settled.
    """
    limits: Mapping[str, int] | None = getattr(sums, "limits", None)
    if limits is None:
        return
    # A request has the promises that follow beside the question.
    wanted = {"body_bytes": 2**20, "cells": MOST_NUMBERS}
    for name, least in wanted.items():
        if limits.get(name, least) < least:
            raise ParameterError(
                f"The service must have the limit {name} of at least {least} for a synthetic table, and has "
                f"{limits[name]}. Nothing was charged. Ask its curator to raise it, or to make the table."
            )
    widest = max(cells, key=lambda one: one.fine_size)
    if widest.fine_size > limits.get("cells", MOST_NUMBERS):
        raise ParameterError(
            f"A column of a synthetic table through this service must have at most {limits['cells']} cells, "
            f"and {widest.name!r} has {widest.fine_size}. Nothing was charged. Ask its curator to declare "
            "fewer levels, or to make the table."
        )


def _describe_tables(
    tables: Sequence[NoisyTable], cells: Mapping[str, ColumnCells], *, fine: bool
) -> dict[str, Any]:
    """Return where each table stands among the values of an answer, and what its cells are, for readers."""
    places, first = [], 0
    for table in tables:
        size = int(table.values.size)
        places.append({"columns": list(table.columns), "first": first, "size": size, "sd": table.sd})
        first += size
    named = dict.fromkeys(name for table in tables for name in table.columns)
    return {"tables": places, "cells": {name: cells[name].labels(fine=fine) for name in named}}


def _edges(cells: Mapping[str, ColumnCells], names: set[str], *, fine: bool = False) -> dict[str, Any]:
    """Return the edges of the numbers among some columns."""
    chosen = {name: cells[name].fine if fine else cells[name].edges for name in names}
    return {name: edges for name, edges in chosen.items() if edges}


def _groups(cells: Mapping[str, ColumnCells], names: set[str]) -> dict[str, tuple[int, ...]]:
    """Return the cells of the levels of those categories of which some share one."""
    found = {name: cells[name].groups for name in names}
    return {name: groups for name, groups in found.items() if groups is not None}


class RecordedSums:
    """Answers of an earlier release: returned again where the same is asked, refused otherwise.

    With it a release is repeated from its published tables, without rows and without a key: every
    question follows from the answers before it, or is refused here.

    Parameters
    ----------
    document : mapping
        Content of ``tables.json``, as :meth:`Questions.to_dict` returns it.
    """

    def __init__(self, document: Mapping[str, Any]) -> None:
        if document.get("kind") != _KIND:
            raise ParameterError(
                f"kind of a record must be {_KIND!r}, was {document.get('kind')!r}. Give the content of a "
                "tables.json."
            )
        self.schema = Schema.from_dict(document["schema"])
        self.neighbors: Neighbors = document["neighbors"]
        self.n_rows: int | None = document["rows"]
        self.promise = promise_from_dict(document["promise"])
        self._left = list(document["questions"])

    def ask(
        self,
        question: Aggregate,
        *,
        privacy: Promise | None = None,
        variance: float | None = None,
        owner: str | None = None,
        plan: Sequence[Promise] = (),
    ) -> Answer:
        """Return the recorded answer to the next question; raises if another was recorded.

        Parameters
        ----------
        question : Aggregate
            Question that the release asks now.
        privacy, variance, owner, plan
            As for :meth:`Database.ask <discreet.query.Database.ask>`; only `privacy` is compared.
        """
        if not self._left:
            raise ParameterError("The record must have an answer to every question, and ended before.")
        one = self._left.pop(0)
        if canonical(one["question"]) != canonical(question.to_dict()):
            raise ParameterError(
                f"The question {one['name']!r} of the record must follow from the answers before it, and "
                "does not. The record was changed, or comes from another version."
            )
        if privacy is None or canonical(one["promise"]) != canonical(privacy.to_dict()):
            raise ParameterError(
                f"The promise of the question {one['name']!r} of the record must be its share, and is not."
            )
        receipt = Receipt.from_dict(one["receipt"])
        return Answer(
            value=np.array(one["values"], np.float64),
            sd=np.array(one["sd"], np.float64),
            law=one["law"],
            cost=receipt.promises,
            cached=bool(one["earlier"]),
            receipt=receipt,
        )

    def cost(
        self, question: Aggregate, *, privacy: Promise | None = None, variance: float | None = None
    ) -> tuple[Promise, ...]:
        """Return nothing: an answer that was paid for is free."""
        return ()

    def expected_sd(
        self, question: Aggregate, *, privacy: Promise | None = None, variance: float | None = None
    ) -> Floats:
        """Return the standard deviations of the next recorded answer."""
        return np.array(self._left[0]["sd"], np.float64)

    @property
    def is_used_up(self) -> bool:
        """Whether every recorded answer was asked for."""
        return not self._left


def to_margins(table: Floats) -> list[int]:
    """Return counts by class and cell as whole numbers by cell and class, for a reference."""
    return [int(value) for value in np.floor(table.T + 0.5).ravel().tolist()]
