"""Requests that schemathesis makes up from the OpenAPI document, about data sets and jobs that exist.

The document names none, and a name that is made up finds nothing: nearly all requests would end there.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.server.conftest import RunningService

# Budgets that so many questions do not use up, and requests and work without end.
SETTINGS: dict[str, Any] = {
    "limit": {"rho": 1e9},
    "analyst_limit": {"rho": 1e8},
    "limits": {"per_minute": 10**6, "work_per_hour": 10**6},
}
STOP = ("post", "/v1/datasets/{dataset}/curator/stop")
# A request may fit the document and still be refused: for its budget, or for an unknown column.
_NOT_ASKED = "positive_data_acceptance"
# What is not there may be deleted, so that a request can be sent again.
_CONFIGURATION = """
[[operations]]
include-name = "DELETE /v1/datasets/{dataset}/saved/{question}"
checks.negative_data_rejection.enabled = false
"""
_MADE = 8  # jobs and saved questions of a caller


def write_document(service: RunningService, who: str, folder: Path) -> Path:
    """Write the document of a service to a file, with names that exist in place of any text."""
    document = httpx.get(f"{service.url}/openapi.json").json()
    known = {"dataset": [service.backend.name], **_make(service, who)}
    for operations in document["paths"].values():
        for operation in operations.values():
            for parameter in operation["parameters"]:
                if parameter["in"] == "path":
                    parameter["schema"]["enum"] = known[parameter["name"]]
    path = folder / "made_up.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    (folder / "schemathesis.toml").write_text(_CONFIGURATION, encoding="utf-8")
    return path


def _make(service: RunningService, who: str) -> dict[str, list[str]]:
    """Start jobs and save questions of a caller, and return their ids."""
    base = f"/v1/datasets/{service.backend.name}"
    made: dict[str, list[str]] = {"job": [], "question": []}
    client = service.client(who)
    for number in range(_MADE):
        question = {"text": f"count where age > {number}", "privacy": {"kind": "zcdp", "rho": 0.01}}
        job = client.post(f"{base}/jobs", json={"kind": "sentence", **question})
        saved = client.post(f"{base}/saved", json={"title": f"Question {number}", **question})
        for kind, response in (("job", job), ("question", saved)):
            if response.is_success:
                made[kind].append(response.json()["id"])
    return {kind: ids or ["0" * 32] for kind, ids in made.items()}


def make_up_requests(
    service: RunningService, who: str, folder: Path, examples: int, *more: str, seconds: float | None = None
) -> tuple[int, Counter[tuple[str, str, int]]]:
    """Let schemathesis loose on a service under somebody's token.

    Returns
    -------
    int
        How many requests it made.
    Counter
        How often each operation, by method and path, was answered with each status.

    Raises
    ------
    AssertionError
        It found a gap; the message is what it printed.
    subprocess.TimeoutExpired
        It took more than `seconds`.
    """
    document = write_document(service, who, folder)
    before = len(service.lines)
    done = subprocess.run(
        [str(Path(sys.executable).with_name("schemathesis")), "run", str(document),
         "--url", service.url, "--no-color", "--generation-deterministic",
         "-H", f"Authorization: Bearer {service.tokens[who]}", "--exclude-checks", _NOT_ASKED,
         "--phases", "coverage,fuzzing", "--max-examples", str(examples),
         "--suppress-health-check", "all", *more],
        capture_output=True, text=True, cwd=folder, check=False, timeout=seconds,
        env={**os.environ, "COLUMNS": "200"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-6000:]
    return int(re.findall(r"(\d+) generated", done.stdout)[0]), _answers(service.lines[before:])


def _answers(lines: Iterable[str]) -> Counter[tuple[str, str, int]]:
    """Count the lines of requests in a log, by method, path and status."""
    requests = (line for line in map(json.loads, lines) if line["event"] == "request")
    return Counter((line["method"].lower(), line["route"], line["status"]) for line in requests)
