"""A stand-in for a service that answers with a database, and says what a test wants in between."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import TYPE_CHECKING, Any

import numpy as np

from discreet import Database, GaussianDP, Ledger, RemoteDatabase
from discreet.privacy import promise_from_dict
from discreet.query import aggregate_from_dict
from discreet.schema import Column, Schema
from tests.server.scripted import Heard, Say, served

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


TOKEN = "dsc_zebra4711"
MU = GaussianDP(mu=0.5)
N_ROWS = 400
SCHEMA = Schema(
    columns=[
        Column("age", type="integer", lower=0, upper=99),
        Column("share", lower=0, upper=1),
        Column("job", values=("clerk", "smith")),
    ],
    dataset="survey",
)


def rows() -> dict[str, Any]:
    i = np.arange(N_ROWS)
    return {"age": i * 31 % 100, "share": i * 37 % 257 / 256, "job": np.array(["clerk", "smith"])[i % 2]}


def public(**other: Any) -> dict[str, Any]:
    told = {"dataset": "survey", "schema": SCHEMA.to_dict(), "n_rows": N_ROWS, "digest": SCHEMA.digest}
    return {**told, **other}


class StandIn:
    """A service in so far as these tests need one: it answers with a database, once for each key."""

    def __init__(self, *script: Say | None) -> None:
        self.ledger = Ledger.open(":memory:")
        self.database = Database(rows(), schema=SCHEMA, ledger=self.ledger, random_state=3)
        self.heard: list[Heard] = []
        self.script = list(script)
        """What is said to the first posts instead of an answer; None for an answer."""
        self.alter: Callable[[dict[str, Any]], Any] = lambda told: told
        self.public = public()
        self._lock = threading.Lock()

    @property
    def keys(self) -> list[str]:
        return [heard.headers["idempotency-key"] for heard in self.heard]

    def __call__(self, heard: Heard) -> Say:
        if heard.path == "/v1/datasets/survey/schema":
            return Say.json(self.public)
        with self._lock:
            self.heard.append(heard)
            told = self.script.pop(0) if self.script else None
            if told is not None:
                return told
            values = heard.values
            answer = self.database.ask(
                aggregate_from_dict(values["question"]),
                privacy=promise_from_dict(values["privacy"]) if "privacy" in values else None,
                variance=values.get("variance"),
            )
            return Say.json(self.alter({"kind": "answer", "answer": answer.to_dict()}))


@contextlib.contextmanager
def standing_in(*script: Say | None, **more: Any) -> Iterator[tuple[StandIn, RemoteDatabase]]:
    stand_in = StandIn(*script)
    with served(stand_in) as url, RemoteDatabase(url, "survey", TOKEN, **more) as db:
        yield stand_in, db


def closed_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])
