"""A history longer than a page: every charge once, in order, whatever happens between pages."""

from __future__ import annotations

import csv
import io
import json
from typing import TYPE_CHECKING, Any

import pytest

from discreet import RemoteDatabase
from discreet.client import responses
from discreet.errors import (
    ServiceError,
)
from discreet.server import accounting
from discreet.server.callers import Caller
from discreet.server.pages.history import paid_queries
from tests.server.scripted import Heard, Say, served
from tests.server.stand_in import TOKEN, public

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.server.conftest import RunningService

CHARGES = 8


def ask(service: RunningService, k: int, who: str = "ana") -> None:
    question = {"kind": "count", "where": f"age > {k}", "privacy": {"kind": "zcdp", "rho": 0.001}}
    assert service.ask(question, who).status_code == 200


@pytest.fixture
def asked(service: RunningService) -> RunningService:
    for k in range(CHARGES):
        ask(service, k)
        ask(service, k, "ben")
    return service


@pytest.fixture
def ana(asked: RunningService, monkeypatch: pytest.MonkeyPatch) -> Iterator[RemoteDatabase]:
    monkeypatch.setattr(responses, "_PAGE", 3)
    with RemoteDatabase(asked.url, "town", asked.tokens["ana"]) as db:
        yield db


def rows_of(service: RunningService, who: str = "ana") -> list[int | None]:
    return [receipt.seq for receipt in service.backend.dataset.ledger.history(who)]


def watched(
    db: RemoteDatabase, monkeypatch: pytest.MonkeyPatch, between: Callable[[], None] = lambda: None
) -> list[int]:
    """Count the charges on each page that a client fetches, doing something after the first one."""
    sizes: list[int] = []
    get = db._transport.get

    def counting(path: str, **parameters: Any) -> Any:
        told = get(path, **parameters)
        sizes.append(len(told["entries"]))
        if len(sizes) == 1:
            between()
        return told

    monkeypatch.setattr(db._transport, "get", counting)
    return sizes


# As the service tells it.


def test_equal_charges_of_a_model_are_one_line_of_the_page(service: RunningService) -> None:
    ask(service, 1)
    model = {"kind": "kmeans", "privacy": {"kind": "zcdp", "rho": 0.01}, "parameters": {"max_iter": 3}}
    assert service.ask(model).status_code == 200
    entries = service.backend.history(Caller("ana", 1, {"town": "analyst"}), last=100)
    lines = paid_queries(entries)
    assert sorted(receipt for line in lines for receipt in line.receipts) == sorted(
        entry["receipt"] for entry in entries
    )
    assert len({(line.question, line.when) for line in lines}) == len(lines) < len(entries)
    assert sum(len(line.cost) for line in lines) == len(entries)


def test_the_oldest_can_be_fetched_page_by_page(asked: RunningService) -> None:
    get = asked.client().get
    page = get("/v1/datasets/town/history?first=3").json()
    assert [entry["row"] for entry in page["entries"]] == rows_of(asked)[:3]
    assert page["more"] is True
    after = page["entries"][-1]["row"]
    rest = get(f"/v1/datasets/town/history?first={CHARGES - 3}&after={after}").json()
    assert [entry["row"] for entry in rest["entries"]] == rows_of(asked)[3:]
    assert rest["more"] is False
    newest = get("/v1/datasets/town/history?last=3").json()
    assert [entry["row"] for entry in newest["entries"]] == rows_of(asked)[-3:]
    assert newest["more"] is False
    assert page["entries"] == get("/v1/datasets/town/history").json()["entries"][:3]


@pytest.mark.parametrize("query", ["first=0", "first=10001", "first=x", "first=2&last=2"])
def test_a_page_of_nothing_or_from_both_ends_is_refused(shared_service: RunningService, query: str) -> None:
    told = shared_service.client().get(f"/v1/datasets/town/history?{query}")
    assert told.status_code == 422
    assert told.json()["error"]["details"]["fields"] == ["first"]


# As a client reads it.


def test_a_client_reads_all_of_its_own_pages(
    asked: RunningService, ana: RemoteDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = watched(ana, monkeypatch)
    history = ana.history()
    assert history.columns["row"] == rows_of(asked)
    assert sizes == [3, 3, 2]
    entries = asked.client().get("/v1/datasets/town/history").json()["entries"]
    assert history.columns["value"] == [entry["value"][0] for entry in entries]
    assert ana.history(after=history.columns["row"][3]).columns["row"] == rows_of(asked)[4:]


def test_a_page_that_ended_early_is_followed_too(
    asked: RunningService, ana: RemoteDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accounting, "MAX_BYTES", 1)  # one charge on each page
    sizes = watched(ana, monkeypatch)
    assert ana.history().columns["row"] == rows_of(asked)
    assert sizes == [1] * CHARGES
    assert ana.history(last=5).columns["row"] == rows_of(asked)[-5:]
    assert sizes == [1] * (CHARGES + 5)


@pytest.mark.parametrize("last", [None, 5])
def test_what_is_asked_meanwhile_leaves_no_hole(
    asked: RunningService, ana: RemoteDatabase, monkeypatch: pytest.MonkeyPatch, last: int | None
) -> None:
    monkeypatch.setattr(accounting, "MAX_BYTES", 1)
    first = rows_of(asked)

    def more() -> None:
        for k in range(50, 54):
            ask(asked, k)

    watched(ana, monkeypatch, more)
    found = ana.history(last=last).columns["row"]
    assert found == (rows_of(asked) if last is None else first[-5:])


def test_nothing_that_was_paid_is_a_short_history(service: RunningService) -> None:
    with RemoteDatabase(service.url, "town", service.tokens["ben"]) as db:
        assert len(db.history()) == 0


@pytest.mark.parametrize(
    "page",
    [
        {"entries": [], "more": True},
        {"entries": [7], "more": True},
        {"entries": [1, 1], "more": False},
        {"entries": [2, 1], "more": False},
        {"entries": [1], "more": 1},
        {"entries": [1]},
    ],
)
def test_pages_that_have_no_end_or_go_back_are_refused(page: dict[str, Any]) -> None:
    entry = {
        "when": "", "receipt": "a-1", "what": "sums", "asked": {"said": "count"}, "value": [1.0], "sd": [1.0],
        "law": "gaussian", "cost": [],
    }  # fmt: skip
    told = {**page, "entries": [{**entry, "row": row} for row in page["entries"]]}

    def respond(heard: Heard) -> Say:
        return Say.json(public() if heard.path == "/v1/datasets/survey/schema" else told)

    with (
        served(respond) as url,
        RemoteDatabase(url, "survey", TOKEN) as db,
        pytest.raises(ServiceError, match="history that cannot be read"),
    ):
        db.history()


PRIVACY = {"kind": "gaussian-dp", "mu": 0.1}


COUNT = {"kind": "count", "where": "age > 40", "privacy": PRIVACY}


def test_a_history_of_nothing_is_refused_as_the_document_says(shared_service: RunningService) -> None:
    client = shared_service.client()
    assert client.get("/v1/datasets/town/history?last=0").status_code == 422
    assert client.get("/v1/datasets/town/history?last=1").status_code == 200
    assert client.get("/v1/datasets/town/dummy?seed=0").status_code == 200


def test_a_history_leaves_out_very_large_answers_and_ends_a_page_that_grows_too_large(
    service: RunningService, monkeypatch: pytest.MonkeyPatch
) -> None:
    for by in (["age", "sex"], ["age", "city"]):  # 363 and 605 cells
        assert service.ask({"kind": "count", "by": by, "privacy": PRIVACY}).status_code == 200
    for k in range(5):
        service.ask({**COUNT, "where": f"age > {k}"})
    client = service.client()
    whole = client.get("/v1/datasets/town/history").json()
    values = [entry["value"] for entry in whole["entries"]]
    assert [value is None for value in values] == [False] * 7
    assert not whole["more"]
    assert accounting.MAX_VALUES == 4096
    monkeypatch.setattr(accounting, "MAX_VALUES", 604)
    values = [entry["value"] for entry in client.get("/v1/datasets/town/history").json()["entries"]]
    assert [value is None for value in values] == [False, True] + [False] * 5
    monkeypatch.setattr(accounting, "MAX_VALUES", 605)
    assert client.get("/v1/datasets/town/history").json() == whole
    monkeypatch.setattr(accounting, "MAX_BYTES", 20_000)
    found, after = [], 0
    for _ in range(10):
        page = client.get(f"/v1/datasets/town/history?after={after}").json()
        found += page["entries"]
        after = found[-1]["row"]
        if not page["more"]:
            break
        assert len(page["entries"]) < 7
    assert [entry["row"] for entry in found] == [entry["row"] for entry in whole["entries"]]
    assert len(found) > len(page["entries"])


def test_text_that_a_spreadsheet_would_run_is_marked_and_numbers_are_not(
    start: Callable[..., RunningService],
) -> None:
    service = start()
    asked = {"kind": "sum", "expression": "0 - income", "privacy": PRIVACY}
    assert service.ask(asked).json()["value"] < 0
    from discreet.server.api.csv_response import _csv_cell

    assert _csv_cell("-2+3+cmd|' /C calc'!A0") == "'-2+3+cmd|' /C calc'!A0"
    assert _csv_cell(-2.5) == -2.5
    (row,) = csv.DictReader(io.StringIO(service.client().get("/v1/datasets/town/history?format=csv").text))
    assert float(row["value"]) < 0


def test_a_history_as_csv_has_a_row_for_each_number_that_was_answered(service: RunningService) -> None:
    asked = {"kind": "sentence", "text": "mean(age) by sex", "privacy": PRIVACY}
    cells = service.ask(asked).json()["cells"]
    service.ask(
        {"kind": "statistical", "question": {"kind": "sums", "expressions": ["age", "1"]}, "privacy": PRIVACY}
    )
    text = service.client("cura").get("/v1/datasets/town/history?format=csv").text
    rows = list(csv.DictReader(io.StringIO(text)))
    numbers = [row for row in rows if row["question"] == "mean(age) by sex" and row["value"]]
    assert len(numbers) == len(cells) == 3
    for row, cell in zip(numbers, cells, strict=True):
        assert [row["group"]] == cell["key"]
        for name in ("value", "lower", "upper"):
            assert row[name] == ("" if cell[name] is None else str(cell[name]))
        assert row["confidence"] == ("" if cell["lower"] is None else "0.95")
        assert row["who"] == "ana"
    # A library's own aggregate has its numbers together, without an interval.
    assert len(json.loads(rows[-1]["value"])) == 2
    assert rows[-1]["confidence"] == ""


def test_nobody_is_given_their_own_history_under_the_name_of_another(service: RunningService) -> None:
    service.ask(COUNT, "ben")
    client = service.client("ana")
    assert client.get("/v1/datasets/town/history", params={"analyst": "ben"}).status_code == 403
    assert client.get("/v1/datasets/town/history", params={"analyst": "ana"}).json()["entries"] == []
