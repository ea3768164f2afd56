"""Sums, counts, means and histograms, of whoever answers with noisy sums."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

import numpy as np

from discreet.errors import ParameterError
from discreet.query.aggregates import Histogram, Sums
from discreet.query.language import parse

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from discreet.privacy import Promise
    from discreet.query.aggregates import Aggregate
    from discreet.query.answers import Answer
    from discreet.query.calibration import Asked
    from discreet.schema import Schema

_LEAST_COUNT = 3.0  # standard deviations of noise below which nothing is divided by a count


class PrivateTable(ABC):
    """What people ask by name; everything else is asked as a question.

    A class that has ``schema``, ``n_rows`` and ``ask`` of :class:`~discreet.query.answers.NoisySums` gets the
    rest from here, so that a database and the client of a service are asked in the same words.

    Privacy
    -------
    All that is here is one question each, and arithmetic on its answer.

    Reference
    ---------
    docs/explanation/theorems/sulq-sensitivity.md.
    """

    @property
    @abstractmethod
    def schema(self) -> Schema:
        """What is public about the table."""

    @property
    @abstractmethod
    def n_rows(self) -> int | None:
        """The number of rows where it is public, else None."""

    @abstractmethod
    def ask(
        self,
        question: Aggregate,
        *,
        privacy: Asked | None = None,
        variance: float | None = None,
        owner: str | None = None,
        plan: Sequence[Promise] = (),
        refines: str | None = None,
    ) -> Answer:
        """Charge, answer, keep the answer."""

    def sum(
        self,
        expression: Any,
        *,
        privacy: Asked | None = None,
        variance: float | None = None,
        owner: str | None = None,
        refines: str | None = None,
    ) -> Answer:
        """Sum an expression over all rows.

        Parameters
        ----------
        expression : str or Expression
            A scalar SQL expression over the declared columns: ``"income / 12"``.
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
        privacy: Asked | None = None,
        variance: float | None = None,
        owner: str | None = None,
        refines: str | None = None,
    ) -> Answer:
        """Count the rows for which a condition holds.

        Parameters
        ----------
        predicate : str or Expression
            A condition: ``"age >= 65 AND owner = 1"``.
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
        privacy: Asked | None = None,
        owner: str | None = None,
        refines: str | None = None,
    ) -> Answer:
        """Average an expression over all rows.

        Parameters
        ----------
        expression : str or Expression
            A scalar SQL expression over the declared columns.
        privacy, owner, refines
            As for :meth:`ask`.

        Raises
        ------
        ParameterError
            If the number of rows is too small to divide by, for its noise. The sums behind it have been paid
            for: ``ask(Sums((expression, "TRUE")), ...)`` gives them again, free.

        Privacy
        -------
        Where the number of rows is public, that of the sum. Otherwise that of the sum and the count
        together; the standard deviation is then that of the first order.

        Reference
        ---------
        docs/explanation/theorems/sulq-sensitivity.md.
        """
        if self.n_rows is not None:
            answer = self.sum(expression, privacy=privacy, owner=owner, refines=refines)
            if self.n_rows == 0:
                raise _too_few()
            value, sd = answer.value / self.n_rows, answer.sd / self.n_rows
            return dataclasses.replace(answer, value=value, sd=sd, about=f"mean {answer.about}")
        answer = self.ask(Sums((expression, "TRUE")), privacy=privacy, owner=owner, refines=refines)
        total, count = np.asarray(answer.value).tolist()
        total_sd, count_sd = np.asarray(answer.sd).tolist()
        if count <= _LEAST_COUNT * count_sd:
            raise _too_few()
        mean = total / count
        sd = float(np.hypot(total_sd, mean * count_sd)) / count
        return dataclasses.replace(answer, value=mean, sd=sd, about=f"mean {answer.about}")

    def histogram(
        self,
        columns: str | Sequence[str],
        *,
        edges: Mapping[str, Sequence[float]] | None = None,
        expression: Any = None,
        privacy: Asked | None = None,
        variance: float | None = None,
        owner: str | None = None,
        refines: str | None = None,
    ) -> Answer:
        """Count rows, or sum an expression, in every cell of some columns' declared values.

        Parameters
        ----------
        columns : str or sequence of str
            One axis each.
        edges : mapping of str to sequence of float
            For numbers, where cells begin.
        expression : str or Expression, optional
            What to sum; counts if left out.
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


def _too_few() -> ParameterError:
    return ParameterError(
        "A mean must be over more rows than the noise could make up, and this is not. The sums behind it are "
        "paid for: ask for Sums((expression, 'TRUE')) with the same privacy, free."
    )
