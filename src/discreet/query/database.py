"""A private table that answers questions: exact sums in an engine, noise in the curator's process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from discreet.ledger import Ledger
from discreet.query.answering import EngineSums
from discreet.query.curation import Curation
from discreet.query.engines import engine_for
from discreet.query.unit_rows import ledger_salt
from discreet.query.verbs import Verbs

if TYPE_CHECKING:
    from collections.abc import Mapping

    from discreet.query.engines import Engine
    from discreet.query.noising import Asked
    from discreet.query.questions import Question
    from discreet.schema import Schema


class Database(EngineSums, Verbs):
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
            charged = Ledger.open(":memory:") if ledger is None else ledger
            chosen.register(source, curation, salt=ledger_salt(charged, schema))
            super().__init__(
                chosen, curation, ledger=charged, random_state=random_state, version=version, slots=slots
            )
        except BaseException:
            chosen.close()
            raise

    def is_free(
        self,
        question: Question,
        *,
        privacy: Asked | None = None,
        variance: float | None = None,
        owner: str | None = None,
        refines: str | None = None,
    ) -> bool:
        """Say whether :meth:`ask` would charge nothing: it needs no noise, or the same was paid for. Free.

        Parameters
        ----------
        question, privacy, variance, refines
            As for :meth:`ask`.
        owner : str, optional
            Who would ask. What others paid does not count: their share would have to be paid.

        Privacy
        -------
        Read from the ledger. With an owner it tells nothing about what others have asked.
        """
        bound, noise = self.fit(question, privacy=privacy, variance=variance)
        if noise.promise is None:
            return True
        digest, _ = self._named(bound, noise, refines, owner)
        return self.ledger.has_paid(digest, owner)

    def __enter__(self) -> Database:
        return self

    def __repr__(self) -> str:
        return f"Database({len(self.curation.columns)} columns, {self.neighbors}, ledger={self.ledger!r})"
