from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest
from docs.generate_reference import http_page

from discreet.privacy import GaussianDP, PureDP, promise_from_dict
from discreet.query import Answer
from discreet.query.aggregates import Gram, Sums
from tests.server.conftest import ROWS, SCHEMA, table

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.server.conftest import RunningService

PRIVACY = {"kind": "gaussian-dp", "mu": 0.1}
OLD = sum(age > 40 for age in table()["age"])
ASKED: list[tuple[dict[str, Any], str | None]] = [
    ({"kind": "count", "where": "age > 40"}, "count where 40 < age"),
    ({"kind": "count", "by": ["sex"]}, "count by sex"),
    ({"kind": "count", "by": [{"column": "age", "edges": [30, 60]}]}, "count by age (30, 60)"),
    ({"kind": "sum", "expression": "income / 12", "where": "sex = 'f'"}, None),
    ({"kind": "mean", "expression": "age"}, "mean(age)"),
    ({"kind": "mean", "expression": "age", "by": ["sex"]}, "mean(age) by sex"),
    ({"kind": "histogram", "columns": ["city", "sex"]}, "count by city, sex"),
    ({"kind": "histogram", "columns": ["age"], "edges": {"age": [40]}, "expression": "income"}, None),
    ({"kind": "sentence", "text": "sum(age) where sex = 'm'"}, None),
    ({"kind": "sentence", "text": "SELECT sex, AVG(age) FROM town GROUP BY sex"}, "mean(age) by sex"),
]


@pytest.mark.parametrize(("asked", "words"), ASKED)
def test_every_kind_of_question_is_answered_with_interval_cost_and_what_is_left(
    shared_service: RunningService, asked: dict[str, Any], words: str | None
) -> None:
    response = shared_service.ask({**asked, "privacy": PRIVACY})
    assert response.status_code == 200, response.text
    told = response.json()
    document = shared_service.client().get("/openapi.json").json()
    schema = {"$ref": "#/components/schemas/QueryResponse", "components": document["components"]}
    jsonschema.validate(told, schema)
    assert words is None or told["question"] == words
    for cell in told["cells"]:
        bounds = told["columns"][cell["column"]]["bounds"]
        assert bounds["lower"] is None or bounds["lower"] <= cell["lower"] < cell["upper"]
        if cell["sd"] is None:  # over a noisy count
            assert told["question"].startswith("mean")
            assert cell["lower"] <= cell["value"] <= cell["upper"]
        elif cell["lower"] != bounds["lower"]:
            assert cell["upper"] - cell["lower"] == pytest.approx(2 * 1.959964 * cell["sd"], rel=1e-5)
    if not told["by"]:
        (cell,) = told["cells"]
        assert (told["value"], told["sd"]) == (cell["value"], cell["sd"])
        assert told["interval"] == {"level": 0.95, "lower": cell["lower"], "upper": cell["upper"]}
    for promise in told["cost"]:
        assert promise_from_dict(promise).neighbors == "replace-one"
    assert told["remaining"]["own"]["rho"] < 5
    assert told["remaining"]["more"] > 0
    assert len(told["receipts"]) == len(told["parts"]) == len(told["cost"])


def test_an_answer_is_near_the_truth_and_costs_what_it_says(service: RunningService) -> None:
    before = service.client().get("/v1/datasets/town/budget").json()["own"]["left"]["rho"]
    told = service.ask({"kind": "count", "where": "age > 40", "privacy": PRIVACY}).json()
    assert abs(told["value"] - OLD) < 6 * told["sd"]
    assert told["sd"] == pytest.approx(10.0)
    left = told["remaining"]["own"]["rho"]
    assert before - left == pytest.approx(0.005)
    assert left == service.client().get("/v1/datasets/town/budget").json()["own"]["left"]["rho"]
    assert told["remaining"]["more"] == int(left / 0.005)


def test_a_repeat_is_free_and_the_same_in_any_words(service: RunningService) -> None:
    first = service.ask({"kind": "count", "where": "age > 40", "privacy": PRIVACY}).json()
    again = service.ask({"kind": "sentence", "text": "COUNT WHERE 40 < age", "privacy": PRIVACY}).json()
    assert (first["cached"], again["cached"]) == (False, True)
    assert again["cells"] == first["cells"]
    assert again["receipts"] == first["receipts"]
    assert again["remaining"] == {**first["remaining"], "takes": None}
    assert service.backend.dataset.ledger.spent().charges == 1


def test_another_analyst_pays_their_own_share_and_gets_the_same_draw(service: RunningService) -> None:
    asked = {"kind": "count", "where": "age > 40", "privacy": PRIVACY}
    ana, ben = service.ask(asked, "ana").json(), service.ask(asked, "ben").json()
    assert ana["value"] == ben["value"]
    assert ben["remaining"]["own"] == ana["remaining"]["own"]
    assert ben["remaining"]["total"] == ana["remaining"]["total"]


def test_refining_buys_precision_and_merges(service: RunningService) -> None:
    asked = {"kind": "count", "where": "age > 40", "privacy": PRIVACY}
    first = service.ask(asked).json()
    finer = {**asked, "refines": first["receipts"]}
    second = service.ask(finer).json()
    assert second["sd"] == pytest.approx(first["sd"] / 2**0.5)
    assert second["parts"] == [[*first["receipts"], *second["receipts"]]]
    assert not second["cached"]
    again = service.ask(finer).json()
    assert again["cached"]
    assert again["value"] == second["value"]
    assert service.backend.dataset.ledger.spent().charges == 2


def test_a_statistical_question_is_refined_by_its_one_receipt(service: RunningService) -> None:
    asked: dict[str, Any] = {
        "kind": "statistical",
        "question": Sums(("age", "income")).to_dict(),
        "privacy": PRIVACY,
    }
    first = service.ask(asked).json()
    second = service.ask({**asked, "refines": first["receipts"]}).json()
    assert second["parts"] == [[*first["receipts"], *second["receipts"]]]
    assert second["answer"]["sd"][0] == pytest.approx(first["answer"]["sd"][0] / 2**0.5)
    both = [*first["receipts"], *second["receipts"]]
    assert service.ask({**asked, "refines": both}).status_code == 422


def test_a_mean_by_groups_is_one_charge_that_is_refined(service: RunningService) -> None:
    asked = {"kind": "mean", "expression": "age", "by": ["sex"], "privacy": {"kind": "zcdp", "rho": 0.1}}
    first = service.ask(asked).json()
    second = service.ask({**asked, "refines": first["receipts"]}).json()
    assert len(first["receipts"]) == 1
    assert second["parts"] == [[*first["receipts"], *second["receipts"]]]
    assert service.ask({**asked, "refines": second["parts"][0]}).status_code == 422


@pytest.mark.parametrize("wrong", [["0123456789ab-999"], ["nonsense-1"], ["unrecorded-0123456789abcdef"]])
def test_refining_what_is_not_there_is_refused(shared_service: RunningService, wrong: list[str]) -> None:
    response = shared_service.ask(
        {"kind": "count", "where": "age > 41", "privacy": PRIVACY, "refines": wrong}
    )
    assert response.status_code == 422, response.text


def test_nobody_refines_what_somebody_else_paid_for(service: RunningService) -> None:
    asked = {"kind": "count", "where": "age > 40", "privacy": PRIVACY}
    receipts = service.ask(asked, "ana").json()["receipts"]
    assert service.ask({**asked, "refines": receipts}, "ben").status_code == 422


def test_noise_can_be_named_instead_of_a_promise(shared_service: RunningService) -> None:
    told = shared_service.ask({"kind": "count", "where": "age > 42", "sd": 25}).json()
    assert told["sd"] == pytest.approx(25)
    both = {"kind": "count", "where": "age > 42", "sd": 25, "privacy": PRIVACY}
    assert shared_service.ask(both).status_code == 422
    assert shared_service.ask({"kind": "mean", "expression": "age", "sd": 25}).status_code == 422


@pytest.mark.parametrize("question", [Sums(("age", "income")), Gram(("age", "income"))])
def test_statistical_questions_travel_whole_and_answers_come_back_bit_for_bit(
    shared_service: RunningService, question: Any
) -> None:
    asked = {"kind": "statistical", "question": question.to_dict(), "privacy": PRIVACY}
    told = shared_service.ask(asked).json()
    answer = Answer.from_dict(told["answer"])
    kept = shared_service.backend.dataset.database.recall(told["receipts"][0])
    assert json.dumps(answer.to_dict()["value"]) == json.dumps(kept.to_dict()["value"])
    assert told["cost"] == [promise.to_dict() for promise in answer.cost]


def test_a_plan_that_does_not_fit_is_refused_before_its_first_part(service: RunningService) -> None:
    question = Sums(("age",)).to_dict()
    plan = [{"kind": "zcdp", "rho": 3.0}, {"kind": "zcdp", "rho": 1.9}]
    asked = {
        "kind": "statistical",
        "question": question,
        "privacy": {"kind": "zcdp", "rho": 0.2},
        "plan": plan,
    }
    assert service.ask(asked).status_code == 409
    assert service.backend.dataset.ledger.spent().charges == 0
    assert service.ask({**asked, "plan": plan[:1]}).status_code == 200


@pytest.mark.parametrize(
    ("asked", "fitted"),
    [
        ({"kind": "pca", "parameters": {"n_components": 1}}, "components_"),
        ({"kind": "kmeans", "parameters": {"n_clusters": 2, "max_iter": 2}}, "cluster_centers_"),
        ({"kind": "perceptron", "parameters": {"rounds": 3}}, "coef_"),
        ({"kind": "id3", "parameters": {"max_depth": 2}}, "tree_"),
        ({"kind": "classifier"}, "curves_"),
        ({"kind": "classifier", "parameters": {"paid_score": "table", "floor": False}}, "score_"),
        ({"kind": "id3", "parameters": {"max_depth": 1}, "target": "sex"}, "tree_"),
    ],
)
def test_models_are_trained_here_on_their_owners_budget_and_repeats_are_free(
    service: RunningService, asked: dict[str, Any], fitted: str
) -> None:
    whole = {**asked, "privacy": {"kind": "zcdp", "rho": 0.5}}
    first = service.ask(whole)
    assert first.status_code == 200, first.text
    told = first.json()
    assert told["learner"] == asked["kind"]
    assert told["fitted"][fitted]
    # Rounding is on the safe side, so a model never costs more than it promises.
    spent = 5 - told["remaining"]["own"]["rho"]
    assert 0.4 < spent <= 0.5
    assert {entry.receipt.owner for entry in service.backend.dataset.ledger.entries()} == {"ana"}
    again = service.ask(whole).json()
    assert again["cached"]
    assert again["fitted"] == told["fitted"]
    assert again["remaining"]["own"] == told["remaining"]["own"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"parameters": {"ledger": None}},
        {"parameters": {"schema": None}},
        {"parameters": {"privacy": 1}},
        {"parameters": {"random_state": 1}},
        {"parameters": {"name": "x"}},
        {"parameters": {"max_depth": "deep"}},
        {"parameters": {"max_depth": -1}},
        {"target": "nothing"},
        {"target": "age"},
        {"refines": ["a-1"]},
    ],
)
def test_a_model_is_told_only_what_models_may_be_told(
    shared_service: RunningService, wrong: dict[str, Any]
) -> None:
    before = shared_service.backend.dataset.ledger.spent().charges
    response = shared_service.ask({"kind": "id3", "privacy": PRIVACY, **wrong})
    assert response.status_code == 422, response.text
    assert shared_service.backend.dataset.ledger.spent().charges == before


def test_the_same_key_never_pays_twice_and_another_question_under_it_is_refused(
    service: RunningService,
) -> None:
    asked = {"kind": "count", "where": "age > 40", "privacy": PRIVACY}
    headers = {"Idempotency-Key": "once-7"}
    first = service.ask(asked, **headers).json()
    assert service.ask(asked, **headers).json()["cells"] == first["cells"]
    other = service.ask({**asked, "where": "age > 41"}, **headers)
    assert other.status_code == 409
    assert other.json()["error"]["code"] == "key-reused"
    assert service.backend.dataset.ledger.spent().charges == 1
    # A key is its owner's: somebody else may have the same.
    assert service.ask({**asked, "where": "age > 41"}, "ben", **headers).status_code == 200
    assert service.ask(asked, **{"Idempotency-Key": "x" * 129}).status_code == 422
    # Models have no key, and a wrong one is refused all the same.
    model = {"kind": "pca", "privacy": PRIVACY, "parameters": {"n_components": 1}}
    assert service.ask(model, **{"Idempotency-Key": "x" * 129}).status_code == 422


def test_a_preview_is_free_and_says_what_the_answer_will_cost(service: RunningService) -> None:
    client = service.client()
    for asked, _ in ASKED:
        response = client.post("/v1/datasets/town/preview", json={**asked, "privacy": PRIVACY})
        assert response.status_code == 200, response.text
        price = response.json()
        answer = service.ask({**asked, "privacy": PRIVACY}).json()
        assert price["cost"] == answer["cost"]
        assert price["question"] == answer["question"]
        assert price["sql"].startswith("SELECT ")
        assert price["remaining"]["own"]["rho"] > answer["remaining"]["own"]["rho"] or answer["cached"]
        if answer["sd"] is not None:
            assert price["sd"] == pytest.approx(answer["sd"])


def test_a_preview_charges_nothing_and_refuses_what_asking_refuses(service: RunningService) -> None:
    client = service.client()
    assert client.post("/v1/datasets/town/preview", json={"kind": "count", "sd": 5}).json()["free"]
    assert (
        client.post("/v1/datasets/town/preview", json={"kind": "pca", "privacy": PRIVACY}).status_code == 200
    )
    refused = client.post("/v1/datasets/town/preview", json={"kind": "sum", "expression": "nope", "sd": 5})
    assert refused.json()["error"]["code"] == "refused"
    assert service.backend.dataset.ledger.spent().charges == 0


def test_the_schema_is_public_to_whoever_may_ask(shared_service: RunningService) -> None:
    told = shared_service.client().get("/v1/datasets/town/schema").json()
    assert told["dataset"] == "town"
    assert told["schema"] == SCHEMA.to_dict()
    assert (told["n_rows"], told["unit"], told["neighbors"]) == (ROWS, "person", "replace-one")
    assert told["digest"] == SCHEMA.digest
    assert "even if all analysts pool" in told["collusion"]


def test_history_is_ones_own_with_questions_and_answers(service: RunningService) -> None:
    asked = {"kind": "count", "where": "age > 40", "privacy": PRIVACY}
    first = service.ask(asked, "ana").json()
    service.ask({**asked, "where": "age > 50"}, "ben")
    service.ask({"kind": "histogram", "columns": ["sex"], "sd": 12}, "ana")
    entries = service.client("ana").get("/v1/datasets/town/history").json()["entries"]
    assert [entry["who"] for entry in entries] == ["ana", "ana"]
    assert entries[0]["value"] == [first["value"]]
    assert entries[0]["receipt"] == first["receipts"][0]
    assert entries[0]["asked"]["question"]["kind"] == "sums"
    later = (
        service.client("ana")
        .get("/v1/datasets/town/history", params={"after": entries[0]["row"]})
        .json()["entries"]
    )
    assert [entry["receipt"] for entry in later] == [entries[1]["receipt"]]
    # An analyst cannot look at another's by asking for it; a curator can.
    assert (
        service.client("ana").get("/v1/datasets/town/history", params={"analyst": "ben"}).status_code == 403
    )
    seen = (
        service.client("cura").get("/v1/datasets/town/history", params={"analyst": "ben"}).json()["entries"]
    )
    assert {entry["who"] for entry in seen} == {"ben"}


def test_history_and_dummy_rows_can_be_saved_as_csv_that_no_spreadsheet_runs(service: RunningService) -> None:
    service.ask({"kind": "count", "where": "age > 40", "privacy": PRIVACY})
    response = service.client().get("/v1/datasets/town/history", params={"format": "csv"})
    assert response.headers["content-type"].startswith("text/csv")
    rows = list(csv.DictReader(io.StringIO(response.text)))
    assert [row["who"] for row in rows] == ["ana"]
    assert rows[0]["question"] == "count where 40 < age"
    dummy = service.client().get("/v1/datasets/town/dummy", params={"n": 3, "format": "csv"})
    assert len(list(csv.DictReader(io.StringIO(dummy.text)))) == 3


def test_dummy_rows_follow_from_the_schema_and_the_seed_alone(shared_service: RunningService) -> None:
    client = shared_service.client()
    first = client.get("/v1/datasets/town/dummy", params={"n": 50, "seed": 7}).json()["rows"]
    assert first == client.get("/v1/datasets/town/dummy", params={"n": 50, "seed": 7}).json()["rows"]
    assert first != client.get("/v1/datasets/town/dummy", params={"n": 50, "seed": 8}).json()["rows"]
    assert all(first["_dummy"])
    assert all(0 <= age <= 120 for age in first["age"])
    for wrong in (
        {"n": 0},
        {"n": 10_001},
        {"n": "x"},
        {"n": -1},
        {"seed": 2**64},
        {"rows": 3},
        {"format": "xml"},
    ):
        assert client.get("/v1/datasets/town/dummy", params=wrong).status_code == 422, wrong


def test_budgets_are_own_and_total_and_a_refusal_says_what_would_fit(service: RunningService) -> None:
    asked = {"kind": "count", "where": "age > 40", "privacy": {"kind": "zcdp", "rho": 6}}
    error = service.ask(asked, "ana").json()["error"]
    assert error["code"] == "budget-exceeded"
    assert (error["details"]["asked"], error["details"]["left"]) == (6.0, 5.0)
    assert error["details"]["scope"] == "own"
    assert error["details"]["fits"] == {"kind": "zcdp", "rho": 5.0}
    assert service.ask({**asked, "privacy": error["details"]["fits"]}, "ana").status_code == 200
    assert service.ask(
        {**asked, "where": "age > 41", "privacy": {"kind": "zcdp", "rho": 4.9}}, "ben"
    ).is_success
    # Nothing of the total is left for anybody, whoever spent it.
    error = service.ask({**asked, "where": "age > 9", "privacy": {"kind": "zcdp", "rho": 1}}, "cura").json()[
        "error"
    ]
    assert error["details"]["scope"] == "total"
    budget = service.client("ben").get("/v1/datasets/town/budget").json()
    assert budget["total"]["spent"]["rho"] == pytest.approx(9.9)
    assert budget["own"]["spent"]["rho"] == pytest.approx(4.9)


@pytest.mark.parametrize(
    "asked",
    [
        {"kind": "count", "where": "age > 40", "privacy": {"kind": "gaussian-dp", "mu": 9}},
        {
            "kind": "count",
            "where": "age > 40",
            "privacy": {"kind": "approx-dp", "epsilon": 40, "delta": 1e-6},
        },
        {"kind": "count", "where": "age > 40", "privacy": {"kind": "pure-dp", "epsilon": 4}},
        {"kind": "count", "where": "age > 40", "sd": 0.1},
        {"kind": "mean", "expression": "age", "by": ["sex"], "privacy": {"kind": "gaussian-dp", "mu": 9}},
        {
            "kind": "statistical",
            "question": {"kind": "sums", "expressions": ["age"]},
            "privacy": {"kind": "zcdp", "rho": 8},
        },
    ],
)
def test_what_is_said_to_fit_does_fit_and_nothing_much_larger_does(
    service: RunningService, asked: dict[str, Any]
) -> None:
    details = service.ask(asked).json()["error"]["details"]
    fits = details["fits"]
    smaller = {**asked, "sd": fits["sd"]} if "sd" in fits else {**asked, "privacy": fits}
    assert service.client().post("/v1/datasets/town/preview", json=smaller).json()["more"] == 1
    assert service.ask(smaller).status_code == 200


def test_a_pure_budget_is_told_and_refused_in_epsilon(start: Callable[..., RunningService]) -> None:
    service = start(limit={"epsilon": 2.0}, analyst_limit={"epsilon": 1.0})
    asked = {"kind": "count", "where": "age > 40", "privacy": {"kind": "pure-dp", "epsilon": 3.0}}
    details = service.ask(asked).json()["error"]["details"]
    assert (details["currency"], details["fits"]) == ("epsilon", {"kind": "pure-dp", "epsilon": 1.0})
    told = service.ask({**asked, "privacy": {"kind": "pure-dp", "epsilon": 0.25}}).json()
    assert (told["law"], told["remaining"]["more"]) == ("laplace", 3)
    assert told["cost_words"] == "ε = 0.25"
    # Noise of a kind that this budget cannot add up is refused in words, not charged somehow.
    assert service.ask({**asked, "privacy": PRIVACY}).status_code == 422
    budget = service.client().get("/v1/datasets/town/budget").json()
    assert budget["own"]["spent"]["epsilon"] == 0.25


def test_a_model_that_does_not_fit_is_refused_before_its_first_pass(service: RunningService) -> None:
    asked = {"kind": "kmeans", "parameters": {"n_clusters": 2}, "privacy": {"kind": "zcdp", "rho": 7}}
    error = service.ask(asked).json()["error"]
    assert error["code"] == "budget-exceeded"
    assert "would fit" in error["hint"]
    assert service.backend.dataset.ledger.spent().charges == 0


def test_curators_see_spending_refusals_and_the_state_of_everything(service: RunningService) -> None:
    service.ask({"kind": "count", "where": "age > 40", "privacy": PRIVACY}, "ana")
    service.ask({"kind": "count", "where": "nope > 40", "privacy": PRIVACY}, "ben")
    client = service.client("cura")
    overview = client.get("/v1/datasets/town/curator/overview").json()
    assert overview["stopped"] is None
    assert overview["analysts"]["ana"]["spent"]["rho"] == pytest.approx(0.005)
    assert overview["seeded"]
    spending = client.get("/v1/datasets/town/curator/spending").json()["steps"]
    assert [(step["who"], step["spent"]["charges"]) for step in spending] == [("ana", 1)]
    refusals = client.get("/v1/datasets/town/curator/refusals").json()["refusals"]
    assert [(line["who"], line["code"]) for line in refusals] == [("ben", "refused")]
    assert refusals[0]["asked"] == "count where nope > 40"
    check = client.get("/v1/datasets/town/curator/check").json()
    assert check["intact"]
    assert check["head"] == service.backend.dataset.ledger.head[1]


def test_the_live_attack_is_shown_to_the_curator_and_continued(service: RunningService) -> None:
    curator, rows = service.client("cura"), []
    for n in (1, 2):
        service.ask({"kind": "count", "where": f"age > {40 + n}", "privacy": PRIVACY})
        response = curator.get("/v1/datasets/town/curator/attack")
        assert response.status_code == 200, response.text
        assert response.json()["used"] == n
        rows.append(response.json()["through_row"])
    assert rows == [receipt.seq for receipt in service.backend.dataset.ledger.history()]


def test_the_stop_switch_stops_everything_that_is_asked_and_nothing_that_is_looked_up(
    start: Callable[..., RunningService],
) -> None:
    service = start()
    asked = {"kind": "count", "where": "age > 40", "privacy": PRIVACY}
    service.ask(asked)
    cura = service.client("cura")
    assert (
        cura.post("/v1/datasets/town/curator/stop", json={"stopped": True}).json()["stopped"]["who"] == "cura"
    )
    for question in (asked, {"kind": "pca", "privacy": PRIVACY}, {**asked, "where": "age > 50"}):
        response = service.ask(question)
        assert response.status_code == 423
        assert response.json()["error"]["code"] == "stopped"
    assert service.client().get("/v1/datasets/town/history").status_code == 200
    assert service.backend.dataset.ledger.spent().charges == 1
    # Another process on the same files is stopped as well, and a restart changes nothing.
    again = start(service.tokens)
    assert again.ask(asked).status_code == 423
    assert again.client("cura").post("/v1/datasets/town/curator/stop", json={"stopped": False}).json() == {
        "stopped": None
    }
    assert service.ask(asked).json()["cached"]


def test_the_reference_is_a_page_without_scripts_made_from_the_openapi_document(
    shared_service: RunningService,
) -> None:
    client = shared_service.client(None)
    document = client.get("/openapi.json").json()
    page = client.get("/docs")
    assert page.headers["content-type"].startswith("text/html")
    assert "<script" not in page.text
    assert "http://" not in page.text
    assert "https://" not in page.text
    for path in document["paths"]:
        assert path in page.text


def test_the_reference_in_the_documentation_is_the_one_that_the_service_gives() -> None:
    page = Path(__file__).parents[2] / "docs" / "reference" / "http.md"
    assert page.read_text(encoding="utf-8") == http_page(), "run python docs/generate_reference.py"


def test_every_route_is_in_the_openapi_document_and_every_entry_is_a_route(
    shared_service: RunningService,
) -> None:
    from discreet.server.api.routes import api_routes

    document = shared_service.client(None).get("/openapi.json").json()
    described = {(path, method.upper()) for path, methods in document["paths"].items() for method in methods}
    routes = api_routes()
    assert described == {(route.path, method) for route in routes for method in route.methods or ()}


KMEANS = {"kind": "kmeans", "privacy": PRIVACY, "parameters": {"n_clusters": 2, "max_iter": 4}}


def test_the_attack_answers_also_when_charges_promise_next_to_nothing(
    start: Callable[..., RunningService],
) -> None:
    service = start(limit={"rho": 1e5}, analyst_limit=None)
    for privacy in (GaussianDP(mu=300.0), PureDP(epsilon=1e-9)):
        service.backend.dataset.database.count("owner = 'yes'", privacy=privacy)
    found = service.client("cura").get("/v1/datasets/town/curator/attack")
    assert found.status_code == 200, found.text
    assert found.json()["used"] == 2


def test_a_model_trained_again_is_free_with_or_without_a_key(service: RunningService) -> None:
    first = service.ask(KMEANS, **{"Idempotency-Key": "k"}).json()
    again = service.ask(KMEANS, **{"Idempotency-Key": "k"}).json()
    assert again["cached"]
    assert again["fitted"] == first["fitted"]
    text = (
        service.client()
        .get("/openapi.json")
        .json()["paths"]["/v1/datasets/{dataset}/query"]["post"]["parameters"][1]
    )
    assert "Not used for models" in text["description"]
