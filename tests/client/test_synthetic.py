"""Synthetic tables through a service: an analyst makes the table that the curator would make."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pandas
import pytest

from discreet import ApproxDP, Database, RemoteDatabase, publish, verify
from discreet.privacy import GaussianDP
from discreet.release.synthetic import SyntheticRelease, regenerate
from discreet.release.synthetic.questions import MOST_BYTES, MOST_COUNTED, MOST_NUMBERS
from discreet.server.config import Limits
from discreet.server.limits import HIDDEN_CELLS
from tests.cli.run import discreet
from tests.release.synthetic_tables import plain_rows, plain_schema
from tests.server.conftest import SCHEMA, running, write_table

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.slow
def test_a_table_made_through_a_service_is_the_one_made_at_hand(tmp_path: Path) -> None:
    write_table(tmp_path)
    far, here = (SyntheticRelease(GaussianDP(mu=0.9), schema=SCHEMA) for _ in range(2))
    with (
        running(tmp_path) as service,
        RemoteDatabase(service.url, "town", service.tokens["ana"]) as remote,
        Database(tmp_path / "town.csv", schema=SCHEMA, random_state=1) as database,
    ):
        made, same = far.release_database(remote), here.release_database(database)
        spent = service.backend.dataset.ledger.spent("ana")
        assert spent.charges == len(far.receipts_) == len(far.plan_.shares)
        # Once more is free, and the same.
        again = SyntheticRelease(GaussianDP(mu=0.9), schema=SCHEMA).release_database(remote)
        assert service.backend.dataset.ledger.spent("ana") == spent
    replayed = regenerate(far, far.tables_)
    for column, values in made.columns.items():
        for other in (same, again, replayed):
            assert values.tobytes() == other.columns[column].tobytes()


def test_questions_are_within_the_usual_limits_of_a_service() -> None:
    limits = Limits()
    assert limits.cells >= MOST_NUMBERS
    assert limits.cells * HIDDEN_CELLS >= MOST_COUNTED
    assert limits.body_bytes - 2**15 >= MOST_BYTES


@pytest.mark.slow
def test_sixty_columns_pass_through_a_service_with_its_usual_limits(tmp_path: Path) -> None:
    schema = replace(plain_schema(60, 14), dataset="town")
    rows = plain_rows(30_000, 60, 14)
    pandas.DataFrame(rows).to_csv(tmp_path / "town.csv", index=False)
    (tmp_path / "town.schema.yaml").write_text(schema.to_yaml(), encoding="utf-8")
    far, here = (SyntheticRelease(GaussianDP(mu=5), schema=schema) for _ in range(2))
    with (
        running(tmp_path, limit={"mu": 9}, analyst_limit=None) as service,
        RemoteDatabase(service.url, "town", service.tokens["ana"]) as remote,
        Database(rows, schema=schema, random_state=1) as database,
    ):
        assert remote.limits == {"body_bytes": 2**20, "cells": 2**16}
        made, same = far.release_database(remote), here.release_database(database)
    assert len(far.receipts_) > len(far.plan_.shares)
    for column, values in made.columns.items():
        assert values.tobytes() == same.columns[column].tobytes()


@pytest.mark.slow
def test_an_analyst_publishes_a_folder_out_of_a_budget(tmp_path: Path) -> None:
    write_table(tmp_path)
    with running(tmp_path, seed=None, testing=False) as service:
        table, environment = f"{service.url}/datasets/town", {"DISCREET_TOKEN": service.tokens["ana"]}
        epsilon = ("--method", "synthetic", "--epsilon", "4", "--delta", "1e-6", "--rows", "300")
        plan = discreet("plan", table, *epsilon[:-2], cwd=tmp_path, **environment)
        assert "<- chosen" in plan.out, plan.err
        assert not service.backend.dataset.ledger.history()
        done = discreet("release", table, *epsilon, "--out", "made", cwd=tmp_path, **environment)
        assert done.code == 0, done.err
        history = service.backend.dataset.ledger.history()
        with RemoteDatabase(service.url, "town", service.tokens["ana"]) as remote:
            same = publish(
                remote, privacy=ApproxDP(epsilon=4, delta=1e-6), n_records=300, out=tmp_path / "same"
            )
        assert service.backend.dataset.ledger.history() == history
        found = verify(tmp_path / "made")
        assert found.ok, found
        assert verify(tmp_path / "made", ledger=None).ok
    statement = same.statement
    assert "ledger of a service" in statement.composition.total
    assert statement.composition.service == service.backend.dataset.accounting.composition
    assert "counts questions to this data set alone" in (same.folder / "internal" / "report.html").read_text()
    assert "curator knows" in next(check.detail for check in found.checks if check.name == "ledger")
    first, second = ((tmp_path / name / "public" / "data.parquet").read_bytes() for name in ("made", "same"))
    assert first == second
    assert len(json.loads((same.public / "tables.json").read_text())["questions"]) == len(history)
