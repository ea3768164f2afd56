"""The cookbook's answers are those of the code, in Python, on the command line, over HTTP and on the page."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest
from docs.generate_cookbook import LIMIT, PAGE, RHO, SEED, answer_questions, read_questions, write_page

from discreet import Ledger, RemoteDatabase
from discreet.noise import Stream
from discreet.privacy import Spending
from discreet.query import execution
from discreet.query.calibration import SeededNoise
from discreet.query.intervals import interval_width
from tests.cli.run import discreet
from tests.server.conftest import running
from tests.server.markup import Visitor, read

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from discreet.privacy import Promise
    from discreet.query.results import QueryResult

TEXT = PAGE.read_text("utf-8")
QUESTIONS = read_questions(TEXT)
CAPS = {"epsilon": LIMIT.epsilon, "delta": LIMIT.delta}


@pytest.fixture(scope="module")
def results() -> list[QueryResult]:
    return answer_questions(QUESTIONS)


def test_the_page_says_what_the_code_answers() -> None:
    assert write_page(TEXT) == TEXT, "run python docs/generate_cookbook.py"


def test_there_are_thirty_questions_and_they_cost_what_the_page_says(results: list[QueryResult]) -> None:
    assert [question.number for question in QUESTIONS] == list(range(1, 31))
    assert len({question.title for question in QUESTIONS}) == 30
    spent = sum((Spending.from_promises(one) for result in results for one in result.charged), Spending())
    (said,) = re.findall(r"rho ([\d.]+) together, which is epsilon ([\d.]+) at delta 1e-6", TEXT)
    assert f"{float(spent.rho):.2f}" == said[0]
    assert f"{spent.epsilon_at(1e-6):.3f}" == said[1]
    free = [question.number for question, one in zip(QUESTIONS, results, strict=True) if not one.charged]
    assert free == [1, 19]


def test_the_two_groups_that_are_compared_differ_by_more_than_the_noise(results: list[QueryResult]) -> None:
    planned, emergency, transfer = results[15].cells
    assert planned.upper < emergency.lower
    assert transfer.lower < planned.upper < emergency.lower < transfer.upper


def numbers(answer: dict[str, Any]) -> dict[str, Any]:
    """Return what a door says of an answer, in the words of the HTTP interface."""
    named = [
        {name: column[name] for name in ("name", "measure", "bounds", "first_day")}
        for column in answer["columns"]
    ]
    kept = ("question", "by", "law", "sums", "simultaneous", "cached", "cost")
    cells = answer.get("cells", answer.get("answers"))
    return {"columns": named, "cells": cells, **{name: answer[name] for name in kept}}


def ask_by_command(folder: Path) -> Iterator[dict[str, Any]]:
    limit = ("--epsilon", str(LIMIT.epsilon), "--delta", str(LIMIT.delta), "--unit", LIMIT.unit)
    assert discreet("ledger", "create", "office.ledger", *limit, cwd=folder).code == 0
    receipts: dict[str, str] = {}
    for question in QUESTIONS:
        flags = ["--rho", str(RHO)] if question.sd is None else ["--sd", str(question.sd)]
        if question.is_refined:
            flags += ["--refine", receipts[question.sql]]
        asked = ("demo:hospital", question.sql, *flags, "--ledger", "office.ledger", "--json")
        done = discreet("query", *asked, cwd=folder)
        assert done.code == 0, (question, done.err)
        answer = json.loads(done.out)
        receipts[question.sql] = (answer["receipts"] or [""])[0]
        yield answer


def ask_by_client(service: Any) -> Iterator[dict[str, Any]]:
    receipts: dict[str, tuple[str, ...]] = {}
    with RemoteDatabase(service.url, "made-up-hospital", service.tokens["ana"]) as db:
        for question in QUESTIONS:
            refines = receipts[question.sql] if question.is_refined else ()
            result = db.query(question.sql, refines=refines, **question.price)
            receipts[question.sql] = result.receipts
            yield result.to_wire()


def ask_by_page(service: Any) -> Iterator[dict[str, Any]]:
    visitor = Visitor(service)
    places: dict[str, str] = {}
    for question in QUESTIONS:
        exact = {"exact": "rho", "amount": str(RHO)}
        if question.sd is not None:
            exact = {"exact": "margin", "amount": repr(question.sd * interval_width("gaussian"))}
        if question.is_refined:
            form = visitor.get(places[question.sql])
            response = visitor.send(form, "/datasets/made-up-hospital/refine", **exact)
        else:
            form = visitor.get("/datasets/made-up-hospital")
            response = visitor.send(
                form, "/datasets/made-up-hospital/ask", do="ask", source="sql", sql=question.sql, **exact
            )
        place = response.headers.get("location")
        page = read(response.text) if place is None else visitor.get(place)
        places[question.sql] = place or ""
        yield json.loads(page.one(id="answer-json").text)


def charges(ledger: Ledger) -> list[tuple[Promise, ...]]:
    return [tuple(entry.receipt.promises) for entry in ledger.entries()]


@pytest.mark.parametrize(
    "door",
    [pytest.param("command", marks=pytest.mark.slow), "client", pytest.param("page", marks=pytest.mark.slow)],
)
def test_every_door_gives_the_same_answers_at_the_same_cost(
    door: str, results: list[QueryResult], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = [numbers(result.to_wire()) for result in results]
    if door == "command":
        # Every command opens the table anew; their noise is that of one seed all the same.
        noise = SeededNoise(Stream.from_seed(SEED))
        monkeypatch.setattr(execution, "Pool", lambda: noise)
        found = [numbers(answer) for answer in ask_by_command(tmp_path)]
        with Ledger.open(tmp_path / "office.ledger") as ledger:
            paid = charges(ledger)
    else:
        settings: dict[str, Any] = {"dataset": "made-up-hospital", "table": "demo:hospital", "seed": SEED}
        with running(tmp_path, **settings, limit=CAPS, analyst_limit=CAPS) as service:
            ask = ask_by_client if door == "client" else ask_by_page
            found = [numbers(answer) for answer in ask(service)]
            paid = charges(service.whole.datasets["made-up-hospital"].dataset.ledger)
    for question, one, other in zip(QUESTIONS, found, expected, strict=True):
        assert one == other, question
    assert paid == [result.charged for result in results if result.charged]
