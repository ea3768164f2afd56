"""One interface for every private table: on each engine, on an array, and behind a service."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from discreet import Database, GaussianDP, Ledger, PureDP, RemoteDatabase
from discreet.errors import BudgetExceeded, ExpressionRefused, ParameterError
from discreet.privacy import ZCDP, Promise
from discreet.query import Answer, Gram, Histogram, Sums
from discreet.query.frames import Frame, question_words
from discreet.query.interface import PrivateTable
from discreet.query.previews import Preview
from discreet.query.results import QueryResult
from discreet.schema import Column, Schema
from tests.server.conftest import running

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

N = 600
SEED = 1  # that of the service in tests
MU = GaussianDP(mu=0.5)
SCHEMA = Schema(
    columns=[
        Column("age", type="integer", lower=0, upper=120, measure="years"),
        Column("income", lower=0, upper=100_000, measure="EUR"),
        Column("sex", values=(0, 1)),
        Column("ward", values=(1, 2, 3)),
    ],
    target="sex",
    dataset="town",
)


def rows() -> dict[str, list[Any]]:
    return {
        "age": [(37 * i) % 101 for i in range(N)],
        "income": [float((7919 * i) % 100_000) for i in range(N)],
        "sex": [int(i % 3 == 0) for i in range(N)],
        "ward": [1 + i % 2 for i in range(N)],
    }


@dataclass
class OpenTable:
    """A private table, and the owner that its verbs are given: none for a service, which has the token's."""

    db: Any
    ledger: Ledger
    owner: str | None

    @property
    def owned(self) -> dict[str, Any]:
        return {} if self.owner is None else {"owner": self.owner}


@contextlib.contextmanager
def at_hand(source: Any, **more: Any) -> Iterator[OpenTable]:
    with (
        contextlib.closing(Ledger.open(":memory:", limit=ZCDP(rho=10), owner_limit=ZCDP(rho=5))) as ledger,
        Database(source, schema=SCHEMA, ledger=ledger, random_state=SEED, **more) as db,
    ):
        yield OpenTable(db, ledger, "ana")


def duckdb_table(_: pytest.FixtureRequest) -> AbstractContextManager[OpenTable]:
    return at_hand(rows())


def array_table(_: pytest.FixtureRequest) -> AbstractContextManager[OpenTable]:
    return at_hand(np.column_stack([np.array(cells, np.float64) for cells in rows().values()]))


def postgres_table(request: pytest.FixtureRequest) -> AbstractContextManager[OpenTable]:
    from discreet.query.engines._postgres import PostgresEngine

    return at_hand(rows(), engine=PostgresEngine(request.getfixturevalue("postgres_url")))


def spark_table(request: pytest.FixtureRequest) -> AbstractContextManager[OpenTable]:
    import pyarrow as pa

    return at_hand(request.getfixturevalue("spark").createDataFrame(pa.table(rows())))


@contextlib.contextmanager
def remote_table(request: pytest.FixtureRequest) -> Iterator[OpenTable]:
    folder: Path = request.getfixturevalue("tmp_path")
    table = rows()
    lines = [",".join(table), *(",".join(map(str, row)) for row in zip(*table.values(), strict=True))]
    (folder / "town.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (folder / "town.schema.yaml").write_text(SCHEMA.to_yaml(), encoding="utf-8")
    with (
        running(folder, seed=SEED) as service,
        RemoteDatabase(service.url, "town", service.tokens["ana"]) as db,
    ):
        yield OpenTable(db, service.backend.dataset.ledger, None)


TABLES: dict[str, Callable[[pytest.FixtureRequest], AbstractContextManager[OpenTable]]] = {
    "duckdb": duckdb_table,
    "array": array_table,
    "postgres": postgres_table,
    "spark": spark_table,
    "remote": remote_table,
}
# pyspark warns about newer versions of pandas whenever Arrow is used.
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")


@pytest.fixture(
    params=[pytest.param(name, marks=pytest.mark.slow if name == "spark" else ()) for name in TABLES]
)
def table(request: pytest.FixtureRequest) -> Iterator[OpenTable]:
    """A private table of each kind, on the same rows and under the same seed."""
    with TABLES[request.param](request) as opened:
        yield opened


# Results.


def outcomes(table: OpenTable) -> dict[str, Any]:
    """Call every verb in a fixed order; noise is drawn in that order."""
    db, owned = table.db, table.owned
    finer = GaussianDP(mu=0.8)
    found: dict[str, Any] = {
        "facts": (db.schema, db.n_rows, db.neighbors, db.dataset),
        "cost": db.cost(Histogram("sex"), privacy=MU),
        "expected sd": db.expected_sd(Sums(("age", "income")), privacy=MU).tolist(),
        "preview": db.preview("mean(age) by ward", privacy=MU, **owned),
        "count": db.query("count where age > 40", privacy=MU, **owned),
        "mean": db.query("mean(age) where income > 10000 by ward", privacy=MU, **owned),
        "SELECT": db.query("SELECT SUM(income) FROM t", privacy=PureDP(epsilon=0.5), **owned),
        "sd": db.query("sum(age) by sex, age (30, 60)", sd=500.0, **owned),
        "again": db.query("count where age > 40", privacy=MU, **owned),
        "exact": db.query("count", privacy=MU, **owned),
        "paid preview": db.preview("count where 40 < age", privacy=MU, **owned),
        "sums": db.ask(Sums("income / 7"), privacy=MU, **owned),
        "sum": db.sum("income / 12", privacy=MU, **owned),
        "predicate": db.count("age > 64 AND sex = 1", sd=3.0, **owned),
        "average": db.mean("age", privacy=PureDP(epsilon=0.7), **owned),
        "by": db.mean("income", where="age > 17", by=["ward", "sex"], privacy=MU, **owned),
        "histogram": db.histogram(["ward", "age"], edges={"age": [30, 60]}, privacy=MU, **owned),
        "gram": db.ask(Gram(("age", "income")), privacy=MU, **owned),
        "paid is free": db.is_free(Sums("income / 7"), privacy=MU, **owned),
        "unpaid is free": db.is_free(Sums("income / 8"), privacy=MU, **owned),
        "exact is free": db.is_free(Sums("1"), privacy=MU, **owned),
    }
    first = found["count"].receipts
    found["refined"] = db.query("count where age > 40", privacy=finer, refines=first, **owned)
    found["recalled"] = db.recall(found["histogram"].receipt.id, **owned)
    found["recalled merge"] = db.recall(found["refined"].receipts[0], **owned)
    budget = db.budget(**owned)
    found["budget"] = (budget.own, budget.total)
    found["history"] = db.history(**owned)
    found["rest of the history"] = db.history(after=found["history"].columns["row"][2], last=4, **owned)
    found["dummy"] = db.dummy(50, seed=3)
    return found


def comparable(found: dict[str, Any]) -> dict[str, Any]:
    """Return outcomes with receipts numbered in their order: their ids name a ledger."""
    receipts = found["history"].columns["receipt"]

    def number(ids: Any) -> tuple[int, ...]:
        return tuple(receipts.index(receipt) for receipt in ids)

    def plain(value: Any) -> Any:
        if isinstance(value, QueryResult):
            parts: Any = tuple(number(merged) for merged in value.parts)
            return dataclasses.replace(value, receipts=number(value.receipts), parts=parts)  # type: ignore[arg-type]
        if isinstance(value, Answer):
            numbers = (np.asarray(value.value).tolist(), np.asarray(value.sd).tolist())
            facts = (value.law, value.cost, value.cached, value.labels, number(value.parts))
            return (type(value.value), numbers, facts)
        if isinstance(value, Frame) and "receipt" in value.columns:
            kept = {n: cells for n, cells in value.columns.items() if n not in ("row", "when", "receipt")}
            return {**kept, "receipt": number(value.columns["receipt"])}
        return value

    return {name: plain(value) for name, value in found.items()}


@cache
def reference() -> dict[str, Any]:
    with at_hand(rows()) as table:
        return comparable(outcomes(table))


def test_every_table_returns_the_same_results_bit_for_bit(table: OpenTable) -> None:
    found = comparable(outcomes(table))
    for name, expected in reference().items():
        assert found[name] == expected, name


def test_the_reference_is_what_it_should_be() -> None:
    found = reference()
    assert (found["count"].cached, found["again"].cached) == (False, True)
    assert found["again"].cells == found["count"].cells
    assert (found["exact"].value, found["exact"].cost) == (N, ())
    assert (found["preview"].is_free, found["paid preview"].is_free) == (False, True)
    assert [found[f"{what} is free"] for what in ("paid", "unpaid", "exact")] == [True, False, True]
    assert found["refined"].refined
    assert found["refined"].sd < found["count"].sd
    assert found["mean"].group_by == ("ward",)
    assert found["mean"].cells[2].interval == found["mean"].columns[0].bounds
    assert found["mean"].unreadable_below > 0
    assert found["history"]["question"][0] == "count where 40 < age"


class Rounding(Database):
    """The wrong twin: loses the last bits of a result."""

    def query(self, *text: Any, **more: Any) -> QueryResult:
        result = super().query(*text, **more)
        cells = tuple(
            dataclasses.replace(cell, value=None if cell.value is None else round(cell.value, 9))
            for cell in result.cells
        )
        return dataclasses.replace(result, cells=cells)


def test_a_table_that_rounds_would_be_seen() -> None:
    with (
        contextlib.closing(Ledger.open(":memory:", limit=ZCDP(rho=10), owner_limit=ZCDP(rho=5))) as ledger,
        Rounding(rows(), schema=SCHEMA, ledger=ledger, random_state=SEED) as db,
    ):
        found = comparable(outcomes(OpenTable(db, ledger, "ana")))
    assert found["count"] != reference()["count"]


def test_a_result_goes_over_the_wire_and_back(table: OpenTable) -> None:
    result = table.db.query("mean(age) by ward", privacy=MU, **table.owned)
    preview = table.db.preview("mean(age) by ward", privacy=MU, **table.owned)
    assert QueryResult.from_wire(result.to_wire()) == result
    assert Preview.from_wire(preview.to_wire()) == preview
    assert list(result.to_pandas().columns) == ["ward", "value", "sd", "lower", "upper"]
    assert result.to_polars()["value"].to_list() == [cell.value for cell in result.cells]


# Refusals.


@pytest.mark.parametrize("how", [{}, {"privacy": MU, "sd": 2.0}])
def test_neither_or_both_of_privacy_and_sd_are_refused_before_a_charge(
    table: OpenTable, how: dict[str, Any]
) -> None:
    for verb in (table.db.query, table.db.preview):
        with pytest.raises(ParameterError):
            verb("count where age > 40", **how, **table.owned)
    assert table.ledger.spent().charges == 0


def test_refusals_are_those_of_every_table_and_cost_nothing(table: OpenTable) -> None:
    db, owned = table.db, table.owned
    with pytest.raises(ExpressionRefused):
        db.query("count where age > (select 3)", privacy=MU, **owned)
    with pytest.raises(ExpressionRefused):
        db.sum("salary", privacy=MU, **owned)
    with pytest.raises(BudgetExceeded):
        db.query("count where age > 40", privacy=GaussianDP(mu=50.0), **owned)
    for unknown in ("0123456789ab-7", "nonsense", ""):
        with pytest.raises(ParameterError):
            db.recall(unknown, **owned)
    assert table.ledger.spent().charges == 0


def test_another_owner_cannot_recall(table: OpenTable) -> None:
    with pytest.raises(ParameterError, match="owner of RemoteDatabase" if table.owner is None else "owner"):
        table.db.recall(table.db.count("age > 4", privacy=MU, **table.owned).receipts[0], owner="ben")


@pytest.mark.parametrize("verb", ["query", "preview", "ask", "is_free", "sum", "recall", "budget", "history"])
def test_the_client_refuses_an_owner_without_a_request(verb: str, request: pytest.FixtureRequest) -> None:
    arguments: dict[str, Any] = {"query": ("count",), "preview": ("count",), "recall": ("ab-2",)}
    arguments |= {"ask": (Sums("age"),), "is_free": (Sums("age"),), "sum": ("age",)}
    privacy: dict[str, Promise] = {} if verb in ("recall", "budget", "history") else {"privacy": MU}
    with remote_table(request) as table, pytest.raises(ParameterError, match="must be None, was given"):
        getattr(table.db, verb)(*arguments.get(verb, ()), owner="ben", **privacy)


# The interface itself.

VERBS = [
    *("query", "preview", "sum", "count", "mean", "histogram", "ask", "cost", "expected_sd", "recall"),
    *("is_free", "budget", "history", "dummy", "schema", "n_rows", "neighbors", "dataset", "close"),
]


@pytest.mark.parametrize("kind", [Database, RemoteDatabase])
def test_every_table_has_every_verb_with_the_parameters_of_the_interface(kind: type[PrivateTable]) -> None:
    assert issubclass(kind, PrivateTable)
    assert not hasattr(kind, "calibrate")
    for verb in VERBS:
        declared, own = getattr(PrivateTable, verb), getattr(kind, verb)
        if not isinstance(declared, property):
            shared = inspect.signature(declared).parameters
            given = inspect.signature(own).parameters
            assert list(given)[: len(shared)] == list(shared), verb
            assert all(given[name].default == shared[name].default for name in shared), verb


def test_a_charge_is_named_by_its_question() -> None:
    assert question_words({"said": "count where 40 < age"}, "sums") == "count where 40 < age"
    assert question_words({"question": Sums(("age > 40",)).to_dict()}, "sums") == "sum(age > 40)"
    assert question_words({"question": Histogram(("sex",)).to_dict()}, "histogram") == "count by sex"
    of_sums = Histogram(("sex", "town"), {}, "age").to_dict()
    assert question_words({"question": of_sums}, "histogram") == "sum(age) by sex, town"
    assert question_words(None, "release") == question_words({}, "release") == "release"
