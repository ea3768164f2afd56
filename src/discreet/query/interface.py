"""Common interface of the databases, at hand and behind a service."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

import numpy as np

from discreet.errors import ParameterError
from discreet.query.aggregates import Histogram, Sums
from discreet.query.answers import MeanAnswer
from discreet.query.calibration import CostedTable
from discreet.query.intervals import ResultInterval
from discreet.query.language import parse
from discreet.query.language._statistic import Statistic
from discreet.query.language.query import Query
from discreet.query.statistics import plan_query

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from discreet.privacy import Promise
    from discreet.query.aggregates import Aggregate
    from discreet.query.answers import Answer
    from discreet.query.frames import Budget, Frame
    from discreet.query.results import Preview, QueryResult


class PrivateTable(CostedTable, ABC):
    """Private table that answers aggregates and text queries with noise.

    The one interface of :class:`~discreet.query.database.Database` and of
    :class:`~discreet.client.database.RemoteDatabase`: what runs on one runs on the other, and under the same
    noise gets the same numbers.

    Attributes
    ----------
    schema : Schema
        Declared columns, unit and neighbors of the table.
    n_rows : int or None
        Number of rows where it is public; None where it is not.
    neighbors : {"replace-one", "add-remove"}
        Which pairs of tables the promises make hard to tell apart.
    dataset : str or None
        Lasting name of the table; None where the schema declares none.

    Privacy
    -------
    Every verb that returns a noisy number is charged before the noise is drawn; all others are free.

    Reference
    ---------
    docs/explanation/theorems/sulq-sensitivity.md.
    """

    @property
    @abstractmethod
    def dataset(self) -> str | None:
        """Lasting name of the table; None where the schema declares none."""

    @abstractmethod
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
            Name that is charged beside the total; None charges the total alone, or the holder of the token.

        Raises
        ------
        ExpressionRefused
            The text is not in the language; nothing was charged.
        ParameterError
            Neither or both of `privacy` and `sd` are given; nothing was charged.
        BudgetExceeded
            The limit does not allow it; nothing was charged.
        """

    @abstractmethod
    def preview(
        self, text: str, *, privacy: Promise | None = None, sd: float | None = None, owner: str | None = None
    ) -> Preview:
        """Return what :meth:`query` would charge, and how noisy its result would be. Free.

        Parameters
        ----------
        text, privacy, sd, owner
            As for :meth:`query`.
        """

    @abstractmethod
    def ask(
        self,
        question: Aggregate,
        *,
        privacy: Promise | None = None,
        variance: float | None = None,
        owner: str | None = None,
        plan: Sequence[Promise] = (),
        refines: str | None = None,
    ) -> Answer:
        """Charge and answer an aggregate.

        Parameters
        ----------
        question : Aggregate
            Sums to compute, over the declared columns.
        privacy : PureDP, ApproxDP, ZCDP, GaussianDP or PosteriorOdds
            Promise that the answer keeps; None where `variance` is given instead.
        variance : float
            Variance of the noise, in the answer's unit squared; None where `privacy` is given.
        owner : str, optional
            Name that is charged beside the total; None charges the total alone, or the holder of the token.
        plan : sequence of Promise
            Promises that will be asked for next: refused unless all of them fit what is left. They are not
            charged now.
        refines : str, optional
            Receipt id of an earlier answer to the same aggregate, which the new one is merged with.
        """

    @abstractmethod
    def recall(self, receipt: str, *, owner: str | None = None) -> Answer:
        """Return an answer that was paid for, merged with those it refined. Free.

        Parameters
        ----------
        receipt : str
            Id of its receipt.
        owner : str, optional
            Name that must have paid for it; None accepts any, or the holder of the token.
        """

    @abstractmethod
    def budget(self, *, owner: str | None = None) -> Budget:
        """Return what the owner, and all together, may spend, have spent and have left. Free.

        Parameters
        ----------
        owner : str, optional
            Name whose own budget is returned; None for the total alone, or for the holder of the token.
        """

    @abstractmethod
    def history(self, *, after: int = 0, last: int | None = None, owner: str | None = None) -> Frame:
        """Return what was paid for, with the answers, oldest first. Free.

        Parameters
        ----------
        after : int
            Row of the ledger after which the history begins.
        last : int, optional
            Maximum number of charges, the newest of the rest; None for all of them.
        owner : str, optional
            Name whose charges are returned; None for all, or for the holder of the token.
        """

    @abstractmethod
    def dummy(self, n: int = 100, seed: int = 0) -> Frame:
        """Return rows drawn from the schema alone, to try a program on. Free.

        Parameters
        ----------
        n : int
            Number of rows to draw.
        seed : int
            Seed of the draw; the same rows for the same seed.
        """

    @abstractmethod
    def close(self) -> None:
        """Release the engine or the connections."""

    def sum(
        self,
        expression: Any,
        *,
        privacy: Promise | None = None,
        variance: float | None = None,
        owner: str | None = None,
        refines: str | None = None,
    ) -> Answer:
        """Sum an expression over all rows; a row where it is unknown adds 0.

        Parameters
        ----------
        expression : str or Expression
            Scalar SQL expression over the declared columns: ``"income / 12"``.
        privacy, variance, owner, refines
            As for :meth:`ask`.

        Privacy
        -------
        One row moves the sum by the width of the interval that follows from the declared bounds.

        Reference
        ---------
        docs/explanation/theorems/sulq-sensitivity.md.
        """
        answer = self.ask(
            Sums((expression,)), privacy=privacy, variance=variance, owner=owner, refines=refines
        )
        value, sd = np.asarray(answer.value), np.asarray(answer.sd)
        return dataclasses.replace(answer, value=float(value[0]), sd=float(sd[0]))

    def count(
        self,
        predicate: Any = "TRUE",
        *,
        privacy: Promise | None = None,
        variance: float | None = None,
        owner: str | None = None,
        refines: str | None = None,
    ) -> Answer:
        """Count the rows for which a condition is true, and neither false nor unknown.

        Parameters
        ----------
        predicate : str or Expression
            Condition over the declared columns: ``"age >= 65 AND owner = 1"``.
        privacy, variance, owner, refines
            As for :meth:`ask`.

        Privacy
        -------
        One row moves the count by 1.

        Reference
        ---------
        docs/explanation/theorems/sulq-sensitivity.md.
        """
        if isinstance(predicate, str):
            predicate = parse(predicate, self.schema)
        if not predicate.is_condition:
            name = type(self).__name__
            raise ParameterError(
                f"predicate of {name}.count must be a condition, was {predicate.canonical}. Compare it "
                f"with something, or use {name}.sum."
            )
        return self.sum(predicate, privacy=privacy, variance=variance, owner=owner, refines=refines)

    def mean(
        self,
        expression: Any,
        *,
        privacy: Promise | None = None,
        owner: str | None = None,
        refines: str | None = None,
    ) -> MeanAnswer:
        """Average an expression over all rows where it is known.

        Parameters
        ----------
        expression : str or Expression
            Scalar SQL expression over the declared columns.
        privacy, owner, refines
            As for :meth:`ask`.

        Returns
        -------
        MeanAnswer
            Mean within the declared range, whose interval accounts for all noise.

        Privacy
        -------
        Where the number of rows is public and no cell of the expression may be missing, that of the sum.
        Otherwise that of two sums together: of the displacements from the middle of the range, which one row
        moves the least, and of the rows where the expression is known.

        Reference
        ---------
        docs/explanation/theorems/sulq-sensitivity.md.
        """
        if isinstance(expression, str):
            expression = parse(expression, self.schema)
        known = None if expression.known is None else parse(expression.known, self.schema)
        query = Query((Statistic("mean", expression),), known, (), self.schema)
        aggregate = plan_query(query, self.n_rows).aggregate
        answer = self.ask(aggregate, privacy=privacy, owner=owner, refines=refines)
        bounds = ResultInterval(expression.lower, expression.upper)
        return MeanAnswer.from_sums(answer, bounds, self.n_rows)

    def histogram(
        self,
        columns: str | Sequence[str],
        *,
        edges: Mapping[str, Sequence[float]] | None = None,
        expression: Any = None,
        privacy: Promise | None = None,
        variance: float | None = None,
        owner: str | None = None,
        refines: str | None = None,
    ) -> Answer:
        """Count rows, or sum an expression, in every cell of some columns' declared values.

        Parameters
        ----------
        columns : str or sequence of str
            Columns of the groups; the answer has one axis for each.
        edges : mapping of str to sequence of float
            For each column of numbers, the values at which its cells begin.
        expression : str or Expression, optional
            Expression that is summed in every cell; rows are counted if left out.
        privacy, variance, owner, refines
            As for :meth:`ask`.

        Privacy
        -------
        A row is in one cell: all cells together cost what one of them would, up to a factor of sqrt(2).

        Reference
        ---------
        docs/explanation/theorems/sulq-sensitivity.md.
        """
        named = (columns,) if isinstance(columns, str) else tuple(columns)
        question = Histogram(named, edges or {}, expression)
        return self.ask(question, privacy=privacy, variance=variance, owner=owner, refines=refines)
