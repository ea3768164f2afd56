"""Common interface of the databases, at hand and behind a service."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from discreet.arguments import CheckedArguments
from discreet.errors import ParameterError
from discreet.query.aggregates.histogram import Histogram
from discreet.query.costs import CostedTable
from discreet.query.language._group_by import write_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from discreet.privacy import Promise
    from discreet.query.aggregates.base import Aggregate
    from discreet.query.answers import Answer
    from discreet.query.frames import Budget, Frame, History
    from discreet.query.previews import Preview
    from discreet.query.results import QueryResult


class VerbOptions(TypedDict, total=False):
    """Keyword arguments of :meth:`PrivateTable.query` beside the text."""

    privacy: Promise | None
    sd: float | None
    refines: str | Sequence[str]
    owner: str | None


class PrivateTable(CostedTable, metaclass=CheckedArguments):
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

    Examples
    --------
    >>> from discreet import Column, Database, GaussianDP, Schema
    >>> schema = Schema(columns=[Column("age", lower=0, upper=99), Column("ill", values=(0, 1))])
    >>> rows = {"age": [20, 40, 60, 80] * 250, "ill": [0, 0, 1, 1] * 250}
    >>> with Database(rows, schema=schema, random_state=1) as table:  # or a RemoteDatabase
    ...     answer = table.mean("age", privacy=GaussianDP(1))
    >>> round(answer.value)
    50
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
        question, privacy, variance, owner, refines
            As for :meth:`ask`.
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
    def history(self, *, after: int = 0, last: int | None = None, owner: str | None = None) -> History:
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

    def count(
        self, where: Any = None, *, by: str | Sequence[str] = (), **how: Unpack[VerbOptions]
    ) -> QueryResult:
        """Count rows: all, or those for which a condition is true, and neither false nor unknown.

        Parameters
        ----------
        where : str or Expression, optional
            Condition that chooses rows: ``"age >= 65 AND owner = 1"``; None for all of them.
        by : str or sequence of str
            Keys of the groups, as they stand behind BY in a query: ``"ward"``, ``"age (30, 60)"``.
        **how
            The `privacy` or `sd`, `refines` and `owner` of :meth:`query`.

        Privacy
        -------
        One row moves the count by 1.

        Reference
        ---------
        docs/explanation/theorems/sulq-sensitivity.md.
        """
        return self._query_statistic("count", where, by, how)

    def count_distinct(
        self, *, where: Any = None, by: str | Sequence[str] = (), **how: Unpack[VerbOptions]
    ) -> QueryResult:
        """Count people, who may have several rows each, by the id column of the schema.

        Parameters
        ----------
        where, by, **how
            As for :meth:`count`; a person counts in every group that one of their rows is in.
        """
        if self.schema.id_column is None:
            raise ParameterError(
                "count_distinct must be of a table whose schema names an id_column, and this one names "
                "none. Count rows with count()."
            )
        return self._query_statistic(
            f"count(distinct {self._write_name(self.schema.id_column)})", where, by, how
        )

    def sum(
        self,
        expression: Any,
        *,
        where: Any = None,
        by: str | Sequence[str] = (),
        **how: Unpack[VerbOptions],
    ) -> QueryResult:
        """Sum an expression; a row where it is unknown adds 0.

        Parameters
        ----------
        expression : str or Expression
            Scalar SQL expression over the declared columns: ``"income / 12"``.
        where, by, **how
            As for :meth:`count`.

        Privacy
        -------
        One row moves the sum by the width of the interval that follows from the declared bounds.

        Reference
        ---------
        docs/explanation/theorems/sulq-sensitivity.md.
        """
        return self._query_statistic(f"sum({self._write_name(expression)})", where, by, how)

    def mean(
        self,
        expression: Any,
        *,
        where: Any = None,
        by: str | Sequence[str] = (),
        **how: Unpack[VerbOptions],
    ) -> QueryResult:
        """Average an expression over the rows where it is known.

        Parameters
        ----------
        expression : str or Expression
            Scalar SQL expression over the declared columns.
        where, by, **how
            As for :meth:`count`.

        Privacy
        -------
        Where the number of rows is public and all of them are averaged, that of the sum. Otherwise that of
        two sums together: of the displacements from the middle of the range, which one row moves the least,
        and of the rows that are averaged.

        Reference
        ---------
        docs/explanation/theorems/sulq-sensitivity.md.
        """
        return self._query_statistic(f"mean({self._write_name(expression)})", where, by, how)

    def proportion(
        self, condition: Any, *, where: Any = None, by: str | Sequence[str] = (), **how: Unpack[VerbOptions]
    ) -> QueryResult:
        """Return the part of the rows for which a condition is true, of those where it is known.

        Parameters
        ----------
        condition : str or Expression
            Condition over the declared columns: ``"age >= 65"``.
        where, by, **how
            As for :meth:`count`.
        """
        return self._query_statistic(f"mean({self._write_name(condition)})", where, by, how)

    def variance(
        self, expression: Any, *, where: Any = None, by: str | Sequence[str] = (), **how: Unpack[VerbOptions]
    ) -> QueryResult:
        """Return the variance of an expression over the rows where it is known.

        Parameters
        ----------
        expression : str or Expression
            Scalar SQL expression over the declared columns.
        where, by, **how
            As for :meth:`count`.
        """
        return self._query_statistic(f"variance({self._write_name(expression)})", where, by, how)

    def stddev(
        self, expression: Any, *, where: Any = None, by: str | Sequence[str] = (), **how: Unpack[VerbOptions]
    ) -> QueryResult:
        """Return the standard deviation of an expression over the rows where it is known.

        Parameters
        ----------
        expression, where, by, **how
            As for :meth:`variance`.
        """
        return self._query_statistic(f"stddev({self._write_name(expression)})", where, by, how)

    def median(
        self, expression: Any, *, where: Any = None, by: str | Sequence[str] = (), **how: Unpack[VerbOptions]
    ) -> QueryResult:
        """Return the median of an expression over the rows where it is known.

        Parameters
        ----------
        expression, where, by, **how
            As for :meth:`variance`.
        """
        return self._query_statistic(f"median({self._write_name(expression)})", where, by, how)

    def quantile(
        self,
        expression: Any,
        level: float,
        *,
        where: Any = None,
        by: str | Sequence[str] = (),
        **how: Unpack[VerbOptions],
    ) -> QueryResult:
        """Return the number that a given part of the rows is at most.

        Parameters
        ----------
        expression : str or Expression
            Scalar SQL expression over the declared columns.
        level : float
            Part of the rows, between 0 and 1: 0.9 for the ninth decile.
        where, by, **how
            As for :meth:`count`.
        """
        if not 0 < level < 1:
            raise ParameterError(f"level of quantile must be between 0 and 1, was {level!r}.")
        written = f"quantile({self._write_name(expression)}, {float(level)!r})"
        return self._query_statistic(written, where, by, how)

    def ratio(
        self,
        numerator: Any,
        denominator: Any,
        *,
        where: Any = None,
        by: str | Sequence[str] = (),
        **how: Unpack[VerbOptions],
    ) -> QueryResult:
        """Return the sum of one expression divided by the sum of another.

        Parameters
        ----------
        numerator, denominator : str or Expression
            Scalar SQL expressions over the declared columns.
        where, by, **how
            As for :meth:`count`.
        """
        written = f"ratio({self._write_name(numerator)}, {self._write_name(denominator)})"
        return self._query_statistic(written, where, by, how)

    def _query_statistic(
        self, statistic: str, where: Any, by: str | Sequence[str], how: VerbOptions
    ) -> QueryResult:
        """Ask a query that consists of a statistic, a condition and the keys of groups."""
        text = statistic
        if where is not None:
            # In parentheses no word of a condition is taken for the next part of the query.
            text += f" where ({self._write_name(where)})"
        keys = [by] if isinstance(by, str) else list(by)
        if keys:
            text += f" by {', '.join(map(self._write_name, keys))}"
        return self.query(text, **how)

    def _write_name(self, expression: Any) -> str:
        """Return an expression as text; the name of a column in quotes where it needs them."""
        text = expression if isinstance(expression, str) else expression.canonical
        return write_name(text) if any(column.name == text for column in self.schema.released) else text

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
