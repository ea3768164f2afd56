"""A PostgreSQL connection that is lost: replaced, or questions are refused before they are charged."""

from __future__ import annotations

import os
import signal
import struct
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import psycopg
import pytest

from discreet.errors import EngineFailed, EngineUnavailable, SourceError, TableChanged
from discreet.ledger import Ledger
from discreet.privacy import ApproxDP
from discreet.query import Database, Gram
from discreet.query.engines import _postgres, engine_for
from discreet.query.engines._postgres import PostgresEngine
from discreet.query.engines.base import ROWS
from discreet.schema import Column, Schema
from discreet.tables import open_table, write_table
from tests.postgres import running_server

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from discreet._types import AnyArray

CLASSIC = ApproxDP(epsilon=1.0, delta=1e-6)
SCHEMA = Schema(
    columns=[
        Column("x", lower=0, upper=1),
        Column("age", type="integer", lower=17, upper=90),
        Column("job", values=("clerk", "nurse")),
    ]
)


def rows(n: int = 600) -> dict[str, AnyArray]:
    i = np.arange(n)
    return {"x": (i % 97) / 96, "age": 17.0 + i % 74, "job": (i % 2).astype(np.int32)}


@pytest.fixture
def url(postgres_url: str) -> str:
    """The address of a table of people."""
    write_table(f"{postgres_url}?table=people", SCHEMA, [rows()])
    return f"{postgres_url}?table=people"


def change(url: str, command: Any) -> None:
    with psycopg.connect(url.partition("?")[0], autocommit=True) as other:
        other.execute(command)


def end_session(engine: PostgresEngine, url: str) -> None:
    change(url, f"SELECT pg_terminate_backend({engine._server.info.backend_pid}, 5000)")


class _EndsDuringPasses(PostgresEngine):
    """An engine whose session ends after the charge of its first sum, and of its first pass over rows."""

    ends = 0

    def _fetch(self, query: Any) -> list[tuple[Any, ...]]:
        if self._refill is not None and self.ends == 0:
            self.ends = 1
            end_session(self, os.environ["RECONNECTED"])
        return super()._fetch(query)

    def batches(self, columns: Sequence[str], rows: int = ROWS) -> Iterator[list[AnyArray]]:
        if self.ends == 1:
            self.ends = 2
            end_session(self, os.environ["RECONNECTED"])
        return super().batches(columns, rows)


@pytest.mark.parametrize("into", [None, "public"])
@pytest.mark.parametrize("engine", [PostgresEngine, _EndsDuringPasses])
def test_a_session_that_ends_between_or_during_questions_is_replaced(
    url: str, into: str | None, engine: type[PostgresEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECONNECTED", url)
    with Database(rows(), schema=Schema(columns=SCHEMA.columns), random_state=5) as local:
        wanted: list[Any] = [
            local.sum("x", privacy=CLASSIC).value,
            local.ask(Gram(("x", "age")), privacy=CLASSIC).value,
        ]
    with Database(url, schema=SCHEMA, engine=engine(url, into=into), random_state=5) as db:
        assert isinstance(db._engine, PostgresEngine)
        first = db._engine._server.info.backend_pid
        if engine is PostgresEngine:
            end_session(db._engine, url)
        found: list[Any] = [db.sum("x", privacy=CLASSIC).value]
        if engine is PostgresEngine:
            end_session(db._engine, url)
        found.append(db.ask(Gram(("x", "age")), privacy=CLASSIC).value)
        assert db._engine._server.info.backend_pid != first
        assert db.ledger.spent().charges == 2
    assert np.array_equal(found[0], wanted[0])
    assert np.array_equal(found[1], wanted[1])


def test_processes_share_rows_that_are_loaded_whatever_becomes_of_the_source(
    url: str, tmp_path: Path
) -> None:
    read = []

    def share(ledger: str) -> tuple[Database, Any]:
        def counted(*args: Any, **options: Any) -> Any:
            read.append(ledger)
            return open_table(*args, **options)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(_postgres, "open_table", counted)
            charged = Ledger.open(tmp_path / ledger)
            engine = engine_for(url, shared=tmp_path / "people.curated", secret=charged.secret())
            return Database(url, schema=SCHEMA, ledger=charged, engine=engine), engine

    def cells(engine: PostgresEngine) -> list[Any]:
        return sorted(
            zip(
                *(np.concatenate(one) for one in zip(*engine.batches(["v0", "c1"]), strict=True)), strict=True
            )
        )

    db, engine = share("a.ledger")
    first = db.sum("x", privacy=CLASSIC), engine.version, cells(engine)
    db.close()
    assert struct.pack(">d", 95 / 96) not in (tmp_path / "people.curated").read_bytes()
    change(url, "DELETE FROM people WHERE age > 50")
    db, engine = share("a.ledger")
    second = db.sum("x", privacy=CLASSIC), engine.version, cells(engine)
    assert second[0].cached
    assert second[1:] == first[1:]
    assert read == ["a.ledger"]
    end_session(engine, url)
    assert engine.run(lambda: cells(engine)) == first[2]  # of the copy again
    db.close()
    db, engine = share("b.ledger")
    assert engine.version != first[1]
    assert read == ["a.ledger", "b.ledger"]
    db.close()


def test_without_a_server_nothing_is_charged_and_what_was_paid_stays_free(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(_: PostgresEngine) -> Any:
        raise SourceError("no server")

    monkeypatch.setattr(_postgres, "_WAITS", (0.0, 0.0))
    with Database(url, schema=SCHEMA) as db:
        assert isinstance(db._engine, PostgresEngine)
        paid = db.sum("x", privacy=CLASSIC)
        with monkeypatch.context() as away:
            away.setattr(PostgresEngine, "_connect", refused)
            end_session(db._engine, url)
            for _ in range(2):
                with pytest.raises(EngineUnavailable, match="nothing was asked or charged"):
                    db.sum("age", privacy=CLASSIC)
            again = db.sum("x", privacy=CLASSIC)
            assert again.cached
            assert again.value == paid.value
        assert db.ledger.spent().charges == 1
        db.sum("age", privacy=CLASSIC)
        assert db.ledger.spent().charges == 2


def test_while_one_thread_restores_others_are_refused_at_once(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached, go_on = threading.Event(), threading.Event()
    connect = PostgresEngine._connect

    def slow(engine: PostgresEngine) -> Any:
        reached.set()
        assert go_on.wait(60)
        return connect(engine)

    with Database(url, schema=SCHEMA) as db:
        assert isinstance(db._engine, PostgresEngine)
        monkeypatch.setattr(PostgresEngine, "_connect", slow)
        end_session(db._engine, url)
        leader = threading.Thread(target=lambda: db.sum("x", privacy=CLASSIC))
        leader.start()
        assert reached.wait(60)
        with pytest.raises(EngineUnavailable):
            db.sum("age", privacy=CLASSIC)
        go_on.set()
        leader.join()
        assert db.ledger.spent().charges == 1
        db.sum("age", privacy=CLASSIC)


@pytest.mark.parametrize(
    ("into", "command"),
    [
        (None, "UPDATE people SET age = 18 WHERE age = 17"),
        (None, "DELETE FROM people WHERE age = 17"),
        (None, "UPDATE people SET job = 'pilot'"),  # does not fit: named to a curator, not to an analyst
        (None, "ALTER TABLE people DROP COLUMN job"),
        ("public", "UPDATE curated SET v0 = v0 + 1e-14 WHERE c0 = 0"),
        ("public", "DROP TABLE curated"),
    ],
)
def test_other_rows_after_a_lost_session_are_refused_before_the_charge(
    url: str, into: str | None, command: str
) -> None:
    with Database(url, schema=SCHEMA, engine=PostgresEngine(url, into=into)) as db:
        assert isinstance(db._engine, PostgresEngine)
        paid = db.sum("x", privacy=CLASSIC)
        change(url, command)
        end_session(db._engine, url)
        for _ in range(2):
            with pytest.raises(TableChanged) as caught:
                db.sum("age", privacy=CLASSIC)
            assert str(caught.value) == str(TableChanged())
        assert db.sum("x", privacy=CLASSIC).value == paid.value
        assert db.ledger.spent().charges == 1


@pytest.mark.slow
def test_a_server_that_restarts_costs_no_charge_without_an_answer() -> None:
    with running_server() as server, server.database() as address:
        url = f"{address}?table=people"
        write_table(url, SCHEMA, [rows()])
        with Database(url, schema=SCHEMA, random_state=5) as db:
            assert isinstance(db._engine, PostgresEngine)
            for k in range(4):
                # A backend that is killed makes the server end all sessions and start again.
                os.kill(db._engine._server.info.backend_pid, signal.SIGKILL)
                for _ in range(100):
                    try:
                        db.sum(f"x * {k + 1}", privacy=CLASSIC)
                    except EngineUnavailable:
                        assert db.ledger.spent().charges == k
                    except EngineFailed:  # away for longer than we wait: paid for, and free to ask again
                        assert db.ledger.spent().charges == k + 1
                    else:
                        break
                assert db.ledger.spent().charges == k + 1
