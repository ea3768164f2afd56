"""Nothing observable has changed since the fingerprint was recorded."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.golden import http_cases, openapi_outline
from tests.golden.fingerprint import GROUPS, computed, differences, read_record
from tests.servers import cannot_start


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow if group.slow else (), id=name)
        for name, group in GROUPS.items()
    ],
)
def test_fingerprint_equals_the_record(name: str) -> None:
    absent = GROUPS[name].absent
    why = None if absent is None else absent()
    if why is not None:
        cannot_start("PostgreSQL", why)
    found = differences(read_record()[name], computed(name))
    assert not found, "\n".join(found)


def test_record_names_no_module_and_every_group() -> None:
    record = read_record()
    assert list(record) == list(GROUPS)
    assert sum(map(len, record.values())) >= 200
    assert not [case for cases in record.values() for case in cases if "discreet." in case]


def test_every_error_code_is_among_the_recorded_responses() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "http.md").read_text(encoding="utf-8")
    table = page.partition("| code | status |")[2].partition("\n\n")[0]
    documented = {line.split("`")[1] for line in table.splitlines() if "`" in line}
    # How a job ended is told in its description, under the status 200: tests/server/test_jobs.py.
    of_jobs = {"canceled", "interrupted"}
    # Needs many requests at the same time: tests/server/test_limits.py.
    of_crowds = {"busy"}
    assert documented == set(read_record()["responses"]["error codes"]) | of_jobs | of_crowds


def test_openapi_document_has_everything_that_was_recorded() -> None:
    recorded = json.loads(Path(__file__).with_name("openapi.json").read_text(encoding="utf-8"))
    assert openapi_outline.missing(recorded, http_cases.openapi_document()) == []
