"""What a client believes: answers to its question at its price, from a service of its version."""

from __future__ import annotations

import datetime
import json
import math
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from discreet import RemoteDatabase
from discreet.client import transport
from discreet.errors import MissingExtra, ServiceError
from discreet.query import Sums
from discreet.query.frames import Frame
from discreet.query.intervals import ResultInterval
from discreet.query.result_cells import ResultColumn
from discreet.query.results import QueryResult
from discreet.schema import Column, Schema
from tests.server.scripted import Heard, Say, served
from tests.server.stand_in import MU, N_ROWS, TOKEN, StandIn, public, standing_in

if TYPE_CHECKING:
    from collections.abc import Callable

WRONG = "count where age > 9"


@pytest.mark.parametrize(
    "said",
    [
        Say(200, b"<html>", {"Content-Type": "text/html"}),
        Say(200, b"[]"),
        Say(200, b"{"),
        Say(200, b"\xff"),
        Say(200, b'{"a":' * 100_000),
        Say(200, b"{}", {"Content-Type": "application/json", "Content-Encoding": "gzip"}),
        Say(404, b"not here", {"Content-Type": "text/plain"}),
        Say(404, b'{"detail": "Not Found"}'),
        Say.error(404, "not-found"),
        Say.error(418, "teapot"),
        Say(418, b'{"error": {"code": ["x"]}}'),
        Say.json({}),
        Say.json(public(schema=None)),
        Say.json(public(schema={"fields": []})),
        Say.json(public(digest="0" * 64)),
        Say.json(public(n_rows=None)),
        Say.json(public(n_rows=-1)),
        Say.json(public(n_rows=4.5)),
        Say.json(public(n_rows=True)),
        Say.json(public(dataset=["x"])),
    ],
)
def test_what_is_no_service_of_this_version_is_told_so(said: Say) -> None:
    with served(lambda _: said) as url:
        with pytest.raises(ServiceError, match=r"sent|It is (not-found|teapot)") as told:
            RemoteDatabase(url, "survey", TOKEN)
        assert type(told.value) is ServiceError
        assert "charged" not in str(told.value)


def test_a_number_of_rows_that_must_be_secret_is_not_believed() -> None:
    schema = Schema(columns=[Column("age", type="integer", lower=0, upper=9)], neighbors="add-remove")
    told = {"dataset": "survey", "schema": schema.to_dict(), "digest": schema.digest}
    with served(lambda _: Say.json({**told, "n_rows": 7})) as url, pytest.raises(ServiceError, match="rows"):
        RemoteDatabase(url, "survey", TOKEN)
    with (
        served(lambda _: Say.json({**told, "n_rows": None})) as url,
        RemoteDatabase(url, "survey", TOKEN) as db,
    ):
        assert db.n_rows is None


def test_an_endless_answer_is_not_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "MAX_BYTES", 10_000)
    padded = json.dumps(public(padding="x" * 20_000)).encode()
    with served(lambda _: Say(200, padded)) as url, pytest.raises(ServiceError, match="more than"):
        RemoteDatabase(url, "survey", TOKEN)


def _with(**other: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda told: {**told, "answer": {**told["answer"], **other}}


def _without(name: str) -> Callable[[dict[str, Any]], Any]:
    return lambda told: {**told, "answer": {n: v for n, v in told["answer"].items() if n != name}}


def _scaled(name: str, factor: float) -> Callable[[dict[str, Any]], Any]:
    return lambda told: _with(**{name: [factor * v for v in told["answer"][name]]})(told)


def _priced(**other: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda told: _with(cost=[{**told["answer"]["cost"][0], **other}])(told)


@pytest.mark.parametrize(
    "alter",
    [
        lambda _: {},
        lambda _: {"answer": None},
        lambda _: {"answer": [1, 2]},
        _without("sd"),
        _without("receipt"),
        _with(surprise=1),
        _with(kind="model"),
        _with(value=[1.0, 2.0]),
        _with(value=1.0),
        _with(value=[[1.0, 2.0, 3.0]]),
        _with(value=[1.0, 2.0, "3"]),
        _with(value=[1.0, 2.0, None]),
        _with(value=[[1.0], [2.0, 3.0], 4.0]),
        _with(value=[1.0, 2.0, float("nan")]),
        _with(value=[1.0, 2.0, 10**400]),
        _with(value="many"),
        _with(sd=[1.0, 1.0]),
        _scaled("sd", 0.5),
        _scaled("sd", 1.001),
        _scaled("sd", -1.0),
        _with(law="laplace"),
        _with(law="none"),
        _with(cost=[]),
        _with(cost=[{"kind": "no-promise", "reason": "free"}]),
        _priced(mu=0.49),
        _priced(mu=0.6),
        _priced(unit="household"),
        _priced(neighbors="add-remove"),
        lambda told: _with(cost=2 * told["answer"]["cost"])(told),
        _with(receipt={}),
        lambda told: _with(receipt={**told["answer"]["receipt"], "schema": "0" * 64})(told),
        _with(labels=7),
        _with(parts=None),
    ],
)
def test_an_answer_that_is_not_to_this_question_at_this_price_is_refused(
    alter: Callable[[dict[str, Any]], Any],
) -> None:
    with standing_in(retries=0) as (stand_in, db):
        asked = Sums(("age", "share", "age > 4"))
        good = db.ask(asked, privacy=MU)
        stand_in.alter = alter
        with pytest.raises(ServiceError, match="may have been charged") as told:
            db.ask(asked, privacy=MU)
        assert type(told.value) is ServiceError
        stand_in.alter = lambda told: told
        assert np.array_equal(db.ask(asked, privacy=MU).value, good.value)


def test_an_infinite_number_in_json_is_none() -> None:
    with standing_in() as (stand_in, db):
        db.ask(Sums("age"), privacy=MU)
        text = json.dumps({"kind": "answer", "answer": {**_last(stand_in), "value": ["@"]}})
        stand_in.script = [Say(200, text.replace('"@"', "1e999").encode())]
        with pytest.raises(ServiceError, match="numbers that are none"):
            db.ask(Sums("age"), privacy=MU)


def _last(stand_in: StandIn) -> dict[str, Any]:
    return stand_in.database.ask(Sums("age"), privacy=MU).to_dict()


COLUMN = ResultColumn("count", "rows", ResultInterval(0.0, math.inf)).to_dict()
CELL = {"key": [], "column": 0, "value": 1.0, "sd": 0.0, "lower": 1.0, "upper": 1.0}
COUNTED = {
    **{"kind": "answer", "question": "count", "columns": [COLUMN], "by": [], "cells": [CELL], "value": 1.0},
    **{"sd": 0.0, "interval": None, "sums": 1, "simultaneous": 1, "law": "gaussian", "cost": []},
    **{"cost_words": "", "cached": False, "receipts": [], "remaining": {}},
}


def test_groups_by_a_column_with_one_of_our_names_keep_it_apart() -> None:
    cell = {**CELL, "key": ["low"], "value": 3.0, "lower": 3.0, "upper": 3.0}
    told = {**COUNTED, "by": ["value"], "cells": [cell], "value": None, "sd": None}
    columns = QueryResult.from_wire(told).frame.columns
    assert columns["value"] == ["low"]
    assert columns["noisy value"] == [3.0]


@pytest.mark.parametrize(
    "change",
    [
        {"value": float("inf")},
        {"sd": -1.0},
        {"sd": "1"},
        {"cells": [{"key": ["low"], "value": 3.0}]},
        {"cells": []},
        {"cells": [{**CELL, "lower": 0.9}]},
        {"cells": [{**CELL, "lower": None}]},
        {"cells": [{**CELL, "sd": None, "lower": -0.1}], "sd": None},
        {"cells": [{**CELL, "column": 1}]},
        {"cells": [{**CELL, "column": -1}]},
        {"cells": [{**CELL, "column": False}]},
        {"cells": [CELL, CELL], "value": None, "sd": None},
        {"columns": [{**COLUMN, "bounds": {"lower": 2.0, "upper": 3.0}}]},
        {"columns": [{**COLUMN, "bounds": None}]},
        {"columns": [{**COLUMN, "name": None}]},
        {"columns": []},
        {"columns": [COLUMN, COLUMN]},
        {"simultaneous": 0},
        {"sums": "1"},
        {"value": 2.0},
        {"law": "uniform"},
        {"by": ["sex"]},
        {"cost": [{"kind": "no-such-promise"}]},
        {"kind": "model"},
        {"cached": "perhaps"},
    ],
)
def test_a_reply_of_another_shape_is_refused(change: dict[str, Any]) -> None:
    def respond(heard: Heard) -> Say:
        if heard.path == "/v1/datasets/survey/schema":
            return Say.json(public())
        text = json.dumps({**COUNTED, **change} if heard.values["text"] == WRONG else COUNTED)
        return Say(200, text.replace("Infinity", "1e999").encode())

    with served(respond) as url, RemoteDatabase(url, "survey", TOKEN) as db:
        assert db.query("count", privacy=MU).value == 1.0
        with pytest.raises(ServiceError, match=r"cannot be read.*may have been charged"):
            db.query(WRONG, privacy=MU)


@pytest.mark.parametrize(
    "told",
    [
        {},
        {"entries": 7, "rows": 7},
        {"entries": [7], "rows": []},
        {"entries": [{"asked": {}}], "rows": {}},
        {"entries": [{"asked": None, "cost": [], "value": 1, "sd": 1}], "rows": {"age": [1]}},
        {"entries": [{"asked": {}, "cost": [{}], "value": 1, "sd": 1}], "rows": {"age": [1, 2], "job": "ab"}},
    ],
)
def test_a_history_or_made_up_rows_of_another_shape_are_refused(told: dict[str, Any]) -> None:
    def respond(heard: Heard) -> Say:
        return Say.json(public() if heard.path == "/v1/datasets/survey/schema" else told)

    with served(respond) as url, RemoteDatabase(url, "survey", TOKEN) as db:
        with pytest.raises(ServiceError, match="history that cannot be read"):
            db.history()
        with pytest.raises(ServiceError, match="rows that cannot be read"):
            db.dummy(2)


def test_days_come_back_as_days() -> None:
    first, last = datetime.date(2020, 1, 1), datetime.date(2020, 12, 31)
    schema = Schema(columns=[Column("visit", type="date", lower=first, upper=last, required=False)])
    about = public(schema=schema.to_dict(), digest=schema.digest)
    rows = {"visit": ["2020-02-29", None], "_dummy": [True, True]}
    with (
        served(
            lambda h: Say.json(about if h.path == "/v1/datasets/survey/schema" else {"rows": rows})
        ) as url,
        RemoteDatabase(url, "survey", TOKEN) as db,
    ):
        told = db.dummy(2)
    assert told.columns["visit"] == [datetime.date(2020, 2, 29), None]
    assert repr(told) == "Frame(2 rows: visit, _dummy)"


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_a_frame_without_its_library_names_it(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(MissingExtra, match=f"pip install {library}"):
        getattr(Frame({"a": [1]}), f"to_{library}")()


def test_what_follows_from_public_facts_costs_nothing() -> None:
    with standing_in() as (stand_in, db):
        answer = db.ask(Sums("3"), privacy=MU)
        assert (answer.value, answer.sd, answer.cost) == (3.0 * N_ROWS, 0.0, ())
        assert stand_in.ledger.spent().charges == 0
        stand_in.alter = _with(cost=[MU.to_dict()])
        with pytest.raises(ServiceError, match="another price"):
            db.ask(Sums("3"), privacy=MU)
