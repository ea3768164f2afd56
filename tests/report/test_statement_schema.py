"""The published JSON Schema is the real one: any validator accepts our statements, and no forged block."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest

from discreet.report.folder.folder import STATEMENT
from discreet.report.statement.documents import statement_schema
from tests.report.published import METHODS, honest

if TYPE_CHECKING:
    from pathlib import Path

VALIDATOR = jsonschema.Draft202012Validator(json.loads(statement_schema()))


@pytest.mark.parametrize("name", METHODS)
def test_another_librarys_validator_accepts_every_methods_statement(
    name: str, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    statement = json.loads(
        (honest(name, tmp_path_factory.getbasetemp(), tmp_path / "p") / STATEMENT).read_text()
    )
    assert list(VALIDATOR.iter_errors(statement)) == []
    forged: list[Any] = [{**statement, "trust": "me"}, {k: v for k, v in statement.items() if k != "tuning"}]
    forged.append({**statement, "unit": {**statement["unit"], "neighbors": "whatever"}})
    for other in forged:
        assert list(VALIDATOR.iter_errors(other))
