"""What cannot be answered is refused in words that help, or answered with noise; rows stay unseen."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from sqlglot import exp

from discreet.errors import (
    EngineFailed,
    ExpressionRefused,
    ParameterError,
    PromiseError,
    SchemaError,
    TableChanged,
)
from discreet.learn import PrivateKMeans, PrivatePCA
from discreet.ledger import Ledger
from discreet.privacy import ApproxDP, GaussianDP, PureDP
from discreet.query import ClusterSums, Database, Gram, Histogram, NodeTables, Sums
from discreet.query.aggregates import TreeNode
from discreet.query.engines._duckdb import DuckDBEngine
from discreet.schema import Column, Schema

if TYPE_CHECKING:
    from collections.abc import Callable

    from discreet._types import AnyArray
    from discreet.query import Aggregate
    from discreet.query.curation import Curation, Version

PRIVACY = ApproxDP(epsilon=1.0, delta=1e-6)
SCHEMA = Schema(
    columns=[
        Column("age", type="integer", lower=17, upper=90),
        Column("income", lower=0, upper=1e5, required=False),
        Column("job", values=("clerk", "nurse"), closed=True),
        Column("owner", values=(0, 1), role="target"),
    ]
)
QUESTIONS: list[Aggregate] = [
    Sums(("age * 2", "income")),
    Histogram("job"),
    NodeTables("owner", [TreeNode([("job", 0)], ["age"])], {"age": [40.0]}),
    Gram(("age", "income", "job")),
    ClusterSums(("age", "income"), [[0.2, 0.2], [0.8, 0.8]], radius=0.5),
]


AGED = [dataclasses.replace(SCHEMA.columns[0], name="ages"), *SCHEMA.columns[1:]]


def rows(n: int = 60) -> dict[str, AnyArray]:
    i = np.arange(n)
    return {
        "age": 17 + i % 74,
        "income": np.where(i % 7, 1000.0 * (i % 90), np.nan),
        "job": np.array(["clerk", "nurse"], dtype=object)[i % 2],
        "owner": i % 2,
    }


def refusals(n: int, asks: list[Callable[[Database], object]]) -> list[str]:
    """What is said about a table of n rows, with nothing charged."""
    said = []
    with Database(rows(n), schema=SCHEMA) as db:
        for ask in asks:
            with pytest.raises((ParameterError, PromiseError)) as caught:
                ask(db)
            said.append(str(caught.value))
        assert db.ledger.spent().charges == 0
    return said


REFUSED: dict[str, tuple[Callable[[Database], object], str]] = {
    "a column that is not there": (
        lambda db: db.sum("incom + 1", privacy=PRIVACY),
        "income",
    ),
    "a column of a histogram that is not there": (
        lambda db: db.histogram("jobs", privacy=PRIVACY),
        "Did you mean 'job'",
    ),
    "text where a number is needed": (
        lambda db: db.sum("job + 1", privacy=PRIVACY),
        "a category where a number is needed",
    ),
    "a number where a list is needed": (
        lambda db: db.count("age = 'clerk'", privacy=PRIVACY),
        "",
    ),
    "bounds that cannot be derived": (
        lambda db: db.sum("1 / (age - 40)", privacy=PRIVACY),
        "GREATEST",
    ),
    "a logarithm of what may be zero": (lambda db: db.sum("LN(income)", privacy=PRIVACY), "GREATEST"),
    "a value past all bounds": (lambda db: db.sum("POWER(POWER(income, 8), 8)", privacy=PRIVACY), "LEAST"),
    "more groups than are declared": (
        lambda db: db.histogram("job", edges={"job": [0.5]}, privacy=PRIVACY),
        "cells of its own",
    ),
    "groups that are not declared": (lambda db: db.histogram("income", privacy=PRIVACY), "edges"),
    "more cells than anybody could read": (
        lambda db: db.histogram(("age", "income"), edges={"income": range(1, 99_000)}, privacy=PRIVACY),
        "fewer than 4096",
    ),
    "more cells together than anybody could read": (
        lambda db: db.histogram(
            ("age", "income", "owner", "job"),
            edges={"income": range(1, 4096), "age": [18 + i / 64 for i in range(4000)]},
            privacy=PRIVACY,
        ),
        "at most 4194304 cells",
    ),
    "a node that does not exist": (
        lambda db: db.ask(NodeTables("owner", [TreeNode([("job", 5)], ["age"])]), privacy=PRIVACY),
        "has no 5",
    ),
    "so strong a promise that nothing could be read": (
        lambda db: db.sum("income", privacy=GaussianDP(mu=1e-18)),
        "nothing could be read off",
    ),
    "no promise": (lambda db: db.sum("income"), "exactly one of a promise and a noise"),
    "a promise about some columns": (
        lambda db: db.sum("income", privacy=PureDP(epsilon=1, covers=("income",))),
        "whole rows",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused_before_a_charge_in_words_that_are_the_same_for_every_table(name: str) -> None:
    ask, hint = REFUSED[name]
    (few,), (many,) = refusals(0, [ask]), refusals(60, [ask])
    assert few == many
    assert hint in few


def test_bounds_beyond_all_reason_are_refused_at_registration_and_named() -> None:
    for lower, upper in ((0.0, 1e300), (-1e101, 0.0), (0.0, 1e-300)):
        with pytest.raises(SchemaError, match=r"Column 'mass': (lower|upper) (minus lower )?must be"):
            Schema(columns=[Column("mass", lower=lower, upper=upper)])
    wide = Schema(columns=[Column("mass", lower=-1e99, upper=1e99)])
    with Database({"mass": np.array([1e98, -1e99])}, schema=wide) as db:
        answer = db.sum("mass", privacy=GaussianDP(mu=1e6))
        assert answer.value == pytest.approx(1e98 - 1e99, abs=5 * (answer.sd or 0.0) + 2e93)


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.kind)
def test_a_table_without_rows_answers_every_kind_of_question_with_noise_alone(question: Aggregate) -> None:
    empty = {name: values[:0] for name, values in rows().items()}
    with Database(empty, schema=SCHEMA) as db:
        assert db.n_rows == 0
        answer = db.ask(question, privacy=PRIVACY)
        value, sd = np.asarray(answer.value), np.asarray(answer.sd)
        noisy = sd > 0
        assert (np.abs(value[noisy]) < 7 * sd[noisy]).all()
        assert (value[~noisy] == 0).all()
        assert db.ask(question, privacy=PRIVACY).cached


class DyingEngine(DuckDBEngine):
    """Dies in the middle of a pass: its connection is closed after the work has begun."""

    dies = False

    def _die(self) -> None:
        if self.dies:
            self._reader.close()

    def _fetch(self, query: Any) -> list[tuple[Any, ...]]:
        self._die()
        return super()._fetch(query)

    def batches(self, columns: Any, rows: int = 16) -> Any:
        for i, arrays in enumerate(super().batches(columns, 16)):
            if i == 1 and self.dies:
                import duckdb

                raise duckdb.IOException("disk 17 of host db3 failed at the row of Ann")
            yield arrays


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.kind)
def test_an_engine_that_dies_in_the_middle_keeps_the_charge_and_the_answer_comes_after_a_restart(
    question: Aggregate, tmp_path: Any
) -> None:
    ledger = Ledger.open(tmp_path / "people.ledger", limit=GaussianDP(mu=1.0))
    dying = DyingEngine()
    with Database(rows(), schema=SCHEMA, engine=dying, ledger=ledger) as db:
        dying.dies = True
        for _ in range(2):
            with pytest.raises(EngineFailed, match=r"the charge stands.*the repeat is free") as caught:
                db.ask(question, privacy=PRIVACY)
            assert "Ann" not in str(caught.value)
            assert caught.value.__cause__ is None
            assert ledger.spent().charges == 1
    # Another process registers the same rows: the question is known, unanswered, and free.
    with Database(rows(), schema=SCHEMA, ledger=ledger) as db:
        answer = db.ask(question, privacy=PRIVACY)
        assert not answer.cached
        assert ledger.spent().charges == 1
        again = db.ask(question, privacy=PRIVACY)
        assert again.cached
        assert np.array_equal(np.asarray(again.value), np.asarray(answer.value), equal_nan=True)
    ledger.check()
    ledger.close()


class Meddled(DuckDBEngine):
    """A table that others can write to, as one in a server's schema."""

    exposed = True

    def _build(self, source: Any, curation: Curation, salt: str) -> Version:
        version = super()._build(source, curation, salt)
        self._keep_witness()
        return version

    def _row_hash(self) -> Any:
        assert self.curation is not None
        return exp.Anonymous(this="hash", expressions=list(map(exp.column, self.curation.identifiers())))

    def meddle(self, change: str) -> None:
        self._connection.execute(change)


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.kind)
@pytest.mark.parametrize(
    "change",
    [
        "UPDATE curated SET c0 = c0 + 1 WHERE c0 = 3",
        "DELETE FROM curated WHERE c0 = 3",
        "INSERT INTO curated SELECT * FROM curated WHERE c0 = 3",
        "UPDATE curated SET c0 = CASE c0 WHEN 3 THEN 4 WHEN 4 THEN 3 ELSE c0 END",
        "UPDATE curated SET c1 = c1 + 1 WHERE c0 = 3",
        "UPDATE curated SET v1 = v1 + 1e-12 WHERE c0 = 3",
    ],
)
def test_a_table_that_changes_between_passes_is_refused_and_earlier_answers_stay(
    question: Aggregate, change: str
) -> None:
    engine = Meddled()
    with Database(rows(), schema=SCHEMA, engine=engine) as db:
        first = db.sum("age", privacy=PRIVACY)
        engine.meddle(change)
        with pytest.raises(TableChanged, match="Register it again"):
            db.ask(question, privacy=PRIVACY)
        assert db.ledger.spent().charges == 2
        assert db.sum("age", privacy=PRIVACY).value == first.value


def test_a_learner_meets_a_table_that_changes_between_its_passes() -> None:
    engine = Meddled()
    with Database(rows(600), schema=SCHEMA, engine=engine) as db:
        model = PrivateKMeans(n_clusters=2, privacy=PRIVACY)
        real = db.ask

        def ask(question: Any, **rest: Any) -> Any:
            answer = real(question, **rest)
            engine.meddle("UPDATE curated SET c0 = c0 + 1 WHERE c0 = 3")
            return answer

        db.ask = ask  # type: ignore[method-assign]
        with pytest.raises(TableChanged):
            model.fit_database(db)


def test_more_clusters_or_components_than_make_sense_are_refused_or_said_to_be_noise() -> None:
    with Database(rows(), schema=SCHEMA) as db:
        with pytest.raises(ParameterError, match="n_components"):
            PrivatePCA(n_components=50, privacy=PRIVACY).fit_database(db, columns=["age", "income"])
        with pytest.raises(ParameterError, match="n_clusters"):
            PrivateKMeans(n_clusters=10**9, privacy=PRIVACY).fit_database(db)
        assert db.ledger.spent().charges == 0
        pca = PrivatePCA(n_components=2, privacy=PRIVACY).fit_database(db, columns=["age", "income"])
        # Sixty rows at epsilon 1 tell nothing, and the model says so.
        assert not np.asarray(pca.distinguishable_).any()


def test_what_is_refused_is_of_the_kind_that_its_caller_can_tell_apart() -> None:
    with Database(rows(), schema=SCHEMA) as db:
        with pytest.raises(ExpressionRefused):
            db.sum("incom", privacy=PRIVACY)
        with pytest.raises(PromiseError):
            db.sum("income", privacy=GaussianDP(mu=1e-18))
        with pytest.raises(SchemaError, match="Did you mean"):
            Database({**rows(), "agee": rows()["age"]}, schema=dataclasses.replace(SCHEMA, columns=AGED))
