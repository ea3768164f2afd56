"""What a preview says about what was paid before: the caller's own charges, for exactly what is asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from discreet.ledger import Ledger
from discreet.query import Histogram
from tests.server.markup import Visitor, read

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.server.conftest import RunningService

RHO = {"kind": "zcdp", "rho": 0.01}
COUNT = {"kind": "count", "where": "age > 40", "privacy": RHO}
MEANS = {"kind": "mean", "expression": "income", "by": ["sex"], "privacy": RHO}
QUESTIONS: dict[str, dict[str, Any]] = {
    "count": COUNT,
    "sum by groups": {"kind": "sum", "expression": "income", "by": ["sex"], "privacy": RHO},
    "mean": {"kind": "mean", "expression": "age", "where": "sex = 'f'", "privacy": RHO},
    "mean by groups": MEANS,
    "histogram": {"kind": "histogram", "columns": ["sex", "city"], "sd": 20.0},
    "sentence": {"kind": "sentence", "text": "count where age < 20 by city", "privacy": RHO},
    "select": {"kind": "sentence", "text": "SELECT SUM(income) FROM town WHERE age > 9", "sd": 1e6},
    "laplace": {"kind": "count", "where": "age > 3", "privacy": {"kind": "pure-dp", "epsilon": 0.1}},
    "statistical": {"kind": "statistical", "question": Histogram(["sex"]).to_dict(), "privacy": RHO},
    "variance": {"kind": "statistical", "question": Histogram(["city"]).to_dict(), "variance": 400.0},
}


def preview(service: RunningService, question: dict[str, Any], who: str = "ana") -> dict[str, Any]:
    response = service.client(who).post("/v1/datasets/town/preview", json=question)
    assert response.status_code == 200, response.text
    told: dict[str, Any] = response.json()
    return told


@pytest.mark.parametrize("name", list(QUESTIONS))
def test_what_was_paid_is_free_and_was_not_before(shared_service: RunningService, name: str) -> None:
    service, question = shared_service, QUESTIONS[name]
    before = preview(service, question)
    assert not before["free"]
    assert not service.ask(question).json()["cached"]
    head = service.backend.dataset.ledger.head
    after = preview(service, question)
    assert after["free"]
    assert after["cost"] == before["cost"] != []
    assert service.backend.dataset.ledger.head == head
    again = service.ask(question).json()
    assert again["cached"]
    assert service.backend.dataset.ledger.head == head


@pytest.mark.parametrize(
    "other",
    [
        {**COUNT, "privacy": {"kind": "zcdp", "rho": 0.010001}},
        {**COUNT, "where": "age > 41"},
        {**COUNT, "where": "age > 40 AND age > 40 AND sex = 'f'"},
        {**COUNT, "by": ["sex"]},
        {"kind": "sum", "expression": "age", "where": "age > 40", "privacy": RHO},
    ],
)
def test_another_question_or_price_is_not_free(shared_service: RunningService, other: dict[str, Any]) -> None:
    shared_service.ask(COUNT)
    assert preview(shared_service, COUNT)["free"]
    assert not preview(shared_service, other)["free"]
    assert not shared_service.ask(other).json()["cached"]


def test_the_same_in_other_words_is_free(service: RunningService) -> None:
    service.ask(COUNT)
    said = {"kind": "sentence", "text": "SELECT COUNT(*) FROM town WHERE 40 < age", "privacy": RHO}
    assert preview(service, said)["free"]
    assert service.ask(said).json()["cached"]


# What others asked.


def tells_of_others(service: RunningService) -> bool:
    """Whether Ben can tell from previews which of two questions Ana asked, none of which he has paid for."""
    service.ask(COUNT, "ana")
    asked = preview(service, COUNT, "ben")
    not_asked = preview(service, {**COUNT, "where": "age > 39"}, "ben")
    for told in (asked, not_asked):
        del told["question"], told["sql"]
    return asked != not_asked


def test_a_preview_does_not_tell_what_somebody_else_has_asked(service: RunningService) -> None:
    assert not tells_of_others(service)
    # He would pay his share, and only then is it free to him too.
    assert service.ask(COUNT, "ben").status_code == 200
    assert service.backend.dataset.ledger.spent("ben").charges == 1
    assert preview(service, COUNT, "ben")["free"]


def test_a_preview_that_counted_everybodys_charges_would_tell(
    service: RunningService, monkeypatch: pytest.MonkeyPatch
) -> None:
    truly = Ledger.has_paid
    monkeypatch.setattr(Ledger, "has_paid", lambda self, question, _: truly(self, question))
    assert tells_of_others(service)


# Several sums behind one question.


def test_a_mean_by_groups_is_one_question_that_its_counts_do_not_pay_for(service: RunningService) -> None:
    counts = {"kind": "count", "by": MEANS["by"], "privacy": MEANS["privacy"]}
    assert service.ask(counts).status_code == 200
    assert not preview(service, MEANS)["free"]
    assert service.ask(MEANS).json()["cached"] is False
    assert service.backend.dataset.ledger.spent("ana").charges == 2
    assert preview(service, MEANS)["free"]


# Refinements, rows, failures, models.


@pytest.mark.parametrize(
    "question", [COUNT, MEANS, QUESTIONS["statistical"]], ids=lambda one: str(one["kind"])
)
def test_a_refinement_is_a_question_of_its_own(service: RunningService, question: dict[str, Any]) -> None:
    refined = {**question, "refines": service.ask(question).json()["receipts"]}
    assert preview(service, question)["free"]
    assert not preview(service, refined)["free"]
    assert not service.ask(refined).json()["cached"]
    assert preview(service, refined)["free"]
    assert service.ask(refined).json()["cached"]


def test_a_refinement_of_somebody_elses_answer_is_refused_as_it_would_be(service: RunningService) -> None:
    receipts = service.ask(COUNT, "ben").json()["receipts"]
    refined = {**COUNT, "refines": receipts}
    asked, priced = service.ask(refined), service.client().post("/v1/datasets/town/preview", json=refined)
    assert asked.status_code == priced.status_code == 422
    assert asked.json()["error"]["message"] == priced.json()["error"]["message"]


def test_other_rows_are_to_be_paid_for_again(start: Callable[..., RunningService]) -> None:
    first = start(version="of May")
    first.ask(COUNT)
    assert preview(first, COUNT)["free"]
    second = start(first.tokens, version="of June")
    assert not preview(second, COUNT)["free"]


def test_what_was_paid_and_never_answered_is_free(service: RunningService) -> None:
    service.backend.dataset.database._engine.close()
    assert service.ask(COUNT).status_code == 503
    assert preview(service, COUNT)["free"]
    assert service.backend.dataset.ledger.spent().charges == 1


def test_of_a_model_it_is_not_told(service: RunningService) -> None:
    model = {"kind": "kmeans", "privacy": {"kind": "zcdp", "rho": 0.5}, "parameters": {"n_clusters": 2}}
    assert service.ask(model).status_code == 200
    assert not preview(service, model)["free"]


# On the page.


def test_the_page_says_already_paid_to_whoever_paid(service: RunningService) -> None:
    form = {"where": "age > 40", "exact": "rho", "amount": "0.01"}
    service.ask(COUNT)
    seen = {}
    for who in ("ana", "ben"):
        visitor = Visitor(service, who)
        shown = read(
            visitor.send(visitor.get("/datasets/town"), "/datasets/town/ask", do="price", **form).text
        )
        seen[who] = (shown.one(id="price").text, shown.one(id="ask-button").text)
    assert "already paid: free" in seen["ana"][0]
    assert seen["ana"][1] == "Ask: free"
    assert "free" not in seen["ben"][0]
    assert "costs" in seen["ben"][1]


def test_the_margin_of_a_mean_by_groups_is_told_before_and_by_group_once_they_were_counted(
    service: RunningService,
) -> None:
    before = preview(service, MEANS)
    levels = len(service.backend.dataset.schema.column("sex").levels)
    assert before["n_rows"] * levels == pytest.approx(service.backend.dataset.database.n_rows)
    assert 0 < before["margin"] <= 50_000
    assert before["expected"] == []
    visitor = Visitor(service)
    asked = {"do": "price", "verb": "mean", "of": "income", "by1": "sex", "amount": "0.01"}
    told = (
        read(visitor.send(visitor.get("/datasets/town"), "/datasets/town/ask", **asked).text)
        .one(id="price")
        .text
    )
    assert f"in a group of {before['n_rows']:,.0f} rows (rows split evenly; 95 %)" in told
    counted = service.ask({"kind": "count", "by": ["sex"], "privacy": RHO}).json()
    after = preview(service, MEANS)
    assert [one["key"] for one in after["expected"]] == [cell["key"] for cell in counted["cells"]]
    assert [one["n_rows"] for one in after["expected"]] == [max(c["value"], 0.0) for c in counted["cells"]]
    assert preview(service, MEANS, "ben")["expected"] == []
    told = (
        read(visitor.send(visitor.get("/datasets/town"), "/datasets/town/ask", **asked).text)
        .one(id="price")
        .text
    )
    assert "by group, from your earlier counts (95 %)" in told
    page = visitor.ask(verb="mean", of="income", by1="sex", amount="0.01")
    assert "Interval (95 %)" in page.one("section", class_="answer").text
