"""One private table of a service: its schema, ledger, database and cache of parsed queries.

A :class:`Dataset` knows nothing of callers, tokens or HTTP. A service has one for each table.
"""

from __future__ import annotations

from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from discreet.audit.stored_answers import exact_sums
from discreet.batching import run_one
from discreet.errors import DiscreetError, ExpressionRefused, ParameterError, SourceError
from discreet.ledger import Ledger
from discreet.pipeline.sources import find_schema, resolve_source
from discreet.pipeline.table_registry import Recognition
from discreet.query import Database, Sums
from discreet.query.aggregates import aggregate_from_dict
from discreet.query.engines import engine_for
from discreet.query.execution import Slots
from discreet.query.language import parse
from discreet.query.language.query import build_query, parse_query
from discreet.server.accounting import Accounting
from discreet.server.allocations import Allocations
from discreet.server.api import requests
from discreet.server.attack import BackgroundAttack
from discreet.server.health import INTERVAL, Readiness
from discreet.server.limits import (
    check_aggregate_size,
    check_answer_size,
    check_query_size,
    hidden_size,
    query_size,
)
from discreet.server.work import WorkModel, declare_work, measure_speed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from discreet.batching import QueryTask
    from discreet.privacy import Promise
    from discreet.query import Aggregate, Answer
    from discreet.query.language.query import Query
    from discreet.schema import Schema
    from discreet.server.audit_log import ServiceLog
    from discreet.server.config import Config
    from discreet.server.dataset_config import DatasetConfig, Limit

MAX_DUMMY_ROWS = 10_000
_PARSED_QUERIES = 512  # texts whose parse trees are kept


class Dataset:
    """A private table with its ledger.

    Parameters
    ----------
    config : Config
        Configuration of the service: its limits on requests, its slots and its seed.
    entry : DatasetConfig
        Where table and ledger are, and the limits of the ledger.
    schema : Schema
        Schema of the table, as :func:`load_schema` reads it.
    audit_log : ServiceLog
        Log that must agree with the ledger before anything is answered.
    shared : Path, optional
        File of the encrypted copy by which the processes of a service share the curated table; None for one
        process alone, and where the configuration names a folder for such a copy.

    Attributes
    ----------
    name : str
        Permanent name of the data set, to which the ledger is bound.
    schema : Schema
        Public facts about the table.
    ledger : Ledger
        Charges made so far, with their limits.
    database : Database
        Engine that answers under the ledger.
    accounting : Accounting
        The ledger, summarized for display.
    attack : BackgroundAttack
        What an attacker could reconstruct from all answers, for the curator only.
    promise_context : dict
        Unit and neighbors that every promise about this table names.

    Raises
    ------
    LedgerTampered
        The ledger was set back to an earlier state, or belongs to another data set.
    SourceError
        The table has no row.
    """

    def __init__(
        self,
        config: Config,
        entry: DatasetConfig,
        schema: Schema,
        audit_log: ServiceLog,
        shared: Path | None = None,
    ) -> None:
        """Open ledger and database, and check the ledger against the registry and the audit log."""
        self.name = entry.name
        self._entry = entry
        self._seeded = config.seed is not None
        self._max_cells, self._max_body = config.limits.cells, config.limits.body_bytes
        with ExitStack() as resources:
            recognition = recognize_table(entry, schema)
            self.ledger = resources.enter_context(closing(open_ledger(entry, schema)))
            audit_log.confirm(self.name, self.ledger)
            recognition.require(new_ledger=entry.new_ledger)
            recognition.note(self.ledger)
            source = resolve_source(entry.table)
            engine = None
            if shared is not None and entry.keep is None:
                engine = engine_for(source, shared=shared, secret=self.ledger.secret())
            self.database = resources.enter_context(
                closing(
                    Database(
                        source,
                        schema=schema,
                        ledger=self.ledger,
                        engine=engine,
                        random_state=config.seed,
                        version=entry.version,
                        keep_ids=entry.keep_ids,
                        slots=config.slots,
                        keep=entry.keep,
                    )
                )
            )
            if self.database.n_rows == 0:
                raise SourceError(
                    f"table of data set {self.name} must have at least one row, and has none. Export it "
                    "again."
                )
            self._opened = resources.pop_all()
        self.schema: Schema = self.database.schema
        self.promise_context: dict[str, Any] = {
            "unit": self.schema.unit,
            "neighbors": self.schema.neighbors,
        }
        limit = entry.limit or entry.people_limit
        pooled = limit is not None and (limit.rho is not None or limit.queries is not None)
        self.accounting = Accounting(self.ledger, self.database, pooled=pooled, people=entry.people)
        self.attack = BackgroundAttack(self.database, self.ledger)
        self.work = WorkModel.for_engine(self.database.row_seconds, self.database.n_rows, measure_speed())
        self._parse = lru_cache(maxsize=_PARSED_QUERIES)(self._parse_parts)
        interval = max(INTERVAL, Slots(config.slots).longest)
        self._readiness = Readiness(self._count_rows, interval=interval)

    # Queries.

    def parse_query(self, request: Any) -> Query:
        """Return the query of a request, or refuse one that is outside the language or too large.

        Parameters
        ----------
        request : requests.QueryRequest
            Request for a count, sum, mean, histogram or text query.
        """
        query = self._query(request)
        check_query_size(query, self.database.curation, self._max_cells)
        return query

    def query_work(self, query: Query) -> float:
        """Return the seconds of work of a query: one pass over the rows for each statistic."""
        return self.work.estimate_question(sums=len(query.statistics), **self._count_numbers(query))

    def _count_numbers(self, query: Query) -> dict[str, int]:
        """Return how many numbers a query shows, and how many counts it needs for them besides."""
        curation = self.database.curation
        return {"cells": query_size(query, curation), "hidden": hidden_size(query, curation)}

    def aggregate_work(
        self,
        question: Aggregate,
        *,
        privacy: Promise | None = None,
        variance: float | None = None,
        owner: str | None = None,
        refines: str | None = None,
        **_: Any,
    ) -> float:
        """Return the seconds of work of an aggregate of a model: no pass over the rows if it was answered.

        Parameters
        ----------
        question, privacy, variance, owner, refines
            As for :meth:`~discreet.query.Database.is_free`; further options make no difference.
        """
        bound, _noise = self.database.cost_model.calibrate(question, privacy=privacy, variance=variance)
        free = self.database.is_free(
            question, privacy=privacy, variance=variance, owner=owner, refines=refines
        )
        # What was paid for has no answer where its pass failed, and needs another one.
        stored = free and self.database.find_answer(question, owner=owner) is not None
        work = replace(self.work, rows=0) if stored else self.work
        return work.estimate_question(sums=bound.wanted.width, cells=bound.size)

    def trial_work(self, query: Query, rows: int) -> float:
        """Return the seconds of work of a query to so many made-up rows."""
        return self.work.estimate_trial(
            values=rows * len(self.schema.columns),
            sums=len(query.statistics),
            **self._count_numbers(query),
        )

    def _query(self, request: Any) -> Query:
        """Return the query of a request, whichever of its forms it has."""
        match request:
            case requests.TextQueryRequest():
                return self._parse(request.text)
            case requests.HistogramRequest():
                axes = tuple((name, tuple(request.edges.get(name, ()))) for name in request.columns)
                for name in request.edges:
                    if name not in request.columns:
                        raise ParameterError(
                            f"edges of a histogram must be of its columns, and {name!r} is not one of them."
                        )
                statistic = "count" if request.expression is None else f"sum({request.expression})"
                return self._parse(statistic, request.where, axes)
        axes = tuple(
            (axis, ()) if isinstance(axis, str) else (axis.column, tuple(axis.edges)) for axis in request.by
        )
        expression = getattr(request, "expression", None)
        statistic = request.kind if expression is None else f"{request.kind}({expression})"
        return self._parse(statistic, request.where, axes)

    def _parse_parts(self, *parts: Any) -> Query:
        """Parse one text, or a statistic with its condition and axes; the key of the cache."""
        if len(parts) == 1:
            return parse_query(parts[0], self.schema)
        statistic, where, axes = parts
        by = [{"column": name, "edges": list(edges)} if edges else name for name, edges in axes]
        query = build_query(statistic, where, by, self.schema)
        if len(query.statistics) > 1:
            raise ExpressionRefused(
                "an expression with statistics in it", "Ask for several as a text: sum(age), mean(age)."
            )
        return query

    def read_expressions(self, texts: Sequence[str]) -> list[None]:
        """Read expressions, so that what binds them finds them read; return one None per text."""
        for text in texts:
            with suppress(DiscreetError):  # what is wrong with it is said where it is bound
                parse(text, self.schema)
        return [None] * len(texts)

    def parse_aggregate(
        self, request: requests.AggregateRequest, privacy: Promise | None
    ) -> tuple[Aggregate, float]:
        """Return the aggregate of a request, and the seconds of its work.

        It is calibrated once, so that all its errors show here.

        Parameters
        ----------
        request : requests.AggregateRequest
            Request with an aggregate as its ``to_dict`` writes it.
        privacy : Promise or None
            Promise that the answer shall make; None if the request names a variance instead.
        """
        try:
            aggregate = aggregate_from_dict(request.question)
            check_aggregate_size(aggregate, self.database.curation, self._max_cells)
            bound, _ = self.database.cost_model.calibrate(
                aggregate, privacy=privacy, variance=request.variance
            )
            check_answer_size(bound.size, self._max_cells)
        except DiscreetError:
            raise
        except Exception:
            # No row was read yet: these are values of a wrong type in places that have no check.
            raise ParameterError(
                "question of a statistical request must be what the library's to_dict() writes, and is not."
            ) from None
        return aggregate, self.work.estimate_question(sums=bound.wanted.width, cells=bound.size)

    # What is public.

    def about(self) -> dict[str, Any]:
        """Return the public facts about the table."""
        return {
            "dataset": self.name,
            "schema": self.schema.to_dict(),
            "n_rows": self.database.n_rows,
            "neighbors": self.schema.neighbors,
            "unit": self.schema.unit,
            "digest": self.schema.digest,
            "collusion": self.accounting.collusion,
            "composition": self.accounting.composition,
            "seeded": self._seeded,
            "limits": {"body_bytes": self._max_body, "cells": self._max_cells},
        }

    def summary(self) -> dict[str, Any]:
        """Return the public facts by which a catalogue describes the table."""
        return {
            "dataset": self.name,
            "title": self.schema.title,
            "description": self.schema.description,
            "n_rows": self.database.n_rows,
            "columns": len(self.schema.released),
            "unit": self.schema.unit,
            "composition": self.accounting.composition,
        }

    def allocations(self, audit_log: ServiceLog) -> Allocations:
        """Return the limits of analysts and groups, whose changes go into an audit log."""
        return Allocations(self.ledger, audit_log, self._entry)

    def dummy(self, n: int, seed: int) -> dict[str, list[Any]]:
        """Return dummy rows by column, drawn from the schema alone, without any charge.

        Parameters
        ----------
        n : int
            Number of rows, from 1 to 10,000.
        seed : int
            Seed of the draw; the same rows for the same seed.
        """
        if not 1 <= n <= MAX_DUMMY_ROWS:
            raise ParameterError(f"n of dummy rows must be from 1 to {MAX_DUMMY_ROWS}, was {n}.")
        from discreet.query.dummy import dummy_rows

        return dummy_rows(self.schema, n, seed)

    # Operations.

    @property
    def is_answering(self) -> bool:
        """Whether the engine answered the last check in the background, and in time."""
        return self._readiness.is_answering

    @property
    def is_slow(self) -> bool:
        """Whether the last check in the background had not ended in time."""
        return self._readiness.is_slow

    @property
    def is_lost(self) -> bool:
        """Whether the engine has failed for so long that it does not come back by itself."""
        return self._readiness.is_lost

    def _count_rows(self) -> None:
        """Have the engine count its rows, the cheapest query of all."""
        bound = Sums("TRUE").bind(self.database.cost_model.curation, self.schema.neighbors)
        exact_sums(self.database, bound)

    def close(self) -> None:
        """Stop readiness checks and attack, and close database and ledger."""
        self._readiness.close()
        self.attack.close()
        self._opened.close()


class RequestDatabase:
    """A database limited to one request, whose learners may predict a column other than the declared target.

    Parameters
    ----------
    dataset : Dataset
        Data set whose database answers; its aggregates are the same whichever column is predicted.
    schema : Schema
        Schema with the target of this request.
    before : callable
        Function called before every aggregate, with the number of those that were answered and the number of
        all that are planned; it raises if the caller may not ask any more.
    run : callable
        Function that runs the task of one aggregate, which declares its work, and returns its answer.
    """

    def __init__(
        self,
        dataset: Dataset,
        schema: Schema,
        *,
        before: Callable[[int, int], None],
        run: Callable[[QueryTask[Any]], Any] = run_one,
    ) -> None:
        """Start with no aggregate answered."""
        self._dataset = dataset
        self._before = before
        self._run = run
        self._answered = 0
        self.schema = schema

    def ask(self, question: Aggregate, **options: Any) -> Answer:
        """Answer an aggregate, if the caller still may ask."""

        def declared() -> QueryTask[Answer]:
            yield declare_work(self._dataset.aggregate_work(question, **options))
            return (yield from self.ask_task(question, **options))

        answer: Answer = self._run(declared())
        return answer

    def ask_task(self, question: Aggregate, **options: Any) -> QueryTask[Answer]:
        """Return the task that answers an aggregate, if the caller still may ask."""
        self._before(self._answered, self._answered + 1 + len(options.get("plan", ())))
        answer = yield from self._dataset.database.ask_task(question, **options)
        self._answered += 1
        return answer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._dataset.database, name)


def load_schema(entry: DatasetConfig) -> Schema:
    """Return the schema that an entry of a configuration names, or refuse one of another data set."""
    schema = find_schema(entry.table, entry.schema_file)
    if schema.dataset is not None and schema.dataset != entry.name:
        raise ParameterError(
            f"datasets.{entry.name} of the configuration must have the name that its schema gives, "
            f"{schema.dataset!r}, was {entry.name!r}. Rename one of them: the ledger is bound to this name."
        )
    return schema


def recognize_table(entry: DatasetConfig, schema: Schema) -> Recognition:
    """Return what the registry knows about the table of a service and its ledger, creating no ledger."""
    return Recognition(entry.table, schema, Ledger.identity_at(entry.ledger))


def open_ledger(entry: DatasetConfig, schema: Schema) -> Ledger:
    """Open or create the ledger of a data set, or refuse one of another data set, or of other people."""
    ledger = Ledger.open(entry.ledger, **ledger_limits(entry, schema))
    try:
        ledger.bind(entry.people or entry.name)
    except BaseException:
        # Also when interrupted: nobody else has a reference to close it by.
        ledger.close()
        raise
    return ledger


def ledger_limits(entry: DatasetConfig, schema: Schema) -> dict[str, Any]:
    """Return the limits of a data set's ledger, as :meth:`Ledger.open` takes them.

    Data sets about the same people share one ledger, whose limit is that of the people: so one transaction
    charges both limits or none.
    """

    def promise(limit: Limit | None) -> Promise | None:
        return None if limit is None else limit.promise(schema)

    limits: dict[str, Any] = {
        "limit": promise(entry.limit if entry.people is None else entry.people_limit),
        "owner_limit": promise(entry.analyst_limit),
        "rule": entry.rule,
        "order": entry.order,
    }
    if entry.people is not None:
        limits |= {"dataset": entry.name, "dataset_limit": promise(entry.limit)}
    return limits
