"""A service that answers so many questions, and not one more."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import pytest

from discreet.errors import ParameterError
from discreet.ledger import Ledger
from discreet.privacy import PosteriorOdds
from discreet.schema.serialization import write_yaml
from discreet.server.config import Config
from discreet.server.dataset_config import Limit
from tests.cli.run import discreet
from tests.server.conftest import SCHEMA, running, settings, write_table
from tests.server.markup import Visitor

if TYPE_CHECKING:
    from pathlib import Path

LIMITS: dict[str, Any] = {
    "limit": {"epsilon": 1.0, "delta": 1e-6, "queries": 4},
    "analyst_limit": {"epsilon": 1.0, "delta": 1e-6, "queries": 3},
}
PRIVACY = {"kind": "gaussian-dp", "mu": 0.01}


def count(age: int) -> dict[str, Any]:
    return {"kind": "count", "where": f"age >= {age}", "privacy": PRIVACY}


def test_a_service_counts_questions_across_restarts(tmp_path: Path) -> None:
    with running(tmp_path, **LIMITS) as service:
        tokens = service.tokens
        told = service.ask(count(1)).json()
        assert told["remaining"]["own"]["queries"] == 2
        assert told["remaining"]["more"] == 2  # of which there is noise for more
        assert service.ask(count(1)).json()["cached"]  # free
        # A mean by groups needs two questions, a histogram one.
        histogram = {"kind": "histogram", "columns": ["sex", "city"], "privacy": PRIVACY}
        assert service.ask(histogram).status_code == 200
    with running(tmp_path, tokens, **LIMITS) as service:
        budget = service.client("ana").get("/v1/datasets/town/budget").json()
        assert budget["own"]["left"]["queries"] == 1
        assert budget["own"]["limit"]["kind"] == "posterior-odds"
        assert service.ask(count(2)).status_code == 200
        refused = service.ask(count(3))
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "budget-exceeded")
        assert refused.json()["error"]["details"]["currency"] == "queries"
        assert service.ask(count(2)).status_code == 200  # still free
        # Somebody else has three of their own, and one of all is left; what ana paid for is not one of it.
        assert service.ask(count(1), "ben").status_code == 200
        assert service.ask(count(4), "ben").status_code == 200
        assert service.ask(count(5), "ben").status_code == 409
        page = Visitor(service, "ana").get("/datasets/town")
        assert "too little for another" in page.one("p", class_="budget-lead").text
        assert "0.0\u00a0% of your budget is left" in page.one("p", class_="budget-lead").text
        amounts = page.one("details", class_="amounts").text
        assert "log-odds 1, δ = 10⁻⁶, 3 questions" in amounts
        assert "questions = 0" in amounts
        service.backend.dataset.ledger.check()
        assert service.backend.dataset.ledger.spent().charges == 4


def test_analysts_can_be_given_a_number_of_questions(tmp_path: Path) -> None:
    write_table(tmp_path)
    content = {name: value for name, value in settings(**LIMITS).items() if value is not None}
    (tmp_path / "config.yaml").write_text(write_yaml(content))
    made = discreet(
        "token", "create", "carl", "--epsilon", "1", "--delta", "1e-6", "--queries", "2", cwd=tmp_path
    )
    assert made.code == 0, made.err
    wrong = discreet("token", "create", "dora", "--epsilon", "1", "--queries", "2", cwd=tmp_path)
    assert wrong.code == 1
    assert "queries needs an epsilon and a delta" in wrong.err
    with running(tmp_path, **LIMITS) as service:
        order = {"action": "create", "name": "eva", "limit": {"kind": "posterior-odds", **LIMITS["limit"]}}
        assert service.client("cura").post("/v1/datasets/town/curator/tokens", json=order).status_code == 200
        assert str(service.backend.dataset.ledger.guarantee("eva")).endswith(
            "4 questions (replace-one, person)"
        )
        assert (service.backend.dataset.ledger.remaining("carl") or {})["queries"] == 2


def test_a_terminal_makes_such_a_ledger(tmp_path: Path) -> None:
    words = ("ledger", "create", "odds.ledger", "--epsilon", "1", "--delta", "1e-6")
    made = discreet(*words, "--queries", "7", cwd=tmp_path)
    assert made.code == 0, made.err
    assert "7 questions" in made.out
    with Ledger.open(
        tmp_path / "odds.ledger", limit=PosteriorOdds(epsilon=1, delta=1e-6, queries=7)
    ) as ledger:
        assert (ledger.remaining() or {})["queries"] == 7


def test_what_is_no_such_limit_is_refused(tmp_path: Path) -> None:
    for wrong in ({"epsilon": 1.0, "queries": 3}, {"rho": 0.1, "queries": 3}, {"queries": 3}):
        with pytest.raises(ParameterError, match="queries: 100"):
            Config.from_dict(settings(limit=wrong), tmp_path)
    with pytest.raises(ParameterError, match="queries of"):
        Config.from_dict(settings(limit=LIMITS["limit"] | {"queries": 0}), tmp_path)
    with pytest.raises(ParameterError, match="rule"):
        Config.from_dict(settings(**LIMITS, rule="mixed"), tmp_path)
    schema = dataclasses.replace(SCHEMA, neighbors="add-remove", row_count="private")
    with pytest.raises(ParameterError, match="neighbors of PosteriorOdds"):
        Limit(**LIMITS["limit"]).promise(schema)
