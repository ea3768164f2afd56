"""Pages of jobs without a script: starting one, how far it is, its answer, canceling it."""

from __future__ import annotations

import csv
import time
from typing import TYPE_CHECKING, Any

import pytest

from discreet.client import ModelResult
from discreet.query import Answer, QueryResult, Sums
from discreet.server.jobs import OPEN, StoredJob
from discreet.server.pages import ask
from discreet.server.pages.jobs import job_view
from tests.server.markup import Element, Visitor, owes_nothing
from tests.server.test_jobs import KMEANS, RHO, Gate, created, gate

if TYPE_CHECKING:
    from tests.server.conftest import RunningService

__all__ = ["gate"]

JOBS = "/datasets/town/jobs"
HOSTILE = "count where city = '<script>window.pwned = 1</script>'"


def ended(visitor: Visitor, place: str) -> Element:
    """Load the page of a job until it has ended."""
    while True:
        page = visitor.get(place)
        if next(page.all(None, id=f"job-{place.rpartition('/')[2]}")).attributes["data-state"] not in OPEN:
            return page
        time.sleep(0.01)


def started(visitor: Visitor, **fields: str) -> str:
    """Start a question as a job from the ask page, and return the address of its page."""
    response = visitor.send(visitor.get("/datasets/town"), "/datasets/town/ask", do="job", **fields)
    assert response.status_code == 303, response.text[:2000]
    place: str = response.headers["location"]
    assert place.startswith(f"{JOBS}/")
    return place


def test_a_question_runs_as_a_job_and_its_page_shows_the_answer(service: RunningService) -> None:
    visitor = Visitor(service)
    owes_nothing(visitor.get(JOBS))
    assert "No jobs yet" in visitor.get(JOBS).text
    place = started(visitor, by1="city", amount="0.1")
    page = ended(visitor, place)
    owes_nothing(page)
    assert len(list(page.one("table", class_="groups").one("tbody").all("tr"))) == 5
    assert "connect(" in page.one("pre", id="answer-python").text
    assert service.backend.dataset.ledger.spent("ana").charges == 1
    rows = list(csv.reader(visitor.client.get(f"{place}/answer.csv").text.splitlines()))
    assert rows[0] == ["city", "statistic", "value", "lower", "upper", "unit"]
    assert len(rows) == 6
    assert visitor.client.get(f"{place}/answer.svg").headers["content-type"] == "image/svg+xml"
    assert visitor.client.get(f"{place}/answer.json").json()["receipts"]
    assert visitor.client.get(f"{place}/answer.exe").status_code == 404
    overview = visitor.get(JOBS)
    owes_nothing(overview)
    (row,) = overview.all("li", class_="job")
    assert row.one("a").attributes["href"] == place
    assert row.one("a").text == "count by city"
    assert "1 step" in row.text
    assert "sent just now" in row.text


def test_a_form_that_is_sent_twice_starts_one_job(service: RunningService) -> None:
    visitor = Visitor(service)
    page = visitor.get("/datasets/town")
    places = {
        visitor.send(page, "/datasets/town/ask", do="job", where="age > 40").headers["location"]
        for _ in range(2)
    }
    assert len(places) == 1


def test_a_mistake_is_shown_at_its_field_and_starts_no_job(service: RunningService) -> None:
    visitor = Visitor(service)
    response = visitor.send(visitor.get("/datasets/town"), "/datasets/town/ask", do="job", where="age >")
    assert response.status_code == 422
    assert 'id="where-problem">' in response.text
    assert service.whole.jobs.jobs_of("town", "ana") == []


def test_only_long_questions_offer_a_job_and_say_how_long(
    shared_service: RunningService, monkeypatch: pytest.MonkeyPatch
) -> None:
    visitor = Visitor(shared_service)

    def priced() -> Element:
        response = visitor.send(visitor.get("/datasets/town"), "/datasets/town/ask", do="price", by1="sex")
        return Visitor.read(response)

    assert "hidden" in priced().one("button", id="job-button").attributes
    monkeypatch.setattr(ask, "LONG_WORK", 0.0)
    page = priced()
    assert "hidden" not in page.one("button", id="job-button").attributes
    assert "of computing time." in page.one(id="price").text


def test_a_job_that_runs_is_canceled_by_a_form_that_refunds_nothing(
    service: RunningService, gate: Gate
) -> None:
    visitor = Visitor(service)
    place = started(visitor, where="age > 20")
    gate.came.acquire()
    page = visitor.get(place)
    owes_nothing(page)
    assert "Nothing is refunded" in page.text
    assert page.one("progress").attributes["value"] == "0"
    assert visitor.client.post(f"{place}/cancel", data={"csrf": "x"}).status_code == 403
    assert visitor.client.get(f"{place}/cancel").status_code == 405
    assert "being canceled" not in visitor.get(place).text
    assert visitor.send(page, f"{place}/cancel").headers["location"] == place
    assert "being canceled" in visitor.get(place).text
    listed = visitor.get("/datasets/town/jobs").text
    assert "It ends before its next step. What was charged until then stays charged." in listed
    gate.open.set()
    page = ended(visitor, place)
    owes_nothing(page)
    assert not list(page.all("form", action=f"{place}/cancel"))


def test_jobs_of_others_cannot_be_told_from_none(service: RunningService) -> None:
    visitor, other = Visitor(service), Visitor(service, "ben")
    place = started(visitor, where="age > 20")
    ended(visitor, place)
    missing = f"{JOBS}/{'0' * 32}"
    for who in (other, Visitor(service, "cura")):
        for end in ("", "/answer.csv", "/answer.json"):
            own, none = who.client.get(place + end), who.client.get(missing + end)
            assert own.status_code == none.status_code == 404
            assert own.text == none.text
        token = who.csrf()
        refused = [who.client.post(f"{one}/cancel", data={"csrf": token}) for one in (place, missing)]
        assert {one.status_code for one in refused} == {404}
        assert not list(who.get(JOBS).all("li", class_="job"))


def test_a_refused_job_says_why_and_what_to_do(service: RunningService) -> None:
    visitor = Visitor(service)
    page = ended(visitor, started(visitor, where="age > 20", amount="500"))
    owes_nothing(page)
    assert "refused" in page.text
    assert "Nothing was charged" in page.text, page.one("main").text
    assert not list(page.all(None, class_="answer"))


def test_an_answer_is_withheld_while_the_data_set_is_stopped(service: RunningService) -> None:
    visitor = Visitor(service)
    place = started(visitor, where="age > 20")
    assert list(ended(visitor, place).all(None, class_="answer"))
    service.backend.stop(service.whole.access.find(service.tokens["cura"]))  # type: ignore[arg-type]
    page = visitor.get(place)
    owes_nothing(page)
    assert "withholds the answer" in page.text
    assert not list(page.all(None, class_="answer"))
    assert visitor.client.get(f"{place}/answer.csv").status_code == 423


def test_a_model_is_trained_from_its_form(service: RunningService) -> None:
    visitor = Visitor(service)
    sent = visitor.send(visitor.get(JOBS), JOBS, model="kmeans", amount="0.1", options="n_clusters = 2")
    assert sent.status_code == 303, sent.text[:2000]
    page = ended(visitor, sent.headers["location"])
    owes_nothing(page)
    assert "n_clusters = 2" in page.text
    assert "cluster_centers_" in page.one("pre", id="answer-json").text
    place = sent.headers["location"]
    assert visitor.client.get(f"{place}/answer.json").json()["learner"] == "kmeans"
    assert visitor.client.get(f"{place}/answer.csv").status_code == 404
    sent = visitor.send(visitor.get(JOBS), JOBS, model="id3", target="owner", amount="0.1")
    assert ended(visitor, sent.headers["location"]).one("h1").text == "Model: decision tree (ID3)"


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"amount": "none"}, "Give a number above 0."),
        ({"options": "many"}, "name = value"),
        ({"options": "ledger = 3"}, "must be among"),
        ({"model": "oracle"}, "Choose a model from the list."),
        ({"model": "id3", "target": "nothing"}, "declared columns"),
        ({"exact": "margin"}, "Choose what the number means."),
    ],
)
def test_a_model_with_a_wrong_field_is_not_started(
    shared_service: RunningService, fields: dict[str, str], words: str
) -> None:
    visitor = Visitor(shared_service)
    response = visitor.send(visitor.get(JOBS), JOBS, **fields)
    assert response.status_code == 422
    page = Visitor.read(response)
    owes_nothing(page)
    assert words in page.text
    assert visitor.client.post(JOBS, data={**fields, "csrf": "wrong"}).status_code == 403
    assert shared_service.whole.jobs.jobs_of("town", "ana") == []


def test_jobs_of_programs_are_shown_too_and_hostile_questions_are_text(service: RunningService) -> None:
    client = service.client()
    bodies: list[dict[str, Any]] = [
        {"kind": "histogram", "columns": ["sex"], "privacy": RHO},
        {"kind": "sentence", "text": HOSTILE, "privacy": RHO},
        KMEANS,
        {"kind": "statistical", "question": {"kind": "count"}, "privacy": RHO},
    ]
    places = [f"{JOBS}/{created(client, body)['id']}" for body in bodies]
    visitor = Visitor(service)
    for place in places:
        page = ended(visitor, place)
        owes_nothing(page)
        assert not any("pwned" in script.text for script in page.all("script"))
    overview = visitor.get(JOBS)
    owes_nothing(overview)
    assert HOSTILE in overview.text


@pytest.mark.parametrize(
    ("body", "kind", "words"),
    [
        (KMEANS, ModelResult, "Use this model in a notebook"),
        ({"kind": "histogram", "columns": ["sex"], "privacy": RHO}, QueryResult, "Use this answer in a"),
        (
            {"kind": "statistical", "question": Sums(("age", "income")).to_dict(), "privacy": RHO},
            Answer,
            "Use this answer in a notebook",
        ),
        ({"kind": "count", "privacy": RHO}, QueryResult, "Use this answer in a"),
    ],
)
def test_the_notebook_cell_of_every_job_runs_and_gets_its_result_for_free(
    service: RunningService, monkeypatch: pytest.MonkeyPatch, body: dict[str, Any], kind: type, words: str
) -> None:
    monkeypatch.setenv("DISCREET_TOKEN", service.tokens["ana"])
    job = created(service.client(), body)["id"]
    page = ended(Visitor(service), f"{JOBS}/{job}")
    assert words in page.text
    assert ("Parameters" in page.text) == (body is KMEANS)
    spent = service.backend.dataset.ledger.spent("ana")
    names: dict[str, Any] = {}
    exec(page.one(id="answer-python").text, names)
    names["table"].close()
    # What can be asked as a text is asked again.
    assert type(names["answer" if "answer" in names else "result"]) is kind
    assert service.backend.dataset.ledger.spent("ana") == spent


def job(**changed: Any) -> StoredJob:
    plain: dict[str, Any] = {
        "id": "a",
        "dataset": "town",
        "kind": "count",
        "question": "count",
        "state": "running",
        "done": 3,
        "planned": 10,
        "created": 1000.0,
        "ended": None,
        "error": None,
    }
    return StoredJob(**(plain | changed))


@pytest.mark.parametrize(
    ("changed", "steps", "age"),
    [
        ({}, "3 of 10 steps", "sent 2 minutes ago"),
        ({"planned": None, "done": 0, "state": "waiting"}, "not begun", "sent 2 minutes ago"),
        (
            {"state": "done", "done": 10, "ended": 1007.0},
            "10 steps",
            "sent 2 minutes ago, took 7 seconds",
        ),
        (
            {"state": "interrupted", "ended": 1090.0},
            "3 of 10 steps",
            "sent 2 minutes ago, ended after 1 minute",
        ),
        ({"created": 1120.0}, "3 of 10 steps", "sent just now"),
    ],
)
def test_progress_and_age_are_told_in_words(changed: dict[str, Any], steps: str, age: str) -> None:
    view = job_view(job(**changed), "/datasets/town", 1130.0)
    assert (view.steps, view.age) == (steps, age)


def test_a_job_that_the_service_could_not_finish_says_what_that_means() -> None:
    view = job_view(job(state="interrupted", ended=1090.0), "/datasets/town", 1130.0)
    assert view.badge == ("warn", "ended early")
    assert view.note.startswith("The service was stopped before this job finished.")
    assert view.hint.startswith("Ask the same question again")
