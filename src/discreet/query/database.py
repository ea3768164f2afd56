"""A private table that answers questions: exact sums in an engine, noise in the curator's process."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from discreet.errors import ParameterError
from discreet.query.curation import Curation
from discreet.query.engines import engine_for
from discreet.query.questions import Histogram, Sums
from discreet.query.sums import Answer, EngineSums

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from discreet.privacy import Ledger
    from discreet.query.engines import Engine
    from discreet.query.noising import Asked
    from discreet.schema import Schema

_LEAST_COUNT = 3.0  # standard deviations of noise below which nothing is divided by a count


class Database(EngineSums):
    """A table about people that answers sums, counts and histograms with noise.

    Parameters
    ----------
    source : frame, path, URL or Spark session
        A frame of pandas, polars or pyarrow, or a mapping of arrays; a ``.csv``, ``.parquet`` or
        ``.duckdb`` file; ``duckdb://file?table=name``; ``postgresql://host/database?table=schema.name``; a
        Spark data frame or ``spark://path-or-table``.
    schema : Schema
        What is public about the table: columns, bounds, lists, neighbors.
    ledger : Ledger, optional
        What questions are charged to. Without one they are counted in memory, under no limit.
    engine : Engine, optional
        Who adds up; chosen by the source if left out.
    random_state : int, optional
        A seed, which makes the noise public: for tests, and marked on every receipt.
    version : str, optional
        A public name for this state of the rows, such as a date. By default a secret fingerprint of the
        rows tells the ledger whether it has seen them, as long as the ledger's key is there.
    keep_ids : bool
        Whether fingerprints of ``schema.id_column`` are kept beside the rows, for
        :class:`~discreet.query.vertical.VerticalDatabases`. Every id must then occur once.
    slots : float or mapping of str to float, optional
        Seconds, the same or one for each kind of question: an answer, or the failure of an engine, leaves a
        whole number of them after the engine was asked. None is for a curator who asks about her own table;
        whoever lets others ask gives about four times what a question usually takes, such as 1.

    Attributes
    ----------
    schema, n_rows, neighbors
        What is public. ``n_rows`` is None where neighbors differ in it.
    ledger : Ledger
        What has been charged.

    Privacy
    -------
    At registration every cell becomes a small integer; from there on all arithmetic before the noise is
    exact, and no question can fail or overflow because of a row. A question is charged the exact cost of
    its noise, for the largest change that one person can cause in its whole vector of sums. Protected is
    one ``unit`` of the schema; under replace-one, with as many rows. Open: the schema, the questions, the
    time an answer takes (with ``slots`` only how many of them), and under replace-one the number of rows.

    Reference
    ---------
    Blum, Dwork, McSherry and Nissim (2005): docs/explanation/theorems/sulq-sensitivity.md, sulq-odds.md.

    Examples
    --------
    >>> from discreet import ApproxDP, Column, Schema
    >>> schema = Schema(columns=[Column("age", type="integer", lower=0, upper=120)])
    >>> with Database({"age": [34, 51, 27] * 1000}, schema=schema, random_state=1) as db:
    ...     answer = db.sum("age", privacy=ApproxDP(epsilon=1.0, delta=1e-6))
    >>> abs(answer.value - 112_000) < 5 * answer.sd, round(answer.sd, 1)
    (True, 507.0)
    """

    def __init__(
        self,
        source: Any,
        *,
        schema: Schema,
        ledger: Ledger | None = None,
        engine: Engine | None = None,
        random_state: int | None = None,
        version: str | None = None,
        keep_ids: bool = False,
        slots: float | Mapping[str, float] | None = None,
    ) -> None:
        curation = Curation.of(schema, ids=keep_ids)
        chosen = engine_for(source) if engine is None else engine
        try:
            chosen.register(source, curation)
            super().__init__(
                chosen, curation, ledger=ledger, random_state=random_state, version=version, slots=slots
            )
        except BaseException:
            chosen.close()
            raise

    def sum(
        self,
        expression: Any,
        *,
        privacy: Asked | None = None,
        variance: float | None = None,
        owner: str | None = None,
    ) -> Answer:
        """Sum an expression over all rows.

        Parameters
        ----------
        expression : str or Expression
            A scalar SQL expression over the declared columns: ``"income / 12"``.
        privacy, variance, owner
            As for :meth:`ask`.

        Privacy
        -------
        One row moves the sum by the width of the interval that follows from the declared bounds.

        Reference
        ---------
        docs/explanation/theorems/sulq-sensitivity.md.
        """
        return _single(self.ask(Sums((expression,)), privacy=privacy, variance=variance, owner=owner))

    def count(
        self,
        predicate: Any = "TRUE",
        *,
        privacy: Asked | None = None,
        variance: float | None = None,
        owner: str | None = None,
    ) -> Answer:
        """Count the rows for which a condition holds.

        Parameters
        ----------
        predicate : str or Expression
            A condition: ``"age >= 65 AND owner = 1"``.
        privacy, variance, owner
            As for :meth:`ask`.

        Privacy
        -------
        One row moves the count by 1.

        Reference
        ---------
        docs/explanation/theorems/sulq-sensitivity.md.
        """
        if isinstance(predicate, str):
            from discreet.query.expression import parse

            predicate = parse(predicate, self.schema)
        if not predicate.is_condition:
            raise ParameterError(
                f"predicate of Database.count must be a condition, was {predicate.canonical}. Compare it "
                "with something, or use Database.sum."
            )
        return self.sum(predicate, privacy=privacy, variance=variance, owner=owner)

    def mean(
        self,
        expression: Any,
        *,
        privacy: Asked | None = None,
        owner: str | None = None,
    ) -> Answer:
        """Average an expression over all rows.

        Parameters
        ----------
        expression : str or Expression
            A scalar SQL expression over the declared columns.
        privacy, owner
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
            answer = self.sum(expression, privacy=privacy, owner=owner)
            if self.n_rows == 0:
                raise _too_few()
            return dataclasses.replace(answer, value=answer.value / self.n_rows, sd=answer.sd / self.n_rows)
        answer = self.ask(Sums((expression, "TRUE")), privacy=privacy, owner=owner)
        total, count = np.asarray(answer.value).tolist()
        total_sd, count_sd = np.asarray(answer.sd).tolist()
        if count <= _LEAST_COUNT * count_sd:
            raise _too_few()
        mean = total / count
        return dataclasses.replace(answer, value=mean, sd=float(np.hypot(total_sd, mean * count_sd)) / count)

    def histogram(
        self,
        columns: str | Sequence[str],
        *,
        edges: Mapping[str, Sequence[float]] | None = None,
        expression: Any = None,
        privacy: Asked | None = None,
        variance: float | None = None,
        owner: str | None = None,
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
        privacy, variance, owner
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
        return self.ask(question, privacy=privacy, variance=variance, owner=owner)

    def __enter__(self) -> Database:
        return self

    def __repr__(self) -> str:
        return f"Database({len(self.curation.columns)} columns, {self.neighbors}, ledger={self.ledger!r})"


def _single(answer: Answer) -> Answer:
    return dataclasses.replace(
        answer, value=float(np.asarray(answer.value)[0]), sd=float(np.asarray(answer.sd)[0])
    )


def _too_few() -> ParameterError:
    return ParameterError(
        "A mean must be over more rows than the noise could make up, and this is not. The sums behind it are "
        "paid for: ask for Sums((expression, 'TRUE')) with the same privacy, free."
    )
