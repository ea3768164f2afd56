"""The OpenAPI document is what the service does: requests made up from it find no gap."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from discreet.server.api.openapi import openapi_document
from tests.server.conftest import running

if TYPE_CHECKING:
    from tests.server.conftest import RunningService

# A request may fit the document and still be refused: for its budget, or for an unknown column.
_NOT_ASKED = "positive_data_acceptance"


def requests_made_up(service: RunningService, who: str, folder: Path, examples: int, *more: str) -> int:
    """Let schemathesis loose on a service, under somebody's token; return how many requests it made."""
    program = Path(sys.executable).with_name("schemathesis")
    done = subprocess.run(
        [str(program), "run", f"{service.url}/openapi.json", "--no-color", "--generation-deterministic",
         "-H", f"Authorization: Bearer {service.tokens[who]}", "--exclude-checks", _NOT_ASKED,
         "--phases", "coverage,fuzzing", "--max-examples", str(examples),
         "--suppress-health-check", "all", *more],
        capture_output=True, text=True, cwd=folder, check=False, env={**os.environ, "COLUMNS": "200"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-6000:]
    return int(re.findall(r"(\d+) generated", done.stdout)[0])


def test_components_have_the_names_of_their_models_in_every_generated_client() -> None:
    schemas = openapi_document()["components"]["schemas"]
    assert {"TextQueryRequest", "PureDPRequest", "PosteriorOddsRequest", "NumericGroup"} <= schemas.keys()
    assert {name for name, schema in schemas.items() if schema.get("title", name) != name} == set()


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
    only = () if who == "ana" else ("--exclude-path", "/v1/datasets/{dataset}/curator/stop")
    with running(tmp_path) as service:
        made = requests_made_up(service, who, tmp_path, examples, *only)
        assert made >= least
        service.backend.check()
        paid = service.backend.dataset.ledger.entries()
        answered = [
            line for line in service.backend.audit_log.last("answer", "town", 10**6) if not line["cached"]
        ]
        assert {row[1] for line in answered for row in line["rows"]} == {entry.receipt.seq for entry in paid}
