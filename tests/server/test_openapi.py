"""The OpenAPI document is what the service does: requests made up from it find no gap."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from discreet.server.api.openapi import openapi_document
from tests.server.conftest import running
from tests.server.made_up import SETTINGS, STOP, make_up_requests

_RECORD = Path(__file__).parents[2] / "benchmarks" / "results" / "made_up_requests.json"


def test_components_have_the_names_of_their_models_in_every_generated_client() -> None:
    schemas = openapi_document()["components"]["schemas"]
    assert {"TextQueryRequest", "PureDPRequest", "PosteriorOddsRequest", "NumericGroup"} <= schemas.keys()
    assert {name for name, schema in schemas.items() if schema.get("title", name) != name} == set()


def test_the_full_run_covers_every_operation_and_reaches_what_it_asks_for() -> None:
    record = json.loads(_RECORD.read_text(encoding="utf-8"))
    document = openapi_document()["paths"]
    operations = {(method, path) for path in document for method in document[path]}
    for who in ("ana", "cura"):
        runs = {(run["method"], run["path"]): run for run in record["callers"][who]}
        # After a change of the routes: `python -m benchmarks.made_up_requests --paths PATH...`
        assert runs.keys() == operations
        assert all(run["passed"] for run in runs.values())
        for (_, path), run in runs.items():
            for_curators = who == "ana" and "/curator/" in path
            assert run["examples"] == (150 if for_curators else 1500)
            refused = for_curators or path in ("/metrics", "/v1/reload")
            reached = {"403"} if refused else {"200", "202"}
            assert reached & run["statuses"].keys(), path


@pytest.mark.slow
@pytest.mark.parametrize(
    ("who", "examples", "least"),
    [
        ("ana", 2, 300),
        pytest.param("ana", 1500, 10_000, marks=pytest.mark.stats),
        pytest.param("cura", 1500, 10_000, marks=pytest.mark.stats),
    ],
)
def test_requests_made_up_from_the_document_find_no_gap(
    tmp_path: Path, who: str, examples: int, least: int
) -> None:
    # A curator's requests would turn the stop switch, and then nothing more would be found.
    only = () if who == "ana" else ("--exclude-name", f"{STOP[0].upper()} {STOP[1]}")
    with running(tmp_path, **SETTINGS) as service:
        made, answers = make_up_requests(service, who, tmp_path, examples, *only)
        assert made >= least
        for method, path in (("post", "query"), ("get", "jobs/{job}"), ("delete", "saved/{question}")):
            assert answers[method, f"/v1/datasets/{{dataset}}/{path}", 200] > 0
        service.backend.check()
        paid = service.backend.dataset.ledger.entries()
        answered = [
            line for line in service.backend.audit_log.last("answer", "town", 10**6) if not line["cached"]
        ]
        rows = {row[1] for line in answered for row in line["rows"]}
        assert rows == {entry.receipt.seq for entry in paid}
